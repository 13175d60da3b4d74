"""A coordinator that others than its own machine reach: TLS 1.3 or nothing. The network is a namespace of
the test's own, in which 10.9.0.1 to 10.9.0.3 are addresses of the machine; it ends with its processes."""
import contextlib
import ctypes
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time

import pytest

from support import BIN, BUILD, SPEC, Daemon, until
from strangers import Stranger

HOST, OTHER, THIRD = "10.9.0.1", "10.9.0.2", "10.9.0.3"
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)

# A stranger's client: grpcio with the CA, in a process of the namespace.
CLIENT = """
import faulthandler
import sys
faulthandler.dump_traceback_later(25, exit=True)  # its call ends before; if it hangs elsewhere, where is seen
import grpc
stubs, address, ca, token = sys.argv[1:]
sys.path.insert(0, stubs)
from traind.v1 import job_pb2, job_pb2_grpc
credentials = grpc.composite_channel_credentials(
    grpc.ssl_channel_credentials(open(ca, "rb").read()), grpc.access_token_call_credentials(token))
with grpc.secure_channel(address, credentials) as channel:
    jobs = job_pb2_grpc.JobServiceStub(channel).ListJobs(job_pb2.ListJobsRequest(), timeout=20).jobs
print(*[j.name for j in jobs])
"""


