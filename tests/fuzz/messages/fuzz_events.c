// Fuzz entry of what a launcher takes from a rank, which may be any program. This is datagrams on
// its events socket (the bytes, cut at each NUL), and the last words in its page. Whatever comes,
// events.log holds whole JSON lines within their bound. Each line fits its row and names the rank
// and the time, and none claims to be the launcher's own. How the rank ended is a text. Run by
// tests/unit/fuzz/messages/test_fuzz_events.c.

#include "tests/fuzz/fuzz.h"

#include <sys/socket.h>

#include "daemon/launcher/ending.h"
#include "daemon/launcher/rank.h"
#include "lib/attempt/segments.h"
#include "lib/base/utf8.h"

enum { RANK = 3, DATAGRAM_MAX = 8192, LOG_MAX = 1 << 20 };

static void check_line(struct td_arena *a, const char *line, size_t len) {
    struct td_json *v = NULL;
    struct td_event event;
    td_fuzz_expect(len <= TD_SEGMENT_LINE_MAX);
    td_fuzz_expect(!td_json_parse(a, line, len, &v) && !td_event_read(v, &event));
    td_fuzz_expect(td_json_int(td_json_get(v, "rank"), -1) == RANK);
    td_fuzz_expect(td_json_int(td_json_get(v, "real_ns"), 0) > 0);
    td_fuzz_expect(!event.kind || td_event_is_written_by(event.kind, TD_PARTY_RANK));
}

static void check_log(int fd, uint64_t bytes) {
    static char text[LOG_MAX];
    TD_AUTO(td_arena) *a = NULL;
    td_fuzz_expect(!td_arena_create(LOG_MAX, &a));
    td_fuzz_expect(bytes <= sizeof text && pread(fd, text, sizeof text, 0) == (ssize_t)bytes);
    for (const char *at = text, *end; at < text + bytes; at = end + 1) {
        end = memchr(at, '\n', bytes - (size_t)(at - text));
        td_fuzz_expect(end != NULL);
        check_line(a, at, (size_t)(end - at));
        td_arena_reset(a);
    }
}

static void check_ending(const struct td_launch_rank *r) {
    struct td_rank_ending e;
    td_rank_ending(r, TD_LAUNCH_KILL_NONE, "", &e);
    td_fuzz_expect(memchr(e.code, '\0', sizeof e.code) != NULL);
    td_fuzz_expect(memchr(e.message, '\0', sizeof e.message) != NULL);
    td_fuzz_expect(td_utf8_valid(e.message, strlen(e.message)));
    td_fuzz_expect(e.cls != TD_CLASS_NONE || !r->said_failed);
}

// Sends the bytes as datagrams and lets the launcher take each batch before the socket is full.
static void deliver(struct td_launch_rank *r, struct td_journal *j, int fd, const uint8_t *data,
                    size_t size) {
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, 0, size - at);
        size_t len = end ? (size_t)(end - data) - at : size - at;
        len = TD_MIN(len, (size_t)DATAGRAM_MAX);
        if (len > 0) td_fuzz_expect(send(fd, data + at, len, 0) == (ssize_t)len);
        td_launch_rank_drain_events(r, j);
        at += len + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int log_fd = -1;
    if (log_fd < 0) log_fd = memfd_create("events", MFD_CLOEXEC);
    int pair[2];
    td_fuzz_expect(log_fd >= 0 && ftruncate(log_fd, 0) == 0 && lseek(log_fd, 0, SEEK_SET) == 0);
    td_fuzz_expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) ==
                   0);
    static _Alignas(4096) struct td_rank_page page;
    struct td_journal journal = {.fd = log_fd};
    td_buf_init(&journal.pending, LOG_MAX);
    td_fuzz_expect(!td_arena_create(LOG_MAX, &journal.arena));
    struct td_launch_rank rank = {.rank = RANK, .events_fd = pair[0], .page = &page};
    deliver(&rank, &journal, pair[1], data, size);
    check_log(log_fd, journal.bytes);
    check_ending(&rank);
    close(pair[0]);
    close(pair[1]);
    journal.fd = -1; // the log is ours
    td_journal_finish(&journal);
    return 0;
}
