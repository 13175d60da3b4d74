// One daemon per state directory: the lock is held as long as the process lives, and says who holds
// it. The token is the owner's credential: 256 bits, readable by the owner alone; a token file that
// others can read is refused, because whoever reads it may run programs here. The runtime directory
// holds sockets, so it must be the owner's, too.
// The state directory holds the databases, so it must be the owner's alone as well. There wrong
// modes are repaired, because tools make directories of 0755 and earlier builds made such
// databases. The token is never repaired: who could read it may have kept it. A directory with
// files of others (a mistyped --state-dir) is refused rather than closed to the world. Rejected: no
// token on loopback; every user of the machine can connect there.

#include "daemon/home.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"
#include "lib/base/rng.h"

// A daemon that is killed while it starts a child leaves its lock to that child until the child's
// exec, a moment later. That long a lock that is held is waited for.
static const int64_t lock_wait_ns = TD_NS_PER_S / 2;

static td_status look_at(const char *path, const char *what, struct stat *out_st) {
    if (stat(path, out_st) == 0) return TD_OK;
    return td_fail_errno(TD_FAILED_PRECONDITION, "%s '%s'", what, path);
}

static td_status check_private(const char *path, const char *what) {
    struct stat st;
    TD_TRY(look_at(path, what, &st));
    if (st.st_uid != geteuid() || (st.st_mode & 077)) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "%s '%s' belongs to uid %u with mode %03o; it must be yours alone (chown, "
                       "chmod go-rwx)",
                       what, path, st.st_uid, st.st_mode & 0777);
    }
    return TD_OK;
}

// ---- modes of the state directory ---------------------------------------------------------------
// What every state directory of a daemon has, from its first start on.
static bool is_ours(const char *name) {
    return !strcmp(name, "lock") || !strcmp(name, "token") || !strcmp(name, "state.db");
}

// Empty, or a daemon's. *out_stranger: a file that no traind wrote, when it is neither.
static td_status look_inside(const char *path, bool *out_ours, char *out_stranger, size_t n) {
    DIR *dir = opendir(path);
    if (!dir) return td_fs_fail("read directory", path);
    bool ours = false;
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        ours |= is_ours(e->d_name);
        if (!out_stranger[0]) snprintf(out_stranger, n, "%s", e->d_name);
    }
    closedir(dir);
    *out_ours = ours || !out_stranger[0];
    return TD_OK;
}

// One file or directory in it; links, and what belongs to others, stay as they are.
static void repair_entry(int dir_fd, const char *name, const char *state_dir) {
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !(st.st_mode & 077)) return;
    if (st.st_uid != geteuid() || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) return;
    if (fchmodat(dir_fd, name, st.st_mode & 0700, 0) != 0) {
        td_status_log(TD_LOG_WARN, td_fs_fail("close to others", name), "mode kept, continuing");
        return;
    }
    td_log_warn("others could reach a file of the state directory, mode repaired path=%s/%s "
                "was=%04o now=%04o, continuing",
                state_dir, name, st.st_mode & 07777, st.st_mode & 0700);
}

static td_status repair_inside(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return td_fs_fail("read directory", path);
    for (struct dirent *e; (e = readdir(dir));) {
        bool skip = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
                    !strcmp(e->d_name, "token"); // read_token refuses it
        if (!skip) repair_entry(dirfd(dir), e->d_name, path);
    }
    closedir(dir);
    return TD_OK;
}

static td_status close_state_dir(const char *path) {
    const char *what = "the state directory";
    struct stat st;
    TD_TRY(look_at(path, what, &st));
    if (st.st_uid == geteuid() && (st.st_mode & 077)) {
        char stranger[256] = "";
        bool ours = false;
        TD_TRY(look_inside(path, &ours, stranger, sizeof stranger));
        if (!ours) {
            return td_fail(TD_FAILED_PRECONDITION,
                           "%s '%s' has mode %03o and holds '%s', which no traind wrote: name an "
                           "empty directory, or chmod 700 this one",
                           what, path, st.st_mode & 0777, stranger);
        }
        if (chmod(path, st.st_mode & 0700) != 0) return td_fs_fail("close to others", path);
        td_log_warn("others could reach the state directory, mode repaired path=%s was=%04o "
                    "now=%04o, continuing",
                    path, st.st_mode & 07777, st.st_mode & 0700);
    }
    TD_TRY(check_private(path, what)); // also of a filesystem that keeps no modes
    return repair_inside(path);
}

