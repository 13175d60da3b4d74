// Fuzz entry of lib/base/gz: any bytes as a file, gzip or plain. Whatever it is, no more than the
// cap is decoded; the head of a file is what the whole begins with; damage is DATA_LOSS of class
// data. Run by tests/unit/fuzz/files/test_fuzz_gz.c.

#include "tests/fuzz/fuzz.h"

#include "lib/base/files/gz.h"

enum { CAP = 1 << 17, HEAD = 100 };

static bool read_or_refuse(td_status s) {
    if (!s) return true;
    td_fuzz_expect(td_status_class(s) == TD_CLASS_DATA);
    td_fuzz_expect_refusal(s, TD_DATA_LOSS, TD_RESOURCE_EXHAUSTED);
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = td_fuzz_file(data, size);
    TD_AUTO_BUF whole, head;
    td_buf_init(&whole, CAP);
    td_buf_init(&head, HEAD);
    bool have_whole = read_or_refuse(td_gz_head(path, CAP, &whole));
    bool have_head = read_or_refuse(td_gz_head(path, HEAD, &head));
    td_fuzz_expect(whole.len <= CAP && head.len <= HEAD);
    if (!have_whole) return 0;
    td_fuzz_expect(have_head && head.len == TD_MIN(whole.len, (size_t)HEAD));
    td_fuzz_expect(head.len == 0 || memcmp(head.data, whole.data, head.len) == 0);
    return 0;
}
