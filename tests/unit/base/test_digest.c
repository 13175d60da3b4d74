// Digests: xxHash's published values, and streams of any cut that equal the whole.
// `xxhsum -H2` prints the same hex for a file with the same bytes.

#include "lib/base/digest.h"
#include "tests/unit/test.h"

static void test_digest_equals_the_published_when_known_input(void **state) {
    (void)state;
    char hex[TD_DIGEST_HEX];
    td_xxh3_128_hex("", 0, hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
    td_xxh3_128_hex("abc", 3, hex);
    assert_string_equal(hex, "06b05ab6733a618578af5f94892f3950");
    assert_true(td_xxh3_64("", 0) == UINT64_C(0x2d06800538d394c2));
}

static void test_stream_equals_the_whole_when_cut_anywhere(void **state) {
    (void)state;
    static char data[5000];
    char whole[TD_DIGEST_HEX], parts[TD_DIGEST_HEX];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (char)(i * 31 + i / 256);
    }
    td_xxh3_128_hex(data, sizeof data, whole);
    for (size_t step = 1; step < sizeof data; step = step * 3 + 1) {
        TD_AUTO(td_digest) *d = NULL;
        assert_ok(td_digest_create(&d));
        for (size_t at = 0; at < sizeof data; at += step) {
            td_digest_update(d, data + at, TD_MIN(step, sizeof data - at));
        }
        td_digest_hex(d, parts);
        assert_string_equal(parts, whole);
        td_digest_hex(d, parts); // reading does not end it
        assert_string_equal(parts, whole);
    }
}

static td_status make(void *arg) {
    (void)arg;
    TD_AUTO(td_digest) *d = NULL;
    return td_digest_create(&d);
}

static void test_digest_fails_cleanly_when_out_of_memory(void **state) {
    td_test_failing_allocations(make, state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digest_equals_the_published_when_known_input),
        cmocka_unit_test(test_stream_equals_the_whole_when_cut_anywhere),
        cmocka_unit_test(test_digest_fails_cleanly_when_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