// ---- token --------------------------------------------------------------------------------------
static td_status make_token(const char *path) {
    uint8_t secret[32];
    char text[8 + 2 * sizeof secret];
    int n = snprintf(text, sizeof text, "trd_");
    td_random_bytes(secret, sizeof secret);
    for (size_t i = 0; i < sizeof secret; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "%02x", secret[i]);
    }
    text[n++] = '\n';
    return td_fs_write(path, text, (size_t)n, 0600, TD_FS_WRITE_DURABLE);
}

static td_status read_token(const struct td_config *c, struct td_home *h) {
    if (c->has_joined) return TD_OK;
    if (!td_fs_exists(c->token_file)) {
        if (c->daemon_role == TD_DAEMON_NODE) {
            return td_fail(TD_FAILED_PRECONDITION,
                           "there is no token in '%s'; copy the coordinator's, or name it with "
                           "--token-file",
                           c->token_file);
        }
        TD_TRY_CTX(make_token(c->token_file), "make the token");
    }
    TD_TRY(check_private(c->token_file, "the token"));
    TD_AUTO_BUF text;
    td_buf_init(&text, sizeof h->token);
    TD_TRY(td_fs_read(c->token_file, sizeof h->token - 1, &text));
    size_t len = strcspn(td_buf_cstr(&text), " \r\n");
    if (len < 16) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "the token in '%s' has %zu characters, at least 16 are needed; remove the "
                       "file and a new one is made",
                       c->token_file, len);
    }
    snprintf(h->token, sizeof h->token, "%.*s", (int)len, td_buf_cstr(&text));
    return TD_OK;
}

static td_status open_parts(const struct td_config *c, struct td_home *h) {
    char lock[TD_CONFIG_TEXT + 16], holder[TD_CONFIG_TEXT + 64];
    TD_TRY_CTX(td_fs_mkdirs(c->state_dir, 0700), "make the state directory");
    TD_TRY_CTX(td_fs_mkdirs(c->runtime_dir, 0700), "make the runtime directory");
    TD_TRY(check_private(c->runtime_dir, "the runtime directory"));
    TD_TRY(close_state_dir(c->state_dir));
    snprintf(lock, sizeof lock, "%s/lock", c->state_dir);
    snprintf(holder, sizeof holder, "traind, role %s", c->role);
    td_status s = td_fs_lock_within(lock, holder, lock_wait_ns, &h->lock_fd);
    if (s) {
        bool held = !strcmp(td_status_reason(s), "LOCK_HELD");
        return td_status_context(s, "the state directory '%s' %s", c->state_dir,
                                 held ? "is in use" : "cannot be used");
    }
    snprintf(h->address_path, sizeof h->address_path, "%s/address", c->state_dir);
    // A killed daemon's address leads nowhere, or to another process by now.
    if (unlink(h->address_path) != 0 && errno != ENOENT) {
        return td_fail_errno(TD_FAILED_PRECONDITION, "remove the old '%s'", h->address_path);
    }
    return read_token(c, h);
}

td_status td_home_open(const struct td_config *c, struct td_home *out_home) {
    struct td_home h = {.lock_fd = -1, .user_umask = umask(077)};
    td_status failed = open_parts(c, &h);
    if (failed) {
        td_home_close(&h);
        return failed;
    }
    *out_home = h;
    return TD_OK;
}

td_status td_home_publish(struct td_home *h, const char *address) {
    char line[TD_CONFIG_TEXT];
    int n = snprintf(line, sizeof line, "%s\n", address);
    TD_TRY_CTX(td_fs_write(h->address_path, line, (size_t)n, 0600, 0), "publish the address");
    h->wrote_address = true;
    return TD_OK;
}

void td_home_close(struct td_home *h) {
    if (h->wrote_address) unlink(h->address_path);
    if (h->lock_fd >= 0) close(h->lock_fd);
    h->lock_fd = -1;
    h->wrote_address = false;
}
