#ifndef TRAIND_LIB_BASE_MACHINE_PORTS_H
#define TRAIND_LIB_BASE_MACHINE_PORTS_H

// A range of TCP ports, "20000-29999": where a node takes MASTER_PORT of `kind: command` from. Read
// by the daemon's configuration and by the launcher. Pure functions, any thread.

#include <stdlib.h>

#include "lib/base/base.h"

struct td_ports {
    int first, last; // both in it
};

// INVALID_ARGUMENT names the option.
TD_MUST_USE static inline td_status td_ports_parse(const char *option, const char *text,
                                                   struct td_ports *out_ports) {
    char *end;
    long first = strtol(text, &end, 10), last = 0;
    bool ok = end > text && *end == '-';
    if (ok) {
        const char *second = end + 1;
        last = strtol(second, &end, 10);
        ok = end > second && !*end;
    }
    if (!ok || first < 1024 || last > 65535 || first > last) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "%s '%.40s' is no range of ports such as 20000-29999, from 1024 to 65535",
                       option, text);
    }
    *out_ports = (struct td_ports){(int)first, (int)last};
    return TD_OK;
}

#endif
