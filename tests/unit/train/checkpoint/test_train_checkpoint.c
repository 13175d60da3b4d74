// The checkpointer without a loop: busy buffers, values that are not finite, steps saved once.
// Tags: tsan

#include "tests/unit/test.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <semaphore.h>

#include "accelerators/reference/reference.h"
#include "engine/train/checkpoint/checkpoint.h"
#include "engine/train/checkpoint/safetensors.h"
#include "lib/base/clock.h"
#include "lib/base/floats/floats.h"

static const struct td_strategy_ops no_strategy = {.struct_bytes = sizeof no_strategy};

// A strategy that removes what was written at even steps itself. At step 5 it cannot say.
static char asked_about[256];

static td_status even_are_mine(struct td_strategy *s, const struct td_checkpoint_call *call,
                               bool *out_removes) {
    const char *name = strrchr(call->path, '/');
    (void)s;
    assert_true(*out_removes && call->struct_bytes == sizeof *call && call->roles);
    if (strcmp(name, "/step-5") == 0) return td_fail(TD_UNAVAILABLE, "no answer of the test");
    const size_t len = strlen(asked_about);
    snprintf(asked_about + len, sizeof asked_about - len, "%s", name);
    *out_removes = (name[strlen(name) - 1] - '0') % 2 == 1;
    return TD_OK;
}

static const struct td_strategy_ops owns_some = {.struct_bytes = sizeof owns_some,
                                                 .remove_checkpoint = even_are_mine};

struct fixture {
    char *dir;
    struct td_state_table *state;
    struct td_accelerator *accel;
    const struct td_accelerator_ops *ops;
    struct td_strategy_memory memory;
    struct td_background *background;
    struct td_events events;
    _Alignas(TD_LINE_BYTES) char ring[1024];
    struct td_metrics metrics;
    struct td_checkpoint_config config;
    const struct td_strategy_ops *strategy; // NULL: one without slots
    struct td_checkpointer *c;
};

enum { ELEMS = 37 }; // of each tensor: two vectors and a rest

// Another checkpointer: what is kept is settled when it is made.
static void begin(struct fixture *f, int32_t top_k, const char *monitor, bool larger) {
    f->config.save_top_k = top_k;
    f->config.monitor = monitor;
    f->config.monitor_max = larger;
    struct td_checkpointer_options options = {
        .config = &f->config,
        .roles = 1u << TD_ROLE_PARAM,
        .state = f->state,
        .accel_ops = f->ops,
        .accel = f->accel,
        .strategy_ops = f->strategy ? f->strategy : &no_strategy,
        .background = f->background,
        .events = &f->events,
        .metrics = &f->metrics,
        .resumed_step = -1,
    };
    td_checkpointer_destroy(f->c);
    assert_ok(td_checkpointer_create(&options, &f->c));
    td_checkpointer_prepare(f->c);
    assert_ok(td_background_wait(f->background, TD_TEST_WAIT_NS)); // its buffer has its pages
}

static int make(void **state) {
    struct fixture *f = aligned_alloc(TD_LINE_BYTES, td_align_up(sizeof *f, TD_LINE_BYTES));
    memset(f, 0, sizeof *f);
    static const enum td_dtype types[] = {TD_F32, TD_F16, TD_BF16, TD_F64};
    static const char *const names[] = {"w", "half", "brain", "double"};
    int64_t dim = ELEMS;
    uint32_t index;
    struct td_shape shape = {1, {dim}};
    struct td_init zero = {.kind = TD_INIT_ZERO};
    struct td_accel_config accel = {.struct_bytes = sizeof accel, .n_threads = 1};
    void *dir = NULL;
    assert_int_equal(td_test_scratch_make(&dir), 0);
    f->dir = dir;
    f->ops = td_accelerator_reference.ops;
    assert_ok(f->ops->open(&accel, &f->accel));
    assert_ok(td_state_table_create(&f->state));
    for (size_t i = 0; i < TD_COUNTOF(types); i++) {
        assert_ok(
            td_state_add(f->state, names[i], TD_ROLE_PARAM, types[i], &shape, zero, 0, &index));
    }
    assert_ok(td_state_layout(f->state));
    size_t bytes = td_state_region_bytes(f->state, TD_ROLE_PARAM);
    assert_ok(f->ops->mem_alloc(f->accel, bytes, &f->memory.region[TD_ROLE_PARAM]));
    assert_ok(td_background_create(NULL, NULL, &f->background));
    td_events_init(&f->events, open("/dev/null", O_WRONLY)); // sends fail, which is counted
    assert_ok(td_ring_format(f->ring, sizeof f->ring, sizeof(struct td_metric_record), 4,
                             &f->metrics.ring));
    f->config = (struct td_checkpoint_config){
        .dir = f->dir, .label = "a1", .save_top_k = -1, .patience_ns = TD_TEST_WAIT_NS};
    begin(f, -1, NULL, false);
    *state = f;
    return 0;
}

