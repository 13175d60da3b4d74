// Forwarding: every byte once, whole records, from the committed offset, the last line last.
//
// Tags: tsan

#include "daemon/node/shell/attempts/forward.h"

#include <fcntl.h>

#include "lib/attempt/rank_page.h"
#include "lib/loop/loop.h"
#include "tests/unit/test.h"

enum { KINDS = 5, MAX_BYTES = 4 << 20 };

// A coordinator that keeps what it gets and acknowledges when asked to.
struct coordinator {
    struct td_buf got[KINDS]; // by kind; one rank
    uint64_t base[KINDS];     // committed when the session began
    int finals;
    char lost[512];       // as the last final said
    uint64_t metrics_end; //
    bool final_before_end, full, took;
    size_t n_segments, largest, n_progress;
    Traind__V1__AttemptProgress progress; // the newest
};

static bool take(Traind__V1__NodeMessage *m, void *arg) {
    struct coordinator *c = arg;
    if (c->full) return false;
    if (m->body_case == TRAIND__V1__NODE_MESSAGE__BODY_LOG_STATE) {
        c->finals += m->log_state->final;
        snprintf(c->lost, sizeof c->lost, "%s", m->log_state->lost);
        c->metrics_end = m->log_state->metrics_bytes;
    }
    if (m->body_case == TRAIND__V1__NODE_MESSAGE__BODY_PROGRESS) {
        c->n_progress++;
        c->progress = *m->progress;
    }
    if (m->body_case != TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT) return true;
    const Traind__V1__Segment *s = m->segment;
    assert_string_equal(s->id->job, "j-1");
    struct td_buf *got = &c->got[s->kind];
    assert_int_equal(s->offset, c->base[s->kind] + got->len); // no gap, nothing twice
    assert_ok(td_buf_append(got, s->data.data, s->data.len));
    if (s->kind == TRAIND__V1__SEGMENT__KIND__METRICS) assert_int_equal(s->data.len % 64, 0);
    if (s->kind == TRAIND__V1__SEGMENT__KIND__EVENTS) {
        assert_int_equal(s->data.data[s->data.len - 1], '\n');
        if (memmem(s->data.data, s->data.len, "launcher_end", 12)) {
            c->final_before_end = c->finals == 1;
        }
    }
    c->took = true;
    c->n_segments++;
    c->largest = TD_MAX(c->largest, s->data.len);
    return true;
}

struct rig {
    char *dir;
    struct td_loop *loop;
    struct td_forward *forward;
    struct coordinator c;
};

static void append(const char *dir, const char *name, const void *data, size_t bytes) {
    char path[TD_FS_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    TD_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0);
    assert_ok(td_fd_write_all(fd, data, bytes, name));
}

static void rig_make(struct rig *r, char *dir) {
    memset(r, 0, sizeof *r);
    r->dir = dir;
    for (int i = 0; i < KINDS; i++) {
        td_buf_init(&r->c.got[i], MAX_BYTES);
    }
    assert_ok(td_loop_create(&r->loop));
    struct td_forward_options o = {.loop = r->loop,
                                   .dir = dir,
                                   .job = "j-1",
                                   .checkpoints = dir,
                                   .attempt = 1,
                                   .epoch = 7,
                                   .n_ranks = 1,
                                   .send = take,
                                   .arg = &r->c};
    assert_ok(td_forward_create(&o, &r->forward));
}

static void rig_free(struct rig *r) {
    td_forward_destroy(r->forward);
    td_loop_destroy(r->loop);
    for (int i = 0; i < KINDS; i++) {
        td_buf_finish(&r->c.got[i]);
    }
}

static void ack(struct rig *r, Traind__V1__Segment__Kind kind, uint64_t offset) {
    Traind__V1__SegmentAck a = TRAIND__V1__SEGMENT_ACK__INIT;
    a.kind = kind;
    a.offset = offset;
    td_forward_ack(r->forward, &a);
}

