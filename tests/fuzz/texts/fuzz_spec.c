// Fuzz entry of the job spec: any bytes as a spec and as an override of a good spec. Beside not
// crashing it holds what must be true of every answer. An error has a message and a class. A
// canonical spec is printed and read back to the same text. Run by
// tests/unit/fuzz/texts/test_fuzz_spec.c; or clang -fsanitize=fuzzer,address with the library.

#include "tests/fuzz/fuzz.h"

#include "lib/spec/spec.h"

static void expect(bool x) {
    if (!x) abort();
}

static void expect_bad_spec(td_status s) {
    enum td_code code = td_status_code(s);
    expect(code == TD_INVALID_ARGUMENT || code == TD_RESOURCE_EXHAUSTED);
    expect(code != TD_INVALID_ARGUMENT || td_status_class(s) == TD_CLASS_BAD_SPEC);
    expect(*td_status_message(s));
    td_status_free(s);
}

static void print(const struct td_json *tree, struct td_buf *out) {
    td_buf_init(out, 4 * TD_SPEC_MAX_BYTES);
    expect(!td_json_print(tree, false, out));
}

static void expect_stable(struct td_arena *a, const struct td_json *tree) {
    TD_AUTO_BUF once, twice;
    print(tree, &once);
    struct td_json *read, *again;
    expect(!td_json_parse(a, once.data, once.len, &read));
    expect(!td_spec_validate(a, read, 0, &again));
    print(again, &twice);
    expect(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
}

static void try_spec(struct td_arena *a, const char *text, size_t len, const char *override) {
    struct td_json *tree;
    td_status s = td_spec_parse(a, text, len, &override, override != NULL, &tree);
    if (s) {
        expect_bad_spec(s);
        return;
    }
    expect_stable(a, tree);
    struct td_spec view;
    td_spec_read(tree, &view);
    expect(view.loader.batch_size > 0 && td_spec_ranks(&view) >= 1);
    expect(view.restart.n_backoff >= 1 && td_spec_slots(&view.resources, 2, 2) >= 1);
}

// Any path of a spec that was written somewhere is refused, or becomes one from the root.
static void try_place(struct td_arena *a, const char *text, size_t len, const char *path) {
    struct td_spec_place place = {.directory = "/d/e", .home = "/h"};
    TD_AUTO_BUF override;
    td_buf_init(&override, 1 << 20);
    expect(!td_buf_str(&override, "checkpoint={dir: "));
    td_status s = td_json_print_string(path, strlen(path), &override);
    td_status_free(s);
    if (s) return; // it is no text
    expect(!td_buf_str(&override, "}"));
    const char *set = td_buf_cstr(&override);
    struct td_json *tree;
    s = td_spec_parse_at(a, text, len, &set, 1, &place, &tree);
    if (s) {
        td_status_free(s);
        return;
    }
    const char *dir = td_json_string(td_json_get(td_json_get(tree, "checkpoint"), "dir"), "");
    expect(dir[0] == '/' && !strstr(dir, "/../"));
    expect(place.n == (path[0] != '/') && (!place.n || strcmp(place.first->path, dir) == 0));
    expect_stable(a, tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char good[] = "{model: {name: mlp, layers: [4, 2]}, optimizer: {name: sgd},"
                               "data: {name: synthetic, batch_size: 8}}";
    TD_AUTO(td_arena) *a = NULL;
    expect(!td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    try_spec(a, (const char *)data, size, NULL);
    td_arena_reset(a);
    char *override = strndup((const char *)data, size);
    expect(override);
    try_spec(a, good, sizeof good - 1, override);
    td_arena_reset(a);
    try_place(a, good, sizeof good - 1, override);
    free(override);
    return 0;
}
