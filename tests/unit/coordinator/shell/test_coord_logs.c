// Logs of ranks at the coordinator: a write that failed leaves no hole, neither in the file
// nor in the length that is reported.
// Tags: tsan

#include "daemon/coordinator/shell/disk/logs.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/coordinator/shell/shell.h"
#include "tests/unit/test.h"

// As much of a coordinator as logs need.
struct rig {
    struct td_coordinator c;
    char dir[256]; // <state>/logs
    uint32_t n_done, n_failed;
    bool done;
};

static void on_grown(struct td_coordinator *c, const char *job) {
    (void)c;
    (void)job;
}
static const struct td_shell_roof roof = {.log_grew = on_grown};

static void make_rig(struct rig *r, char *state_dir) {
    *r = (struct rig){.c = {.roof = &roof, .state_dir = state_dir, .closing = true}};
    snprintf(r->dir, sizeof r->dir, "%s/logs", state_dir);
    assert_ok(td_loop_create(&r->c.loop));
    assert_ok(td_core_create(&(struct td_core_options){0}, &r->c.core));
    assert_ok(td_disk_create(r->c.loop, "disk", &r->c.disk));
    assert_ok(td_logs_create(&r->c, &r->c.logs));
}

static void free_rig(struct rig *r) {
    td_disk_destroy(r->c.disk);
    td_logs_destroy(r->c.logs);
    td_core_destroy(r->c.core);
    td_loop_destroy(r->c.loop);
}

static void on_written(td_status take_status, void *arg) {
    struct rig *r = arg;
    r->n_done++;
    r->n_failed += take_status != TD_OK;
    td_status_free(take_status);
}

static void append(struct rig *r, const struct td_log_key *key, uint64_t offset, const char *text) {
    bool pending = false;
    assert_ok(td_logs_append(r->c.logs, key, offset, text, strlen(text), on_written, r, &pending));
    assert_true(pending);
}

// The disk thread's work in the middle: what was in the way is gone, the file is there.
struct clear {
    struct td_disk_job job;
    struct rig *rig;
};
static void clear_run(struct td_disk_job *job) {
    struct rig *r = ((struct clear *)job)->rig;
    char dir[300], path[320];
    snprintf(dir, sizeof dir, "%s/j-1/a1", r->dir);
    snprintf(path, sizeof path, "%s/0.out", dir);
    (void)unlink(r->dir);
    td_status s = td_fs_mkdirs(dir, 0700);
    if (!s) s = td_fs_write(path, "", 0, 0600, 0);
    td_status_free(s);
}
static void clear_done(struct td_disk_job *job) {
    (void)job;
}
static void last_done(struct td_disk_job *job) {
    ((struct clear *)job)->rig->done = true;
}
static void nothing(struct td_disk_job *job) {
    (void)job;
}

static void test_length_has_no_hole_when_a_write_before_failed(void **state) {
    struct rig r;
    const struct td_log_key key = {.job = "j-1", .attempt = 1};
    make_rig(&r, *state);
    assert_ok(td_fs_write(r.dir, "", 0, 0600, 0)); // a file where the directory belongs
    struct clear middle = {.job = {.run = clear_run, .done = clear_done}, .rig = &r};
    struct clear last = {.job = {.run = nothing, .done = last_done}, .rig = &r};
    append(&r, &key, 0, "first\n");
    assert_ok(td_disk_submit(r.c.disk, &middle.job));
    append(&r, &key, 6, "second\n");
    assert_ok(td_disk_submit(r.c.disk, &last.job));
    assert_ok(td_loop_run_until(r.c.loop, &r.done, TD_TEST_WAIT_NS));
    assert_int_equal(r.n_done, 2);
    assert_int_equal(r.n_failed, 2);
    assert_int_equal(td_logs_size(r.c.logs, &key), 0);
    append(&r, &key, 0, "first\nsecond\n"); // from the length that was reported
    r.done = false;
    assert_ok(td_disk_submit(r.c.disk, &last.job));
    assert_ok(td_loop_run_until(r.c.loop, &r.done, TD_TEST_WAIT_NS));
    assert_int_equal(td_logs_size(r.c.logs, &key), 13);
    free_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_length_has_no_hole_when_a_write_before_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