@pytest.fixture
def network():
    """This thread, and what it starts, is in a network of its own until the test ends."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip("no network namespace: " + os.strerror(ctypes.get_errno()))
        for words in (["link", "set", "lo", "up"], ["addr", "add", f"{HOST}/32", "dev", "lo"],
                      ["addr", "add", f"{OTHER}/32", "dev", "lo"], ["addr", "add", f"{THIRD}/32", "dev", "lo"]):
            subprocess.run(["ip", *words], check=True)
        yield
    finally:
        assert libc.setns(before, CLONE_NEWNET) == 0
        os.close(before)


def init(state_dir, *args):
    done = subprocess.run([BIN / "traind", "init", "--state-dir", state_dir, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tls(state_dir, name):
    return state_dir / "tls" / name


class Beyond(Daemon):
    """A daemon that the stubs of this process cannot reach: jobs are asked for by trainctl."""

    def ready(self):
        assert self.process.poll() is None, f"traind ended {self.process.returncode}:\n{self.tail()}"
        return "node" in self.args or (self.state_dir / "address").exists()

    def counter(self, key):
        done = self.ctl("cluster", "info", "--state-dir", self.state_dir)
        assert done.returncode == 0, done.stderr
        return next(int(line.split()[-1]) for line in done.stdout.splitlines() if f" {key} " in f" {line}")

    def lines(self, text):
        return [line for line in self.log.read_text().splitlines() if text in line]


@pytest.fixture
def start(network, cluster):
    def made(name, *args):
        daemon = Beyond(cluster, cluster.folder / name, list(map(str, args)), cluster.env())
        cluster.daemons.append(daemon)
        return daemon.start()

    return made


@pytest.fixture
def coordinator(start, cluster):
    init(cluster.folder / "c", "--host", HOST)
    return start("c", "--role", "coordinator", "--listen", f"{HOST}:0")


def port(daemon):
    return int(daemon.address.rsplit(":", 1)[1])


def dial(daemon, context, host=HOST):
    """A whole handshake with that host, and what the server says first: its SETTINGS. TLS 1.3 refuses a client after its
    handshake."""
    with socket.create_connection((HOST, port(daemon)), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname=host) as secure:
            secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            assert secure.recv(9), "closed"
            return secure.version(), secure.getpeercert()


def context_of(ca, certificate=None, key=None):
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


def test_listening_beyond_loopback_is_refused_when_there_are_no_certificates(network, cluster):
    state = cluster.folder / "c"
    done = subprocess.run([BIN / "traind", "--state-dir", state, "--listen", f"{HOST}:0"], env=cluster.env(),
                          capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert f"traind init --state-dir {state} --host" in done.stderr
    said = init(state, "--host", HOST)
    assert "ca.pem (new)" in said and "server.pem (new)" in said
    again = init(state)
    assert "ca.pem (kept)" in again and "server.pem (kept)" in again
    assert said.splitlines()[-1] == again.splitlines()[-1]  # the fingerprint
    assert {p.stat().st_mode & 0o777 for p in (state / "tls").iterdir()} == {0o600}


def test_job_trains_when_node_and_clients_come_through_tls(coordinator, start, cluster, stubs, tmp_path):
    ca, token = tls(coordinator.state_dir, "ca.pem"), coordinator.state_dir / "token"
    node = start("n", "--role", "node", "--coordinator", coordinator.address, "--token-file", token, "--ca", ca,
                 "--slots", 1, "--name", "far")
    (tmp_path / "spec.yaml").write_text(SPEC)
    here = ["--address", coordinator.address, "--token-file", token]
    done = node.ctl("submit", tmp_path / "spec.yaml", "--follow", *here, "--ca", ca, timeout=60)
    assert done.returncode == 0, done.stderr + coordinator.tail()
    refused = node.ctl("list", *here, "--state-dir", tmp_path)
    assert refused.returncode != 0 and "--ca" in refused.stderr  # never in clear
    folder = os.path.dirname(os.path.dirname(os.path.dirname(stubs.job.__file__)))
    client = subprocess.run([sys.executable, "-c", CLIENT, folder, coordinator.address, ca, token.read_text().strip()],
                            capture_output=True, text=True, timeout=30)
    assert client.stdout.split() == ["small"], client.stderr
    assert coordinator.counter("handshakes_failed") == 0  # its own checks end theirs
    job = node.ctl("list", *here, "--ca", ca, "-o", "name").stdout.strip()
    assert node.ctl("delete", job, *here, "--ca", ca).returncode == 0
    until("its files are gone", lambda: not node.attempts())


def test_handshake_is_refused_when_the_version_or_a_certificate_is_wrong(coordinator, cluster):
    ca = tls(coordinator.state_dir, "ca.pem")
    old = context_of(ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="(?i)protocol.version"):
        dial(coordinator, old)
    until("it is counted", lambda: coordinator.counter("handshakes_failed") == 1)
    until("a line says why", lambda: coordinator.lines("unsupported protocol"))
    other = cluster.folder / "other"
    init(other, "--host", HOST)
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):  # a certificate of another CA
        dial(coordinator, context_of(ca, tls(other, "server.pem"), tls(other, "server.key")))
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):  # one that is not for clients
        dial(coordinator, context_of(ca, tls(coordinator.state_dir, "server.pem"),
                                     tls(coordinator.state_dir, "server.key")))
    with pytest.raises(ssl.SSLCertVerificationError):  # the client refuses the server's
        dial(coordinator, context_of(tls(other, "ca.pem")))
    until("each is counted", lambda: coordinator.counter("handshakes_failed") == 4)
    refused = len(coordinator.lines("connection refused"))
    assert 1 <= refused <= 2, coordinator.tail()  # a line every few seconds, with a count
    assert dial(coordinator, context_of(ca))[0] == "TLSv1.3"


REFUSALS = {"old": "unsupported protocol", "foreign": "was issued by another CA", "of a server": "unsuitable certificate purpose",
            "expired": "'expired' has expired on 20", "revoked": "'revoked' was revoked (serial ",
            "CA": "certificate unknown|unknown ca|it may trust another CA", "host": "bad certificate|it may trust another CA"}


@pytest.fixture
def refused(coordinator, cluster):
    """refused(kind): one handshake that fails for that reason."""
    folder, other = coordinator.state_dir.parent, cluster.folder / "other"
    init(other, "--host", HOST)
    ca, pair = tls(coordinator.state_dir, "ca.pem"), lambda state: (tls(state, "server.pem"), tls(state, "server.key"))
    ctl = lambda *args: coordinator.ctl(*args, "--state-dir", coordinator.state_dir, check=0).stdout

    def person(name, *args):
        key, csr, pem = (folder / f"{name}.{x}" for x in ("key", "csr", "pem"))
        csr.write_text(ctl("token", "request", "--key", key, "--name", name))
        pem.write_text(ctl("token", "create", "--role", "viewer", "--csr", csr, *args))
        return context_of(ca, pem, key)

    old = context_of(ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    late, gone = person("expired", "--expires", "1s"), person("revoked")
    listed = json.loads(ctl("token", "list", "-o", "json"))["tokens"]
    ctl("token", "revoke", next(t["id"] for t in listed if t["name"] == "revoked"))
    contexts = {"old": old, "foreign": context_of(ca, *pair(other)), "of a server": context_of(ca, *pair(coordinator.state_dir)),
                "expired": late, "revoked": gone, "CA": context_of(tls(other, "ca.pem")), "host": context_of(ca)}

    def dials(kind):
        if kind == "expired":  # of whole seconds, so it ends after its token
            ends = ["openssl", "x509", "-in", folder / "expired.pem", "-noout", "-checkend", "0"]
            until("it has expired", lambda: subprocess.run(ends, stdout=subprocess.DEVNULL).returncode == 1)
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
            dial(coordinator, contexts[kind], OTHER if kind == "host" else HOST)

    return dials


@pytest.mark.parametrize("kind", REFUSALS)
def test_refused_handshake_is_counted_once_and_has_one_line(coordinator, refused, kind):
    refused(kind)
    until("it is counted", lambda: coordinator.counter("handshakes_failed"))
    dial(coordinator, context_of(tls(coordinator.state_dir, "ca.pem")))
    said, = until("a line says so", lambda: coordinator.lines("connection refused peer="))
    assert re.search(REFUSALS[kind].replace("(", r"\("), said) and f"peer={HOST}:" in said and "of these" not in said, said
    assert coordinator.counter("handshakes_failed") == 1


def test_flood_of_refused_handshakes_is_counted_and_has_few_lines(coordinator, refused):
    n, began = 100, time.monotonic()
    for _ in range(n):
        refused("revoked")
    until("each is counted", lambda: coordinator.counter("handshakes_failed") == n)
    lines, took = coordinator.lines("connection refused peer="), time.monotonic() - began
    assert 1 <= len(lines) <= 1 + took / 5  # one in five seconds, which counts those that had none
    told = [int(m[1]) if (m := re.search(r"\((\d+) of these\)", line)) else 1 for line in lines]
    assert told[0] == 1 and sum(told) <= n
    dial(coordinator, context_of(tls(coordinator.state_dir, "ca.pem")))


# Of a program that dials by libssl: what it shows as its certificate is what a file has, whatever that is.
SHOWN = """
#include <stdio.h>
int i2d_X509(const void *x, unsigned char **out) {
    static unsigned char bytes[1 << 16];
    FILE *f = fopen(SHOWN_FILE, "re");
    (void)x;
    int n = f ? (int)fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    for (int i = 0; out && i < n; i++) *(*out)++ = bytes[i];
    return n;
}
"""


def test_handshake_is_refused_when_what_is_shown_is_no_certificate(coordinator, tmp_path):
    shown, source, library = tmp_path / "shown", tmp_path / "shown.c", tmp_path / "shown.so"
    source.write_text(SHOWN)
    subprocess.run(["cc", "-shared", "-fPIC", f'-DSHOWN_FILE="{shown}"', "-o", library, source], check=True)
    ca, key, csr, pem = tls(coordinator.state_dir, "ca.pem"), *(tmp_path / x for x in ("key", "csr", "pem"))
    ctl = lambda *args: coordinator.ctl(*args, "--state-dir", coordinator.state_dir)
    csr.write_text(ctl("token", "request", "--key", key, "--name", "alice").stdout)
    pem.write_text(ctl("token", "create", "--role", "viewer", "--csr", csr).stdout)
    good = ssl.PEM_cert_to_DER_cert(pem.read_text())

    def dials(what):
        shown.write_bytes(what)
        done = subprocess.run(["openssl", "s_client", "-connect", coordinator.address, "-CAfile", ca, "-cert", pem, "-key",
                               key, "-alpn", "h2", "-quiet", "-no_ign_eof"], input=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                              capture_output=True, timeout=20, env=dict(os.environ, LD_PRELOAD=str(library)))
        return done.stderr.decode(errors="replace")

    assert "alert" not in dials(good) and coordinator.counter("handshakes_failed") == 0
    noises = (b"no certificate", os.urandom(300), good[:-1], good[:len(good) // 2], good + b"x", b"\x30\x00",
              b"\x30\x84\xff\xff\xff\xff", good[:4] + b"\xff" + good[5:], bytes(60000))
    for number, noise in enumerate(noises, 1):
        dials(noise)
        until(f"{noise[:40]} is counted", lambda: coordinator.counter("handshakes_failed") >= number)
    dials(good)
    assert coordinator.counter("handshakes_failed") == len(noises)
    said, *_ = coordinator.lines("connection refused peer=")  # the others of these seconds are counted
    assert "what it shows as its certificate cannot be read: " in said, said
    assert dial(coordinator, context_of(ca, pem, key))[0] == "TLSv1.3"


def test_client_says_what_is_wrong_when_the_host_or_the_ca_is_another(start, cluster):
    init(cluster.folder / "c", "--host", HOST)
    init(cluster.folder / "other")
    c = start("c", "--role", "coordinator", "--listen", "0.0.0.0:0")
    ca, token = tls(c.state_dir, "ca.pem"), c.state_dir / "token"

    def list_at(host, ca):
        return c.ctl("list", "--address", f"{host}:{port(c)}", "--token-file", token, "--ca", ca)

    for host in (HOST, "0.0.0.0", "127.0.0.1", "localhost"):
        assert list_at(host, ca).returncode == 0, host
    assert c.ctl("list", "--state-dir", c.state_dir).returncode == 0  # by what the daemon wrote there
    for host, ca in ((OTHER, ca), (HOST, tls(cluster.folder / "other", "ca.pem"))):
        failed = list_at(host, ca)
        assert failed.returncode == 5
        assert "certificate of the other end was refused" in failed.stderr, failed.stderr


def test_host_that_is_not_in_the_certificate_is_refused_by_nodes_and_people(start, cluster, tmp_path):
    init(cluster.folder / "c", "--host", HOST)
    c = start("c", "--role", "coordinator", "--listen", "0.0.0.0:0")
    ca, there = tls(c.state_dir, "ca.pem"), f"{OTHER}:{port(c)}"
    ctl = lambda *args: c.ctl(*args, "--state-dir", c.state_dir)
    key, csr, pem, token = (tmp_path / x for x in ("key", "csr", "pem", "join"))
    csr.write_text(ctl("token", "request", "--key", key, "--name", "alice").stdout)
    pem.write_text(ctl("token", "create", "--role", "viewer", "--csr", csr).stdout)
    token.write_text(ctl("node", "token").stdout)
    token.chmod(0o600)

    def dials(refused):
        before = c.counter("handshakes_failed")
        assert "certificate" in refused() and "nothing was sent" not in refused()
        until("it is counted", lambda: c.counter("handshakes_failed") > before)

    def person():  # a stock client: it looks at the host within the handshake
        with pytest.raises(ssl.SSLCertVerificationError) as error, \
                socket.create_connection((OTHER, port(c)), timeout=10) as plain:
            context_of(ca, pem, key).wrap_socket(plain, server_hostname=OTHER)
        return str(error.value)

    def node():
        done = subprocess.run([BIN / "traind", "node", "--state-dir", tmp_path / "n", "--name", "n", "--join", there,
                               "--token-file", token], env=cluster.env(), capture_output=True, text=True, timeout=40)
        assert done.returncode == 1
        return done.stderr

    dials(person)
    until("a line says so", lambda: c.lines("connection refused peer="))
    dials(node)
    assert "USED" not in ctl("token", "list").stdout  # the node has not shown its token
    assert c.ctl("list", "--address", f"{HOST}:{port(c)}", "--ca", ca, "--cert", pem, "--key", key).returncode == 0


def test_client_of_grpc_is_counted_when_the_host_is_not_in_the_certificate(start, cluster):
    """It looks after the handshake, and goes without a word. A connection that says its end is none of these."""
    init(cluster.folder / "c", "--host", HOST)
    c = start("c", "--role", "coordinator", "--listen", "0.0.0.0:0")
    ca = tls(c.state_dir, "ca.pem")
    with socket.create_connection((HOST, port(c)), timeout=10) as plain:
        with context_of(ca).wrap_socket(plain, server_hostname=HOST) as secure, contextlib.suppress(OSError):
            secure.unwrap()  # the other end may have its SETTINGS on the way
    assert c.counter("handshakes_failed") == 0
    failed = c.ctl("list", "--address", f"{OTHER}:{port(c)}", "--ca", ca, "--token-file", c.state_dir / "token")
    assert failed.returncode == 5 and "certificate of the other end was refused" in failed.stderr, failed.stderr
    until("it is counted", lambda: c.counter("handshakes_failed") > 0)
    until("a line says so", lambda: c.lines("it left after the handshake without a word"))


def test_connection_is_cut_when_it_never_shakes_hands(start, cluster):
    init(cluster.folder / "c", "--host", HOST)
    coordinator = start("c", "--role", "coordinator", "--listen", f"{HOST}:0", "--handshake-ms", 300)
    with socket.create_connection((HOST, port(coordinator)), timeout=10) as silent:
        assert silent.recv(1) == b""  # after --handshake-ms
    until("it is counted", lambda: coordinator.counter("handshakes_late") == 1)
    until("a line says why", lambda: coordinator.lines("no TLS handshake within 300 ms"))


def test_new_certificate_is_shown_when_its_files_were_replaced(coordinator):
    ca = tls(coordinator.state_dir, "ca.pem")
    first = dial(coordinator, context_of(ca))[1]["serialNumber"]
    init(coordinator.state_dir, "--host", HOST)
    until("the new one is shown", lambda: dial(coordinator, context_of(ca))[1]["serialNumber"] != first)
    tls(coordinator.state_dir, "server.pem").write_text("nonsense")
    until("the bad one is reported", lambda: coordinator.lines("the new certificates cannot be used"))
    assert dial(coordinator, context_of(ca))[1]["serialNumber"] != first


# Sets the real clock of a process aside by what a file says, whenever it says something else. A futex wait until a
# time of that clock ends by what the file says then, as the kernel's do when its clock is set.
SHIFT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long (*next)(long, ...);
__attribute__((constructor)) static void find(void) {
    if (!next) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
}
int clock_gettime(clockid_t id, struct timespec *t) {
    find();
    int r = (int)next(SYS_clock_gettime, id, t);
    FILE *f = id == CLOCK_REALTIME ? fopen(SHIFT_FILE, "re") : NULL;
    long shift_s = 0;
    if (f && fscanf(f, "%ld", &shift_s) == 1) t->tv_sec += shift_s;
    if (f) fclose(f);
    return r;
}
time_t time(time_t *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
int gettimeofday(struct timeval *tv, void *zone) {
    (void)zone;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    *tv = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
    return 0;
}
long syscall(long number, ...) {
    find();
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(ap, long);
    va_end(ap);
    const struct timespec *until = (const struct timespec *)a[3];
    if (number != SYS_futex || (a[1] & FUTEX_CMD_MASK) != FUTEX_WAIT_BITSET || !(a[1] & FUTEX_CLOCK_REALTIME) || !until)
        return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    for (;;) {
        struct timespec now, at;
        clock_gettime(CLOCK_REALTIME, &now);
        double left_s = (double)(until->tv_sec - now.tv_sec) + (double)(until->tv_nsec - now.tv_nsec) / 1e9;
        long ns = left_s <= 0 ? 0 : left_s < 0.05 ? (long)(left_s * 1e9) : 50000000;
        next(SYS_clock_gettime, CLOCK_MONOTONIC, &at);
        at.tv_sec += (at.tv_nsec + ns) / 1000000000;
        at.tv_nsec = (at.tv_nsec + ns) % 1000000000;
        long r = next(number, a[0], a[1] & ~(long)FUTEX_CLOCK_REALTIME, a[2], &at, a[4], a[5]);
        if (r == 0 || errno != ETIMEDOUT || left_s <= 0.05) return r;
    }
}
"""


