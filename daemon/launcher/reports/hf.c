// See the header.

#include "daemon/launcher/reports/hf.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "daemon/launcher/command/command.h"
#include "daemon/launcher/reports/python.h"
#include "daemon/launcher/state.h"
#include "lib/attempt/segments.h"
#include "lib/base/clip.h"
#include "lib/base/files/files.h"
#include "lib/base/rng.h"

enum { MINOR_LEAST = 11, BACKLOG = 64 };
static const char *const proxy_names[] = {"NO_PROXY", "no_proxy"};
#define LOOPBACK "127.0.0.1"

static const char *value_of(const struct td_launch_command *c, const char *name) {
    const size_t len = strlen(name);
    for (size_t i = 0; i < c->n_env; i++) {
        if (strncmp(c->env[i], name, len) == 0 && c->env[i][len] == '=') {
            return c->env[i] + len + 1;
        }
    }
    return NULL;
}

// ---- is it wanted -------------------------------------------------------------------------------
static bool is_set_by_hand(const struct td_launch_command *c) {
    const char *off = value_of(c, "DISABLE_KUBEFLOW_INTEGRATION");
    return (off && strcasecmp(off, "true") == 0) || value_of(c, "KUBEFLOW_TRAINER_SERVER_URL") ||
           value_of(c, "KUBEFLOW_TRAINER_SERVER_TOKEN");
}

// False, and why, if the user does not know that.
static bool python_can(const struct td_launch_command *c, char *out_note, size_t note_bytes) {
    static struct td_python python; // one thread
    const char *path = value_of(c, "PATH"), *home = value_of(c, "HOME");
    const struct td_python_of of = {
        .program = c->argv[0], .path = path ? path : "", .workdir = c->workdir};
    td_python_find(&of, &python);
    if (python.minor >= MINOR_LEAST) return true;
    if (td_python_has(&python, "transformers", home ? home : "")) {
        (void)td_clip(out_note, note_bytes,
                      "a Trainer of Hugging Face reports to traind by itself under Python 3.%d or "
                      "newer; '%s' is 3.%d, so its metrics come only if the script calls "
                      "traind.log()",
                      MINOR_LEAST, python.file, python.minor);
    }
    return false;
}

// ---- what a rank finds --------------------------------------------------------------------------
static td_status open_socket(struct td_launch_hf *hf) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    hf->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (hf->listen_fd < 0 || bind(hf->listen_fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(hf->listen_fd, BACKLOG) != 0 ||
        getsockname(hf->listen_fd, (struct sockaddr *)&at, &bytes) != 0) {
        return td_fail_errno(TD_UNAVAILABLE, "listen on " LOOPBACK);
    }
    hf->port = ntohs(at.sin_port);
    return TD_OK;
}

static td_status write_token(const char *dir, int32_t rank) {
    static const char digits[] = "0123456789abcdef";
    unsigned char random[(TD_TOKEN_HEX - 1) / 2];
    char path[TD_FS_PATH_BYTES], text[TD_TOKEN_HEX - 1];
    TD_TRY(td_fs_path(path, "%s/" TD_SEGMENT_TOKEN, dir, (unsigned)rank));
    td_random_bytes(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++) {
        text[2 * i] = digits[random[i] >> 4];
        text[2 * i + 1] = digits[random[i] & 15];
    }
    (void)unlink(path);
    // The mask is the job's: 0600 is what the file has, whatever that is.
    TD_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fchmod(fd, 0600) != 0) return td_fs_fail("create", path);
    return td_fd_write_all(fd, text, sizeof text, path);
}

static bool names_loopback(const char *list) {
    for (const char *at = list; *at;) {
        at += strspn(at, ", ");
        const size_t n = strcspn(at, ", ");
        if (n == strlen(LOOPBACK) && memcmp(at, LOOPBACK, n) == 0) return true;
        at += n;
    }
    return false;
}

// What a list of hosts becomes: with 127.0.0.1 at its end, unless it has it, or all hosts.
static const char *with_loopback(struct td_arena *arena, const char *name, const char *list) {
    const bool has = list && (strcmp(list, "*") == 0 || names_loopback(list));
    if (has) return td_arena_printf(arena, "%s=%s", name, list);
    const bool empty = !list || !*list;
    return td_arena_printf(arena, "%s=%s%s" LOOPBACK, name, empty ? "" : list, empty ? "" : ",");
}

static td_status spare_proxies(struct td_launch_command *c) {
    const char *small = value_of(c, proxy_names[1]), *large = value_of(c, proxy_names[0]);
    const char *lists[TD_COUNTOF(proxy_names)] = {large ? large : small, small ? small : large};
    const char **env = td_arena_array(c->arena, c->n_env + TD_COUNTOF(lists) + 1, sizeof *env);
    if (!env) return td_fail_oom();
    size_t n = 0;
    for (size_t i = 0; i < c->n_env; i++) {
        bool is_list = false;
        for (size_t k = 0; k < TD_COUNTOF(proxy_names); k++) {
            const size_t len = strlen(proxy_names[k]);
            is_list |= strncmp(c->env[i], proxy_names[k], len) == 0 && c->env[i][len] == '=';
        }
        if (!is_list) env[n++] = c->env[i];
    }
    for (size_t i = 0; i < TD_COUNTOF(lists); i++) {
        env[n] = with_loopback(c->arena, proxy_names[i], lists[i]);
        if (!env[n++]) return td_fail_oom();
    }
    c->env = env;
    c->n_env = n;
    return TD_OK;
}

static td_status open_all(struct td_launcher *l, struct td_launch_hf *hf) {
    TD_TRY(open_socket(hf));
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        TD_TRY(write_token(l->o.dir, l->o.first_rank + i));
    }
    return spare_proxies(l->command);
}

void td_launch_hf_open(struct td_launcher *l, struct td_launch_hf *out_hf, char *out_note,
                       size_t note_bytes) {
    const char *wish = l->command->transformers;
    struct td_launch_hf hf = {.listen_fd = -1};
    *out_note = '\0';
    *out_hf = hf;
    if (strcmp(wish, "never") == 0 || is_set_by_hand(l->command)) return;
    const bool is_asked = strcmp(wish, "always") == 0;
    if (!is_asked && !python_can(l->command, out_note, note_bytes)) return;
    td_status s = open_all(l, &hf);
    if (s) {
        (void)td_clip(out_note, note_bytes,
                      "a Trainer of Hugging Face cannot report to traind by itself here: %s",
                      td_status_message(s));
        td_launch_hf_close(&hf);
        td_status_free(s);
    } else {
        l->command->hf_port = hf.port;
    }
    *out_hf = hf;
}

void td_launch_hf_close(struct td_launch_hf *hf) {
    td_auto_close(&hf->listen_fd);
    hf->listen_fd = -1;
}
