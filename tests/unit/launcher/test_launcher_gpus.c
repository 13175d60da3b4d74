// What the node says of devices, at a launcher: points of the rank that has the device, and a note
// of those that do nothing. The ranks are pages with rings; nothing runs.

#include "daemon/launcher/gpus.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/launcher/state.h"
#include "lib/attempt/segments.h"
#include "lib/base/files/files.h"
#include "tests/unit/test.h"
#include "traind/v1/launcher.pb-c.h"

enum { N_RANKS = 2, START_S = 1000 };

struct rig {
    struct td_launcher l;
    struct td_launch_rank ranks[N_RANKS];
    const char *dir;
    const char *devices;
    int64_t now_s;
};

static void at(struct rig *r, int64_t seconds) {
    r->now_s = START_S + seconds;
    td_clock_fake(r->now_s * TD_NS_PER_S, (1700000000 + seconds) * TD_NS_PER_S);
}

// Ranks 2 and 3 of four, with two devices each.
static void make(struct rig *r, const char *dir, enum td_job_kind kind) {
    memset(r, 0, sizeof *r);
    r->dir = dir;
    r->devices = "GPU-a,GPU-b,GPU-c,GPU-d";
    r->l.o = (struct td_launch_options){.kind = kind,
                                        .n_ranks = N_RANKS,
                                        .first_rank = 2,
                                        .world_size = 4,
                                        .gpu_idle_ns = 1800 * TD_NS_PER_S};
    r->l.ranks = r->ranks;
    assert_ok(td_journal_init(&r->l.journal, dir));
    for (int i = 0; i < N_RANKS; i++) {
        char path[TD_FS_PATH_BYTES];
        struct td_launch_rank *k = &r->ranks[i];
        k->rank = 2 + i;
        assert_ok(td_rank_page_make(k->rank, 4, &k->page_fd, &k->page, &k->ring));
        assert_ok(td_fs_path(path, "%s/m%d", dir, i));
        k->metrics_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(k->metrics_fd >= 0);
    }
    at(r, 0);
}

static void finish(struct rig *r) {
    td_clock_fake(-1, -1);
    td_journal_finish(&r->l.journal);
    td_launch_gpus_destroy(r->l.gpus);
    for (int i = 0; i < N_RANKS; i++) {
        munmap(r->ranks[i].page, td_rank_page_memory());
        close(r->ranks[i].page_fd);
        close(r->ranks[i].metrics_fd);
    }
}

// One device's sample; percent below 0: the driver does not say it.
static void say(struct rig *r, const char *uuid, int percent, double power) {
    Traind__V1__LauncherGpus m = TRAIND__V1__LAUNCHER_GPUS__INIT;
    Traind__V1__LauncherGpu gpu = TRAIND__V1__LAUNCHER_GPU__INIT, *list[] = {&gpu};
    Traind__V1__LauncherGpu__MeasuredEntry busy = TRAIND__V1__LAUNCHER_GPU__MEASURED_ENTRY__INIT,
                                           watts = busy, other = busy,
                                           *measured[] = {&watts, &other, &busy};
    uint8_t bytes[512];
    m.node = td_unconst("one");
    m.devices = td_unconst(r->devices);
    m.gpus = list;
    m.n_gpus = 1;
    gpu.uuid = td_unconst(uuid);
    gpu.measured = measured;
    gpu.n_measured = percent < 0 ? 2 : 3;
    watts.key = td_unconst("power_w");
    watts.value = power;
    other.key = td_unconst("of_a_newer_build");
    busy.key = td_unconst("utilization");
    busy.value = percent;
    assert_true(traind__v1__launcher_gpus__get_packed_size(&m) <= sizeof bytes);
    td_launch_gpus_take(&r->l, bytes, traind__v1__launcher_gpus__pack(&m, bytes));
}

// "gpu4.power@7=250 ", all of a rank's.
static const char *points(const struct rig *r, int rank) {
    static char text[1024];
    struct td_metric_record p;
    size_t len = 0;
    text[0] = '\0';
    for (off_t from = 0; pread(r->ranks[rank].metrics_fd, &p, sizeof p, from) == sizeof p;
         from += (off_t)sizeof p) {
        assert_true(!!(p.flags & TD_METRIC_DEVICE) == (strncmp(p.name, "gpu", 3) == 0));
        len += (size_t)snprintf(text + len, sizeof text - len, "%s@%d=%g ", p.name, p.step,
                                p.sum / p.count);
        assert_true(len < sizeof text);
    }
    return text;
}