class Clock:
    """What processes with its environment take for the real time. Their monotonic clock is left as it is."""

    def __init__(self, folder):
        self.file, self.shim, source = folder / "shift", folder / "shift.so", folder / "shift.c"
        self.set(0)
        source.write_text(SHIFT)
        subprocess.run(["cc", "-shared", "-fPIC", f'-DSHIFT_FILE="{self.file}"', "-o", self.shim, source], check=True)

    def set(self, seconds):
        """It is off by so much, from now on and for all at once."""
        new = self.file.with_suffix(".new")
        new.write_text(str(seconds))
        new.rename(self.file)

    def env(self, env):
        return dict(env, LD_PRELOAD=str(self.shim))


def days_until_end(state_dir, days):
    """A server's certificate of the coordinator's CA that has so many days left."""
    folder = state_dir / "tls"
    extensions = state_dir.parent / "server.ext"
    extensions.write_text(f"subjectAltName=IP:{HOST}\nextendedKeyUsage=serverAuth\n")
    request = subprocess.run(["openssl", "req", "-new", "-key", folder / "server.key", "-subj", "/CN=coordinator"],
                             check=True, capture_output=True).stdout
    made = subprocess.run(["openssl", "x509", "-req", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-set_serial",
                           "77", "-days", str(days), "-extfile", extensions], check=True, input=request, capture_output=True)
    (folder / "server.pem.new").write_bytes(made.stdout)
    (folder / "server.pem.new").rename(folder / "server.pem")


