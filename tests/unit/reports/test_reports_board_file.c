// An event file that grows, is damaged, is written again: each of its records is taken once, in its
// order, and what is said of the rest.

#include "daemon/worker/reports/board_file.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "daemon/worker/reports/board_notes.h"
#include "daemon/worker/reports/sink.h"
#include "tests/unit/reports/board_rig.h"
#include "tests/unit/scratch_rig.h"

struct rig {
    int fd, fds[2];
    struct td_board_file f;
    struct td_board_notes notes;
    struct td_buf bytes; // a file of three records, and where each ends
    size_t end[4];
    int64_t now_ns;
    int n_taken;
    size_t last_bytes; // of the event that was taken last
};

static void begin(struct rig *r, void **state) {
    static const char *const texts[] = {"first, which has a time", "second", ""};
    *r = (struct rig){.now_ns = TD_NS_PER_S, .f.bytes = -1};
    r->fd = open(in(state, "events"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(r->fd >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, r->fds), 0);
    assert_ok(td_report_sink_create(r->fds[0], &r->notes.sink));
    r->f.path = td_strdup("events");
    td_buf_init(&r->bytes, 4 << 20);
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        put_record(&r->bytes, texts[i], strlen(texts[i]));
        r->end[i + 1] = r->bytes.len;
    }
}

static void end(struct rig *r) {
    td_board_file_finish(&r->f);
    td_report_sink_destroy(r->notes.sink);
    td_buf_finish(&r->bytes);
    close(r->fds[0]);
    close(r->fds[1]);
    close(r->fd);
}

static void take(void *arg, const struct td_board_file *f, struct td_str event) {
    struct rig *r = arg;
    (void)f;
    r->n_taken++;
    r->last_bytes = event.len;
}

// One turn, as the board makes it: where the file calls for one.
static void turn(struct rig *r) {
    static char buffer[TD_BOARD_BUFFER];
    struct stat st;
    assert_int_equal(fstat(r->fd, &st), 0);
    r->now_ns += TD_NS_PER_S / 10;
    if (!td_board_file_calls(&r->f, &st)) return;
    assert_ok(
        td_board_file_turn(&r->f, r->fd, buffer, &r->notes, (struct td_mono){r->now_ns}, take, r));
}

static void put_at(struct rig *r, const void *data, size_t bytes, size_t at) {
    assert_int_equal(pwrite(r->fd, data, bytes, (off_t)at), bytes);
}

static void put_all(struct rig *r) {
    put_at(r, r->bytes.data, r->bytes.len, 0);
}

static void test_record_is_taken_once_when_its_last_byte_is_there(void **state) {
    struct rig r;
    begin(&r, state);
    int whole = 0;
    for (size_t i = 0; i < r.bytes.len; i++) {
        put_at(&r, r.bytes.data + i, 1, i);
        turn(&r);
        turn(&r); // nothing more by that
        while (whole < 3 && i + 1 >= r.end[whole + 1]) {
            whole++;
        }
        if (r.n_taken != whole) fail_msg("%d at byte %zu, not %d", r.n_taken, i, whole);
        if (r.f.torn != (i + 1 != r.end[whole])) fail_msg("torn at byte %zu", i);
    }
    assert_int_equal(r.notes.n[TD_BOARD_DAMAGED] + r.notes.n[TD_BOARD_REWRITTEN], 0);
    td_board_file_end(&r.f, &r.notes);
    assert_int_equal(r.notes.n[TD_BOARD_TORN], 0);
    end(&r);
}

static void test_file_is_followed_up_to_a_damaged_byte(void **state) {
    struct rig r;
    begin(&r, state);
    const size_t from = r.end[1];
    end(&r);
    for (size_t i = from; i < r.end[2]; i++) { // of the second record
        begin(&r, state);
        r.bytes.data[i] = (char)(r.bytes.data[i] ^ 0x10);
        put_all(&r);
        for (int k = 0; k < 40; k++) {
            turn(&r);
        }
        assert_int_equal(r.n_taken, 1);
        assert_int_equal(r.notes.n[TD_BOARD_DAMAGED], 0); // it may be half of a write
        for (int k = 0; k < 40; k++) {
            turn(&r);
        }
        if (r.notes.n[TD_BOARD_DAMAGED] != 1) fail_msg("byte %zu is not said", i);
        // It becomes whole after all.
        r.bytes.data[i] = (char)(r.bytes.data[i] ^ 0x10);
        put_at(&r, r.bytes.data + i, 1, i);
        r.f.changed_ns = 0;
        turn(&r);
        assert_int_equal(r.n_taken, 3);
        end(&r);
    }
}

static void test_length_past_all_bounds_is_waited_for(void **state) {
    struct rig r;
    begin(&r, state);
    const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 15, INT64_MAX, 1 << 30};
    for (size_t i = 0; i < TD_COUNTOF(lengths); i++) {
        TD_AUTO_BUF head;
        td_buf_init(&head, 64);
        assert_ok(td_buf_u64le(&head, lengths[i]));
        assert_ok(td_buf_u32le(&head, masked_crc(head.data, 8)));
        assert_ok(td_buf_u32le(&head, 0));
        assert_int_equal(ftruncate(r.fd, 0), 0);
        put_all(&r);
        put_at(&r, head.data, head.len, r.bytes.len);
        r.f.mark = (struct td_board_mark){0};
        r.f.bytes = -1;
        r.n_taken = 0;
        turn(&r);
        assert_int_equal(r.n_taken, 3);
        assert_true(r.f.torn);
        assert_int_equal(r.f.mark.at, r.bytes.len);
    }
    td_board_file_end(&r.f, &r.notes);
    assert_int_equal(r.notes.n[TD_BOARD_TORN], 1);
    end(&r);
}

