// The process that asks the driver, as the node watches it. A shell script is in the place of the
// launcher's trampoline: it says what that process says, or is silent.

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/node/shell/gpus/gpus.h"
#include "lib/base/buf.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/loop/loop.h"
#include "tests/unit/test.h"

#define LIST   "echo '{\"inventory\":{\"devices\":[{\"uuid\":\"GPU-a\",\"name\":\"H100\"}]}}'\n"
#define SAMPLE "echo '{\"samples\":[{\"uuid\":\"GPU-a\",\"used_bytes\":5}]}'\n"
#define HANG   "exec sleep 60\n"

enum { PAUSE_MS = 50 };
static const char trampoline[] = "#!/bin/sh\n"
                                 "echo $$ >> \"${0%/*}/started\"\n"
                                 ". \"${0%/*}/does\"\n";

struct bench {
    struct td_loop *loop;
    struct td_gpus *gpus;
    const char *dir;
    const char *awaited; // part of its why, or a uuid; "": a list without a why
    bool done;
    int n_samples;
};

static bool is_there(const struct bench *b) {
    const Traind__V1__GpuList *l = b->gpus ? td_gpus_list(b->gpus) : NULL;
    if (!l) return false;
    return b->awaited[0] ? strstr(l->why, b->awaited) != NULL : l->n_gpus && !l->why[0];
}

static void on_change(void *arg) {
    struct bench *b = arg;
    b->done = is_there(b);
}

static void on_samples(void *arg) {
    struct bench *b = arg;
    assert_true(td_gpus_list(b->gpus)->gpus[0]->n_measured > 0);
    b->n_samples++;
}

static void write_file(const struct bench *b, const char *name, const char *text) {
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/%s", b->dir, name));
    assert_ok(td_fs_write(path, text, strlen(text), 0700, 0));
    assert_int_equal(chmod(path, 0700), 0);
}

// How often it was started; *out_pid: the last one.
static int n_started(const struct bench *b, pid_t *out_pid) {
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF text;
    int n = 0;
    td_buf_init(&text, 1 << 16);
    TD_CHECK(!td_fs_path(path, "%s/started", b->dir));
    if (!td_fs_exists(path)) return 0;
    TD_CHECK(!td_fs_read(path, 1 << 16, &text));
    for (const char *p = td_buf_cstr(&text); *p; p = strchr(p, '\n') + 1) {
        *out_pid = (pid_t)strtol(p, NULL, 10);
        n++;
    }
    return n;
}

static int kill_nobody(pid_t pid, int sig) {
    (void)pid, (void)sig;
    return 0;
}

static void begin(struct bench *b, const char *dir, const char *does, int64_t timeout_ms,
                  bool kills) {
    *b = (struct bench){.dir = dir, .awaited = ""};
    write_file(b, "traind-launcher", trampoline);
    write_file(b, "does", does);
    assert_ok(td_loop_create(&b->loop));
    const struct td_gpus_options o = {.bin_dir = dir,
                                      .gpus = "auto",
                                      .timeout_ns = timeout_ms * TD_NS_PER_MS,
                                      .fn = on_change,
                                      .on_samples = on_samples,
                                      .arg = b,
                                      .kill_fn = kills ? NULL : kill_nobody,
                                      .pause_ns = PAUSE_MS * TD_NS_PER_MS};
    assert_ok(td_gpus_create(b->loop, &o, &b->gpus));
}

static void await(struct bench *b, const char *awaited) {
    b->awaited = awaited;
    b->done = is_there(b);
    assert_ok(td_loop_run_until(b->loop, &b->done, TD_TEST_WAIT_NS));
}

static void await_file(const struct bench *b, const char *name) {
    char path[TD_FS_PATH_BYTES];
    const struct td_mono until = td_mono_add(td_mono_now(), TD_TEST_WAIT_NS);
    assert_ok(td_fs_path(path, "%s/%s", b->dir, name));
    while (!td_fs_exists(path)) {
        assert_true(td_mono_now().ns < until.ns);
        assert_ok(td_loop_run_for(b->loop, NULL, 10 * TD_NS_PER_MS));
    }
}

static void end(struct bench *b) {
    td_gpus_destroy(b->gpus);
    td_loop_destroy(b->loop);
}

static void test_list_and_samples_are_known_when_it_says_them(void **state) {
    struct bench b;
    begin(&b, *state, LIST SAMPLE HANG, 30000, true);
    assert_null(td_gpus_list(b.gpus)); // nothing is known before
    await(&b, "");
    const Traind__V1__GpuList *l = td_gpus_list(b.gpus);
    assert_string_equal(l->gpus[0]->name, "H100");
    while (!l->gpus[0]->n_measured) {
        b.done = false;
        assert_ok(td_loop_run_until(b.loop, &b.done, TD_TEST_WAIT_NS));
    }
    assert_string_equal(l->gpus[0]->measured[0]->key, "used_bytes");
    assert_int_equal(b.n_samples, 1); // a list alone is none
    end(&b);
}

static void test_it_is_replaced_when_it_is_silent_from_the_start(void **state) {
    struct bench b;
    pid_t pid = 0;
    begin(&b, *state, HANG, 200, true);
    await(&b, "the NVIDIA driver does not answer");
    assert_int_equal(td_gpus_list(b.gpus)->n_gpus, 0);
    assert_false(td_gpus_list(b.gpus)->stale);
    write_file(&b, "does", LIST HANG);
    await(&b, "");
    assert_true(n_started(&b, &pid) >= 2);
    end(&b);
}

