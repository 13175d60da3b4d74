// The path rules of this process; see path_rules.h.
//
// A file is judged by where it is: the kernel's name of the open descriptor, walked from the root.
// Directories of the rules are compared by device and inode, so that it does not matter by which
// mount or link they are named. They are looked at again for each file, as a job's own is made
// late. A file with several names is compared with all that traind keeps directly in its state
// directory and in its tls/, whose other names the walk does not see.
//
// Rejected: comparing texts of paths, which a bind mount passes by; keeping the list of secrets
// from the start, as databases and tokens are replaced by renames.

#include "lib/base/files/path_rules.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/files/files.h"
#include "lib/base/json.h"

static struct {
    struct td_arena *arena; // NULL: there are no rules
    struct td_path_rules r;
} mine;

enum place { ELSEWHERE, READ_ROOT, WRITE_ROOT, CHECKPOINTS, OWN, STATE };

// ---- as text ------------------------------------------------------------------------------------
static const struct {
    const char *key;
    size_t at;
} texts[] = {
    {"state_dir", offsetof(struct td_path_rules, state_dir)},
    {"own_dir", offsetof(struct td_path_rules, own_dir)},
    {"token_file", offsetof(struct td_path_rules, token_file)},
    {"read_roots", offsetof(struct td_path_rules, read_roots)},
    {"write_roots", offsetof(struct td_path_rules, write_roots)},
};

static const char **field(struct td_path_rules *r, size_t i) {
    return (const char **)((char *)r + texts[i].at);
}

td_status td_path_rules_print(const struct td_path_rules *r, struct td_buf *out) {
    struct td_path_rules copy = *r;
    TD_TRY(td_buf_printf(out, "{\"owner\":%s", r->is_owner ? "true" : "false"));
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        const char *text = *field(&copy, i);
        TD_TRY(td_buf_printf(out, ",\"%s\":", texts[i].key));
        TD_TRY(td_json_print_string(text ? text : "", text ? strlen(text) : 0, out));
    }
    return td_buf_str(out, "}");
}

td_status td_path_rules_take(const char *text) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *root;
    struct td_path_rules r = {0};
    TD_TRY(td_arena_create(4 * TD_PATH_RULES_BYTES, &arena));
    TD_TRY_CTX(td_json_parse(arena, text, strlen(text), &root), "path rules");
    r.is_owner = td_json_bool(td_json_get(root, "owner"), false);
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        *field(&r, i) = td_json_string(td_json_get(root, texts[i].key), "");
    }
    td_path_rules_forget();
    mine.r = r;
    mine.arena = td_steal(arena);
    return TD_OK;
}

void td_path_rules_forget(void) {
    td_arena_destroy(mine.arena);
    mine.arena = NULL;
}

// ---- where a file is ----------------------------------------------------------------------------
static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_at(const char *path, const struct stat *st) {
    struct stat other;
    return path[0] && stat(path, &other) == 0 && is_same(st, &other);
}

static bool is_one_of(const char *roots, const struct stat *st) {
    char root[TD_FS_PATH_BYTES];
    for (const char *p = roots; *p;) {
        const size_t len = strcspn(p, ":");
        const int n = snprintf(root, sizeof root, "%.*s", (int)len, p);
        if (n < (int)sizeof root && is_at(root, st)) return true;
        p += len + (p[len] == ':');
    }
    return false;
}