static void test_window_bounds_what_is_unacked_when_nothing_is_committed(void **state) {
    struct rig r;
    rig_make(&r, *state);
    TD_AUTO_FREE char *block = calloc(1, 3 << 20);
    append(*state, "out.0.log", block, 3 << 20);
    td_forward_adopt(r.forward, NULL);
    struct td_buf *got = &r.c.got[TRAIND__V1__SEGMENT__KIND__OUT];
    assert_int_equal(got->len, TD_FORWARD_WINDOW);
    assert_int_equal(r.c.largest, 256 << 10);
    while (got->len < 3 << 20) {
        ack(&r, TRAIND__V1__SEGMENT__KIND__OUT, got->len);
    }
    ack(&r, TRAIND__V1__SEGMENT__KIND__OUT, got->len);
    ack(&r, TRAIND__V1__SEGMENT__KIND__OUT, 1 << 30); // nonsense: ignored
    append(*state, "out.0.log", "more", 4);
    td_forward_poke(r.forward);
    assert_int_equal(got->len, (3 << 20) + 4);
    rig_free(&r);
}

static void test_whole_records_only_when_a_write_is_under_way(void **state) {
    struct rig r;
    rig_make(&r, *state);
    struct td_metric_record records[2] = {{.name = "a"}, {.name = "b"}};
    append(*state, "metrics.0.seg", records, 100);
    append(*state, "events.log", "{\"event\":\"launched\"}\n{\"eve", 26);
    td_forward_adopt(r.forward, NULL);
    assert_int_equal(r.c.got[TRAIND__V1__SEGMENT__KIND__METRICS].len, 64);
    assert_int_equal(r.c.got[TRAIND__V1__SEGMENT__KIND__EVENTS].len, 21);
    append(*state, "metrics.0.seg", (char *)records + 100, 28);
    append(*state, "events.log", "nt\":\"x\"}\n", 9);
    td_forward_poke(r.forward);
    assert_int_equal(r.c.got[TRAIND__V1__SEGMENT__KIND__METRICS].len, 128);
    assert_int_equal(r.c.got[TRAIND__V1__SEGMENT__KIND__EVENTS].len, 35);
    rig_free(&r);
}

// A command says a value of a step again, or how many steps there are, after the step was seen.
static void test_progress_is_sent_when_anything_of_it_is_new(void **state) {
    struct rig r;
    Traind__V1__RankStatus rank = TRAIND__V1__RANK_STATUS__INIT, *ranks[] = {&rank};
    Traind__V1__LauncherStatus status = TRAIND__V1__LAUNCHER_STATUS__INIT;
    rig_make(&r, *state);
    td_forward_adopt(r.forward, NULL);
    status.n_ranks = 1;
    status.ranks = ranks;
    rank.step = 50;
    rank.loss = 1;
    td_forward_status(r.forward, &status);
    rank.loss = 52;
    td_forward_status(r.forward, &status);
    assert_int_equal(r.c.n_progress, 2);
    assert_float_equal(r.c.progress.loss, 52, 0);
    rank.total_steps = 60;
    td_forward_status(r.forward, &status);
    td_forward_status(r.forward, &status);
    assert_int_equal(r.c.n_progress, 3);
    assert_int_equal(r.c.progress.total_steps, 60);
    rig_free(&r);
}

static void test_log_is_sent_again_when_its_bytes_could_not_be_written(void **state) {
    struct rig r;
    rig_make(&r, *state);
    append(*state, "out.0.log", "one two ", 8);
    td_forward_adopt(r.forward, NULL);
    struct td_buf *got = &r.c.got[TRAIND__V1__SEGMENT__KIND__OUT];
    assert_int_equal(got->len, 8);
    ack(&r, TRAIND__V1__SEGMENT__KIND__OUT, 4); // a part of it is on disk, the rest was refused
    ack(&r, TRAIND__V1__SEGMENT__KIND__OUT, 4);
    assert_int_equal(got->len, 8); // not at once: the disk refuses still
    td_buf_clear(got);
    r.c.base[TRAIND__V1__SEGMENT__KIND__OUT] = 4;
    r.c.took = false;
    assert_ok(td_loop_run_until(r.loop, &r.c.took, 20 * TD_NS_PER_S));
    assert_int_equal(got->len, 4);
    assert_memory_equal(got->data, "two ", 4);
    rig_free(&r);
}

