// The inventory. Memory comes from the machine and the cgroup (lib/base/proc), accelerators from
// the file names in lib/traind. Loading one would cost the daemon its few megabytes, and whether it
// works is found out by the planner, in a process of its own. The node's id is random and kept, so
// that a renamed host is the same node.

#include "daemon/node/shell/planner/inventory.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/clip.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"
#include "lib/base/machine/proc.h"
#include "lib/base/printable.h"
#include "lib/base/rng.h"
#include "lib/base/utf8.h"

static td_status read_node_id(const char *state_dir, char *out, size_t out_bytes) {
    char path[PATH_MAX];
    TD_AUTO_BUF text;
    td_buf_init(&text, 256);
    TD_TRY(td_fs_path(path, "%s/node_id", state_dir));
    if (!td_fs_exists(path)) {
        uint8_t random[6];
        char line[32];
        td_random_bytes(random, sizeof random);
        int n = snprintf(line, sizeof line, "n-%02x%02x%02x%02x%02x%02x\n", random[0], random[1],
                         random[2], random[3], random[4], random[5]);
        TD_TRY(td_fs_write(path, line, (size_t)n, 0600, TD_FS_WRITE_DURABLE));
    }
    TD_TRY(td_fs_read(path, 255, &text));
    size_t len = strcspn(td_buf_cstr(&text), "\r\n");
    if (len < 3 || len >= out_bytes) {
        return td_fail(TD_FAILED_PRECONDITION, "'%s' holds no node id; remove it to get a new one",
                       path);
    }
    snprintf(out, out_bytes, "%.*s", (int)len, td_buf_cstr(&text));
    return TD_OK;
}

// Plugins are called accelerator-NAME.so; reference is part of every worker.
static void find_accelerators(const char *bin_dir, struct td_inventory *inv) {
    static const char prefix[] = "accelerator-";
    char path[PATH_MAX];
    snprintf(inv->accelerator[inv->n_accelerators++], sizeof inv->accelerator[0], "reference");
    snprintf(path, sizeof path, "%s/../lib/traind", bin_dir);
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir)) && inv->n_accelerators < TD_INVENTORY_ACCELERATORS;) {
        const char *dot = strrchr(e->d_name, '.');
        size_t skip = sizeof prefix - 1;
        if (strncmp(e->d_name, prefix, skip) != 0 || !dot || strcmp(dot, ".so") != 0) continue;
        const char *name = e->d_name + skip;
        if (!td_utf8_valid(name, (size_t)(dot - name))) continue; // no plugin is called so
        snprintf(inv->accelerator[inv->n_accelerators++], sizeof inv->accelerator[0], "%.*s",
                 (int)(dot - name), name);
    }
    closedir(dir);
}

// What the kernel has may be any bytes; names in messages are UTF-8, and short.
void td_inventory_name(const char *host, char out[TD_INVENTORY_NAME]) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 4 * TD_INVENTORY_NAME);
    td_status_free(td_printable_add(&text, host, strnlen(host, TD_INVENTORY_NAME), ""));
    (void)td_clip(out, TD_INVENTORY_NAME, "%s", td_buf_cstr(&text));
    if (strcmp(out, host) == 0) return;
    td_log_warn("the name of this host is not UTF-8 that can be printed, so the node calls itself "
                "'%s', continuing; --name gives it another",
                out);
}

td_status td_inventory_identify(const char *state_dir, const char *name,
                                struct td_inventory *out_inventory) {
    struct td_inventory *inv = out_inventory;
    TD_TRY(read_node_id(state_dir, inv->node_id, sizeof inv->node_id));
    if (name && *name) {
        size_t len = strlen(name);
        if (len >= sizeof inv->name || !td_utf8_valid(name, len)) {
            return td_fail(TD_INVALID_ARGUMENT,
                           "the node's name has %zu bytes; it takes up to %zu, in UTF-8", len,
                           sizeof inv->name - 1);
        }
        snprintf(inv->name, sizeof inv->name, "%s", name);
    } else {
        char host[TD_INVENTORY_NAME] = "";
        const bool has_none = gethostname(host, sizeof host - 1) != 0;
        if (has_none) snprintf(host, sizeof host, "%s", inv->node_id);
        td_inventory_name(host, inv->name);
    }
    return TD_OK;
}

td_status td_inventory_read(const char *state_dir, const char *bin_dir, const char *name,
                            int32_t cores, int32_t slots, struct td_inventory *out_inventory) {
    struct td_inventory inv = {.cores = cores,
                               .memory_bytes = td_proc_memory_bytes(),
                               .cpu_level = td_cpu_level_of_machine(NULL),
                               .cpu_level_held = td_cpu_level()};
    inv.slots = slots > 0 ? slots : inv.cores;
    TD_TRY(td_inventory_identify(state_dir, name, &inv));
    TD_TRY(td_proc_boot_id(inv.boot_id));
    uint64_t start;
    td_random_bytes(&start, sizeof start);
    snprintf(inv.daemon, sizeof inv.daemon, "%016" PRIx64, start);
    find_accelerators(bin_dir, &inv);
    *out_inventory = inv;
    return TD_OK;
}
