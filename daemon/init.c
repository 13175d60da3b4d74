// Names: those that are given, and always those by which this machine calls itself, so that a
// client here needs none. Without --host a certificate that is good for a month more stays; with
// --host there is a new one, for these names. The key is written before its certificate: who looks
// in between finds a pair that does not fit, and goes on with the one it has.

#include "daemon/init.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config.h"
#include "lib/base/files/files.h"
#include "lib/tls/authority.h"
#include "lib/tls/certificate.h"

enum { MAX_HOSTS = 64, KEY_STATE_DIR = 256, KEY_HOST, DAY_S = 86400 };
static const int64_t lifetime_s = INT64_C(825) * DAY_S, renew_below_s = INT64_C(30) * DAY_S;

struct init {
    const char *state_dir;
    const char *hosts[MAX_HOSTS + 4];
    size_t n_hosts, n_given;
    char dir[TD_FS_PATH_BYTES - 32];
    struct td_buf ca, ca_key;
    bool made_ca, made_certificate;
};

static error_t parse_flag(int key, char *arg, struct argp_state *state) {
    struct init *self = state->input;
    switch (key) {
    case KEY_STATE_DIR:
        self->state_dir = arg;
        return 0;
    case KEY_HOST:
        if (self->n_given == MAX_HOSTS) argp_error(state, "at most %d hosts", MAX_HOSTS);
        self->hosts[self->n_given++] = arg;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "init takes no arguments, only flags; not '%s'", arg);
    // argp_error does not return
    // fall through
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static td_status read_if_there(const struct init *self, const char *name, struct td_buf *out) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", self->dir, name));
    td_buf_clear(out);
    return td_fs_exists(path) ? td_fs_read(path, TD_TLS_PEM_MAX, out) : TD_OK;
}

static td_status write_file(const struct init *self, const char *name, const struct td_buf *text) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", self->dir, name));
    return td_fs_write(path, text->data, text->len, 0600, TD_FS_WRITE_DURABLE);
}

// A CA that lost one of its files is not replaced: that would shut out everyone who trusts it.
static td_status make_ca(struct init *self, const char *host) {
    TD_TRY(read_if_there(self, "ca.pem", &self->ca));
    TD_TRY(read_if_there(self, "ca.key", &self->ca_key));
    if (self->ca.len && self->ca_key.len) return TD_OK;
    if (self->ca.len || self->ca_key.len) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "'%s' has only one of ca.pem and ca.key: put the other back, or remove both "
                       "and run `traind init` again; nodes and clients then need the new ca.pem",
                       self->dir);
    }
    char name[TD_TLS_NAME_BYTES];
    snprintf(name, sizeof name, "traind CA of %.40s", host);
    TD_TRY(td_authority_make(name, &self->ca, &self->ca_key));
    self->made_ca = true;
    TD_TRY(write_file(self, "ca.key", &self->ca_key));
    return write_file(self, "ca.pem", &self->ca);
}

// Whether what is there may stay.
static bool is_good(struct init *self) {
    TD_AUTO_BUF pem, key;
    td_buf_init(&pem, TD_TLS_PEM_MAX);
    td_buf_init(&key, TD_TLS_PEM_MAX);
    struct td_certificate c;
    td_status bad = read_if_there(self, "server.pem", &pem);
    if (!bad) bad = read_if_there(self, "server.key", &key);
    if (!bad) {
        bad = td_certificate_verify(td_buf_cstr(&self->ca), td_buf_cstr(&pem), TD_TLS_SERVER, NULL);
    }
    if (!bad) bad = td_certificate_fits(td_buf_cstr(&pem), td_buf_cstr(&key));
    if (!bad) bad = td_certificate_read(td_buf_cstr(&pem), &c);
    bool good = !bad && c.left_s > renew_below_s;
    td_status_free(bad);
    return good;
}