def test_certificate_that_ends_soon_is_told_every_day_and_in_the_cluster_info(start, cluster, tmp_path):
    clock = Clock(tmp_path)
    init(cluster.folder / "c", "--host", HOST)
    c = Beyond(cluster, cluster.folder / "c", ["--role", "coordinator", "--listen", f"{HOST}:0", "--listener-check-ms",
                                               "100"], clock.env(cluster.env()))
    cluster.daemons.append(c)
    c.start()

    def info():
        done = c.ctl("cluster", "info", "--state-dir", c.state_dir, env={"LD_PRELOAD": ""})
        return done.stdout or done.stderr

    assert "certificate until 20" in info() and "troubles" not in info()
    days_until_end(c.state_dir, 15)  # 14 whole days and a bit less than one more
    until("the new one is in use", lambda: c.lines("the new ones are in use"))
    assert not c.lines("ends in") and "troubles" not in info()
    for passed, left in ((1, 13), (2, 12), (9, 5)):
        clock.set(passed * 86400)
        until("a line says so", lambda: c.lines(f"ends in {left} days: run `traind init` again"))
        assert "troubles   the certificate of this address ends on 20" in info()
    assert len(c.lines("the certificate of this listener ends in")) == 3  # one a day, whoever connects
    clock.set(16 * 86400)
    until("it is over", lambda: c.lines("has ended, and nobody can connect"))
    assert "has ended on" in info()  # this client's clock says otherwise
    until("health says so", lambda: c.lines("does not answer"))
    init(c.state_dir, "--host", HOST)
    until("the trouble is gone", lambda: "troubles" not in info() and "certificate until 20" in info())