static void test_large_record_is_passed_over(void **state) {
    struct rig r;
    begin(&r, state);
    TD_AUTO_FREE char *large = td_calloc(TD_BOARD_RECORD + 1, 1);
    put_record(&r.bytes, large, TD_BOARD_RECORD);
    put_record(&r.bytes, large, TD_BOARD_RECORD + 1);
    put_record(&r.bytes, "last", 4);
    // Cut within the large one: it is waited for.
    put_at(&r, r.bytes.data, r.bytes.len - 25, 0);
    for (int k = 0; k < 5; k++) {
        turn(&r);
    }
    assert_int_equal(r.n_taken, 4);
    assert_int_equal(r.last_bytes, TD_BOARD_RECORD);
    assert_int_equal(r.notes.n[TD_BOARD_LARGE], 0);
    put_all(&r);
    for (int k = 0; k < 5; k++) {
        turn(&r);
    }
    assert_int_equal(r.n_taken, 5);
    assert_int_equal(r.last_bytes, 4);
    assert_int_equal(r.notes.n[TD_BOARD_LARGE], 1);
    end(&r);
}

static void test_file_is_read_from_its_beginning_when_it_was_written_again(void **state) {
    struct rig r;
    begin(&r, state);
    put_all(&r);
    turn(&r);
    assert_int_equal(r.n_taken, 3);
    // Shorter.
    assert_int_equal(ftruncate(r.fd, 0), 0);
    put_at(&r, r.bytes.data, r.end[1], 0);
    turn(&r);
    assert_int_equal(r.n_taken, 4);
    assert_int_equal(r.notes.n[TD_BOARD_REWRITTEN], 1);
    put_all(&r);
    turn(&r);
    assert_int_equal(r.n_taken, 6);
    // As long, and another one by its first record.
    TD_AUTO_BUF other;
    td_buf_init(&other, 4096);
    put_record(&other, "First, which has a time", 23);
    assert_int_equal(ftruncate(r.fd, 0), 0);
    put_all(&r);
    put_at(&r, other.data, other.len, 0);
    r.f.changed_ns = 0;
    turn(&r);
    assert_int_equal(r.n_taken, 9);
    assert_int_equal(r.notes.n[TD_BOARD_REWRITTEN], 2);
    end(&r);
}

static void test_reading_goes_on_where_another_process_was(void **state) {
    struct rig r;
    begin(&r, state);
    put_all(&r);
    turn(&r);
    const struct td_board_mark mark = r.f.mark;
    put_record(&r.bytes, "fourth", 6);
    put_all(&r);
    r.n_taken = 0;
    r.f.mark = mark;
    r.f.bytes = -1;
    turn(&r);
    assert_int_equal(r.n_taken, 1);
    assert_int_equal(r.last_bytes, 6);
    assert_int_equal(r.notes.n[TD_BOARD_REWRITTEN], 0);
    end(&r);
}

static void test_turn_has_a_bound_and_the_next_goes_on(void **state) {
    enum { RECORDS = 1000 };
    struct rig r;
    begin(&r, state);
    td_buf_clear(&r.bytes);
    for (int i = 0; i < RECORDS; i++) {
        put_record(&r.bytes, "a record", 8);
    }
    put_all(&r);
    turn(&r);
    assert_true(r.n_taken > 0 && r.n_taken < RECORDS && r.f.more);
    for (int k = 0; k < 20; k++) {
        turn(&r);
    }
    assert_int_equal(r.n_taken, RECORDS);
    assert_false(r.f.more);
    end(&r);
}

static void test_hole_of_a_terabyte_is_damage_and_costs_nothing(void **state) {
    struct rig r;
    begin(&r, state);
    put_all(&r);
    assert_int_equal(ftruncate(r.fd, (off_t)1 << 40), 0);
    for (int k = 0; k < 60; k++) {
        turn(&r);
    }
    assert_int_equal(r.n_taken, 3);
    assert_int_equal(r.notes.n[TD_BOARD_DAMAGED], 1);
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_record_is_taken_once_when_its_last_byte_is_there),
        test_in_scratch(test_file_is_followed_up_to_a_damaged_byte),
        test_in_scratch(test_length_past_all_bounds_is_waited_for),
        test_in_scratch(test_large_record_is_passed_over),
        test_in_scratch(test_file_is_read_from_its_beginning_when_it_was_written_again),
        test_in_scratch(test_reading_goes_on_where_another_process_was),
        test_in_scratch(test_turn_has_a_bound_and_the_next_goes_on),
        test_in_scratch(test_hole_of_a_terabyte_is_damage_and_costs_nothing),
    };
    return cmocka_run_group_tests_name("reports_board_file", tests, NULL, NULL);
}
