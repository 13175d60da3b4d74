// HOST:PORT, taken apart by hand.
//
// What is loopback is decided here and nowhere else. Server and channel both parse through this
// file, so neither can be opened to the network, nor send a token into it, without TLS. No state.

#include "lib/rpc/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static td_status bad(const char *text, const char *why) {
    return td_status_with_reason(td_fail(TD_INVALID_ARGUMENT,
                                         "address '%.100s' %s; write HOST:PORT, for example "
                                         "127.0.0.1:0",
                                         text, why),
                                 "ADDRESS_INVALID");
}

static td_status parse_port(const char *text, const char *digits, uint16_t *out_port) {
    uint32_t port = 0;
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 5 || digits[n]) return bad(text, "has no port number");
    for (size_t i = 0; i < n; i++) {
        port = port * 10 + (uint32_t)(digits[i] - '0');
    }
    if (port > 65535) return bad(text, "has a port above 65535");
    *out_port = (uint16_t)port;
    return TD_OK;
}

// A name has a letter, or it is an address that was written wrong.
static bool is_name(const char *host) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t n = strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.");
    return !host[n] && strpbrk(host, letters);
}

// False: it is none of these.
static bool find_reach(const char *host, enum td_rpc_reach *out_reach) {
    struct in_addr v4;
    struct in6_addr v6;
    bool is_v4 = inet_pton(AF_INET, host, &v4) == 1;
    if (is_v4 || inet_pton(AF_INET6, host, &v6) == 1) {
        bool loopback = is_v4 ? (ntohl(v4.s_addr) >> 24) == 127 : IN6_IS_ADDR_LOOPBACK(&v6);
        *out_reach = loopback ? TD_RPC_LOOPBACK : TD_RPC_NETWORK;
        return true;
    }
    *out_reach = TD_RPC_NAME;
    return is_name(host);
}

td_status td_rpc_address_parse(const char *text, struct td_rpc_address *out_address) {
    struct td_rpc_address a = {0};
    const char *colon = text ? strrchr(text, ':') : NULL;
    if (!colon) return bad(text ? text : "", "has no port");
    const char *host = text;
    size_t len = (size_t)(colon - text);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    }
    if (len == 0 || len >= sizeof a.host) return bad(text, "has no host");
    memcpy(a.host, host, len);
    if (strcmp(a.host, "localhost") == 0) memcpy(a.host, "127.0.0.1", sizeof "127.0.0.1");
    TD_TRY(parse_port(text, colon + 1, &a.port));
    if (!find_reach(a.host, &a.reach)) return bad(text, "has no host name and no address");
    *out_address = a;
    return TD_OK;
}

void td_rpc_address_format(const struct td_rpc_address *a, char *out, size_t out_bytes) {
    bool v6 = strchr(a->host, ':');
    snprintf(out, out_bytes, v6 ? "[%s]:%u" : "%s:%u", a->host, (unsigned)a->port);
}

void td_rpc_address_target(const struct td_rpc_address *a, char *out, size_t out_bytes) {
    char plain[TD_RPC_ADDRESS_BYTES];
    td_rpc_address_format(a, plain, sizeof plain);
    const char *scheme = a->reach == TD_RPC_NAME ? "dns:///"
                         : strchr(a->host, ':')  ? "ipv6:"
                                                 : "ipv4:";
    snprintf(out, out_bytes, "%s%s", scheme, plain);
}

bool td_rpc_address_is_any(const struct td_rpc_address *a) {
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, a->host, &v4) == 1) return v4.s_addr == htonl(INADDR_ANY);
    return inet_pton(AF_INET6, a->host, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}
