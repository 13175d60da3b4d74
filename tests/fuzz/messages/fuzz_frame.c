// Fuzz entry of lib/base/frame: any bytes as the stream of a Unix socket, in pieces of a size that
// the first byte chooses. The same frames come out as when it arrives whole, a frame packs again to
// the bytes it came from, and a length over the bound ends the stream. What is
// unpacked of them is unpacked here; fuzz_store.c has the store's for a launcher. Run by
// tests/unit/fuzz/messages/test_fuzz_frame.c.

#include "tests/fuzz/fuzz.h"

#include "lib/base/frame.h"
#include "traind/v1/launcher.pb-c.h"

static void unpack(const struct td_frame *f) {
    Traind__V1__LauncherStop *stop =
        traind__v1__launcher_stop__unpack(NULL, f->body_bytes, f->body);
    if (stop) traind__v1__launcher_stop__free_unpacked(stop, NULL);
    Traind__V1__LauncherHello *hello =
        traind__v1__launcher_hello__unpack(NULL, f->body_bytes, f->body);
    if (hello) traind__v1__launcher_hello__free_unpacked(hello, NULL);
    Traind__V1__LauncherStatus *status =
        traind__v1__launcher_status__unpack(NULL, f->body_bytes, f->body);
    if (status) traind__v1__launcher_status__free_unpacked(status, NULL);
    Traind__V1__LauncherStoreSet *set =
        traind__v1__launcher_store_set__unpack(NULL, f->body_bytes, f->body);
    if (set) traind__v1__launcher_store_set__free_unpacked(set, NULL);
    Traind__V1__LauncherStoreWant *want =
        traind__v1__launcher_store_want__unpack(NULL, f->body_bytes, f->body);
    if (want) traind__v1__launcher_store_want__free_unpacked(want, NULL);
}

// Appends the frames that come out, packed again. False: the stream was refused.
static bool take_frames(struct td_frame_reader *r, struct td_buf *out) {
    for (;;) {
        struct td_frame f;
        bool have = false;
        td_status s = td_frame_reader_next(r, &f, &have);
        if (s) {
            td_fuzz_expect_refusal(s, TD_DATA_LOSS, TD_DATA_LOSS);
            return false;
        }
        if (!have) return true;
        unpack(&f);
        td_fuzz_expect(!td_frame_append(out, f.type, f.version_major, f.body, f.body_bytes));
    }
}

static bool read_stream(const uint8_t *data, size_t size, size_t piece, struct td_buf *out) {
    struct td_frame_reader r;
    td_frame_reader_init(&r);
    bool ok = true;
    for (size_t at = 0; ok && at < size; at += piece) {
        td_fuzz_expect(!td_frame_reader_feed(&r, data + at, TD_MIN(piece, size - at)));
        ok = take_frames(&r, out);
    }
    td_frame_reader_finish(&r);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    TD_AUTO_BUF whole, pieces;
    td_buf_init(&whole, size + TD_FRAME_HEADER);
    td_buf_init(&pieces, size + TD_FRAME_HEADER);
    bool whole_ok = read_stream(data + 1, size - 1, size, &whole);
    bool pieces_ok = read_stream(data + 1, size - 1, 1U + data[0] % 32, &pieces);
    td_fuzz_expect(whole_ok == pieces_ok && whole.len == pieces.len && whole.len < size);
    td_fuzz_expect(whole.len == 0 || memcmp(whole.data, data + 1, whole.len) == 0);
    td_fuzz_expect(whole.len == 0 || memcmp(pieces.data, data + 1, pieces.len) == 0);
    return 0;
}
