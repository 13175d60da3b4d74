// HOST:PORT, taken apart by hand.
//
// The rule that only loopback passes lives here and nowhere else. Server and channel both parse
// through this file, so neither can be opened to the network, nor send a token into it, by another
// way. Names other than "localhost" are refused rather than resolved: a resolver may answer
// differently tomorrow, and gRPC would then dial where nobody looked. No state.

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

static bool is_loopback(const char *host) {
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
    return false;
}

td_status td_rpc_address_parse(const char *text, struct td_rpc_address *out_address) {
    struct td_rpc_address a = {{0}, 0};
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
    if (!is_loopback(a.host)) {
        return td_status_with_reason(
            td_fail(TD_FAILED_PRECONDITION,
                    "address '%s' is not loopback: without TLS the token would cross the network "
                    "in clear; use 127.0.0.1 or [::1]",
                    text),
            "ADDRESS_NOT_LOOPBACK");
    }
    *out_address = a;
    return TD_OK;
}

void td_rpc_address_format(const struct td_rpc_address *a, char *out, size_t out_bytes) {
    bool v6 = strchr(a->host, ':');
    snprintf(out, out_bytes, v6 ? "[%s]:%u" : "%s:%u", a->host, (unsigned)a->port);
}

void td_rpc_address_target(const struct td_rpc_address *a, char *out, size_t out_bytes) {
    char plain[80];
    td_rpc_address_format(a, plain, sizeof plain);
    snprintf(out, out_bytes, "%s:%s", strchr(a->host, ':') ? "ipv6" : "ipv4", plain);
}
