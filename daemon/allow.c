// See the header.

#include "daemon/allow.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/files/files.h"

enum { N_PORTS = 10000, FIRST_PORT = 1024, LAST_PORT = 65535, RANGE_BYTES = 64 };

bool td_allow_is_loopback(const char *address) {
    static const char *const hosts[] = {"127.", "localhost:", "[::1]:", "::1:"};
    for (size_t i = 0; i < TD_COUNTOF(hosts); i++) {
        if (strncmp(address, hosts[i], strlen(hosts[i])) == 0) return true;
    }
    return false;
}

static const struct {
    const char *name;
    unsigned bit;
} names[] = {
    {"plugins", TD_ALLOW_PLUGINS},
    {"programs", TD_ALLOW_PROGRAMS},
    {"commands", TD_ALLOW_COMMANDS},
};

td_status td_allow_parse(const char *text, bool is_loopback, unsigned *out_allowed) {
    const unsigned all = TD_ALLOW_PLUGINS | TD_ALLOW_PROGRAMS | TD_ALLOW_COMMANDS;
    unsigned bits = 0;
    if (strcmp(text, "auto") == 0) {
        *out_allowed = is_loopback ? all : 0;
        return TD_OK;
    }
    if (strcmp(text, "all") == 0 || strcmp(text, "none") == 0) {
        *out_allowed = text[0] == 'a' ? all : 0;
        return TD_OK;
    }
    for (const char *p = text;;) {
        size_t len = strcspn(p, ","), i = 0;
        while (i < TD_COUNTOF(names) &&
               (strlen(names[i].name) != len || strncmp(p, names[i].name, len) != 0)) {
            i++;
        }
        if (i == TD_COUNTOF(names)) {
            return td_fail(TD_INVALID_ARGUMENT,
                           "--allow (TRAIND_ALLOW) takes auto, all, none, or of plugins, programs, "
                           "commands some with ',' between, not '%.80s'",
                           text);
        }
        bits |= names[i].bit;
        p += len;
        if (!*p++) break;
    }
    *out_allowed = bits;
    return TD_OK;
}

struct td_ports td_allow_ports_beside(int first_taken, int last_taken) {
    const struct td_ports usual = {20000, 20000 + N_PORTS - 1};
    if (last_taken < usual.first || first_taken > usual.last) return usual;
    int below = first_taken - FIRST_PORT, above = LAST_PORT - last_taken;
    if (below <= 0 && above <= 0) return usual; // nothing is free: a probe decides
    if (below >= above) {
        return (struct td_ports){TD_MAX(first_taken - N_PORTS, FIRST_PORT), first_taken - 1};
    }
    return (struct td_ports){last_taken + 1, TD_MIN(last_taken + N_PORTS, LAST_PORT)};
}

td_status td_allow_ports(const char *text, struct td_ports *out_ports) {
    if (strcmp(text, "auto") != 0) {
        return td_ports_parse("--port-range (TRAIND_PORT_RANGE)", text, out_ports);
    }
    TD_AUTO_BUF range;
    td_buf_init(&range, RANGE_BYTES);
    int first = 32768, last = 60999; // Linux's own
    td_status s = td_fs_read("/proc/sys/net/ipv4/ip_local_port_range", RANGE_BYTES, &range);
    if (!s) {
        char *end;
        long a = strtol(td_buf_cstr(&range), &end, 10), b = strtol(end, NULL, 10);
        if (a > 0 && b >= a && b <= LAST_PORT) {
            first = (int)a;
            last = (int)b;
        }
    }
    td_status_free(s); // a container may not show it
    *out_ports = td_allow_ports_beside(first, last);
    return TD_OK;
}