static int unmake(void **state) {
    struct fixture *f = *state;
    void *dir = f->dir;
    td_background_destroy(f->background);
    td_checkpointer_destroy(f->c);
    close(f->events.fd);
    td_events_finish(&f->events);
    f->ops->mem_free(f->accel, f->memory.region[TD_ROLE_PARAM]);
    td_state_table_destroy(f->state);
    f->ops->close(f->accel);
    free(f);
    return td_test_scratch_remove(&dir);
}

static float *weights(struct fixture *f) {
    return td_buffer_host(f->memory.region[TD_ROLE_PARAM]);
}

static td_status save(struct fixture *f, int64_t step, int flags) {
    struct td_manifest m = {.job = "j", .progress = {.step = step}};
    return td_checkpointer_save(f->c, &f->memory, &m, flags);
}

static float saved_value(struct fixture *f, int step) {
    char path[4096];
    struct td_safetensors *file;
    snprintf(path, sizeof path, "%s/step-%d/model.safetensors", f->dir, step);
    assert_ok(td_safetensors_open(path, &file));
    float v = *(const float *)td_safetensors_find(file, "w")->data;
    td_safetensors_close(file);
    return v;
}

static void wait_for(void *semaphore) {
    while (sem_wait(semaphore) != 0) {}
}

static void test_save_holds_the_value_of_its_call(void **state) {
    struct fixture *f = *state;
    weights(f)[0] = 1;
    assert_ok(save(f, 1, 0));
    weights(f)[0] = 2;
    assert_ok(save(f, 2, TD_SAVE_FINAL));
    assert_true(saved_value(f, 1) == 1);
    assert_true(saved_value(f, 2) == 2);
}

static bool is_saved(struct fixture *f, int step) {
    char path[4096];
    snprintf(path, sizeof path, "%s/step-%d/manifest.json", f->dir, step);
    return td_fs_exists(path);
}

static uint64_t skipped(const struct fixture *f) {
    return td_checkpointer_counts(f->c).skipped;
}

static void test_periodic_save_is_skipped_and_counted_when_the_newest_are_kept(void **state) {
    struct fixture *f = *state;
    sem_t release;
    begin(f, 2, NULL, false);
    sem_init(&release, 0, 0);
    assert_true(td_background_submit(f->background, wait_for, &release));
    assert_ok(save(f, 1, 0));
    assert_int_equal(skipped(f), 1);
    sem_post(&release);
    assert_ok(save(f, 2, TD_SAVE_FINAL)); // waits
    sem_destroy(&release);
    assert_false(is_saved(f, 1));
    assert_true(is_saved(f, 2));
}

static void take_a_moment(void *arg) {
    (void)arg;
    (void)poll(NULL, 0, 50);
}