static td_status make_certificate(struct init *self) {
    if (!self->n_given && is_good(self)) return TD_OK;
    TD_AUTO(td_authority) *authority = NULL;
    TD_AUTO_BUF key, request, pem;
    td_buf_init(&key, TD_TLS_PEM_MAX);
    td_buf_init(&request, TD_TLS_PEM_MAX);
    td_buf_init(&pem, TD_TLS_PEM_MAX);
    TD_TRY(td_authority_open(td_buf_cstr(&self->ca), td_buf_cstr(&self->ca_key), &authority));
    TD_TRY(td_tls_key_make(&key));
    TD_TRY(td_tls_request_make(td_buf_cstr(&key), "coordinator", &request));
    const struct td_authority_terms terms = {.use = TD_TLS_SERVER,
                                             .name = "coordinator",
                                             .hosts = self->hosts,
                                             .n_hosts = self->n_hosts,
                                             .lifetime_s = lifetime_s};
    TD_TRY(td_authority_issue(authority, td_buf_cstr(&request), &terms, &pem));
    self->made_certificate = true;
    TD_TRY(write_file(self, "server.key", &key));
    return write_file(self, "server.pem", &pem);
}

// As root it goes on as the state directory's owner, whose daemon reads what it makes.
static td_status become_owner(const char *state_dir) {
    struct stat st;
    if (geteuid() != 0 || stat(state_dir, &st) != 0 || st.st_uid == 0) return TD_OK;
    if (setegid(st.st_gid) == 0 && seteuid(st.st_uid) == 0) return TD_OK;
    return td_fail_errno(TD_FAILED_PRECONDITION, "become uid %u, which owns '%s'", st.st_uid,
                         state_dir);
}

static td_status run(struct init *self) {
    char host[256] = "localhost", state_dir[TD_CONFIG_TEXT];
    (void)gethostname(host, sizeof host - 1);
    const char *const own[] = {"localhost", "127.0.0.1", "::1", host};
    self->n_hosts = self->n_given;
    for (size_t i = 0; i < TD_COUNTOF(own); i++) {
        self->hosts[self->n_hosts++] = own[i];
    }
    TD_TRY(td_config_state_dir(self->state_dir, state_dir));
    TD_TRY(td_fs_path(self->dir, "%s/tls", state_dir));
    umask(077);
    TD_TRY(become_owner(state_dir));
    TD_TRY_CTX(td_fs_mkdirs(self->dir, 0700), "make the directory of certificates");
    TD_TRY(make_ca(self, host));
    TD_TRY(make_certificate(self));
    struct td_certificate ca;
    TD_TRY(td_certificate_read(td_buf_cstr(&self->ca), &ca));
    printf("CA           %s/ca.pem (%s)\n", self->dir, self->made_ca ? "new" : "kept");
    printf("certificate  %s/server.pem (%s)\n", self->dir, self->made_certificate ? "new" : "kept");
    printf("fingerprint  %s\n", ca.fingerprint);
    return td_fs_flush_stdout();
}

int td_init_main(int argc, char **argv) {
    static const struct argp_option options[] = {
        {"state-dir", KEY_STATE_DIR, "DIR", 0, "the coordinator's state directory", 0},
        {"host", KEY_HOST, "NAME_OR_ADDRESS", 0,
         "by which nodes and clients dial the coordinator; may be repeated. Names of this machine "
         "(localhost, its host name) are always in the certificate",
         0},
        {0}};
    const struct argp argp = {
        options,
        parse_flag,
        NULL,
        "Makes a CA and the coordinator's certificate, for a coordinator that listens beyond its "
        "own machine. A CA that is there is kept. Run by root, it makes "
        "files of the state directory's owner.",
        NULL,
        NULL,
        NULL};
    struct init self = {0};
    td_buf_init(&self.ca, TD_TLS_PEM_MAX);
    td_buf_init(&self.ca_key, TD_TLS_PEM_MAX);
    argp_err_exit_status = 2;
    argv[1] = td_unconst("traind init");
    argp_parse(&argp, argc - 1, argv + 1, 0, NULL, &self);
    td_status failed = run(&self);
    int code = td_status_code(failed) == TD_INVALID_ARGUMENT ? 2 : failed ? 1 : 0;
    if (failed) fprintf(stderr, "traind init: %s\n", td_status_message(failed));
    td_status_free(failed);
    td_buf_finish(&self.ca);
    td_buf_finish(&self.ca_key);
    return code;
}
