// The watchdog: which rank is named in events.log, and until when. The ranks are pages; the process
// of each is this one, which runs.

#include "daemon/launcher/watchdog/watchdog.h"

#include <string.h>

#include "daemon/launcher/command/command.h"
#include "daemon/launcher/state.h"
#include "lib/attempt/rank_page.h"
#include "lib/attempt/segments.h"
#include "lib/base/files/files.h"
#include "tests/unit/test.h"

enum { N_RANKS = 2, LOOK_MS = 100, FLOOR_MS = 1000 };

struct rig {
    struct td_launcher l;
    struct td_launch_rank ranks[N_RANKS];
    struct td_rank_page pages[N_RANKS];
    struct td_mono now;
    const char *dir;
};

static void beat(struct rig *r, int rank) {
    struct td_rank_page *p = &r->pages[rank];
    p->phase = TD_PHASE_TRAINING;
    p->step++;
    p->samples += 32;
    p->heartbeat_ns = r->now.ns;
}

static void look(struct rig *r) {
    r->now.ns += LOOK_MS * TD_NS_PER_MS;
    td_watchdog_look(&r->l, r->now);
}

static void make(struct rig *r, const char *dir) {
    memset(r, 0, sizeof *r);
    r->dir = dir;
    r->now = (struct td_mono){1000 * TD_NS_PER_S};
    r->l.o =
        (struct td_launch_options){.n_ranks = N_RANKS, .silent_after_ns = FLOOR_MS * TD_NS_PER_MS};
    r->l.ranks = r->ranks;
    r->l.blamed = -1;
    r->l.kill_at.ns = INT64_MAX;
    assert_ok(td_journal_init(&r->l.journal, dir));
    for (int i = 0; i < N_RANKS; i++) {
        r->ranks[i] = (struct td_launch_rank){
            .rank = i, .page = &r->pages[i], .proc = {.pid = getpid(), .pidfd = -1}};
    }
    for (int n = 0; n < 20; n++) {
        beat(r, 0);
        beat(r, 1);
        look(r);
    }
    assert_int_equal(r->l.blamed, -1);
}

// "silent 1, beats 1, ": the lines of the log, each with its rank.
static const char *said(struct rig *r) {
    static char text[256];
    char path[512];
    TD_AUTO_BUF log;
    td_buf_init(&log, 1 << 16);
    td_journal_flush(&r->l.journal);
    snprintf(path, sizeof path, "%s/%s", r->dir, TD_SEGMENT_EVENTS);
    assert_ok(td_fs_read(path, 1 << 16, &log));
    size_t len = 0;
    text[0] = '\0';
    for (const char *at = td_buf_cstr(&log); (at = strstr(at, "{\"event\":\"")); at++) {
        const char *name = at + strlen("{\"event\":\""), *rank = strstr(name, "\"rank\":");
        assert_non_null(rank);
        len += (size_t)snprintf(text + len, sizeof text - len, "%.*s %c, ",
                                (int)strcspn(name, "\""), name, rank[strlen("\"rank\":")]);
        assert_true(len < sizeof text);
    }
    return text;
}

static void test_named_rank_that_beats_is_cleared_when_another_had_waited_longer(void **state) {
    struct rig r;
    make(&r, *state);
    beat(&r, 1); // a look later than rank 0, which waits for it in the next collective
    r.pages[0].collective_seq = 2;
    r.pages[1].collective_seq = 1;
    for (int n = 0; n < FLOOR_MS / LOOK_MS; n++) {
        look(&r);
    }
    assert_string_equal(said(&r), "silent 1, "); // by rank 0's limit, not yet by its own
    beat(&r, 0);
    beat(&r, 1);
    look(&r);
    assert_string_equal(said(&r), "silent 1, beats 1, ");
    assert_int_equal(r.l.blamed, -1);
    td_journal_finish(&r.l.journal);
}

static void test_rank_that_beat_first_hands_the_blame_to_one_that_is_silent_still(void **state) {
    struct rig r;
    make(&r, *state);
    r.pages[0].collective_seq = 2;
    r.pages[1].collective_seq = 1;
    for (int n = 0; n < 2 * FLOOR_MS / LOOK_MS; n++) {
        look(&r);
    }
    beat(&r, 1);
    look(&r);
    assert_string_equal(said(&r), "silent 1, beats 1, silent 0, ");
    beat(&r, 0);
    look(&r);
    assert_string_equal(said(&r), "silent 1, beats 1, silent 0, beats 0, ");
    td_journal_finish(&r.l.journal);
}

static void test_command_that_never_spoke_is_not_silent_when_another_is(void **state) {
    struct rig r;
    struct td_launch_command command = {0};
    make(&r, *state);
    r.l.command = &command;
    r.l.o.kind = TD_KIND_COMMAND;
    for (int n = 0; n < 10 * FLOOR_MS / LOOK_MS; n++) {
        look(&r);
    }
    assert_string_equal(said(&r), "");
    r.ranks[1].speaks = true;
    r.pages[0].collective_seq = -1; // it would be the one to blame
    beat(&r, 1);
    for (int n = 0; n < FLOOR_MS / LOOK_MS - 1; n++) {
        look(&r);
    }
    assert_string_equal(said(&r), ""); // not late yet, and no other's silence makes it so
    for (int n = 0; n < FLOOR_MS / LOOK_MS; n++) {
        look(&r);
    }
    assert_string_equal(said(&r), "silent 1, ");
    td_journal_finish(&r.l.journal);
}

static void test_program_that_never_beat_is_not_silent_when_another_is(void **state) {
    struct rig r;
    struct td_launch_command command = {0};
    make(&r, *state);
    r.l.command = &command;
    r.l.o.kind = TD_KIND_PROGRAM;
    r.pages[0].heartbeat_ns = r.pages[1].heartbeat_ns = 0;
    r.pages[0].collective_seq = -1; // it would be the one to blame
    for (int n = 0; n < 10 * FLOOR_MS / LOOK_MS; n++) {
        look(&r);
    }
    assert_string_equal(said(&r), "");
    beat(&r, 1);
    for (int n = 0; n < 2 * FLOOR_MS / LOOK_MS; n++) {
        look(&r);
    }
    assert_string_equal(said(&r), "silent 1, ");
    td_journal_finish(&r.l.journal);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_named_rank_that_beats_is_cleared_when_another_had_waited_longer),
        test_in_scratch(test_rank_that_beat_first_hands_the_blame_to_one_that_is_silent_still),
        test_in_scratch(test_command_that_never_spoke_is_not_silent_when_another_is),
        test_in_scratch(test_program_that_never_beat_is_not_silent_when_another_is),
    };
    return cmocka_run_group_tests_name("launcher_watchdog", tests, NULL, NULL);
}