static void test_no_save_is_skipped_when_all_are_kept_or_it_was_asked_for(void **state) {
    struct fixture *f = *state;
    for (int asked = 0; asked < 2; asked++) {
        begin(f, asked ? 1 : -1, NULL, false);
        for (int step = 1; step <= 3; step++) {
            assert_true(td_background_submit(f->background, take_a_moment, NULL));
            assert_ok(save(f, 10 * asked + step, asked ? TD_SAVE_ASKED : 0));
            assert_ok(td_background_wait(f->background, TD_TEST_WAIT_NS));
            assert_true(is_saved(f, 10 * asked + step));
        }
        struct td_checkpointer_counts counts = td_checkpointer_counts(f->c);
        assert_true(counts.skipped == 0 && counts.waited == 3 && counts.waited_ns > 0);
    }
}

static td_status save_with(struct fixture *f, int64_t step, const char *metric, double value) {
    struct td_manifest m = {.job = "j", .progress = {.step = step}};
    td_manifest_add_metric(&m, metric, value * 4, 4);
    return td_checkpointer_save(f->c, &f->memory, &m, 0);
}

// With the writer busy: one that waits for it ends the wait, one that is skipped does not.
static void save_beside(struct fixture *f, int64_t step, double value, bool waits) {
    sem_t release;
    uint64_t before = skipped(f);
    sem_init(&release, 0, 0);
    assert_true(td_background_submit(f->background, waits ? take_a_moment : wait_for, &release));
    assert_ok(save_with(f, step, f->config.monitor, value));
    assert_int_equal(skipped(f) - before, waits ? 0 : 1);
    if (!waits) sem_post(&release);
    assert_ok(td_background_wait(f->background, TD_TEST_WAIT_NS));
    sem_destroy(&release);
}

static void test_periodic_save_waits_when_it_is_among_the_best_k_so_far(void **state) {
    struct fixture *f = *state;
    static const struct {
        double value;
        bool waits;
    } of_two[] = {{0.5, true},  {0.7, true}, {0.9, false},  {(double)NAN, false}, {0.69, true},
                  {0.8, false}, {0.6, true}, {0.65, false}, {0.6, false},         {0.4, true}};
    for (int larger = 0; larger < 2; larger++) {
        const double sign = larger ? -1 : 1;
        int first = 20 * larger;
        begin(f, 2, larger ? "val_accuracy" : "val_loss", larger);
        for (int i = 0; i < (int)TD_COUNTOF(of_two); i++) {
            save_beside(f, first + i, sign * of_two[i].value + larger * 2, of_two[i].waits);
        }
        assert_true(is_saved(f, first + (int)TD_COUNTOF(of_two) - 1));
        assert_false(is_saved(f, first + 2));
    }
}

static void test_periodic_save_is_skipped_when_it_repeats_the_value_of_the_best(void **state) {
    struct fixture *f = *state;
    begin(f, 1, "val_loss", false);
    save_beside(f, 1, 0.5, true);
    save_beside(f, 2, 0.5, false); // no validation came between
    save_beside(f, 3, 0.4, true);
}

static void test_periodic_save_is_skipped_when_what_is_monitored_was_not_measured(void **state) {
    struct fixture *f = *state;
    sem_t release;
    begin(f, 1, "val_loss", false);
    sem_init(&release, 0, 0);
    assert_true(td_background_submit(f->background, wait_for, &release));
    assert_ok(save_with(f, 1, "train_loss", 0.1));
    assert_int_equal(skipped(f), 1);
    sem_post(&release);
    assert_ok(td_background_wait(f->background, TD_TEST_WAIT_NS));
    sem_destroy(&release);
}

static void test_checkpoint_is_committed_after_the_points_before_it_are_drained(void **state) {
    struct fixture *f = *state;
    struct td_rank_page page = {0};
    char path[4096];
    f->metrics.launcher = &page;
    assert_ok(save(f, 1, 0));
    int64_t deadline_ns = td_mono_now().ns + TD_TEST_WAIT_NS;
    snprintf(path, sizeof path, "%s/step-1.tmp/manifest.json", f->dir);
    while (!td_fs_exists(path)) {
        assert_true(td_mono_now().ns < deadline_ns);
    }
    assert_int_equal(td_rank_page_drain_asked(&page), 1);
    assert_true(td_background_busy(f->background));
    td_rank_page_answer_drain(&page, td_rank_page_drain_asked(&page));
    assert_ok(td_background_wait(f->background, TD_TEST_WAIT_NS));
    snprintf(path, sizeof path, "%s/step-1/manifest.json", f->dir);
    assert_true(td_fs_exists(path));
    f->metrics.launcher = NULL;
}