static void set_step(struct rig *r, int rank, int64_t step) {
    atomic_store(&r->ranks[rank].page->step, step);
}

// The notes of the log, with "; " after each.
static const char *notes(const struct rig *r) {
    static char text[2048];
    char path[TD_FS_PATH_BYTES];
    size_t len = 0;
    TD_AUTO_BUF log;
    TD_AUTO(td_arena) *arena = NULL;
    td_buf_init(&log, 1 << 16);
    assert_ok(td_arena_create(1 << 20, &arena));
    assert_ok(td_fs_path(path, "%s/%s", r->dir, TD_SEGMENT_EVENTS));
    assert_ok(td_fs_read(path, 1 << 16, &log));
    text[0] = '\0';
    for (const char *line = td_buf_cstr(&log), *end; (end = strchr(line, '\n')); line = end + 1) {
        struct td_event e;
        assert_ok(td_event_parse(arena, line, (size_t)(end - line), &e));
        assert_int_equal(e.kind, TD_EVENT_NOTE);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s; ", e.note.text);
        assert_true(len < sizeof text);
    }
    return text;
}

// ---- points -------------------------------------------------------------------------------------
static void test_points_are_of_the_rank_and_its_newest_step_when_it_trains(void **state) {
    struct rig r;
    make(&r, *state, TD_KIND_TRAIN);
    struct td_metric_record own = {.name = "train_loss_step", .step = 7, .sum = 1, .count = 1};
    say(&r, "GPU-b", 0, 80);
    set_step(&r, 0, 7);
    assert_true(td_ring_push(&r.ranks[0].ring, &own));
    say(&r, "GPU-b", 90, 250);
    say(&r, "GPU-d", -1, 300);
    say(&r, "GPU-x", 1, 1); // of no rank here
    assert_string_equal(points(&r, 0), "gpu5.utilization@0=0 gpu5.power@0=80 train_loss_step@7=1 "
                                       "gpu5.utilization@7=90 gpu5.power@7=250 ");
    assert_string_equal(points(&r, 1), "gpu7.power@0=300 ");
    assert_int_equal(r.ranks[1].metrics_bytes, sizeof own);
    finish(&r);
}

static void test_point_is_the_mean_so_far_when_a_step_has_several_samples(void **state) {
    struct rig r;
    make(&r, *state, TD_KIND_TRAIN);
    set_step(&r, 0, 3);
    say(&r, "GPU-a", -1, 100);
    say(&r, "GPU-a", -1, 200);
    set_step(&r, 0, 4);
    say(&r, "GPU-a", -1, 50);
    assert_string_equal(points(&r, 0), "gpu4.power@3=100 gpu4.power@3=150 gpu4.power@4=50 ");
    finish(&r);
}

static void test_samples_are_counted_until_a_command_names_a_step(void **state) {
    struct rig r;
    make(&r, *state, TD_KIND_COMMAND);
    say(&r, "GPU-a", -1, 1);
    say(&r, "GPU-a", -1, 2);
    say(&r, "GPU-b", -1, 3);
    r.ranks[0].gives_steps = true;
    say(&r, "GPU-a", -1, 4); // it has named step 0
    set_step(&r, 0, 12);
    say(&r, "GPU-a", -1, 5);
    assert_string_equal(points(&r, 0), "gpu4.power@0=1 gpu4.power@1=2 gpu5.power@0=3 "
                                       "gpu4.power@0=4 gpu4.power@12=5 ");
    finish(&r);
}

static void test_nothing_is_written_when_a_rank_has_ended_or_has_no_device(void **state) {
    struct rig r;
    make(&r, *state, TD_KIND_COMMAND);
    r.ranks[0].exited = true;
    say(&r, "GPU-a", 0, 1);
    td_launch_gpus_take(&r.l, (const uint8_t *)"\xff\xff\xff", 3);
    assert_string_equal(points(&r, 0), "");
    finish(&r);
    make(&r, *state, TD_KIND_COMMAND);
    r.devices = "GPU-a,GPU-b,GPU-c"; // not equally many
    say(&r, "GPU-a", 0, 1);
    assert_string_equal(points(&r, 0), "");
    finish(&r);
}

// ---- idle ---------------------------------------------------------------------------------------
static void all_say(struct rig *r, int64_t from_s, int64_t to_s, int percent_a, int percent_b) {
    for (int64_t s = from_s; s <= to_s; s += 10) {
        at(r, s);
        say(r, "GPU-a", percent_a, 60);
        say(r, "GPU-b", percent_b, 60);
    }
}

