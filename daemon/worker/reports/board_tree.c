// See the header. Entries of both lists are found by their path. A directory comes into the list
// before those below it, the root first.

#include "daemon/worker/reports/board_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "daemon/worker/reports/board_notes.h"
#include "lib/attempt/metric_names.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named.h"

enum {
    DIRS_A_LOOK = 256,
    DEEP = 8,
    LISTED = 16384,
    BELOW_BYTES = TD_METRIC_NAME_BYTES + NAME_MAX + 1, // a path: directory, '/', name
};
static const int64_t listed_ns = 10 * TD_NS_PER_S, fresh_ns = 2 * TD_NS_PER_S;

struct td_board_dir {
    char path[TD_METRIC_NAME_BYTES]; // below the root, which is ""
    uint64_t device, inode;
    int64_t changed_ns;
    struct td_mono listed;    // ns 0: never
    uint32_t n_links, n_many; // that were noted
    bool unread;
};

static int64_t changed_ns(const struct stat *st) {
    return st->st_mtim.tv_sec * TD_NS_PER_S + st->st_mtim.tv_nsec;
}

// ---- lists --------------------------------------------------------------------------------------
static bool is_below(const char *path, const char *dir) {
    const size_t n = strlen(dir);
    return n == 0 || (strncmp(path, dir, n) == 0 && path[n] == '/');
}

void td_board_tree_forget(struct td_board_tree *t, size_t file) {
    td_board_file_finish(&t->file[file]);
    t->file[file] = t->file[--t->n_files];
}

// With all that is below it.
static void forget_dir(struct td_board_tree *t, size_t at) {
    char path[TD_METRIC_NAME_BYTES];
    memcpy(path, t->dir[at].path, sizeof path);
    for (size_t i = t->n_files; i-- > 0;) {
        if (is_below(t->file[i].path, path)) td_board_tree_forget(t, i);
    }
    size_t kept = 0;
    for (size_t i = 0; i < t->n_dirs; i++) {
        const bool goes = i == at || is_below(t->dir[i].path, path);
        if (!goes) t->dir[kept++] = t->dir[i];
    }
    t->n_dirs = kept;
}

void td_board_tree_finish(struct td_board_tree *t) {
    if (t->n_dirs) forget_dir(t, 0);
    td_auto_close(&t->root_fd);
    t->root_fd = -1;
    free(t->dir);
    free(t->file);
    t->dir = NULL;
    t->file = NULL;
    t->dirs_cap = t->files_cap = 0;
}

// Room for one more in a list; false: there is none.
static bool grow(void **list, size_t n, size_t *cap, size_t most, size_t item_bytes) {
    if (n < *cap) return true;
    if (n == most) return false;
    const size_t more = *cap ? 2 * *cap : 16;
    void *grown = td_realloc(*list, more * item_bytes);
    if (!grown) return false;
    *list = grown;
    *cap = more;
    return true;
}

static bool has_dir(const struct td_board_tree *t, const char *path) {
    for (size_t i = 0; i < t->n_dirs; i++) {
        if (strcmp(t->dir[i].path, path) == 0) return true;
    }
    return false;
}

static bool has_file(const struct td_board_tree *t, const char *path) {
    for (size_t i = 0; i < t->n_files; i++) {
        if (strcmp(t->file[i].path, path) == 0) return true;
    }
    return false;
}

// False: it is past a bound.
static bool add_dir(struct td_board_tree *t, const char *path) {
    int deep = 0;
    for (const char *at = path; (at = strchr(at, '/')); at++) {
        deep++;
    }
    if (has_dir(t, path)) return true;
    // "/x" has to follow in the name of a metric.
    if (deep >= DEEP || strlen(path) + 2 >= TD_METRIC_NAME_BYTES) return false;
    void *list = t->dir;
    if (!grow(&list, t->n_dirs, &t->dirs_cap, TD_BOARD_DIRS, sizeof *t->dir)) return false;
    t->dir = list;
    struct td_board_dir *d = &t->dir[t->n_dirs++];
    *d = (struct td_board_dir){0};
    memcpy(d->path, path, strlen(path));
    return true;
}