static void test_forwarding_goes_on_at_the_cursor_when_a_session_is_new(void **state) {
    struct rig r;
    rig_make(&r, *state);
    append(*state, "err.0.log", "0123456789", 10);
    td_forward_adopt(r.forward, NULL);
    td_forward_down(r.forward);
    append(*state, "err.0.log", "abc", 3);
    td_forward_poke(r.forward);
    assert_int_equal(r.c.got[TRAIND__V1__SEGMENT__KIND__ERR].len, 10); // nobody to send to
    Traind__V1__SegmentOffset offset = TRAIND__V1__SEGMENT_OFFSET__INIT, *offsets[] = {&offset};
    Traind__V1__AttemptCursor cursor = TRAIND__V1__ATTEMPT_CURSOR__INIT;
    offset.kind = TRAIND__V1__SEGMENT__KIND__ERR;
    offset.offset = r.c.base[offset.kind] = 7;
    cursor.n_offsets = 1;
    cursor.offsets = offsets;
    td_buf_clear(&r.c.got[offset.kind]);
    td_forward_adopt(r.forward, &cursor);
    assert_string_equal(td_buf_cstr(&r.c.got[offset.kind]), "789abc");
    rig_free(&r);
}

static void test_last_line_waits_for_the_final_lengths_when_the_launcher_lives(void **state) {
    struct rig r;
    rig_make(&r, *state);
    static const char end[] = "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n";
    append(*state, "events.log", "{\"event\":\"launched\"}\n", 21);
    append(*state, "events.log", end, sizeof end - 1);
    td_forward_adopt(r.forward, NULL);
    assert_int_equal(r.c.got[TRAIND__V1__SEGMENT__KIND__EVENTS].len, 21);
    r.c.full = true;
    td_forward_final(r.forward);
    assert_int_equal(r.c.got[TRAIND__V1__SEGMENT__KIND__EVENTS].len, 21);
    r.c.full = false;
    td_forward_poke(r.forward);
    assert_true(r.c.final_before_end);
    assert_int_equal(r.c.got[TRAIND__V1__SEGMENT__KIND__EVENTS].len, 21 + sizeof end - 1);
    assert_int_equal(r.c.finals, 1);
    rig_free(&r);
}

// A job SUCCEEDED with its points gone.
static void test_lost_segment_is_named_when_not_all_of_it_was_taken(void **state) {
    static const char events[] = "{\"event\":\"rank_exit\",\"rank\":0,\"metrics_bytes\":192,"
                                 "\"out_bytes\":3,\"err_bytes\":0}\n"
                                 "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n";
    static const struct {
        size_t bytes; // of the metrics that are here
        uint64_t committed, end;
        bool lost;
    } rows[] = {{192, 0, 192, false},
                {0, 192, 192, false},
                {0, 0, 0, true},
                {64, 0, 64, true},
                {64, 128, 128, true}};
    struct td_metric_record records[3] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    append(*state, "events.log", events, sizeof events - 1);
    append(*state, "out.0.log", "abc", 3);
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct rig r;
        char path[TD_FS_PATH_BYTES];
        Traind__V1__SegmentOffset offset = TRAIND__V1__SEGMENT_OFFSET__INIT, *offsets[] = {&offset};
        Traind__V1__AttemptCursor cursor = TRAIND__V1__ATTEMPT_CURSOR__INIT;
        rig_make(&r, *state);
        snprintf(path, sizeof path, "%s/metrics.0.seg", (char *)*state);
        (void)unlink(path);
        if (rows[i].bytes) append(*state, "metrics.0.seg", records, rows[i].bytes);
        offset.kind = TRAIND__V1__SEGMENT__KIND__METRICS;
        offset.offset = r.c.base[offset.kind] = rows[i].committed;
        cursor.n_offsets = 1;
        cursor.offsets = offsets;
        td_forward_adopt(r.forward, &cursor);
        td_forward_final(r.forward);
        assert_int_equal(r.c.finals, 1);
        assert_int_equal(r.c.metrics_end, rows[i].end);
        assert_int_equal(strstr(r.c.lost, "metrics.0.seg of the attempt was removed or cut") !=
                             NULL,
                         rows[i].lost);
        assert_null(strstr(r.c.lost, "out.0.log"));
        rig_free(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_window_bounds_what_is_unacked_when_nothing_is_committed),
        test_in_scratch(test_whole_records_only_when_a_write_is_under_way),
        test_in_scratch(test_progress_is_sent_when_anything_of_it_is_new),
        test_in_scratch(test_log_is_sent_again_when_its_bytes_could_not_be_written),
        test_in_scratch(test_forwarding_goes_on_at_the_cursor_when_a_session_is_new),
        test_in_scratch(test_last_line_waits_for_the_final_lengths_when_the_launcher_lives),
        test_in_scratch(test_lost_segment_is_named_when_not_all_of_it_was_taken),
    };
    return cmocka_run_group_tests_name("node_forward", tests, NULL, NULL);
}
