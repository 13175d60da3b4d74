// Two passes over the sorted names: one that only asks for times, one that reads.

#include "lib/plugin/plugin_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/files/files.h"

struct names { // of one directory
    char dir[TD_FS_PATH_BYTES];
    char name[TD_PLUGIN_FILES_MAX][256];
    size_t n;
};

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

static void list(struct names *out) {
    DIR *d = opendir(out->dir);
    out->n = 0;
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

// The next of a list of directories, of which *io_more is what is left. False: there is none. One
// whose path is too long is left out, as it cannot be loaded from.
static bool list_next(const char **io_more, struct names *out) {
    while (**io_more) {
        const char *at = *io_more;
        size_t len = strcspn(at, ":");
        *io_more += len + (at[len] == ':');
        if (len == 0 || len >= sizeof out->dir) continue;
        snprintf(out->dir, sizeof out->dir, "%.*s", (int)len, at);
        list(out);
        return true;
    }
    return false;
}

static uint64_t add_stamps(uint64_t stamp, const struct names *names) {
    for (size_t i = 0; i < names->n; i++) {
        char path[TD_FS_PATH_BYTES];
        struct stat st = {0};
        td_status s = td_fs_path(path, "%s/%s", names->dir, names->name[i]);
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
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(td_fs_open(path, &fd, NULL));
    return td_digest_fd(fd, path, out_hex);
}

static void add_files(struct td_digest *d, const struct names *names) {
    for (size_t i = 0; i < names->n; i++) {
        char hex[TD_DIGEST_HEX] = "";
        td_status_free(
            digest_file(names->dir, names->name[i], hex)); // its name counts all the same
        td_digest_update(d, names->name[i], strlen(names->name[i]) + 1);
        td_digest_update(d, hex, sizeof hex);
    }
}

// `names` holds the first directory.
static td_status digest_all(struct names *names, const char *more, char out_hex[TD_DIGEST_HEX]) {
    TD_AUTO(td_digest) *d = NULL;
    TD_TRY(td_digest_create(&d));
    add_files(d, names);
    while (list_next(&more, names)) {
        td_digest_update(d, names->dir, strlen(names->dir) + 1);
        add_files(d, names);
    }
    td_digest_hex(d, out_hex);
    return TD_OK;
}

bool td_plugin_files_look(struct td_plugin_files *f, const char *dir, const char *more) {
    TD_AUTO_FREE struct names *names = td_calloc(1, sizeof *names);
    char digest[TD_DIGEST_HEX] = "";
    const char *left = more;
    uint64_t stamp = 0;
    size_t n = 0;
    if (!names) return false; // the next look finds it
    for (bool is_first = true; is_first || list_next(&left, names); is_first = false) {
        if (is_first) {
            snprintf(names->dir, sizeof names->dir, "%s", dir);
            list(names);
        }
        stamp = add_stamps(stamp, names);
        n += names->n;
    }
    if (stamp == f->stamp) return false;
    snprintf(names->dir, sizeof names->dir, "%s", dir);
    list(names);
    TD_AUTO_STATUS td_status s = n ? digest_all(names, more, digest) : TD_OK;
    if (s) return false; // the next look tries again
    bool changed = strcmp(digest, f->digest) != 0;
    f->stamp = stamp;
    memcpy(f->digest, digest, sizeof digest);
    return changed;
}
