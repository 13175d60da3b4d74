"""Clients that nobody knows: a whole TLS 1.3 handshake, and then what no client needs. By OpenSSL itself, since Python's ssl
sends no KeyUpdate.

    with strangers.Stranger(host, port) as s: s.send(s.updates(1000))
"""
import ctypes
import ctypes.util
import socket

libssl = ctypes.CDLL(ctypes.util.find_library("ssl"))
libcrypto = ctypes.CDLL(ctypes.util.find_library("crypto"))
P, I = ctypes.c_void_p, ctypes.c_int
for lib, name, result, *args in (
        (libssl, "TLS_client_method", P), (libssl, "SSL_CTX_new", P, P), (libssl, "SSL_new", P, P), (libssl, "SSL_free", None, P),
        (libssl, "SSL_CTX_free", None, P), (libssl, "SSL_set_bio", None, P, P, P), (libssl, "SSL_set_connect_state", None, P),
        (libssl, "SSL_set_alpn_protos", I, P, ctypes.c_char_p, I), (libssl, "SSL_do_handshake", I, P),
        (libssl, "SSL_key_update", I, P, I), (libcrypto, "BIO_s_mem", P), (libcrypto, "BIO_new", P, P),
        (libcrypto, "BIO_read", I, P, ctypes.c_char_p, I), (libcrypto, "BIO_write", I, P, ctypes.c_char_p, I)):
    getattr(lib, name).restype, getattr(lib, name).argtypes = result, args
NOT_REQUESTED = 0


class Stranger:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=20)
        self.context = libssl.SSL_CTX_new(libssl.TLS_client_method())
        self.ssl = libssl.SSL_new(self.context)
        self.coming, self.going = (libcrypto.BIO_new(libcrypto.BIO_s_mem()) for _ in range(2))
        libssl.SSL_set_bio(self.ssl, self.coming, self.going)
        libssl.SSL_set_alpn_protos(self.ssl, b"\x02h2", 3)
        libssl.SSL_set_connect_state(self.ssl)
        while libssl.SSL_do_handshake(self.ssl) != 1:
            self.send(self.written())
            came = self.socket.recv(1 << 16)
            assert came, "closed in the handshake"
            libcrypto.BIO_write(self.coming, came, len(came))
        self.send(self.written())

    def written(self):
        """What OpenSSL has for the other end."""
        pieces, piece = [], ctypes.create_string_buffer(1 << 16)
        while (n := libcrypto.BIO_read(self.going, piece, len(piece))) > 0:
            pieces.append(piece.raw[:n])
        return b"".join(pieces)

    def updates(self, n):
        """So many KeyUpdate records, each under the key that the one before brought."""
        for _ in range(n):
            assert libssl.SSL_key_update(self.ssl, NOT_REQUESTED) == 1 and libssl.SSL_do_handshake(self.ssl) == 1
        return self.written()

    def send(self, what):
        self.socket.sendall(what)

    def was_cut(self):
        """Reads to the end, which comes within the socket's time or fails."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        return True

    def close(self):
        self.socket.close()
        libssl.SSL_free(self.ssl)
        libssl.SSL_CTX_free(self.context)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
