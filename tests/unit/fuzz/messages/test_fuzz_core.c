// A bounded run of the coordinator's fuzz entry: the life of an attempt as event lines, metric
// records, plans and messages, then mutations of them.

#include "tests/unit/test.h"

#include "lib/attempt/rank_page.h"
#include "tests/fuzz/messages/fuzz_core.c"

static const char *const words[] = {
    "{\"event\":\"",
    "\"}\n",
    "\n",
    "checkpoint",
    "removed",
    "frozen",
    "note",
    "rank_exit",
    "launcher_end",
    "launcher_lost",
    "end",
    "resumed",
    "\"rank\":1",
    "\"rank\":-1",
    "\"step\":",
    "9223372036854775807",
    "-1",
    "null",
    "\"path\":\"a1/step-7\"",
    "\"final\":true",
    "\"class\":\"disk\"",
    "\"code\":\"DATA_LOSS\"",
    "\"outcome\":\"stopped\"",
    "../",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\xc3\xa9",
    "\"exact\":false",
    "\"metrics\":{\"val_loss\":1e300}",
    "\"dropped_bytes\":-5",
    "\"files\":[",
};

static const char life[] =
    "\0{\"event\":\"launched\",\"pid\":1,\"start_ticks\":2,\"boot_id\":\"b\",\"build\":\"0\"}\n"
    "{\"event\":\"ready\",\"pid\":5,\"rank\":0}\n{\"event\":\"ready\",\"pid\":6,\"rank\":1}\n"
    "{\"event\":\"step1\",\"step\":1,\"rank\":0}\n"
    "{\"event\":\"checkpoint\",\"step\":7,\"epoch\":1,\"path\":\"a1/step-7\",\"bytes\":30,"
    "\"manifest\":\"0123456789abcdef0123456789abcdef\",\"files\":[{\"name\":\"model.safetensors\","
    "\"bytes\":20,\"digest\":\"0123456789abcdef0123456789abcdef\"}],\"metrics\":{\"val_loss\":0.5},"
    "\"final\":false,\"rank\":0}\n"
    "{\"event\":\"end\",\"outcome\":\"failed\",\"class\":\"data\",\"code\":\"DATA_LOSS\","
    "\"message\":\"m\",\"step\":7,\"rank\":1}\n";
static const char ending[] =
    "\0{\"event\":\"frozen\",\"plan\":{\"a\":[1,{\"b\":2.5}]},\"rank\":0}\n"
    "{\"event\":\"note\",\"text\":\"resume is not bit-exact: \xc3\xa9\",\"rank\":0}\n"
    "{\"event\":\"resumed\",\"step\":7,\"exact\":false,\"reason\":\"threads\",\"rank\":0}\n"
    "{\"event\":\"skipped_checkpoint\",\"path\":\"a1/step-9\",\"reason\":\"digest\",\"rank\":0}\n"
    "{\"event\":\"rank_exit\",\"rank\":0,\"code\":-1,\"signal\":9,\"class\":\"internal\","
    "\"message\":\"killed\",\"last_words\":\"w\",\"step\":8,\"dropped_bytes\":3,"
    "\"dropped_points\":2}\n"
    "{\"event\":\"launcher_end\",\"outcome\":\"failed\",\"rank\":0,\"class\":\"internal\","
    "\"code\":\"INTERNAL\",\"message\":\"killed\"}\n";
static const char forged[] =
    "\0{\"event\":\"rank_exit\",\"rank\":0,\"dropped_bytes\":-1,\"dropped_points\":-1}\n"
    "{\"event\":\"removed\",\"step\":7,\"path\":\"a1/step-7\"}\n";
static const char lost[] =
    "\0{\"event\":\"launcher_lost\",\"class\":\"node_lost\",\"message\":\"rebooted\"}\n";
static const char plan[] = "\2{\"state_bytes\":100,\"arena_bytes\":9223372036854775807,"
                           "\"snapshot_bytes\":9223372036854775807,\"shared_bytes\":-1}";
// Register of another host with all its memory; progress; a refusal; a heartbeat.
static const char big_host[] = "\3\x12\x29\x0a\x03n-1\x12\x04"
                               "boot\x1a\x04host\x22\x01"
                               "0\x28\x01\x30\x04\x38\x04"
                               "\x40\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x4a\x03"
                               "cpu";
static const char progress[] = "\3\x08\x07\x22\x0d\x0a\x07\x0a\x03j-1\x10\x01\x18\x05\x20\x0a";
static const char refused[] =
    "\3\x08\x07\x32\x10\x0a\x09\x0a\x03j-1\x10\x01\x18\x01\x10\x08\x22\x01m";
// A key of the rendezvous store: set, and waited for.
static const char store_set[] =
    "\3\x08\x07\x5a\x11\x0a\x09\x0a\x03j-1\x10\x01\x18\x01\x12\x01k\x1a\x01v";
