// Opens what a person named; see named.h.
//
// A file is held (td_fs_hold), judged, and only then opened. Rejected: openat2 with
// RESOLVE_BENEATH. It has to know the root before it knows where the path leads, and refuses a link
// from one allowed directory to another.

#include "lib/base/named.h"

#include "lib/base/fsio.h"

static td_status open_by(enum td_path_use use, const char *path, mode_t kind, int *out_fd,
                         struct stat *out_st) {
    struct stat st;
    TD_AUTO_CLOSE int held = -1;
    TD_TRY(td_fs_hold(path, &held, &st));
    TD_TRY(td_path_rules_check(use, path, held));
    TD_TRY(td_fs_open_held(held, path, kind, out_fd));
    if (out_st) *out_st = st;
    return TD_OK;
}

// A refusal by the rules keeps its class.
static td_status of_data(td_status s) {
    return td_path_rules_refused(s) ? s : td_status_with_class(s, TD_CLASS_DATA);
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
    TD_TRY(of_data(td_fs_hold(path, &held, &st)));
    TD_TRY(td_path_rules_check(TD_PATH_READ, path, held));
    *out_st = st;
    return TD_OK;
}

td_status td_named_read(const char *path, size_t max_bytes, struct td_buf *out) {
    struct stat st;
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(td_named_open(path, &fd, &st));
    return td_fs_read_open(fd, path, &st, max_bytes, out);
}
