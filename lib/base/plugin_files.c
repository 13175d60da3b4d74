// Two passes over the sorted names: one that only asks for times, one that reads.

#include "lib/base/plugin_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/fsio.h"

struct names {
    char name[TD_PLUGIN_FILES_MAX][64];
    size_t n;
};

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

static void list(const char *dir, struct names *out) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && out->n < TD_PLUGIN_FILES_MAX && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len < 4 || len >= sizeof out->name[0] || strcmp(e->d_name + len - 3, ".so") != 0) {
            continue;
        }
        memcpy(out->name[out->n++], e->d_name, len + 1);
    }
    if (d) closedir(d);
    qsort(out->name, out->n, sizeof out->name[0], by_name);
}

static uint64_t stamp_of(const char *dir, const struct names *names) {
    uint64_t stamp = 0;
    for (size_t i = 0; i < names->n; i++) {
        char path[TD_FS_PATH_BYTES];
        struct stat st = {0};
        td_status s = td_fs_path(path, "%s/%s", dir, names->name[i]);
        if (!s) (void)stat(path, &st);
        td_status_free(s);
        const uint64_t parts[] = {stamp,
                                  td_xxh3_64(names->name[i], strlen(names->name[i])),
                                  (uint64_t)st.st_size,
                                  (uint64_t)st.st_mtim.tv_sec,
                                  (uint64_t)st.st_mtim.tv_nsec,
                                  (uint64_t)st.st_ctim.tv_sec,
                                  (uint64_t)st.st_ctim.tv_nsec,
                                  (uint64_t)st.st_ino};
        stamp = td_xxh3_64(parts, sizeof parts);
    }
    return stamp;
}

static td_status digest_file(const char *dir, const char *name, char out_hex[TD_DIGEST_HEX]) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", dir, name));
    TD_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return td_fail_errno(TD_UNAVAILABLE, "open '%s'", path);
    return td_digest_fd(fd, path, out_hex);
}

static td_status digest_all(const char *dir, const struct names *names,
                            char out_hex[TD_DIGEST_HEX]) {
    TD_AUTO(td_digest) *d = NULL;
    TD_TRY(td_digest_create(&d));
    for (size_t i = 0; i < names->n; i++) {
        char hex[TD_DIGEST_HEX] = "";
        td_status_free(digest_file(dir, names->name[i], hex)); // its name counts all the same
        td_digest_update(d, names->name[i], strlen(names->name[i]) + 1);
        td_digest_update(d, hex, sizeof hex);
    }
    td_digest_hex(d, out_hex);
    return TD_OK;
}

bool td_plugin_files_look(struct td_plugin_files *f, const char *dir) {
    struct names *names = td_calloc(1, sizeof *names);
    char digest[TD_DIGEST_HEX] = "";
    if (!names) return false; // the next look finds it
    list(dir, names);
    uint64_t stamp = stamp_of(dir, names);
    td_status s = stamp == f->stamp || !names->n ? TD_OK : digest_all(dir, names, digest);
    bool read = !s && stamp != f->stamp, changed = read && strcmp(digest, f->digest) != 0;
    if (read) {
        f->stamp = stamp;
        memcpy(f->digest, digest, sizeof digest);
    }
    td_status_free(s);
    free(names);
    return changed;
}
