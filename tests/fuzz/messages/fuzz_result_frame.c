// Fuzz entry of fabric/result_frame: any bytes as what a spawned rank writes to its parent, in
// pieces of a size that the first byte chooses. The same frames come out as when they arrive whole,
// and each sent again is the bytes that it came from. The stream ends within a frame or between
// two, as it says. A failure that can be parsed says the same when it is sent again. Run by
// tests/unit/fuzz/messages/test_fuzz_result_frame.c.

#include "tests/fuzz/fuzz.h"

#include <sys/socket.h>

#include "fabric/spawn/result_frame.h"

enum { LARGEST = 4096 }; // of a result

struct link {
    int parent, rank;
};

static struct link connect_both(void) {
    int fd[2];
    td_fuzz_expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
    return (struct link){fd[0], fd[1]};
}

static void append_sent(struct td_buf *out, int fd) {
    char bytes[4096];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
        td_fuzz_expect(!td_buf_append(out, bytes, (size_t)n));
    }
}

// What a parsed failure says is the same once more.
static void check_status(const struct td_buf *body) {
    struct td_result_reader r;
    td_status first = TD_OK, again = TD_OK;
    td_status bad = td_result_parse_status(body->data, body->len, &first);
    if (bad) {
        td_fuzz_expect_refusal(bad, TD_DATA_LOSS, TD_DATA_LOSS);
        return;
    }
    struct link l = connect_both();
    enum td_result_read what;
    td_fuzz_expect(first && !td_result_send_status(l.rank, first));
    td_result_reader_init(&r);
    td_fuzz_expect(!td_result_read(&r, l.parent, LARGEST, &what) && what == TD_RESULT_READ_FRAME);
    td_fuzz_expect(!td_result_parse_status(r.body.data, r.body.len, &again));
    td_fuzz_expect(td_status_code(first) == td_status_code(again));
    td_fuzz_expect(td_status_class(first) == td_status_class(again));
    td_fuzz_expect(strcmp(td_status_reason(first), td_status_reason(again)) == 0);
    td_fuzz_expect(strcmp(td_status_message(first), td_status_message(again)) == 0);
    td_result_reader_finish(&r);
    td_status_free(first);
    td_status_free(again);
    close(l.parent);
    close(l.rank);
}

// Appends the frames that are there, sent again. False: nothing comes after it.
static bool take_frames(struct td_result_reader *r, int fd, bool ended, struct td_buf *out) {
    for (;;) {
        enum td_result_read what;
        td_status s = td_result_read(r, fd, LARGEST, &what);
        if (s) {
            td_fuzz_expect(!r->cut || ended);
            td_fuzz_expect_refusal(s, TD_DATA_LOSS, TD_RESOURCE_EXHAUSTED);
            return false;
        }
        if (what != TD_RESULT_READ_FRAME) {
            td_fuzz_expect((what == TD_RESULT_READ_END) == ended);
            return what == TD_RESULT_READ_LATER;
        }
        struct link l = connect_both();
        td_fuzz_expect(r->body.len == r->header.bytes);
        if (r->header.kind == TD_RESULT_FAILED) check_status(&r->body);
        td_fuzz_expect(
            !td_result_send(l.rank, r->header.kind, r->header.name, r->body.data, r->body.len));
        append_sent(out, l.parent);
        close(l.parent);
        close(l.rank);
        td_result_reader_next(r);
    }
}

static void read_stream(const uint8_t *data, size_t size, size_t piece, struct td_buf *out) {
    struct td_result_reader r;
    struct link l = connect_both();
    bool goes_on = true;
    td_result_reader_init(&r);
    for (size_t at = 0; goes_on && at < size; at += piece) {
        const size_t n = TD_MIN(piece, size - at);
        td_fuzz_expect(send(l.rank, data + at, n, 0) == (ssize_t)n);
        goes_on = take_frames(&r, l.parent, false, out);
    }
    // Who looks into /proc keeps a socket open that is closed meanwhile; its end is there at once.
    td_fuzz_expect(shutdown(l.rank, SHUT_WR) == 0);
    close(l.rank);
    if (goes_on) (void)take_frames(&r, l.parent, true, out);
    td_result_reader_finish(&r);
    close(l.parent);
}

// A name is followed by zeros where it was written, so bytes after its end are not looked at.
static void blank_names(struct td_buf *sent, uint8_t *data, size_t size) {
    struct td_result_header h;
    for (size_t at = 0; at + sizeof h <= sent->len && at + sizeof h <= size;) {
        memcpy(&h, data + at, sizeof h);
        const size_t len = strnlen(h.name, sizeof h.name);
        memset(data + at + offsetof(struct td_result_header, name) + len, 0, sizeof h.name - len);
        at += sizeof h + (size_t)h.bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t clean[TD_FUZZ_MAX];
    if (size == 0 || size > sizeof clean) return 0;
    TD_AUTO_BUF whole, pieces;
    td_buf_init(&whole, 2 * TD_FUZZ_MAX);
    td_buf_init(&pieces, 2 * TD_FUZZ_MAX);
    read_stream(data + 1, size - 1, size, &whole);
    read_stream(data + 1, size - 1, 1U + data[0] % 64, &pieces);
    memcpy(clean, data + 1, size - 1);
    blank_names(&whole, clean, size - 1);
    td_fuzz_expect(whole.len == pieces.len && whole.len < size);
    td_fuzz_expect(whole.len == 0 || memcmp(whole.data, clean, whole.len) == 0);
    td_fuzz_expect(whole.len == 0 || memcmp(pieces.data, clean, whole.len) == 0);
    return 0;
}
