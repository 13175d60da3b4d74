// Certificates of a CA of one's own: issued, read, judged.

#include "tests/unit/test.h"

#include "lib/tls/authority.h"
#include "lib/tls/certificate.h"

struct pems {
    struct td_buf ca, ca_key, key, request, pem;
};

static void make_authority(struct pems *p, struct td_authority **out_authority) {
    struct td_buf *all[] = {&p->ca, &p->ca_key, &p->key, &p->request, &p->pem};
    for (size_t i = 0; i < TD_COUNTOF(all); i++) {
        td_buf_init(all[i], TD_TLS_PEM_MAX);
    }
    assert_ok(td_authority_make("test CA", &p->ca, &p->ca_key));
    assert_ok(td_authority_open(td_buf_cstr(&p->ca), td_buf_cstr(&p->ca_key), out_authority));
    assert_ok(td_tls_key_make(&p->key));
    assert_ok(td_tls_request_make(td_buf_cstr(&p->key), "whatever", &p->request));
}

static void finish(struct pems *p, struct td_authority *a) {
    td_authority_destroy(a);
    td_buf_finish(&p->ca);
    td_buf_finish(&p->ca_key);
    td_buf_finish(&p->key);
    td_buf_finish(&p->request);
    td_buf_finish(&p->pem);
}

static const char *const hosts[] = {"node.example", "10.1.2.3", "fd00::1"};

static struct td_authority_terms terms_of(enum td_tls_use use, int64_t lifetime_s) {
    return (struct td_authority_terms){.use = use,
                                       .name = "n-1",
                                       .hosts = hosts,
                                       .n_hosts = use == TD_TLS_SERVER ? TD_COUNTOF(hosts) : 0,
                                       .lifetime_s = lifetime_s};
}

static void issue(struct pems *p, struct td_authority *a, enum td_tls_use use, int64_t lifetime_s) {
    struct td_authority_terms terms = terms_of(use, lifetime_s);
    td_buf_clear(&p->pem);
    assert_ok(td_authority_issue(a, td_buf_cstr(&p->request), &terms, &p->pem));
}

static void test_certificate_is_what_the_authority_said_when_it_is_read(void **state) {
    (void)state;
    struct pems p;
    struct td_authority *a;
    struct td_certificate c;
    make_authority(&p, &a);
    issue(&p, a, TD_TLS_SERVER, 86400);
    assert_ok(td_certificate_read(td_buf_cstr(&p.pem), &c));
    assert_string_equal(c.name, "n-1"); // not what the request asked for
    assert_int_equal(strlen(c.serial), 32);
    assert_int_equal(strlen(c.fingerprint), 64);
    assert_in_range(c.left_s, 86400 - 60, 86400);
    assert_ok(td_certificate_fits(td_buf_cstr(&p.pem), td_buf_cstr(&p.key)));
    assert_fails(td_certificate_fits(td_buf_cstr(&p.pem), td_buf_cstr(&p.ca_key)),
                 TD_FAILED_PRECONDITION, "not the certificate's");
    assert_ok(td_certificate_read(td_buf_cstr(&p.ca), &c));
    assert_in_range(c.left_s, INT64_C(3651) * 86400, INT64_C(3653) * 86400);
    finish(&p, a);
}

static void test_certificate_is_refused_when_anything_is_wrong_with_it(void **state) {
    (void)state;
    struct pems p, other;
    struct td_authority *a, *b;
    make_authority(&p, &a);
    make_authority(&other, &b);
    const char *ca = td_buf_cstr(&p.ca);
    issue(&p, a, TD_TLS_SERVER, 86400);
    const char *pem = td_buf_cstr(&p.pem);
    for (size_t i = 0; i < TD_COUNTOF(hosts); i++) {
        assert_ok(td_certificate_verify(ca, pem, TD_TLS_SERVER, hosts[i]));
    }
    assert_ok(td_certificate_verify(ca, pem, TD_TLS_SERVER, NULL));
    assert_fails(td_certificate_verify(ca, pem, TD_TLS_SERVER, "other.example"),
                 TD_FAILED_PRECONDITION, "hostname mismatch");
    assert_fails(td_certificate_verify(ca, pem, TD_TLS_SERVER, "10.1.2.4"), TD_FAILED_PRECONDITION,
                 "IP address mismatch");
    assert_fails(td_certificate_verify(ca, pem, TD_TLS_CLIENT, NULL), TD_FAILED_PRECONDITION,
                 "purpose");
    assert_fails(td_certificate_verify(td_buf_cstr(&other.ca), pem, TD_TLS_SERVER, NULL),
                 TD_FAILED_PRECONDITION, "another CA");
    issue(&p, a, TD_TLS_CLIENT, -60); // from an hour ago to a minute ago
    assert_fails(td_certificate_verify(ca, td_buf_cstr(&p.pem), TD_TLS_CLIENT, NULL),
                 TD_FAILED_PRECONDITION, "'n-1' has expired on 20");
    assert_fails(td_certificate_verify(ca, "nothing", TD_TLS_CLIENT, NULL), TD_INVALID_ARGUMENT,
                 "read a certificate");
    finish(&other, b);
    finish(&p, a);
}

static void test_request_is_refused_when_it_was_changed_or_its_key_is_another(void **state) {
    (void)state;
    struct pems p;
    struct td_authority *a;
    make_authority(&p, &a);
    struct td_authority_terms terms = terms_of(TD_TLS_CLIENT, 60);
    char *middle = p.request.data + p.request.len / 2;
    char was = *middle;
    *middle = was == 'A' ? 'B' : 'A';
    assert_fails(td_authority_issue(a, td_buf_cstr(&p.request), &terms, &p.pem),
                 TD_INVALID_ARGUMENT, "");
    *middle = was;
    assert_fails(td_authority_issue(a, "-----BEGIN NONSENSE", &terms, &p.pem), TD_INVALID_ARGUMENT,
                 "read a request");
    terms = terms_of(TD_TLS_SERVER, 60);
    terms.hosts = (const char *const[]){"a,IP:1.2.3.4"};
    terms.n_hosts = 1;
    assert_fails(td_authority_issue(a, td_buf_cstr(&p.request), &terms, &p.pem),
                 TD_INVALID_ARGUMENT, "neither a host name nor an address");
    assert_int_equal(p.pem.len, 0);
    assert_fails(td_authority_open(td_buf_cstr(&p.ca), td_buf_cstr(&p.key), &a),
                 TD_FAILED_PRECONDITION, "not the certificate's");
    finish(&p, a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_certificate_is_what_the_authority_said_when_it_is_read),
        cmocka_unit_test(test_certificate_is_refused_when_anything_is_wrong_with_it),
        cmocka_unit_test(test_request_is_refused_when_it_was_changed_or_its_key_is_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
