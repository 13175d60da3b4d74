// Opens what a person named; see named.h.
//
// A file is held (td_fs_hold), judged, and only then opened. Rejected: openat2 with
// RESOLVE_BENEATH. It has to know the root before it knows where the path leads, and refuses a link
// from one allowed directory to another.

#include "lib/base/files/named.h"

#include "lib/base/files/files.h"

enum { TRIES = 8 }; // of a file that others replace by renames

static td_status hold_by(enum td_path_use use, const char *path, int *out_held,
                         struct stat *out_st) {
    for (int i = 1;; i++) {
        TD_AUTO_CLOSE int held = -1;
        TD_TRY(td_fs_hold(path, &held, out_st));
        td_status s = td_path_rules_check(use, path, held);
        if (!s) *out_held = td_steal_fd(&held);
        if (!td_path_rules_moved(s) || i == TRIES) return s;
        td_status_free(s);
    }
}

static td_status open_by(enum td_path_use use, const char *path, mode_t kind, int *out_fd,
                         struct stat *out_st) {
    struct stat st;
    TD_AUTO_CLOSE int held = -1;
    TD_TRY(hold_by(use, path, &held, &st));
    TD_TRY(td_fs_open_held(held, path, kind, out_fd));
    if (out_st) *out_st = st;
    return TD_OK;
}

// A refusal by the rules keeps its class; where the file went, another attempt may find it.
static td_status of_data(td_status s) {
    return td_path_rules_refused(s) || td_path_rules_moved(s)
               ? s
               : td_status_with_class(s, TD_CLASS_DATA);
}

td_status td_named_open(const char *path, int *out_fd, struct stat *out_st) {
    return of_data(open_by(TD_PATH_READ, path, S_IFREG, out_fd, out_st));
}

td_status td_named_open_dir(enum td_path_use use, const char *path, int *out_fd) {
    return open_by(use, path, S_IFDIR, out_fd, NULL);
}

td_status td_named_list(const char *path, DIR **out_dir) {
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(of_data(td_named_open_dir(TD_PATH_READ, path, &fd)));
    DIR *dir = fdopendir(fd);
    if (!dir) return of_data(td_fs_fail("list", path));
    td_steal_fd(&fd);
    *out_dir = dir;
    return TD_OK;
}

td_status td_named_stat(const char *path, struct stat *out_st) {
    struct stat st;
    TD_AUTO_CLOSE int held = -1;
    TD_TRY(of_data(hold_by(TD_PATH_READ, path, &held, &st)));
    *out_st = st;
    return TD_OK;
}

td_status td_named_read(const char *path, size_t max_bytes, struct td_buf *out) {
    struct stat st;
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(td_named_open(path, &fd, &st));
    return td_fs_read_open(fd, path, &st, max_bytes, out);
}
