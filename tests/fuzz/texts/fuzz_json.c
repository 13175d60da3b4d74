// Fuzz entry of lib/base/json: any bytes as a JSON text. What is read prints to a text that reads
// back and prints the same, indented or not. A copy of a tree prints as the tree does. Strings are
// UTF-8 without NUL. What is not read is refused with a text. Run by
// tests/unit/fuzz/texts/test_fuzz_json.c.

#include "tests/fuzz/fuzz.h"

#include "lib/base/json.h"
#include "lib/base/utf8.h"

enum { ARENA_BYTES = 1 << 20, PRINT_MAX = 1 << 22 };

static void check_tree(const struct td_json *v) {
    if (v->key) td_fuzz_expect(td_utf8_valid(v->key, strlen(v->key)));
    if (v->kind == TD_JSON_STRING) {
        td_fuzz_expect(strlen(v->u.string.data) == v->u.string.len);
        td_fuzz_expect(td_utf8_valid(v->u.string.data, v->u.string.len));
    }
    size_t n = 0;
    for (const struct td_json *child = v->first; child; child = child->next) {
        td_fuzz_expect((child->key != NULL) == (v->kind == TD_JSON_OBJECT));
        if (child->key) td_fuzz_expect(td_json_get(v, child->key) == child);
        check_tree(child);
        n++;
    }
    td_fuzz_expect(n == v->n_children);
}

static void print(const struct td_json *v, bool indent, struct td_buf *out) {
    td_buf_init(out, PRINT_MAX);
    td_fuzz_expect(!td_json_print(v, indent, out));
}

static void check_prints_as(struct td_arena *a, const char *text, size_t len,
                            const struct td_buf *wanted) {
    struct td_json *again = NULL;
    td_fuzz_expect(!td_json_parse(a, text, len, &again));
    TD_AUTO_BUF out;
    print(again, false, &out);
    td_fuzz_expect(out.len == wanted->len && memcmp(out.data, wanted->data, out.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    TD_AUTO(td_arena) *a = NULL, *b = NULL;
    td_fuzz_expect(!td_arena_create(ARENA_BYTES, &a) && !td_arena_create(16 * ARENA_BYTES, &b));
    struct td_json *root = NULL;
    td_status s = td_json_parse(a, (const char *)data, size, &root);
    if (s) {
        td_fuzz_expect_refusal(s, TD_INVALID_ARGUMENT, TD_RESOURCE_EXHAUSTED);
        return 0;
    }
    check_tree(root);
    TD_AUTO_BUF flat, indented, copied;
    print(root, false, &flat);
    print(root, true, &indented);
    check_prints_as(b, flat.data, flat.len, &flat);
    check_prints_as(b, indented.data, indented.len, &flat);
    print(td_json_copy(b, root), false, &copied);
    td_fuzz_expect(copied.len == flat.len && memcmp(copied.data, flat.data, flat.len) == 0);
    return 0;
}
