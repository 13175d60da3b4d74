// What a plan read: entries for each value of a spec that names files, and every way in which these
// may have become others since.

#include <fcntl.h>
#include <sys/stat.h>

#include "fabric/configure/reads.h"
#include "lib/base/files/files.h"
#include "tests/unit/test.h"

struct reads {
    struct td_arena *arena;
    struct td_json *plan, *kept;
    char dir[200];
};

static void put(const struct reads *r, const char *name, const void *data, size_t bytes) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    assert_ok(td_fs_write(path, data, bytes, 0600, 0));
}

// $ is the directory.
static struct td_json *parse(struct reads *r, const char *text) {
    char full[2048] = "";
    struct td_json *v = NULL;
    size_t len = 0;
    for (const char *p = text; *p && len < sizeof full - 1; p++) {
        if (*p == '$') len += (size_t)snprintf(full + len, sizeof full - len, "%s", r->dir);
        if (*p != '$') full[len++] = *p;
        full[len] = '\0';
    }
    assert_ok(td_json_parse(r->arena, full, len, &v));
    return v;
}

static struct td_json *list(struct reads *r) {
    TD_AUTO_BUF text;
    struct td_json *v = NULL;
    td_buf_init(&text, 1 << 20);
    assert_ok(td_reads_print(r->plan, &text));
    assert_ok(td_json_parse(r->arena, text.data, text.len, &v));
    return v;
}

static void begin(struct reads *r, const char *dir, const char *plan) {
    assert_ok(td_arena_create(4 << 20, &r->arena));
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    r->plan = parse(r, plan);
    r->kept = list(r);
}

static void end(struct reads *r) {
    td_arena_destroy(r->arena);
}

// What has changed begins so; "": nothing.
static void check(struct reads *r, const char *expected) {
    TD_AUTO_BUF change;
    td_buf_init(&change, 1 << 16);
    assert_ok(td_reads_compare(r->plan, r->kept, &change));
    const char *found = change.len ? td_buf_cstr(&change) : "";
    if (!expected[0]) assert_string_equal(found, "");
    if (!strstr(found, expected)) fail_msg("expected '%s', found '%s'", expected, found);
}

static void check_entry(const struct reads *r, size_t i, const char *of, int64_t files,
                        int64_t bytes) {
    const struct td_json *v = r->kept->first;
    for (; i; i--) {
        v = v->next;
    }
    assert_string_equal(td_json_string(td_json_get(v, "of"), ""), of);
    assert_int_equal(td_json_int(td_json_get(v, "files"), -1), files);
    assert_int_equal(td_json_int(td_json_get(v, "bytes"), -1), bytes);
    assert_int_equal(strlen(td_json_string(td_json_get(v, "digest"), "")), 32);
}

static const char plan[] = "{\"name\":\"/not/this\",\"init_from\":\"$/hf\",\"ckpt_path\":null,"
                           "\"data\":{\"name\":\"tokens\",\"train\":[\"$/a\",\"$/b\"],\"val\":[],"
                           "\"x\":\"$/z.npz:images\",\"deep\":[{\"file\":\"$/c\"}]},"
                           "\"checkpoint\":{\"dir\":\"/nor/this\"}}";

static void begin_full(struct reads *r, const char *dir) {
    char path[256];
    memset(r, 0, sizeof *r);
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    snprintf(path, sizeof path, "%s/hf", dir);
    assert_ok(td_fs_mkdirs(path, 0700));
    put(r, "a", "aaaa", 4);
    put(r, "b", "bb", 2);
    put(r, "c", "c", 1);
    put(r, "z.npz", "zzz", 3);
    put(r, "hf/config.json", "{}", 2);
    put(r, "hf/model.safetensors", "12345678", 8);
    begin(r, dir, plan);
}