static bool is_checkpoints(const struct stat *st) {
    char path[TD_FS_PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/checkpoints", mine.r.state_dir);
    return mine.r.state_dir[0] && n < (int)sizeof path && is_at(path, st);
}

// A root to read in one to write does not end it for writing, so only what counts for `use` does.
static enum place place_of(enum td_path_use use, const struct stat *st) {
    if (is_at(mine.r.state_dir, st)) return STATE;
    if (is_at(mine.r.own_dir, st)) return OWN;
    if (is_checkpoints(st)) return CHECKPOINTS;
    if (is_one_of(mine.r.write_roots, st)) return WRITE_ROOT;
    return use == TD_PATH_READ && is_one_of(mine.r.read_roots, st) ? READ_ROOT : ELSEWHERE;
}

struct found {
    enum place place; // of the nearest directory that has one
    bool is_public;   // everyone may read it
};

static void pass(enum td_path_use use, const struct stat *st, struct found *f) {
    const enum place here = S_ISDIR(st->st_mode) ? place_of(use, st) : ELSEWHERE;
    if (here != ELSEWHERE) f->place = here;
    if (S_ISDIR(st->st_mode) && !(st->st_mode & S_IXOTH)) f->is_public = false;
}

// False: it has moved, or has no name.
static bool walk(enum td_path_use use, int fd, const struct stat *end, struct found *out) {
    char link[32], path[TD_FS_PATH_BYTES];
    struct stat st;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t len = readlink(link, path, sizeof path - 1);
    if (len <= 0 || path[0] != '/') return false;
    path[len] = '\0';
    *out = (struct found){.is_public = true};
    if (stat("/", &st) != 0) return false;
    pass(use, &st, out);
    for (char *p = path + 1; len > 1 && p; *p++ = '/') {
        p = strchr(p, '/');
        if (p) *p = '\0';
        if (lstat(path, &st) != 0) return false;
        pass(use, &st, out);
        if (!p) break;
    }
    out->is_public = out->is_public && (end->st_mode & S_IROTH);
    return is_same(&st, end);
}

// ---- what nobody may use ------------------------------------------------------------------------
static bool holds(const char *dir, const struct stat *st) {
    struct stat other;
    DIR *d = dir[0] ? opendir(dir) : NULL; // one of traind's own
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        found = fstatat(dirfd(d), e->d_name, &other, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISREG(other.st_mode) && is_same(st, &other);
    }
    if (d) closedir(d);
    return found;
}

static bool is_secret(const struct stat *st) {
    char tls[TD_FS_PATH_BYTES];
    if (!S_ISREG(st->st_mode)) return false;
    if (is_at(mine.r.token_file, st)) return true;
    if (st->st_nlink == 1 || !mine.r.state_dir[0]) return false;
    const int n = snprintf(tls, sizeof tls, "%s/tls", mine.r.state_dir);
    return holds(mine.r.state_dir, st) || (n < (int)sizeof tls && holds(tls, st));
}

// ---- the rules ----------------------------------------------------------------------------------
static const char not_allowed[] = "PATH_NOT_ALLOWED", moved[] = "PATH_MOVED";

bool td_path_rules_refused(td_status borrow_status) {
    return strcmp(td_status_reason(borrow_status), not_allowed) == 0;
}

bool td_path_rules_moved(td_status borrow_status) {
    return strcmp(td_status_reason(borrow_status), moved) == 0;
}

static td_status refuse(enum td_path_use use, const char *path, const char *why, const char *flag,
                        const char *roots) {
    td_status s = td_fail(TD_PERMISSION_DENIED, "a job may not %s '%.1024s': %s%s%s%s%s",
                          use == TD_PATH_READ ? "read" : "write", path, why, flag,
                          *roots ? " '" : "", roots, *roots ? "'" : "");
    return td_status_with_reason(td_status_with_class(s, TD_CLASS_BAD_SPEC), not_allowed);
}

static td_status refuse_other(enum td_path_use use, const char *path) {
    const char *roots = use == TD_PATH_READ ? mine.r.read_roots : mine.r.write_roots;
    const char *flag = use == TD_PATH_READ ? "--read-roots" : "--write-roots";
    const char *why = *roots ? "jobs of submitters are bound to this node's "
                      : use == TD_PATH_READ
                          ? "not everyone on this machine may read it, and this node has no "
                          : "jobs of submitters write into their own directories, and this node "
                            "has no ";
    return refuse(use, path, why, flag, roots);
}

td_status td_path_rules_check(enum td_path_use use, const char *path, int fd) {
    struct stat st;
    struct found f;
    const bool reads = use == TD_PATH_READ;
    if (!mine.arena) return TD_OK;
    if (fstat(fd, &st) != 0) return td_fs_fail("look at", path);
    if (is_secret(&st)) {
        return refuse(use, path, "it is a key, token or database of traind", "", "");
    }
    if (!walk(use, fd, &st, &f)) {
        return td_status_with_reason(
            td_fail(TD_UNAVAILABLE, "'%.1024s' was moved or removed while it was opened", path),
            moved);
    }
    switch (f.place) {
    case STATE:
        return refuse(use, path, "it is in the state directory of traind, ", "--state-dir",
                      mine.r.state_dir);
    case CHECKPOINTS:
        if (reads || (use == TD_PATH_MAKE && is_checkpoints(&st))) return TD_OK;
        return refuse(use, path, "it is in the directory of other jobs' checkpoints, below ",
                      "--state-dir", mine.r.state_dir);
    case OWN:
    case WRITE_ROOT:
    case READ_ROOT:
        return TD_OK;
    case ELSEWHERE:
        if (mine.r.is_owner) return TD_OK;
        if (reads && f.is_public && !mine.r.read_roots[0]) return TD_OK;
        return refuse_other(use, path);
    }
    return TD_OK;
}
