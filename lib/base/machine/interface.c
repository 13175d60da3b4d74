// See the header.

#include "lib/base/machine/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buf.h"

struct network {
    bool by_name;
    int family;        // of a network
    uint8_t bytes[16]; // its address
    uint32_t bits;     // of its prefix
};

static td_status bad(const char *which) {
    return td_fail(TD_INVALID_ARGUMENT,
                   "'%.64s' is neither the name of an interface (eth1) nor a network (10.0.0.0/8)",
                   which);
}

static td_status parse(const char *which, struct network *out) {
    char address[64];
    const char *slash = strchr(which, '/');
    *out = (struct network){.by_name = !slash};
    if (!slash) return *which && strlen(which) < IF_NAMESIZE ? TD_OK : bad(which);
    if ((size_t)(slash - which) >= sizeof address) return bad(which);
    snprintf(address, sizeof address, "%.*s", (int)(slash - which), which);
    out->family = strchr(address, ':') ? AF_INET6 : AF_INET;
    char *end;
    const unsigned long bits = strtoul(slash + 1, &end, 10);
    const bool ok = inet_pton(out->family, address, out->bytes) == 1 && end != slash + 1 && !*end &&
                    slash[1] != '-' && bits <= (out->family == AF_INET ? 32 : 128);
    if (!ok) return bad(which);
    out->bits = (uint32_t)bits;
    return TD_OK;
}

td_status td_interface_check(const char *which) {
    struct network ignored;
    return parse(which, &ignored);
}

// The address of an entry in network order; NULL: none that another machine could reach.
static const void *address_of(const struct ifaddrs *a) {
    if (!a->ifa_addr || !(a->ifa_flags & IFF_UP)) return NULL;
    if (a->ifa_addr->sa_family == AF_INET) {
        return &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr;
    }
    if (a->ifa_addr->sa_family != AF_INET6) return NULL;
    const struct in6_addr *six =
        &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr;
    return IN6_IS_ADDR_LINKLOCAL(six) ? NULL : six;
}

static bool is_in(const struct network *n, const struct ifaddrs *a, const void *address) {
    if (a->ifa_addr->sa_family != n->family) return false;
    const uint8_t *bytes = address;
    const uint32_t whole = n->bits / 8, rest = n->bits % 8;
    if (memcmp(bytes, n->bytes, whole) != 0) return false;
    return !rest || (bytes[whole] ^ n->bytes[whole]) >> (8 - rest) == 0;
}

static const struct ifaddrs *find(const struct ifaddrs *list, const struct network *n,
                                  const char *which) {
    const struct ifaddrs *found = NULL;
    for (const struct ifaddrs *a = list; a; a = a->ifa_next) {
        const void *address = address_of(a);
        if (!address) continue;
        if (!n->by_name) {
            if (is_in(n, a, address)) return a;
        } else if (strcmp(a->ifa_name, which) == 0) {
            if (a->ifa_addr->sa_family == AF_INET) return a;
            if (!found) found = a;
        }
    }
    return found;
}

static td_status fail_not_there(const struct ifaddrs *list, const char *which) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 4096);
    td_status full = TD_OK;
    for (const struct ifaddrs *a = list; a && !full; a = a->ifa_next) {
        char shown[46];
        const void *address = address_of(a);
        if (!address || !inet_ntop(a->ifa_addr->sa_family, address, shown, sizeof shown)) continue;
        full = td_buf_printf(&text, "%s%s (%s)", text.len ? ", " : "", a->ifa_name, shown);
    }
    const bool cut = full != TD_OK;
    td_status_free(full);
    return td_fail(TD_NOT_FOUND,
                   "no interface of this machine that is up fits '%s'; there are %s%s", which,
                   text.len ? td_buf_cstr(&text) : "none", cut ? ", and more" : "");
}

td_status td_interface_find(const char *which, struct td_interface *out) {
    struct network n;
    struct ifaddrs *list = NULL;
    TD_TRY(parse(which, &n));
    if (getifaddrs(&list) != 0) return td_fail_errno(TD_UNAVAILABLE, "list network interfaces");
    const struct ifaddrs *a = find(list, &n, which);
    td_status s = a ? TD_OK : fail_not_there(list, which);
    if (a) {
        snprintf(out->name, sizeof out->name, "%s", a->ifa_name);
        if (!inet_ntop(a->ifa_addr->sa_family, address_of(a), out->address, sizeof out->address)) {
            s = td_fail_errno(TD_INTERNAL, "write the address of %s", a->ifa_name);
        }
    }
    freeifaddrs(list);
    return s;
}