def test_oldest_silent_connection_gives_way_when_a_source_has_too_many(start, cluster):
    init(cluster.folder / "c", "--host", HOST)
    c = start("c", "--role", "coordinator", "--listen", f"{HOST}:0", "--handshake-ms", 60000, "--max-strangers", 4)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection((HOST, port(c)), timeout=10)) for _ in range(3)]
        assert silent[0].recv(1) == b""  # two per source
        until("it is counted", lambda: c.counter("connections_replaced") >= 1)
        assert c.lines("newer connections need its place")
    assert c.counter("handshakes_late") == 0


def test_newcomer_keeps_its_place_when_two_sources_connect_without_end(start, cluster):
    """The oldest of all gave way once, so who was far away lost its place within its handshake."""
    init(cluster.folder / "c", "--host", HOST)
    c = start("c", "--role", "coordinator", "--listen", f"{HOST}:0", "--max-strangers", 8)
    dials = lambda source: socket.create_connection((HOST, port(c)), timeout=10, source_address=(source, 0))
    with contextlib.ExitStack() as stack:
        newcomer = stack.enter_context(dials(HOST))
        for _ in range(20):
            stack.enter_context(dials(OTHER))
            stack.enter_context(dials(THIRD))
        until("many gave way", lambda: len(c.lines("newer connections need its place")) > 0)
        with context_of(tls(c.state_dir, "ca.pem")).wrap_socket(newcomer, server_hostname=HOST) as secure:
            assert secure.version() == "TLSv1.3"
        assert c.counter("connections_replaced") >= 2 * 20 - 8
    assert all("peer=10.9.0.1" not in line for line in c.lines("newer connections need its place"))


