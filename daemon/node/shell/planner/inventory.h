#ifndef TRAIND_DAEMON_NODE_SHELL_PLANNER_INVENTORY_H
#define TRAIND_DAEMON_NODE_SHELL_PLANNER_INVENTORY_H

// What this machine has, and who it is: read once when the node starts. Nothing here initialises a
// device; accelerators are the plugins that are beside the programs.

#include "lib/base/cpu_level.h"

enum {
    TD_INVENTORY_ACCELERATORS = 16, // what a client is shown
    TD_INVENTORY_NAME = 128,        // with its NUL
};

struct td_inventory {
    char node_id[40]; // "n-<12 hex>", made at the first start, kept in <state>/node_id
    char boot_id[37];
    char daemon[17]; // random, of this start
    char name[TD_INVENTORY_NAME];
    int32_t cores;
    int32_t slots;
    uint64_t memory_bytes;                       // that it may use
    enum td_cpu_level cpu_level, cpu_level_held; // of the machine; of this process and its ranks
    char accelerator[TD_INVENTORY_ACCELERATORS][32];
    size_t n_accelerators;
};

// The name of a node whose host is called so: what is not printable UTF-8 is shown as \xNN, and the
// log says so.
void td_inventory_name(const char *host, char out[TD_INVENTORY_NAME]);
// Only node_id and name; what else is in it stays.
TD_MUST_USE td_status td_inventory_identify(const char *state_dir, const char *name,
                                            struct td_inventory *out_inventory);
// cores: that this process may use. slots 0: one a core. name NULL or "": the host's.
TD_MUST_USE td_status td_inventory_read(const char *state_dir, const char *bin_dir,
                                        const char *name, int32_t cores, int32_t slots,
                                        struct td_inventory *out_inventory);

#endif
