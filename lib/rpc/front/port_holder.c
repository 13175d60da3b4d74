// Two scans of /proc, done once, when a start fails.
//
// The first finds the inode of the listening socket in the kernel's table of TCP sockets, the
// second the process with a descriptor on it. Both race with a world that goes on; the answer is a
// help for people, nothing depends on it, and anything that cannot be read leaves it empty.
// Rejected: netlink's sock_diag, which is exact and needs three times the code.

#include "lib/rpc/front/port_holder.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TCP_LISTEN = 10 };

static uint64_t listening_inode(const char *table, uint16_t port) {
    FILE *f = fopen(table, "re");
    if (!f) return 0;
    uint64_t found = 0;
    char line[512];
    while (!found && fgets(line, sizeof line, f)) {
        unsigned local_port, state;
        uint64_t inode;
        if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*s %*s %" SCNu64,
                   &local_port, &state, &inode) != 3) {
            continue;
        }
        if (local_port == port && state == TCP_LISTEN) found = inode;
    }
    (void)fclose(f);
    return found;
}

static bool has_open(const char *pid, const char *socket_name) {
    char path[300];
    snprintf(path, sizeof path, "/proc/%.16s/fd", pid);
    DIR *dir = opendir(path);
    if (!dir) return false;
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(dir));) {
        char target[64];
        ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof target - 1);
        if (n <= 0) continue;
        target[n] = 0;
        found = strcmp(target, socket_name) == 0;
    }
    (void)closedir(dir);
    return found;
}

static void read_name(const char *pid, char *out, size_t out_bytes) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%.16s/comm", pid);
    out[0] = 0;
    FILE *f = fopen(path, "re");
    if (!f) return;
    if (!fgets(out, (int)out_bytes, f)) out[0] = 0;
    (void)fclose(f);
    out[strcspn(out, "\n")] = 0;
}

void td_rpc_port_holder(uint16_t port, char *out, size_t out_bytes) {
    out[0] = 0;
    uint64_t inode = listening_inode("/proc/net/tcp", port);
    if (!inode) inode = listening_inode("/proc/net/tcp6", port);
    DIR *proc = inode ? opendir("/proc") : NULL;
    if (!proc) return;
    char socket_name[48];
    snprintf(socket_name, sizeof socket_name, "socket:[%" PRIu64 "]", inode);
    for (struct dirent *e; (e = readdir(proc));) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || !has_open(e->d_name, socket_name)) continue;
        char name[32];
        read_name(e->d_name, name, sizeof name);
        snprintf(out, out_bytes, "pid %.16s (%s)", e->d_name, name);
        break;
    }
    (void)closedir(proc);
}