def test_guard_ends_a_connection_when_what_comes_through_tls_is_no_http2(coordinator):
    context = context_of(tls(coordinator.state_dir, "ca.pem"))
    with socket.create_connection((HOST, port(coordinator)), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname=HOST) as secure:
            secure.sendall(b"GET / HTTP/1.1\r\n\r\n")
            said = b""
            while piece := secure.recv(4096):
                said += piece
    assert b"does not speak HTTP/2" in said, said  # a GOAWAY that says why, and then the end of the session
    until("it is counted", lambda: coordinator.counter("connections_cut") == 1)


def test_strangers_are_cut_when_they_send_records_without_data(coordinator):
    """KeyUpdates without end once stopped the whole front: OpenSSL reads on inside one call while they come."""
    with contextlib.ExitStack() as stack:
        n = 16
        strangers = [stack.enter_context(Stranger(HOST, port(coordinator))) for _ in range(n)]
        floods = [(s, s.updates(2000)) for s in strangers]
        for s, flood in floods:
            with contextlib.suppress(ConnectionError):  # it was cut in the middle
                s.send(flood)
        assert coordinator.ctl("list", "--state-dir", coordinator.state_dir).returncode == 0
        assert all(s.was_cut() for s in strangers)
    until("each is counted", lambda: coordinator.counter("connections_cut") == n)
    assert coordinator.lines("more than 16 TLS records without data in a row")


def test_stranger_is_cut_when_its_handshake_has_too_many_records(coordinator):
    with socket.create_connection((HOST, port(coordinator)), timeout=10) as plain:
        hello = b"\x01\x00\x01\x00" + bytes(256)
        with contextlib.suppress(ConnectionError):
            plain.sendall(b"".join(b"\x16\x03\x01\x00\x01" + bytes([x]) for x in hello))
            while plain.recv(4096):
                pass
    until("it is counted", lambda: coordinator.counter("handshakes_failed") == 1)
    assert coordinator.lines("more than 64 TLS records in one handshake")