static void test_a_step_is_saved_once(void **state) {
    struct fixture *f = *state;
    weights(f)[0] = 1;
    assert_ok(save(f, 1, TD_SAVE_FINAL));
    weights(f)[0] = 2;
    assert_ok(save(f, 1, TD_SAVE_FINAL));
    assert_true(saved_value(f, 1) == 1);
}

static void set_value(struct fixture *f, uint32_t tensor, int64_t i, double v) {
    const struct td_state_info *t = td_state_at(f->state, tensor);
    char *at = (char *)weights(f) + t->offset + (size_t)i * td_dtype_bytes(t->dtype);
    td_float_convert(TD_F64, &v, 1, t->dtype, at);
}

static void test_parameters_are_not_saved_when_they_are_not_finite(void **state) {
    struct fixture *f = *state;
    static const double bad[] = {NAN, INFINITY, -INFINITY},
                        largest[] = {3.4e38, 65504, 3.3e38, 1e308};
    static const int64_t places[] = {0, 15, 16, ELEMS - 1};
    char path[4096], name[8];
    int step = 0;
    for (uint32_t t = 0; t < td_state_count(f->state); t++) {
        for (size_t i = 0; i < TD_COUNTOF(bad) * TD_COUNTOF(places); i++) {
            int64_t place = places[i / TD_COUNTOF(bad)];
            set_value(f, t, place, bad[i % TD_COUNTOF(bad)]);
            td_status s = save(f, ++step, TD_SAVE_FINAL);
            assert_int_equal(td_status_class(s), TD_CLASS_NUMERIC);
            snprintf(name, sizeof name, "'%s'", td_state_at(f->state, t)->name);
            assert_non_null(strstr(td_status_message(s), name));
            td_status_free(s);
            snprintf(path, sizeof path, "%s/step-%d", f->dir, step);
            assert_false(td_fs_exists(path));
            set_value(f, t, place, -largest[t]);
        }
    }
    assert_ok(save(f, ++step, TD_SAVE_FINAL));
}

static void test_a_path_is_never_written_over(void **state) {
    struct fixture *f = *state;
    char path[4096];
    snprintf(path, sizeof path, "%s/step-1", f->dir);
    assert_ok(td_fs_mkdirs(path, 0755));
    snprintf(path, sizeof path, "%s/step-1/manifest.json", f->dir);
    assert_ok(td_fs_write(path, "old", 3, 0600, 0));
    td_status s = save(f, 1, TD_SAVE_FINAL);
    assert_int_equal(td_status_class(s), TD_CLASS_DISK);
    td_status_free(s);
    struct td_buf text;
    td_buf_init(&text, 100);
    assert_ok(td_fs_read(path, 100, &text));
    assert_string_equal(td_buf_cstr(&text), "old");
    td_buf_finish(&text);
    snprintf(path, sizeof path, "%s/step-1.tmp", f->dir);
    assert_false(td_fs_exists(path));
}

static const char *deep(struct fixture *f, const char *name, int depth, char path[4096]) {
    int n = snprintf(path, 4096, "%s/%s", f->dir, name);
    for (int i = 0; i < depth; i++) {
        n += snprintf(path + n, 4096 - (size_t)n, "/d");
    }
    return path;
}

