// See the header.

#include "lib/rpc/front/source.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

void td_source_name(const struct sockaddr_storage *peer, char out[TD_PEER_NAME_BYTES]) {
    char host[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_in *in4 = (const void *)peer;
    const struct sockaddr_in6 *in6 = (const void *)peer;
    bool v6 = peer->ss_family == AF_INET6;
    inet_ntop(peer->ss_family, v6 ? (const void *)&in6->sin6_addr : (const void *)&in4->sin_addr,
              host, sizeof host);
    snprintf(out, TD_PEER_NAME_BYTES, v6 ? "[%s]:%u" : "%s:%u", host,
             (unsigned)ntohs(v6 ? in6->sin6_port : in4->sin_port));
}

struct td_source td_source_of(const struct sockaddr_storage *peer) {
    const struct sockaddr_in *in4 = (const void *)peer;
    const struct sockaddr_in6 *in6 = (const void *)peer;
    struct td_source s = {.family = peer->ss_family};
    if (peer->ss_family == AF_INET6) {
        if (IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr)) return (struct td_source){.family = AF_UNSPEC};
        memcpy(s.bytes, &in6->sin6_addr, sizeof s.bytes);
    } else {
        if (ntohl(in4->sin_addr.s_addr) >> 24 == 127) {
            return (struct td_source){.family = AF_UNSPEC};
        }
        memcpy(s.bytes, &in4->sin_addr, sizeof in4->sin_addr);
    }
    return s;
}

bool td_source_equal(const struct td_source *a, const struct td_source *b) {
    return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
