// The node's queue of plans, with a shell script in the place of the launcher's trampoline: what a
// plan's text says decides whether the planner answers or never ends.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "daemon/node/shell/planner/planner.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/machine/proc.h"
#include "lib/loop/loop.h"
#include "tests/unit/test.h"

static const char trampoline[] =
    "#!/bin/sh\n" // exec-held PARENT CORE MEMORY CPU BIN plan --plan FILE
    "read -r text < \"$9\"\n"
    "test \"$text\" = hang && exec sleep 60\n"
    "test \"$text\" = stuck && trap '' TERM && echo $$ > \"${0%/*}/pid\" && exec sleep 60\n"
    "test \"$text\" = how && exec echo \"$1 $7\"\n"
    "echo \"{}\"\n";

struct bench {
    struct td_loop *loop;
    struct td_planner *planner;
    char dir[TD_FS_PATH_BYTES], answers[200]; // "name:code " of each, in their order
    const char *awaited;
    bool done;
};

static void on_planned(const char *request, td_status take_status, const char *result_json,
                       void *arg) {
    struct bench *b = arg;
    size_t n = strlen(b->answers);
    snprintf(b->answers + n, sizeof b->answers - n, "%s:%s ", request,
             take_status ? td_code_name(td_status_code(take_status)) : result_json);
    td_status_free(take_status);
    b->done |= strcmp(request, b->awaited) == 0;
}

static bool is_idle(void *arg) {
    (void)arg;
    return true;
}

static void begin(struct bench *b, const char *dir, const char *verb, int32_t timeout_s) {
    char path[TD_FS_PATH_BYTES];
    *b = (struct bench){.awaited = ""};
    assert_ok(td_fs_path(path, "%s/traind-launcher", dir));
    assert_ok(td_fs_write(path, trampoline, strlen(trampoline), 0700, 0));
    assert_int_equal(chmod(path, 0700), 0);
    assert_ok(td_loop_create(&b->loop));
    const struct td_planner_options o = {.verb = verb,
                                         .bin_dir = dir,
                                         .scratch_dir = dir,
                                         .cache_dir = dir,
                                         .checkpoints_dir = dir,
                                         .plugin_dirs = "",
                                         .timeout_s = timeout_s,
                                         .idle = is_idle,
                                         .fn = on_planned,
                                         .arg = b};
    assert_ok(td_planner_create(b->loop, &o, &b->planner));
}

static void submit(struct bench *b, const char *name, const char *text) {
    char line[32];
    snprintf(line, sizeof line, "%s\n", text);
    assert_ok(td_planner_submit(b->planner, name, line, "", "{}"));
}

static void await(struct bench *b, const char *name) {
    b->awaited = name;
    assert_ok(td_loop_run_until(b->loop, &b->done, 30 * TD_NS_PER_S));
}

static void end(struct bench *b) {
    td_planner_destroy(b->planner);
    td_loop_destroy(b->loop);
}

static void test_planner_that_never_ends_is_stopped_and_the_next_one_starts(void **state) {
    struct bench b;
    begin(&b, *state, NULL, 1);
    submit(&b, "one", "hang");
    submit(&b, "two", "answer");
    await(&b, "two");
    assert_string_equal(b.answers, "one:DEADLINE_EXCEEDED two:{}\n ");
    end(&b);
}

static void test_dropped_plan_is_not_answered_and_the_next_one_starts(void **state) {
    struct bench b;
    begin(&b, *state, NULL, 60);
    submit(&b, "runs", "hang");
    submit(&b, "waits", "hang");
    submit(&b, "stays", "answer");
    td_planner_drop(b.planner, "waits");
    td_planner_drop(b.planner, "nobody");
    td_planner_drop(b.planner, "runs");
    td_planner_drop(b.planner, "runs"); // it is on its way out already
    await(&b, "stays");
    assert_string_equal(b.answers, "stays:{}\n ");
    end(&b);
}

static void test_queue_is_empty_when_all_are_dropped(void **state) {
    struct bench b;
    begin(&b, *state, NULL, 60);
    for (int i = 0; i < TD_PLANNER_QUEUE; i++) {
        submit(&b, "old", "hang");
    }
    td_planner_drop(b.planner, NULL);
    submit(&b, "new", "answer");
    submit(&b, "newer", "answer");
    await(&b, "newer");
    assert_string_equal(b.answers, "new:{}\n newer:{}\n ");
    end(&b);
}

// As one that waits for a mount that does not answer, which no signal ends.
static void test_end_is_not_waited_for_when_the_planner_does_not_end(void **state) {
    struct bench b;
    char path[TD_FS_PATH_BYTES], text[16] = "";
    begin(&b, *state, NULL, 60);
    assert_ok(td_fs_path(path, "%s/pid", (char *)*state));
    assert_int_equal(mkfifo(path, 0600), 0);
    submit(&b, "a", "stuck");
    TD_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC); // until it takes no SIGTERM
    assert_true(read(fd, text, sizeof text - 1) > 0);
    const struct td_mono began = td_mono_now();
    end(&b);
    assert_true(td_mono_now().ns - began.ns < 20 * TD_NS_PER_S);
    const pid_t pid = (pid_t)strtol(text, NULL, 10);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

// A process more, for each submission, is for plugins only.
static void test_only_a_plan_is_held_when_another_verb_calls_no_plugin(void **state) {
    static const struct {
        const char *verb, *answer;
    } rows[] = {{NULL, "a:exec-held plan\n "}, {"compare", "a:exec-rank compare\n "}};
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct bench b;
        begin(&b, *state, rows[i].verb, 60);
        submit(&b, "a", "how");
        await(&b, "a");
        assert_string_equal(b.answers, rows[i].answer);
        end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_planner_that_never_ends_is_stopped_and_the_next_one_starts),
        test_in_scratch(test_dropped_plan_is_not_answered_and_the_next_one_starts),
        test_in_scratch(test_queue_is_empty_when_all_are_dropped),
        test_in_scratch(test_end_is_not_waited_for_when_the_planner_does_not_end),
        test_in_scratch(test_only_a_plan_is_held_when_another_verb_calls_no_plugin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