static const char store_want[] = "\3\x08\x07\x62\x0e\x0a\x09\x0a\x03j-1\x10\x01\x18\x01\x12\x01k";
static const char heartbeat[] = "\3\x08\x07\x3a\x02\x08\x02";

static void feed_line(const char *fmt, const char *text) {
    char line[4096];
    line[0] = 0;
    int n = snprintf(line + 1, sizeof line - 1, fmt, text);
    LLVMFuzzerTestOneInput((const uint8_t *)line, 1 + (size_t)n);
}

// Each of these once left a record that a coordinator could not load, or a text that is not UTF-8.
static void test_attempt_loads_again_when_a_line_counts_below_zero(void **state) {
    (void)state;
    LLVMFuzzerTestOneInput((const uint8_t *)forged, sizeof forged - 1);
}

static void test_attempt_is_adopted_once_when_a_node_names_it_often(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r);
    say_plan(&r, good_plan);
    say_register(&r, HELD_MAX);
    assert_int_equal(r.n_adopted, 1);
    rig_finish(&r);
}

static void test_node_loads_again_when_it_has_all_the_memory(void **state) {
    (void)state;
    LLVMFuzzerTestOneInput((const uint8_t *)big_host, sizeof big_host - 1);
}

static void test_texts_stay_utf8_when_they_are_cut(void **state) {
    (void)state;
    static const char *const lines[] = {
        "{\"event\":\"note\",\"text\":\"%s\"}\n",
        "{\"event\":\"resumed\",\"exact\":false,\"reason\":\"%s\"}\n",
        "{\"event\":\"skipped_checkpoint\",\"path\":\"a\",\"reason\":\"%s\"}\n",
        "{\"event\":\"end\",\"outcome\":\"failed\",\"class\":\"data\",\"message\":\"%s\"}\n",
        "{\"event\":\"launcher_end\",\"outcome\":\"failed\",\"message\":\"%s\"}\n",
    };
    char text[2 + 2 * 400] = "";
    for (size_t odd = 0; odd < 2; odd++) { // a cut falls inside a character in one of the two
        for (size_t i = 0; i < 400; i++) {
            memcpy(text + odd + 2 * i, "\xc3\xa9", 3);
        }
        for (size_t i = 0; i < TD_COUNTOF(lines); i++) {
            feed_line(lines[i], text);
        }
        memset(text, 'x', 1);
    }
}

static void test_frozen_plan_loads_again_when_it_is_deep(void **state) {
    (void)state;
    for (size_t depth = 55; depth < 64; depth++) {
        char text[2 * 64 + 1] = "";
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        feed_line("{\"event\":\"frozen\",\"plan\":{\"a\":%s}}\n", text);
        feed_line("{\"event\":\"frozen\",\"plan\":{\"a\":%s}}\n"
                  "{\"event\":\"launcher_lost\",\"class\":\"node_lost\"}\n",
                  text);
    }
}

static void test_coordinator_stands_when_fed_mutated_reports(void **state) {
    (void)state;
    struct {
        char kind;
        char records[3 * sizeof(struct td_metric_record)];
    } points = {.kind = 1};
    for (int i = 0; i < 3; i++) {
        struct td_metric_record p = {.step = i,
                                     .sum = 1.5,
                                     .count = 1,
                                     .real_ns = 5,
                                     .flags = i == 2 ? 0 : TD_METRIC_SUM_COUNT};
        snprintf(p.name, sizeof p.name, "%s", i == 0 ? "train_loss" : "val_loss");
        memcpy(points.records + (size_t)i * sizeof p, &p, sizeof p);
    }
    const struct td_fuzz_input corpus[] = {
        {life, sizeof life - 1},
        {ending, sizeof ending - 1},
        {forged, sizeof forged - 1},
        {lost, sizeof lost - 1},
        {plan, sizeof plan - 1},
        {big_host, sizeof big_host - 1},
        {progress, sizeof progress - 1},
        {refused, sizeof refused - 1},
        {heartbeat, sizeof heartbeat - 1},
        {store_set, sizeof store_set - 1},
        {store_want, sizeof store_want - 1},
        {&points, sizeof points},
    };
    td_fuzz_arrays(corpus, words, 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attempt_loads_again_when_a_line_counts_below_zero),
        cmocka_unit_test(test_attempt_is_adopted_once_when_a_node_names_it_often),
        cmocka_unit_test(test_node_loads_again_when_it_has_all_the_memory),
        cmocka_unit_test(test_texts_stay_utf8_when_they_are_cut),
        cmocka_unit_test(test_frozen_plan_loads_again_when_it_is_deep),
        cmocka_unit_test(test_coordinator_stands_when_fed_mutated_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