static void test_each_value_that_names_files_has_an_entry(void **state) {
    struct reads r;
    begin_full(&r, *state);
    assert_int_equal(r.kept->n_children, 4);
    check_entry(&r, 0, "data.train", 2, 6);
    check_entry(&r, 1, "data.x", 1, 3);
    check_entry(&r, 2, "data.deep[0].file", 1, 1);
    check_entry(&r, 3, "init_from", 2, 10);
    check(&r, "");
    end(&r);
    begin(&r, *state, "{\"data\":{\"name\":\"synthetic\"},\"init_from\":\"job/last\"}");
    assert_int_equal(r.kept->n_children, 0);
    check(&r, "");
    end(&r);
}

static void test_change_is_named_when_a_file_is_another(void **state) {
    struct reads r;
    begin_full(&r, *state);
    put(&r, "b", "bbb", 3);
    check(&r, "data.train: '");
    check(&r, "/a' has 2 files of 7 bytes, it had 2 of 6");
    put(&r, "b", "bB", 2);
    check(&r, "/a' has other content");
    put(&r, "b", "bb", 2); // as it was: the digest says so
    check(&r, "");
    put(&r, "hf/config.json", "[]", 2);
    check(&r, "init_from: '");
    put(&r, "hf/config.json", "{}", 2);
    put(&r, "hf/more", "", 0);
    check(&r, "has 3 files of 10 bytes, it had 2 of 10");
    end(&r);
}

static void test_change_is_named_when_a_file_comes_or_goes(void **state) {
    struct reads r = {0};
    char path[256];
    snprintf(r.dir, sizeof r.dir, "%s", (const char *)*state);
    begin(&r, *state, "{\"data\":{\"path\":\"$/t\"}}");
    check_entry(&r, 0, "data.path", 1, 0); // the plan says what that is
    check(&r, "");
    put(&r, "t", "", 0);
    check(&r, "has other content");
    end(&r);
    begin(&r, *state, "{\"data\":{\"path\":\"$/t\"}}");
    snprintf(path, sizeof path, "%s/t", r.dir);
    assert_int_equal(unlink(path), 0);
    check(&r, "has other content");
    r.plan = parse(&r, "{\"data\":{\"other\":\"$/t\"}}");
    check(&r, "it had 0 of 0");
    r.plan = parse(&r, "{\"data\":{}}");
    check(&r, "the spec names other files");
    end(&r);
}

// Only the plugin knows which of its knobs are paths, so any text may be one.
static void test_change_is_named_when_a_relative_path_of_a_plugin_is_another(void **state) {
    static const char text[] =
        "{\"model\":{\"name\":\"plugin\",\"knobs\":{\"init\":\"~/w.npz:a\",\"kind\":\"small\"}},"
        "\"data\":{\"name\":\"plugin\",\"knobs\":{\"path\":\"rows\",\"n\":3,\"other\":\"~me/"
        "rows\"}},"
        "\"paths_from\":[\"$\",\"$/home\"]}";
    char path[256];
    struct reads r = {0};
    snprintf(r.dir, sizeof r.dir, "%s", (const char *)*state);
    snprintf(path, sizeof path, "%s/home", r.dir);
    assert_ok(td_fs_mkdirs(path, 0700));
    put(&r, "rows", "1234", 4);
    put(&r, "home/w.npz", "ww", 2);
    begin(&r, *state, text);
    assert_int_equal(r.kept->n_children, 2);
    check_entry(&r, 0, "model.knobs.init", 1, 2);
    check_entry(&r, 1, "data.knobs.path", 1, 4);
    check(&r, "");
    put(&r, "rows", "12345678", 8);
    check(&r, "data.knobs.path: '");
    check(&r, "/rows' has 1 files of 8 bytes, it had 1 of 4");
    put(&r, "rows", "1234", 4);
    put(&r, "home/w.npz", "vw", 2);
    check(&r, "/home/w.npz:a' has other content");
    put(&r, "home/w.npz", "ww", 2);
    put(&r, "small", "", 0);
    check(&r, "model.knobs.kind: '");
    end(&r);
}

