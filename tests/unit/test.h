#ifndef TRAIND_TESTS_UNIT_TEST_H
#define TRAIND_TESTS_UNIT_TEST_H

// What every cmocka program of ours needs: cmocka with its prerequisites, asserts for td_status,
// and a skip that states its reason (tests/tools/check.py refuses any other). Also the
// failing-allocation loop for constructors, and a scratch directory that is gone after the test.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/base/base.h"
#include "lib/base/files/files.h"

// How long a test waits for what must come: so long that only a hang takes it, sanitizers and a
// busy machine included.
#define TD_TEST_WAIT_NS (60 * TD_NS_PER_S)

#define TD_SKIP(reason)                                                                            \
    do {                                                                                           \
        print_message("# skip: %s\n", reason);                                                     \
        skip();                                                                                    \
    } while (0)

// For the table of `make conformance`: an implementation that this case has passed with. kind and
// name: of its plugin.
static inline void td_test_over(const char *kind, const char *name) {
    print_message("# over %s %s\n", kind, name);
}

// Consumes the status; a failure prints its text.
#define assert_ok(expr)                                                                            \
    do {                                                                                           \
        td_status assert_s_ = (expr);                                                              \
        if (assert_s_) print_message("# %s: %s\n", #expr, td_status_message(assert_s_));           \
        bool assert_ok_ = !assert_s_;                                                              \
        td_status_free(assert_s_);                                                                 \
        assert_true(assert_ok_);                                                                   \
    } while (0)

// Consumes the status, which must have that code and mention that text ("" for any).
#define assert_fails(expr, code, text)                                                             \
    do {                                                                                           \
        td_status assert_s_ = (expr);                                                              \
        bool assert_code_ = td_status_code(assert_s_) == (code);                                   \
        bool assert_text_ = strstr(td_status_message(assert_s_), text) != NULL;                    \
        if (!assert_code_ || !assert_text_) {                                                      \
            print_message("# %s: %s: %s\n", #expr, td_code_name(td_status_code(assert_s_)),        \
                          td_status_message(assert_s_));                                           \
        }                                                                                          \
        td_status_free(assert_s_);                                                                 \
        assert_true(assert_code_);                                                                 \
        assert_true(assert_text_);                                                                 \
    } while (0)

// Runs make(arg) with its 1st, 2nd, ... allocation failing until it succeeds. Each failure must be
// RESOURCE_EXHAUSTED; leaks are for the address sanitizer to find. make frees what it made.
static inline void td_test_failing_allocations(td_status (*make)(void *arg), void *arg) {
    for (int64_t n = 1; n < 10000; n++) {
        td_alloc_fail_at(n);
        td_status s = make(arg);
        td_alloc_fail_at(0);
        enum td_code code = td_status_code(s);
        td_status_free(s);
        if (code == TD_CODE_OK) {
            assert_true(n > 1); // it did allocate something
            return;
        }
        assert_int_equal(code, TD_RESOURCE_EXHAUSTED);
    }
    fail();
}

// cmocka setup and teardown; *state is the path.
static inline int td_test_scratch_make(void **state) {
    char template[] = "/tmp/traind-test-XXXXXX";
    *state = mkdtemp(template) ? strdup(template) : NULL;
    return *state ? 0 : -1;
}
static inline int td_test_scratch_remove(void **state) {
    td_status s = td_fs_remove_tree(*state);
    bool ok = !s;
    td_status_free(s);
    free(*state);
    return ok ? 0 : -1;
}
#define test_in_scratch(f)                                                                         \
    cmocka_unit_test_setup_teardown(f, td_test_scratch_make, td_test_scratch_remove)

#endif