static void test_idle_device_is_noted_once_until_it_does_something(void **state) {
    struct rig r;
    make(&r, *state, TD_KIND_TRAIN);
    all_say(&r, 0, 1790, 0, 5);
    assert_string_equal(notes(&r), "");
    all_say(&r, 1800, 4000, 0, 5);
    static const char first[] = "gpu4 (GPU-a) of node one has done nothing since "
                                "2023-11-14T22:13:20.000Z; ";
    assert_string_equal(notes(&r), first);
    assert_true(r.l.news);
    all_say(&r, 4010, 4010, 1, 5);
    all_say(&r, 4020, 5810, 0, 5);
    assert_string_equal(notes(&r), first);
    all_say(&r, 5820, 5820, 0, 5);
    assert_int_equal(r.l.gpus->n_notes, 2);
    finish(&r);
}

static void test_spell_begins_again_when_samples_were_missing(void **state) {
    struct rig r;
    make(&r, *state, TD_KIND_TRAIN);
    all_say(&r, 0, 1000, 0, -1);
    all_say(&r, 1061, 2860, 0, -1); // a minute and a second after the last
    assert_string_equal(notes(&r), "");
    all_say(&r, 2861, 2861, 0, -1);
    assert_non_null(strstr(notes(&r), "since 2023-11-14T22:31:01.000Z; "));
    assert_null(strstr(notes(&r), "GPU-b")); // of which the driver does not say it
    finish(&r);
}

static void test_notes_share_a_line_and_have_a_bound(void **state) {
    struct rig r;
    make(&r, *state, TD_KIND_TRAIN);
    r.l.o.gpu_idle_ns = 20 * TD_NS_PER_S;
    Traind__V1__LauncherGpus m = TRAIND__V1__LAUNCHER_GPUS__INIT;
    Traind__V1__LauncherGpu gpu[2], *list[] = {&gpu[0], &gpu[1]};
    Traind__V1__LauncherGpu__MeasuredEntry busy = TRAIND__V1__LAUNCHER_GPU__MEASURED_ENTRY__INIT,
                                           *measured[] = {&busy};
    uint8_t bytes[512];
    busy.key = td_unconst("utilization");
    m.devices = td_unconst(r.devices);
    m.node = td_unconst("one");
    m.gpus = list;
    m.n_gpus = 2;
    for (int i = 0; i < 2; i++) {
        traind__v1__launcher_gpu__init(&gpu[i]);
        gpu[i].uuid = td_unconst(i ? "GPU-d" : "GPU-a");
        gpu[i].measured = measured;
        gpu[i].n_measured = 1;
    }
    for (int i = 0; i < 4 * (TD_GPU_NOTES + 2); i++) {
        at(&r, 10 * i);
        busy.value = i % 4 ? 0 : 50;
        td_launch_gpus_take(&r.l, bytes, traind__v1__launcher_gpus__pack(&m, bytes));
    }
    TD_AUTO_BUF log;
    char path[TD_FS_PATH_BYTES];
    int n = 0;
    td_buf_init(&log, 1 << 18);
    assert_ok(td_fs_path(path, "%s/%s", r.dir, TD_SEGMENT_EVENTS));
    assert_ok(td_fs_read(path, 1 << 18, &log));
    for (const char *p = td_buf_cstr(&log); (p = strstr(p, "have done nothing")); p++) {
        n++;
    }
    assert_int_equal(n, TD_GPU_NOTES);
    assert_non_null(strstr(td_buf_cstr(&log), "gpu4 (GPU-a), gpu7 (GPU-d) of node one have"));
    assert_non_null(strstr(td_buf_cstr(&log), "; no more such notes are written"));
    finish(&r);
}

static void test_none_is_noted_when_the_time_is_zero(void **state) {
    struct rig r;
    make(&r, *state, TD_KIND_TRAIN);
    r.l.o.gpu_idle_ns = 0;
    all_say(&r, 0, 100, 0, 0);
    assert_string_equal(notes(&r), "");
    finish(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_points_are_of_the_rank_and_its_newest_step_when_it_trains),
        test_in_scratch(test_point_is_the_mean_so_far_when_a_step_has_several_samples),
        test_in_scratch(test_samples_are_counted_until_a_command_names_a_step),
        test_in_scratch(test_nothing_is_written_when_a_rank_has_ended_or_has_no_device),
        test_in_scratch(test_idle_device_is_noted_once_until_it_does_something),
        test_in_scratch(test_spell_begins_again_when_samples_were_missing),
        test_in_scratch(test_notes_share_a_line_and_have_a_bound),
        test_in_scratch(test_none_is_noted_when_the_time_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
