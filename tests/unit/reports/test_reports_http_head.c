// Heads of HTTP requests: what is read of a good one, and with which status each bad one is
// refused.

#include "daemon/worker/reports/http_head.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/test.h"

static int read_text(const char *text, struct td_http_head *out) {
    return td_http_head_read(text, strlen(text), out);
}

static void test_head_of_urllib_is_read(void **state) {
    (void)state;
    static const char text[] =
        "POST /3 HTTP/1.1\r\nAccept-Encoding: identity\r\n"
        "Content-Length: 12\r\nHost: 127.0.0.1:80\r\n"
        "Authorization: Bearer 0af3\r\nConnection: close\r\n\r\n{\"body\":123}";
    struct td_http_head head;
    assert_int_equal(read_text(text, &head), 200);
    assert_int_equal(head.path_bytes, 2);
    assert_memory_equal(head.path, "/3", 2);
    assert_int_equal(head.token_bytes, 4);
    assert_memory_equal(head.token, "0af3", 4);
    assert_int_equal(head.body_bytes, 12);
    assert_string_equal(text + head.bytes, "{\"body\":123}");
}

static void test_head_is_read_whichever_way_its_lines_end(void **state) {
    (void)state;
    struct td_http_head head;
    assert_int_equal(
        read_text("POST / HTTP/1.0\ncontent-LENGTH:7\nAUTHORIZATION:bearer \t x \n\n", &head), 200);
    assert_int_equal(head.body_bytes, 7);
    assert_int_equal(head.token_bytes, 1);
}

static void test_part_of_a_head_needs_more(void **state) {
    (void)state;
    static const char text[] = "POST / HTTP/1.1\r\nA: b\r\n\r\n";
    struct td_http_head head = {.bytes = 77};
    for (size_t n = 0; n < sizeof text - 1; n++) {
        assert_int_equal(td_http_head_read(text, n, &head), 0);
        assert_int_equal(head.bytes, 77); // is written on success alone
    }
    assert_int_equal(read_text(text, &head), 200);
    assert_int_equal(head.body_bytes, -1);
    assert_null(head.token);
}

static void test_bad_heads_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"GET / HTTP/1.1\r\n\r\n", 405},
        {"post / HTTP/1.1\r\n\r\n", 405},
        {"POST / HTTP/2.0\r\n\r\n", 505},
        {"POST / HTCPCP/1\r\n\r\n", 400},
        {"POST /\r\n\r\n", 400},
        {"POST  / HTTP/1.1\r\n\r\n", 400},
        {"POST http://a/ HTTP/1.1\r\n\r\n", 400},
        {"\r\nPOST / HTTP/1.1\r\n\r\n", 400},
        {"\x16\x03\x01 \r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nno colon\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n: no name\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nA: b\r\n goes on\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: 1,1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: \r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: 0x10\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 501},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct td_http_head head;
        const int status = read_text(cases[i].text, &head);
        if (status != cases[i].status) print_message("# %s: %d\n", cases[i].text, status);
        assert_int_equal(status, cases[i].status);
    }
    static const char nul[] = "POST / HTTP/1.1\r\nA: b\0c\r\n\r\n";
    struct td_http_head head;
    assert_int_equal(td_http_head_read(nul, sizeof nul - 1, &head), 400);
}

static void test_credential_of_another_scheme_is_no_token(void **state) {
    (void)state;
    struct td_http_head head;
    assert_int_equal(read_text("POST / HTTP/1.1\r\nAuthorization: Basic YTpi\r\n\r\n", &head), 200);
    assert_int_equal(head.token_bytes, 0);
    assert_int_equal(read_text("POST / HTTP/1.1\r\nAuthorization: Bearer \r\n\r\n", &head), 200);
    assert_int_equal(head.token_bytes, 0);
}

static void test_head_without_an_end_is_refused_when_it_is_too_long(void **state) {
    (void)state;
    static char text[TD_HTTP_HEAD_MAX + 1];
    struct td_http_head head;
    memset(text, 'a', sizeof text);
    memcpy(text, "POST / HTTP/1.1\r\nA: ", 20);
    assert_int_equal(td_http_head_read(text, TD_HTTP_HEAD_MAX - 1, &head), 0);
    assert_int_equal(td_http_head_read(text, TD_HTTP_HEAD_MAX, &head), 431);
    memset(text, 'a', sizeof text); // not even a line
    assert_int_equal(td_http_head_read(text, sizeof text, &head), 431);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_of_urllib_is_read),
        cmocka_unit_test(test_head_is_read_whichever_way_its_lines_end),
        cmocka_unit_test(test_part_of_a_head_needs_more),
        cmocka_unit_test(test_bad_heads_are_refused),
        cmocka_unit_test(test_credential_of_another_scheme_is_no_token),
        cmocka_unit_test(test_head_without_an_end_is_refused_when_it_is_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
