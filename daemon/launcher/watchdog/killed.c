// See the header.

#include "daemon/launcher/watchdog/killed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "lib/base/buf.h"
#include "lib/base/clip.h"
#include "lib/base/files/files.h"

enum { FILE_MAX = 64 << 10 };

// ---- files of the kernel ------------------------------------------------------------------------
// False: there is none, or it cannot be read.
static bool read_file(const char *path, struct td_buf *out) {
    td_buf_clear(out);
    td_status s = td_fs_read(path, FILE_MAX, out);
    const bool is_read = !s && out->len;
    td_status_free(s);
    return is_read;
}

// The number after a word at the beginning of a line: "oom_kill 3", "MemTotal:  16 kB".
static bool find_number(const char *text, const char *word, uint64_t *out) {
    const size_t len = strlen(word);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, len) != 0 || !strchr(" \t", line[len])) continue;
        char *end;
        const uint64_t n = strtoull(line + len, &end, 10);
        if (end == line + len) return false;
        *out = n;
        return true;
    }
    return false;
}

static bool read_number(const char *path, const char *word, uint64_t *out) {
    TD_AUTO_BUF text;
    td_buf_init(&text, FILE_MAX);
    return read_file(path, &text) && find_number(td_buf_cstr(&text), word, out);
}

// The only number in a file; false: "max".
static bool read_one(const char *dir, const char *name, uint64_t *out) {
    char path[640], *end;
    TD_AUTO_BUF text;
    td_buf_init(&text, FILE_MAX);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!read_file(path, &text)) return false;
    *out = strtoull(td_buf_cstr(&text), &end, 10);
    return end != td_buf_cstr(&text);
}

// ---- the cgroup ---------------------------------------------------------------------------------
// Its path within the tree, "/a/b", of cgroup v2; false: there is none.
static bool own_cgroup(const struct td_kills *k, char *out, size_t out_bytes) {
    char path[192];
    TD_AUTO_BUF text;
    td_buf_init(&text, FILE_MAX);
    snprintf(path, sizeof path, "%s/proc/self/cgroup", k->root);
    if (!read_file(path, &text)) return false;
    const char *line = strstr(td_buf_cstr(&text), "0::/");
    if (!line) return false;
    line += strlen("0::");
    return snprintf(out, out_bytes, "%.*s", (int)strcspn(line, "\n"), line) < (int)out_bytes;
}

// This cgroup and those above it, until both are found.
static void find_files(struct td_kills *k, char *cgroup) {
    uint64_t n;
    for (bool is_last = false; !is_last;) {
        char dir[480];
        is_last = cgroup[0] == '\0' || strcmp(cgroup, "/") == 0;
        snprintf(dir, sizeof dir, "%s/sys/fs/cgroup%s", k->root, is_last ? "" : cgroup);
        char path[512];
        snprintf(path, sizeof path, "%s/memory.events", dir);
        if (!k->counter[0] && read_number(path, "oom_kill", &n)) {
            snprintf(k->counter, sizeof k->counter, "%s", path);
        }
        if (!k->limit[0] && read_one(dir, "memory.max", &n)) {
            snprintf(k->limit, sizeof k->limit, "%s", dir);
        }
        char *slash = strrchr(cgroup, '/');
        if (slash) *slash = '\0';
    }
}

void td_kills_begin(struct td_kills *k, const char *root, struct td_mono now) {
    char cgroup[256];
    *k = (struct td_kills){.looked = now};
    snprintf(k->root, sizeof k->root, "%s", root);
    if (own_cgroup(k, cgroup, sizeof cgroup)) find_files(k, cgroup);
    if (!k->counter[0]) snprintf(k->counter, sizeof k->counter, "%s/proc/vmstat", k->root);
    if (!read_number(k->counter, "oom_kill", &k->last)) k->counter[0] = '\0';
    k->before = k->last;
}

void td_kills_look(struct td_kills *k, struct td_mono now) {
    if (!k->counter[0] || now.ns - k->looked.ns < TD_KILLS_LOOK_S * TD_NS_PER_S) return;
    k->looked = now;
    k->before = k->last;
    (void)read_number(k->counter, "oom_kill", &k->last);
}

// ---- what is known ------------------------------------------------------------------------------
// "812 of 8192 MiB are in use in its cgroup"; "": nobody knows.
static void say_memory(const struct td_kills *k, char *out, size_t out_bytes) {
    char path[192];
    uint64_t all, is_free, used;
    out[0] = '\0';
    if (k->limit[0] && read_one(k->limit, "memory.max", &all) &&
        read_one(k->limit, "memory.current", &used)) {
        (void)td_clip(out, out_bytes, "%" PRIu64 " of %" PRIu64 " MiB are in use in its cgroup",
                      used >> 20, all >> 20);
        return;
    }
    snprintf(path, sizeof path, "%s/proc/meminfo", k->root);
    if (!read_number(path, "MemTotal:", &all) || !read_number(path, "MemAvailable:", &is_free)) {
        return;
    }
    (void)td_clip(out, out_bytes, "%" PRIu64 " of %" PRIu64 " MiB are in use on this machine",
                  (all - TD_MIN(is_free, all)) >> 10, all >> 10);
}

void td_killed_judge(const struct td_kills *k, struct td_killed *out) {
    char memory[128], when[40];
    uint64_t now = k->before;
    struct rusage usage = {0};
    const bool counts = k->counter[0] && read_number(k->counter, "oom_kill", &now);
    const bool is_memory = now > k->before;
    say_memory(k, memory, sizeof memory);
    td_real_format(td_real_now(), when, sizeof when);
    (void)getrusage(RUSAGE_CHILDREN, &usage);
    out->cls = is_memory ? TD_CLASS_OUT_OF_MEMORY : TD_CLASS_KILLED;
    (void)td_clip(out->text, sizeof out->text,
                  "signal 9 (KILL), not sent by traind: %s, at %s. %s%sno process of it that has "
                  "ended had used more than %ld MiB%s",
                  is_memory ? "by the kernel, as memory ran out"
                  : counts ? "by somebody on this machine, as the kernel killed nobody for lack of "
                             "memory just then"
                           : "by somebody on this machine, or by the kernel for lack of memory",
                  when, memory, *memory ? "; " : "", usage.ru_maxrss >> 10,
                  is_memory ? ". Lower what the job needs (`trainctl plan`), or raise the limit"
                            : "");
}