static void test_removal_that_is_cut_short_leaves_no_half_checkpoint(void **state) {
    struct fixture *f = *state;
    char path[4096], up[4096];
    begin(f, 1, NULL, false);
    assert_ok(save(f, 1, TD_SAVE_FINAL));
    // Deeper than a tree that is removed may be: it fails in the middle, as if the rank were
    // killed.
    assert_ok(td_fs_mkdirs(deep(f, "step-1", 110, path), 0700));
    assert_ok(save(f, 2, TD_SAVE_FINAL));
    assert_false(td_fs_exists(deep(f, "step-1", 0, path)));
    assert_true(td_fs_exists(deep(f, "step-1.tmp", 110, path)));
    assert_int_equal(rename(deep(f, "step-1.tmp", 60, path), deep(f, "rest", 0, up)), 0);
}

static void
test_what_a_killed_attempt_left_is_removed_whatever_the_directory_is_called(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *name;
        bool stays;
    } rows[] = {
        {"job[1]/a1/step-7.tmp/model.safetensors", false},    {"job[1]/a1/.traind-place-12", false},
        {"job[1]/a1/step-7/model.safetensors", true},         {"job[1]/a1/notes.txt", true},
        {"job[1]/backup/step-7.tmp/model.safetensors", true},
    };
    char path[4096], *was = f->dir;
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        snprintf(path, sizeof path, "%s/%s", was, rows[i].name);
        char *slash = strrchr(path, '/');
        *slash = '\0';
        assert_ok(td_fs_mkdirs(path, 0700));
        *slash = '/';
        assert_ok(td_fs_write(path, "x", 1, 0600, 0));
    }
    snprintf(path, sizeof path, "%s/job[1]/a2", was);
    f->config.dir = path;
    begin(f, 1, NULL, false);
    f->config.dir = was;
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        snprintf(path, sizeof path, "%s/%s", was, rows[i].name);
        assert_int_equal(td_fs_exists(path), rows[i].stays);
    }
}

static void test_wait_has_a_deadline_when_the_writer_is_stuck(void **state) {
    struct fixture *f = *state;
    sem_t release;
    sem_init(&release, 0, 0);
    assert_true(td_background_submit(f->background, wait_for, &release));
    assert_false(td_background_submit(f->background, wait_for, &release));
    assert_fails(td_background_wait(f->background, TD_NS_PER_MS), TD_DEADLINE_EXCEEDED, "disk");
    sem_post(&release);
    assert_ok(td_background_wait(f->background, TD_TEST_WAIT_NS));
    sem_destroy(&release);
}

// Its answer decides, path by path. Without one the checkpoint stays, and saves go on.
static void test_strategy_removes_what_it_says_is_its_own(void **state) {
    struct fixture *f = *state;
    f->strategy = &owns_some;
    begin(f, 1, NULL, false);
    for (int64_t step = 1; step <= 7; step++) {
        assert_ok(save(f, step, TD_SAVE_FINAL));
    }
    assert_string_equal(asked_about, "/step-1/step-2/step-3/step-4/step-6");
    for (int step = 1; step <= 7; step++) {
        assert_int_equal(is_saved(f, step), step % 2 == 0 || step >= 5);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, make, unmake)
    const struct CMUnitTest tests[] = {
        CASE(test_save_holds_the_value_of_its_call),
        CASE(test_periodic_save_is_skipped_and_counted_when_the_newest_are_kept),
        CASE(test_no_save_is_skipped_when_all_are_kept_or_it_was_asked_for),
        CASE(test_periodic_save_waits_when_it_is_among_the_best_k_so_far),
        CASE(test_periodic_save_is_skipped_when_it_repeats_the_value_of_the_best),
        CASE(test_periodic_save_is_skipped_when_what_is_monitored_was_not_measured),
        CASE(test_checkpoint_is_committed_after_the_points_before_it_are_drained),
        CASE(test_a_step_is_saved_once),
        CASE(test_parameters_are_not_saved_when_they_are_not_finite),
        CASE(test_a_path_is_never_written_over),
        CASE(test_removal_that_is_cut_short_leaves_no_half_checkpoint),
        CASE(test_what_a_killed_attempt_left_is_removed_whatever_the_directory_is_called),
        CASE(test_strategy_removes_what_it_says_is_its_own),
        CASE(test_wait_has_a_deadline_when_the_writer_is_stuck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
