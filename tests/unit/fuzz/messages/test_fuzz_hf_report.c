// A bounded run of the fuzz entry of what a Trainer posts.

#include "tests/unit/test.h"

#include "tests/fuzz/messages/fuzz_hf_report.c"

static const char *const words[] = {
    "POST / HTTP/1.1\r\n",
    "Content-Length: 7\r\n",
    "Authorization: Bearer a\r\n",
    "\r\n\r\n",
    "\n",
    "{\"trainerStatus\":",
    "\"metrics\":",
    "{\"name\":\"a\",\"value\":\"1\"},",
    "current_step",
    "total_steps",
    "current_epoch",
    "1e300",
    "nan",
    "-inf",
    "\"progressPercentage\":100,",
    "[",
    "]",
    "{",
    "}",
};

static void test_requests_stand_when_they_are_mutated(void **state) {
    (void)state;
    static const char report[] =
        "{\"trainerStatus\":{\"lastUpdatedTime\":\"2026-01-01T00:00:00+00:00\","
        "\"progressPercentage\":40,\"estimatedRemainingSeconds\":9,\"metrics\":["
        "{\"name\":\"loss\",\"value\":\"0.25\"},{\"name\":\"lr\",\"value\":\"1e-05\"},"
        "{\"name\":\"current_step\",\"value\":\"40\"},{\"name\":\"total_steps\",\"value\":\"100\"},"
        "{\"name\":\"current_epoch\",\"value\":\"1.2\"}]}}";
    static const char last[] = "{\"trainerStatus\":{\"progressPercentage\":100,\"metrics\":["
                               "{\"name\":\"total_steps\",\"value\":\"9\"}]}}";
    static const char head[] =
        "POST /0 HTTP/1.1\r\nAccept-Encoding: identity\r\n"
        "Content-Length: 56\r\nAuthorization: Bearer 00ff\r\n\r\n"
        "{\"trainerStatus\":{\"metrics\":[{\"name\":\"a\",\"value\":\"1\"}]}}";
    const struct td_fuzz_input corpus[] = {
        {report, sizeof report - 1}, {last, sizeof last - 1}, {head, sizeof head - 1}, {"", 0}};
    td_fuzz_arrays(corpus, words, 20000);
}

TD_FUZZ_MAIN(test_requests_stand_when_they_are_mutated)
