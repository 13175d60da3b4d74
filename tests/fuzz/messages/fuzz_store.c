// Fuzz entry of what a rank and a node say to a launcher about the rendezvous store. Any bytes come
// as steps: the first byte of each chooses what they are, the second how many. Whatever came, the
// store holds its bounds, says no more at a time than it may, and answers a request that was none.
// Run by tests/unit/fuzz/messages/test_fuzz_store.c.

#include "tests/fuzz/fuzz.h"

#include <sys/socket.h>

#include "daemon/launcher/store_frames.h"
#include "traind/v1/launcher.pb-c.h"

static void rank_says(struct td_launch_store *s, int fd, const uint8_t *data, size_t bytes) {
    static uint8_t back[TD_STORE_MESSAGE_MAX];
    while (recv(fd, back, sizeof back, MSG_DONTWAIT) > 0) {} // answers to earlier ones
    if (bytes == 0 || send(fd, data, bytes, MSG_DONTWAIT) < 0) return;
    td_fuzz_expect(td_launch_store_drain(s, 0));
    struct td_store_request r;
    uint32_t id;
    td_status bad = td_store_request_read(data, bytes, &id, &r);
    ssize_t n = recv(fd, back, sizeof back, MSG_DONTWAIT);
    struct td_store_answer a;
    td_fuzz_expect(n < 0 || td_store_answer_read(back, (size_t)n, &a));
    if (!bad) return;
    td_fuzz_expect(n > 0 && a.id == id && a.code == TD_INVALID_ARGUMENT);
    td_fuzz_expect_refusal(bad, TD_INVALID_ARGUMENT, TD_INVALID_ARGUMENT);
}

static void node_says(struct td_launch_store *s, uint16_t type, const uint8_t *data, size_t bytes) {
    const struct td_frame f = {.type = type, .body = data, .body_bytes = bytes};
    td_fuzz_expect(td_store_frames_take(s, &f));
}

static void expect_bounds(struct td_launch_store *s) {
    struct td_launch_store_news news;
    while (td_launch_store_next(s, &news)) {
        td_status bad = td_store_check_key(news.key);
        td_fuzz_expect(!bad);
    }
    td_fuzz_expect(s->n_flying <= TD_STORE_FLYING && s->unsaid <= s->n_own);
    td_fuzz_expect(s->n_own <= td_map_count(s->table.items));
    td_fuzz_expect(td_map_count(s->table.items) <= TD_STORE_KEYS_MAX);
    td_fuzz_expect(s->table.bytes <= TD_STORE_BYTES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint16_t frames[] = {TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_DONE,
                                      TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_VALUE,
                                      TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_AGAIN};
    struct td_launch_store s;
    int fd = -1;
    td_fuzz_expect(!td_launch_store_init(&s, 1, false));
    td_fuzz_expect(!td_launch_store_connect(&s, 0, &fd));
    for (size_t at = 0; at + 2 <= size;) {
        const size_t kind = data[at] % (TD_COUNTOF(frames) + 1);
        const size_t bytes = TD_MIN((size_t)data[at + 1], size - at - 2);
        if (kind == TD_COUNTOF(frames)) {
            rank_says(&s, fd, data + at + 2, bytes);
        } else {
            node_says(&s, frames[kind], data + at + 2, bytes);
        }
        expect_bounds(&s);
        at += 2 + bytes;
    }
    close(fd);
    td_launch_store_finish(&s);
    return 0;
}
