#ifndef TRAIND_LIB_BASE_MACHINE_INTERFACE_H
#define TRAIND_LIB_BASE_MACHINE_INTERFACE_H

// Interface: which network interface of this machine a setting names, and its address there.
//
// A setting is the name of an interface ("eth1") or a network ("10.0.0.0/8", "fd00::/8"), so that
// one text fits all machines of a cluster. Only interfaces that are up count. Of a name the IPv4
// address is taken first; IPv6 addresses of the link alone never are. Any thread.

#include "lib/base/base.h"

struct td_interface {
    char name[16];    // "eth1"
    char address[46]; // numeric
};

// Errors: INVALID_ARGUMENT it can be neither a name nor a network; NOT_FOUND this machine has no
// such interface that is up: the text names those that there are.
TD_MUST_USE td_status td_interface_find(const char *which, struct td_interface *out);
// The first of these errors alone.
TD_MUST_USE td_status td_interface_check(const char *which);

#endif