static void test_last_list_stays_when_it_falls_silent(void **state) {
    struct bench b;
    begin(&b, *state, LIST HANG, 200, true);
    await(&b, "");
    write_file(&b, "does", HANG);
    await(&b, "the NVIDIA driver does not answer");
    const Traind__V1__GpuList *l = td_gpus_list(b.gpus);
    assert_true(l->n_gpus == 1 && l->stale);
    assert_string_equal(l->gpus[0]->uuid, "GPU-a");
    write_file(&b, "does", LIST HANG);
    await(&b, "");
    assert_false(td_gpus_list(b.gpus)->stale);
    end(&b);
}

// As one that waits in the kernel for a card.
static void test_no_second_one_is_started_when_a_kill_does_not_end_it(void **state) {
    struct bench b;
    pid_t pid = 0;
    begin(&b, *state,
          "until [ -e \"${0%/*}/go\" ]; do sleep 0.02; done\n" LIST
          "touch \"${0%/*}/wrote\"\n" HANG,
          200, false);
    await(&b, "no other one is started until it has ended");
    assert_int_equal(n_started(&b, &pid), 1);
    write_file(&b, "go", "");
    await_file(&b, "wrote");
    write_file(&b, "does", LIST HANG);
    assert_ok(td_loop_run_for(b.loop, NULL, 6 * PAUSE_MS * TD_NS_PER_MS)); // longer than a pause
    assert_int_equal(td_gpus_list(b.gpus)->n_gpus, 0); // of one that was killed nothing counts
    assert_non_null(strstr(td_gpus_list(b.gpus)->why, "until it has ended"));
    assert_int_equal(n_started(&b, &pid), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    await(&b, "");
    assert_int_equal(n_started(&b, &pid), 2);
    end(&b);
}

static void test_nothing_is_started_again_when_there_is_no_driver(void **state) {
    struct bench b;
    pid_t pid = 0;
    begin(&b, *state, "echo '{\"final\":true,\"none\":\"no driver here\"}'\n", 30000, true);
    await(&b, "no driver here");
    assert_ok(td_loop_run_for(b.loop, NULL, 6 * PAUSE_MS * TD_NS_PER_MS)); // longer than a pause
    assert_int_equal(n_started(&b, &pid), 1);
    assert_int_equal(td_gpus_list(b.gpus)->n_gpus, 0);
    end(&b);
}

static void test_it_is_started_again_when_it_ends_or_the_driver_is_not_ready(void **state) {
    static const struct {
        const char *does, *why;
    } rows[] = {{"echo '{\"final\":false,\"none\":\"not loaded\"}'\n", "not loaded"},
                {"exit 3\n", "has ended (wait status 768)"}};
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct bench b;
        begin(&b, *state, rows[i].does, 30000, true);
        await(&b, rows[i].why);
        write_file(&b, "does", LIST HANG);
        await(&b, "");
        end(&b);
    }
}

static void test_odd_lines_are_dropped_and_the_next_is_taken(void **state) {
    struct bench b;
    begin(&b, *state,
          "echo no json\nhead -c 700000 /dev/zero | tr '\\0' x\necho\n"
          "printf '%s' '{\"inventory\":{\"devices\":'\necho '[{\"uuid\":\"GPU-b\"}]}}'\n" HANG,
          30000, true);
    await(&b, "");
    assert_string_equal(td_gpus_list(b.gpus)->gpus[0]->uuid, "GPU-b");
    end(&b);
}

static void test_reason_is_shown_when_a_list_cannot_be_read(void **state) {
    static const char *const bad[] = {
        "echo '{\"inventory\":{\"devices\":[{\"uuid\":\"?\"}]}}'\n", "echo '{\"inventory\":[}'\n",
        "printf '{\"inventory\":\"'\nhead -c 700000 /dev/zero | tr '\\0' x\necho '\"}'\n"};
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        struct bench b;
        char does[512];
        snprintf(does, sizeof does, "%s%s%s", LIST, bad[i], HANG);
        begin(&b, *state, does, 30000, true);
        await(&b, "the list of GPUs cannot be read: ");
        const Traind__V1__GpuList *l = td_gpus_list(b.gpus);
        assert_true(l->n_gpus == 1 && l->stale);
        end(&b);
    }
    struct bench b;
    char does[512];
    snprintf(does, sizeof does, "%s%s%s", bad[0], LIST, HANG);
    begin(&b, *state, does, 30000, true);
    await(&b, ""); // the next list is well
    assert_false(td_gpus_list(b.gpus)->stale);
    end(&b);
}

static void test_none_is_known_at_once_when_none_was_asked_for(void **state) {
    struct bench b = {.dir = *state, .awaited = ""};
    const struct td_gpus_options o = {
        .bin_dir = b.dir, .gpus = "none", .timeout_ns = TD_NS_PER_S, .fn = on_change, .arg = &b};
    assert_ok(td_loop_create(&b.loop));
    assert_ok(td_gpus_create(b.loop, &o, &b.gpus));
    assert_non_null(strstr(td_gpus_list(b.gpus)->why, "--gpus none"));
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_list_and_samples_are_known_when_it_says_them),
        test_in_scratch(test_it_is_replaced_when_it_is_silent_from_the_start),
        test_in_scratch(test_last_list_stays_when_it_falls_silent),
        test_in_scratch(test_no_second_one_is_started_when_a_kill_does_not_end_it),
        test_in_scratch(test_nothing_is_started_again_when_there_is_no_driver),
        test_in_scratch(test_it_is_started_again_when_it_ends_or_the_driver_is_not_ready),
        test_in_scratch(test_odd_lines_are_dropped_and_the_next_is_taken),
        test_in_scratch(test_reason_is_shown_when_a_list_cannot_be_read),
        test_in_scratch(test_none_is_known_at_once_when_none_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
