// Boundaries at a launcher: when the writer of a checkpoint may go on, and which lines the
// coordinator receives. The ranks are pages with rings; nothing runs.

#include "daemon/launcher/boundary.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/launcher/loggers/logger.h"
#include "lib/attempt/segments.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "tests/unit/test.h"

enum { N_RANKS = 2 };

struct rig {
    struct td_launcher l;
    struct td_launch_rank ranks[N_RANKS];
    const char *dir;
};

static void make(struct rig *r, const char *dir, int world_size) {
    memset(r, 0, sizeof *r);
    r->dir = dir;
    r->l.o = (struct td_launch_options){
        .kind = TD_KIND_TRAIN, .n_ranks = N_RANKS, .first_rank = 2, .world_size = world_size};
    r->l.ranks = r->ranks;
    assert_ok(td_journal_init(&r->l.journal, dir));
    for (int i = 0; i < N_RANKS; i++) {
        char path[TD_FS_PATH_BYTES];
        struct td_launch_rank *k = &r->ranks[i];
        k->rank = 2 + i;
        assert_ok(td_rank_page_make(k->rank, world_size, &k->page_fd, &k->page, &k->ring));
        assert_ok(td_fs_path(path, "%s/m%d", dir, i));
        k->metrics_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(k->metrics_fd >= 0);
    }
}

static void finish(struct rig *r) {
    td_journal_finish(&r->l.journal);
    for (int i = 0; i < N_RANKS; i++) {
        munmap(r->ranks[i].page, td_rank_page_memory());
        close(r->ranks[i].page_fd);
        close(r->ranks[i].metrics_fd);
    }
}

static void push(struct rig *r, int rank) {
    struct td_metric_record p = {.name = "train_loss_step", .sum = 1, .count = 1};
    assert_true(td_ring_push(&r->ranks[rank].ring, &p));
}

static bool is_answered(struct rig *r, int rank, uint32_t asked) {
    td_status s = td_rank_page_await_drain(r->ranks[rank].page, asked, 0);
    bool answered = !s;
    td_status_free(s);
    return answered;
}

// The lines of the log: "2 passed 1 at 128, ".
static const char *said(struct rig *r) {
    static char text[256];
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
        assert_int_equal(e.kind, TD_EVENT_BOUNDARY);
        len += (size_t)snprintf(text + len, sizeof text - len, "%d passed %d at %d, ", (int)e.rank,
                                (int)e.boundary.number, (int)e.boundary.metrics_bytes);
        assert_true(len < sizeof text);
    }
    return text;
}

static void test_writer_waits_when_another_rank_has_not_passed_its_boundary(void **state) {
    struct rig r;
    make(&r, *state, N_RANKS);
    push(&r, 0);
    assert_int_equal(td_rank_page_pass(r.ranks[0].page), 1);
    const uint32_t asked = td_rank_page_ask_drain(r.ranks[0].page);
    td_launcher_drain_metrics(&r.l);
    assert_false(is_answered(&r, 0, asked)); // what rank 1 recorded before may not be in its ring
    push(&r, 1);
    (void)td_rank_page_pass(r.ranks[1].page);
    td_launcher_drain_metrics(&r.l);
    assert_true(is_answered(&r, 0, asked));
    assert_int_equal(r.ranks[1].metrics_bytes, sizeof(struct td_metric_record));
    assert_string_equal(said(&r), ""); // all ranks of the attempt are here
    finish(&r);
}

static void test_writer_does_not_wait_for_a_rank_that_has_exited(void **state) {
    struct rig r;
    make(&r, *state, N_RANKS);
    r.ranks[1].exited = true;
    (void)td_rank_page_pass(r.ranks[0].page);
    const uint32_t asked = td_rank_page_ask_drain(r.ranks[0].page);
    td_launcher_drain_metrics(&r.l);
    assert_true(is_answered(&r, 0, asked));
    finish(&r);
}

// Ranks 0 and 1, a csv logger, and its file.
static void make_logged(struct rig *r, const char *dir, char csv[TD_FS_PATH_BYTES]) {
    static char plan[TD_FS_PATH_BYTES];
    char text[2 * TD_FS_PATH_BYTES];
    make(r, dir, N_RANKS);
    assert_ok(td_fs_path(plan, "%s/plan.json", dir));
    assert_ok(td_fs_path(csv, "%s/out/j/metrics.csv", dir));
    const int n =
        snprintf(text, sizeof text, "{\"loggers\":[{\"name\":\"csv\",\"dir\":\"%s/out\"}]}", dir);
    assert_ok(td_fs_write(plan, text, (size_t)n, 0600, 0));
    r->l.o.first_rank = 0;
    r->l.o.attempt = 1;
    r->l.o.dir = dir;
    r->l.o.job = "j";
    r->l.o.plan = plan;
    for (int i = 0; i < N_RANKS; i++) {
        char path[TD_FS_PATH_BYTES];
        close(r->ranks[i].metrics_fd);
        assert_ok(td_fs_path(path, "%s/" TD_SEGMENT_METRICS, dir, (unsigned)i));
        r->ranks[i].metrics_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(r->ranks[i].metrics_fd >= 0);
    }
    assert_ok(td_logger_start(&r->l.o, &r->l.logger));
    assert_non_null(r->l.logger);
}

// A launcher that was killed took the rows with it, and the next attempt began after them.
static void test_writer_waits_for_the_files_of_loggers(void **state) {
    struct rig r;
    char csv[TD_FS_PATH_BYTES];
    make_logged(&r, *state, csv);
    push(&r, 0);
    push(&r, 1);
    (void)td_rank_page_pass(r.ranks[0].page);
    (void)td_rank_page_pass(r.ranks[1].page);
    const uint32_t asked = td_rank_page_ask_drain(r.ranks[0].page);
    const struct td_mono end = td_mono_add(td_mono_now(), 30 * TD_NS_PER_S);
    for (bool answered = false; !answered;) {
        assert_true(td_mono_now().ns < end.ns);
        td_launcher_drain_metrics(&r.l);
        answered = is_answered(&r, 0, asked);
    }
    TD_AUTO_BUF text;
    td_buf_init(&text, 4096);
    assert_ok(td_fs_read(csv, 4096, &text));
    assert_string_equal(td_buf_cstr(&text), "epoch,step,train_loss_step\r\n0,0,1.0\r\n");
    assert_true(td_logger_finish(r.l.logger));
    td_logger_destroy(r.l.logger);
    finish(&r);
}

static void
test_boundary_is_written_with_the_points_before_it_when_ranks_are_elsewhere(void **state) {
    struct rig r;
    make(&r, *state, 2 * N_RANKS);
    push(&r, 0);
    push(&r, 0);
    (void)td_rank_page_pass(r.ranks[0].page);
    td_launcher_drain_metrics(&r.l);
    td_launcher_drain_metrics(&r.l); // once
    push(&r, 0);
    (void)td_rank_page_pass(r.ranks[1].page);
    (void)td_rank_page_pass(r.ranks[1].page); // between two looks
    td_launcher_drain_metrics(&r.l);
    assert_string_equal(said(&r), "2 passed 1 at 128, 3 passed 2 at 0, ");
    finish(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_writer_waits_when_another_rank_has_not_passed_its_boundary),
        test_in_scratch(test_writer_does_not_wait_for_a_rank_that_has_exited),
        test_in_scratch(test_writer_waits_for_the_files_of_loggers),
        test_in_scratch(
            test_boundary_is_written_with_the_points_before_it_when_ranks_are_elsewhere),
    };
    return cmocka_run_group_tests_name("launcher_boundary", tests, NULL, NULL);
}