// Of a large file its ends, and 64 pieces between them. Size and time are what they were.
static void test_change_of_a_large_file_is_seen_at_its_ends_and_in_its_pieces(void **state) {
    enum { BYTES = 4 << 20 };
    static char data[BYTES];
    static const size_t seen[] = {0, 65535, 65536, BYTES - 65536, BYTES - 1};
    struct reads r = {0};
    snprintf(r.dir, sizeof r.dir, "%s", (const char *)*state);
    put(&r, "t", data, BYTES);
    begin(&r, *state, "{\"data\":{\"path\":\"$/t\"}}");
    for (size_t i = 0; i < TD_COUNTOF(seen); i++) {
        data[seen[i]] = 1;
        put(&r, "t", data, BYTES);
        check(&r, "has other content");
        data[seen[i]] = 0;
    }
    memset(data + (1 << 20), 1, 65536); // more than is between two pieces
    put(&r, "t", data, BYTES);
    check(&r, "has other content");
    end(&r);
}

// Names and shapes of tensors are in the header, which may be longer than the head of a file.
static void test_header_of_safetensors_is_read_whole(void **state) {
    enum { BYTES = 8 << 20, HEADER = 3 << 20 };
    static char data[BYTES];
    const uint64_t header = HEADER;
    struct reads r = {0};
    snprintf(r.dir, sizeof r.dir, "%s", (const char *)*state);
    memcpy(data, &header, sizeof header);
    put(&r, "m.safetensors", data, BYTES);
    begin(&r, *state, "{\"init_from\":\"$/m.safetensors\"}");
    for (size_t at = 100000; at < HEADER; at += 500007) {
        data[at] = 1;
        put(&r, "m.safetensors", data, BYTES);
        check(&r, "has other content");
        data[at] = 0;
    }
    end(&r);
}

// A folder of many is not read at each plan: the time of change stands for the content.
static void test_content_of_many_files_is_their_time_of_change(void **state) {
    static const struct timespec early[] = {{.tv_sec = 1}, {.tv_sec = 1}};
    static const char *const change[] = {"", "has other content"}; // of 256, of 257
    struct reads r = {0};
    char path[256], name[24];
    snprintf(r.dir, sizeof r.dir, "%s", (const char *)*state);
    snprintf(path, sizeof path, "%s/many", r.dir);
    assert_ok(td_fs_mkdirs(path, 0700));
    for (int i = 1; i <= 257; i++) {
        snprintf(name, sizeof name, "many/%d", i);
        put(&r, name, "x", 1);
        if (i < 256) continue;
        begin(&r, *state, "{\"data\":{\"path\":\"$/many\"}}");
        snprintf(path, sizeof path, "%s/%s", r.dir, name);
        assert_int_equal(utimensat(AT_FDCWD, path, early, 0), 0);
        check(&r, change[i - 256]);
        end(&r);
    }
}

// The times of a file that is old are enough, so nothing of it is read.
static void test_state_is_enough_when_nothing_changed(void **state) {
    struct reads r = {0};
    r.kept = NULL;
    begin(&r, "/usr/bin", "{\"data\":{\"path\":\"/usr/bin/env\"}}");
    const struct td_json *v = r.kept->first;
    assert_int_equal(strlen(td_json_string(td_json_get(v, "stat"), "")), 32);
    assert_true(td_json_set(r.arena, r.kept->first, "digest", td_json_new_string(r.arena, "none")));
    check(&r, "");
    assert_true(td_json_set(r.arena, r.kept->first, "stat", td_json_new_string(r.arena, "")));
    check(&r, "has other content");
    end(&r);
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_each_value_that_names_files_has_an_entry),
        test_in_scratch(test_change_is_named_when_a_file_is_another),
        test_in_scratch(test_change_is_named_when_a_file_comes_or_goes),
        test_in_scratch(test_change_is_named_when_a_relative_path_of_a_plugin_is_another),
        test_in_scratch(test_change_of_a_large_file_is_seen_at_its_ends_and_in_its_pieces),
        test_in_scratch(test_header_of_safetensors_is_read_whole),
        test_in_scratch(test_content_of_many_files_is_their_time_of_change),
        test_in_scratch(test_state_is_enough_when_nothing_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
