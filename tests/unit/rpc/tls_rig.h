#ifndef TRAIND_TESTS_UNIT_RPC_TLS_RIG_H
#define TRAIND_TESTS_UNIT_RPC_TLS_RIG_H

// An authority of a test's own, whose files are in its scratch directory, and what it issues.

#include "tests/unit/test.h"

#include "lib/tls/authority.h"
#include "lib/tls/certificate.h"
#include "lib/tls/context.h"

enum { HOUR_S = 3600, PATHS = 64 };

// Files of one authority in the scratch directory: <prefix>ca.pem, <prefix>NAME.pem and .key.
struct home {
    const char *dir, *prefix;
    struct td_authority *authority;
};

static inline const char *path_of(const struct home *h, const char *name) {
    static char paths[PATHS][256];
    static int at;
    char *out = paths[at++ % PATHS];
    snprintf(out, 256, "%s/%s%s", h->dir, h->prefix, name);
    return out;
}

static inline void write_pem(const struct home *h, const char *name, const char *kind,
                             const struct td_buf *b) {
    char file[64];
    snprintf(file, sizeof file, "%s.%s", name, kind);
    assert_ok(td_fs_write(path_of(h, file), b->data, b->len, 0600, 0));
}

static inline struct home make_home(const char *dir, const char *prefix) {
    struct home h = {dir, prefix, NULL};
    TD_AUTO_BUF ca, key;
    td_buf_init(&ca, TD_TLS_PEM_MAX);
    td_buf_init(&key, TD_TLS_PEM_MAX);
    assert_ok(td_authority_make(prefix, &ca, &key));
    assert_ok(td_authority_open(td_buf_cstr(&ca), td_buf_cstr(&key), &h.authority));
    write_pem(&h, "ca", "pem", &ca);
    return h;
}

static inline void issue(const struct home *h, const char *name, enum td_tls_use use,
                         int64_t lifetime_s) {
    static const char *const hosts[] = {"here.example"};
    const struct td_authority_terms terms = {
        .use = use, .name = name, .hosts = hosts, .n_hosts = 1, .lifetime_s = lifetime_s};
    TD_AUTO_BUF key, request, pem;
    td_buf_init(&key, TD_TLS_PEM_MAX);
    td_buf_init(&request, TD_TLS_PEM_MAX);
    td_buf_init(&pem, TD_TLS_PEM_MAX);
    assert_ok(td_tls_key_make(&key));
    assert_ok(td_tls_request_make(td_buf_cstr(&key), name, &request));
    assert_ok(td_authority_issue(h->authority, td_buf_cstr(&request), &terms, &pem));
    write_pem(h, name, "key", &key);
    write_pem(h, name, "pem", &pem);
}

static inline struct td_tls_context *context_of(enum td_tls_use use, const char *ca,
                                                const struct home *h, const char *name) {
    char pem[64], key[64];
    struct td_tls_context *c;
    snprintf(pem, sizeof pem, "%s.pem", name ? name : "");
    snprintf(key, sizeof key, "%s.key", name ? name : "");
    const struct td_tls_paths paths = {ca, name ? path_of(h, pem) : NULL,
                                       name ? path_of(h, key) : NULL};
    assert_ok(td_tls_context_create(use, &paths, &c));
    return c;
}

#endif