static bool add_file(struct td_board_tree *t, const char *path, size_t dir_bytes) {
    struct stat st;
    if (fstatat(t->root_fd, path, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
        changed_ns(&st) < t->old_ns || has_file(t, path)) {
        return true;
    }
    void *list = t->file;
    if (!grow(&list, t->n_files, &t->files_cap, TD_BOARD_FILES, sizeof *t->file)) return false;
    t->file = list;
    char *own = td_strdup(path);
    if (!own) return false;
    t->file[t->n_files++] = (struct td_board_file){
        .path = own,
        .dir_bytes = dir_bytes,
        .mark = {.device = st.st_dev, .inode = st.st_ino},
        .bytes = -1,
    };
    return true;
}

// ---- listing ------------------------------------------------------------------------------------
// What a launcher writes for `loggers`: "...traind.a3".
static bool is_of_launcher(const char *name) {
    static const char mark[] = ".traind.a";
    const char *at = strstr(name, mark);
    const char *digits = at ? at + sizeof mark - 1 : "";
    return *digits && !digits[strspn(digits, "0123456789")];
}

static mode_t kind_of(int fd, const struct dirent *e) {
    struct stat st;
    if (e->d_type != DT_UNKNOWN) return DTTOIF(e->d_type);
    return fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_mode & S_IFMT : 0;
}

static const char *shown(const struct td_board_tree *t, const char *path) {
    return *path ? path : t->path;
}

struct listing {
    struct td_board_tree *t;
    size_t at; // of the directory
    int fd;
    uint32_t n_links, n_many, n_entries;
};

static void count_link(struct listing *l, const char *path) {
    struct td_board_dir *d = &l->t->dir[l->at];
    if (++l->n_links <= d->n_links) return;
    d->n_links++;
    td_board_note(l->t->notes, TD_BOARD_LINK, path,
                  "is a link, or no regular file, and is not followed");
}

static void count_many(struct listing *l, const char *path) {
    struct td_board_dir *d = &l->t->dir[l->at];
    if (++l->n_many <= d->n_many) return;
    d->n_many++;
    td_board_note(l->t->notes, TD_BOARD_MANY, path,
                  "is not followed: there are at most %d files, %d directories, %d levels, and %d "
                  "bytes of a directory's path",
                  TD_BOARD_FILES, TD_BOARD_DIRS, DEEP, TD_METRIC_NAME_BYTES - 3);
}

static void take_entry(struct listing *l, const struct dirent *e) {
    char path[BELOW_BYTES];
    struct stat to;
    const char *dir = l->t->dir[l->at].path, *name = e->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return;
    const bool is_event = strstr(name, "tfevents") && !is_of_launcher(name);
    const mode_t kind = kind_of(l->fd, e);
    const int n = snprintf(path, sizeof path, "%s%s%s", dir, *dir ? "/" : "", name);
    if (n < 0 || n >= (int)sizeof path) return;
    if (S_ISDIR(kind)) {
        if (!add_dir(l->t, path)) count_many(l, path);
    } else if (S_ISREG(kind)) {
        if (is_event && !add_file(l->t, path, strlen(dir))) count_many(l, path);
    } else if (is_event ||
               (S_ISLNK(kind) && fstatat(l->fd, name, &to, 0) == 0 && S_ISDIR(to.st_mode))) {
        count_link(l, path);
    }
}

static td_status list(struct td_board_tree *t, size_t at) {
    struct stat st;
    TD_AUTO_CLOSE int held = -1, fd = -1;
    struct listing l = {.t = t, .at = at};
    const char *path = t->dir[at].path;
    TD_TRY(td_fs_hold_below(t->root_fd, path, &held, &st));
    TD_TRY(td_fs_open_held(held, path, S_IFDIR, &fd));
    DIR *dir = fdopendir(fd);
    if (!dir) return td_fs_fail("list", path);
    l.fd = td_steal_fd(&fd); // it is dir's
    errno = 0;
    for (struct dirent *e; l.n_entries < LISTED && (e = readdir(dir)); l.n_entries++) {
        take_entry(&l, e);
    }
    if (l.n_entries == LISTED) count_many(&l, shown(t, t->dir[at].path));
    closedir(dir);
    return TD_OK;
}

// ---- looking ------------------------------------------------------------------------------------
static void note_unread(struct td_board_tree *t, const char *path, td_status take_failed) {
    td_board_note(t->notes, TD_BOARD_UNREAD, path, "cannot be read: %s",
                  td_status_message(take_failed));
    td_status_free(take_failed);
}

static bool is_due(const struct td_board_dir *d, const struct stat *st, struct td_mono now) {
    const int64_t age_ns = td_real_now().ns - changed_ns(st);
    return d->listed.ns == 0 || changed_ns(st) != d->changed_ns ||
           (age_ns < fresh_ns && age_ns > -fresh_ns) || now.ns - d->listed.ns >= listed_ns;
}

// False: it is not there any more, and was forgotten.
static bool visit(struct td_board_tree *t, size_t at, struct td_mono now) {
    struct td_board_dir *d = &t->dir[at];
    struct stat st;
    const int failed = d->path[0] ? fstatat(t->root_fd, d->path, &st, AT_SYMLINK_NOFOLLOW)
                                  : fstat(t->root_fd, &st);
    const bool is_known = d->listed.ns != 0;
    if (failed || !S_ISDIR(st.st_mode) ||
        (is_known && (st.st_ino != d->inode || st.st_dev != d->device))) {
        forget_dir(t, at);
        return false;
    }
    if (!is_due(d, &st, now)) return true;
    d->device = st.st_dev;
    d->inode = st.st_ino;
    d->changed_ns = changed_ns(&st);
    d->listed = now;
    td_status unread = list(t, at);
    d = &t->dir[at]; // the list may have grown
    const bool is_news = unread && !d->unread && !td_fs_is_gone(unread);
    d->unread = unread != TD_OK;
    if (is_news) {
        note_unread(t, shown(t, d->path), unread);
    } else {
        td_status_free(unread);
    }
    return true;
}

// False: it is not there.
static bool open_root(struct td_board_tree *t) {
    struct stat now, held;
    const int why = stat(t->path, &now) == 0 ? 0 : errno;
    if (t->root_fd >= 0 && !why && fstat(t->root_fd, &held) == 0 && held.st_ino == now.st_ino &&
        held.st_dev == now.st_dev) {
        return true;
    }
    if (t->n_dirs) forget_dir(t, 0);
    td_auto_close(&t->root_fd);
    t->root_fd = -1;
    if (why == ENOENT) return false;
    td_status failed = td_named_open_dir(TD_PATH_READ, t->path, &t->root_fd);
    if (!failed) return add_dir(t, "");
    if (t->said_unread) {
        td_status_free(failed);
    } else {
        note_unread(t, t->path, failed);
    }
    t->said_unread = true;
    return false;
}

void td_board_tree_look(struct td_board_tree *t, struct td_mono now) {
    if (!open_root(t)) return;
    const bool all = t->n_dirs <= DIRS_A_LOOK; // those that are found now, too
    if (all) t->next_dir = 0;
    for (int i = 0; i < DIRS_A_LOOK && t->n_dirs > 0; i++) {
        if (t->next_dir >= t->n_dirs && all) break;
        if (t->next_dir >= t->n_dirs) t->next_dir = 0;
        if (visit(t, t->next_dir, now)) t->next_dir++;
    }
}

bool td_board_tree_stat(const struct td_board_tree *t, const struct td_board_file *f,
                        struct stat *out_st) {
    return t->root_fd >= 0 && fstatat(t->root_fd, f->path, out_st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(out_st->st_mode);
}

td_status td_board_tree_open(const struct td_board_tree *t, const struct td_board_file *f,
                             int *out_fd) {
    struct stat st;
    TD_AUTO_CLOSE int held = -1;
    TD_TRY(td_fs_hold_below(t->root_fd, f->path, &held, &st));
    return td_fs_open_held(held, f->path, S_IFREG, out_fd);
}
