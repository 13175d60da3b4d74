// Gzip files: whole, in members, cut anywhere, with any flipped byte, and bombs.
// The inputs are made by gzip(1), which every Debian has.

#include <fcntl.h>
#include <sys/wait.h>

#include "lib/base/files/gz.h"
#include "lib/base/machine/proc.h"
#include "tests/unit/test.h"

static char path[512], plain_path[512];

static void set_paths(void **state) {
    snprintf(path, sizeof path, "%s/data.gz", (char *)*state);
    snprintf(plain_path, sizeof plain_path, "%s/data", (char *)*state);
}

// Appends the gzip of the bytes to `path`.
static void add_member(const void *data, size_t bytes) {
    assert_ok(td_fs_write(plain_path, data, bytes, 0600, 0));
    int in = open(plain_path, O_RDONLY), out = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    struct td_proc_fd fds[] = {{in, 0}, {out, 1}};
    const char *const argv[] = {"gzip", "-cn", NULL};
    struct td_proc_options o = {.path = "/bin/gzip", .argv = argv, .fds = fds, .n_fds = 2};
    struct td_proc p;
    int status;
    assert_ok(td_proc_spawn(&o, &p));
    assert_int_equal(waitpid(p.pid, &status, 0), p.pid);
    assert_int_equal(status, 0);
    close(p.pidfd);
    close(in);
    close(out);
}

static void fill(uint8_t *data, size_t bytes) {
    uint32_t x = 1;
    for (size_t i = 0; i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        data[i] = (uint8_t)(x >> 28); // 16 values: compresses, but not to nothing
    }
}

static void test_contents_come_back_when_several_members(void **state) {
    static uint8_t data[300000];
    set_paths(state);
    fill(data, sizeof data);
    add_member(data, 200000);
    add_member("", 0);
    add_member(data + 200000, 100000);
    TD_AUTO_BUF out;
    td_buf_init(&out, 1 << 20);
    assert_ok(td_gz_head(path, sizeof data, &out));
    assert_int_equal(out.len, sizeof data);
    assert_memory_equal(out.data, data, sizeof data);
}

static void test_file_is_read_as_it_is_when_not_gzip(void **state) {
    set_paths(state);
    TD_AUTO_BUF out;
    td_buf_init(&out, 100);
    assert_ok(td_fs_write(plain_path, "\x1f", 1, 0600, 0));
    assert_ok(td_gz_head(plain_path, 100, &out));
    assert_int_equal(out.len, 1);
    td_status s = td_gz_head(path, 100, &out);
    assert_int_equal(td_status_class(s), TD_CLASS_DATA);
    assert_fails(s, TD_NOT_FOUND, path);
    assert_fails(td_gz_head(*state, 100, &out), TD_FAILED_PRECONDITION, "regular file");
}

static void test_read_stops_at_the_cap_when_it_is_a_bomb(void **state) {
    static uint8_t zeros[4 << 20];
    set_paths(state);
    add_member(zeros, sizeof zeros);
    TD_AUTO_BUF out;
    td_buf_init(&out, 1 << 30);
    assert_ok(td_gz_head(path, 1 << 20, &out));
    assert_int_equal(out.len, 1 << 20);
    assert_true(out.cap <= 4 << 20);
    for (size_t more = 0; more < 2; more++) {
        td_buf_clear(&out);
        assert_ok(td_gz_head(path, sizeof zeros - 1 + more, &out));
        assert_int_equal(out.len, sizeof zeros - 1 + more);
    }
}

static void test_damage_is_named_when_cut_or_flipped(void **state) {
    static uint8_t data[20000];
    set_paths(state);
    fill(data, sizeof data);
    add_member(data, sizeof data);
    TD_AUTO_BUF whole;
    td_buf_init(&whole, 1 << 20);
    assert_ok(td_fs_read(path, 1 << 20, &whole));
    for (size_t cut = 2; cut < whole.len; cut += 1 + cut / 4) {
        TD_AUTO_BUF out;
        td_buf_init(&out, 1 << 20);
        assert_ok(td_fs_write(path, whole.data, cut, 0600, 0));
        assert_fails(td_gz_head(path, 1 << 20, &out), TD_DATA_LOSS, "ends inside");
    }
    for (size_t at = 10; at < whole.len; at += 211) { // after the header, whose time is free
        TD_AUTO_BUF out;
        td_buf_init(&out, 1 << 20);
        whole.data[at] ^= 0x40;
        assert_ok(td_fs_write(path, whole.data, whole.len, 0600, 0));
        assert_fails(td_gz_head(path, 1 << 20, &out), TD_DATA_LOSS, "offset");
        whole.data[at] ^= 0x40;
    }
    assert_ok(td_buf_str(&whole, "rubbish behind it"));
    assert_ok(td_fs_write(path, whole.data, whole.len, 0600, 0));
    TD_AUTO_BUF out;
    td_buf_init(&out, 1 << 20);
    assert_fails(td_gz_head(path, 1 << 20, &out), TD_DATA_LOSS, "offset");
}

static td_status read_it(void *arg) {
    (void)arg;
    TD_AUTO_BUF out;
    td_buf_init(&out, 1 << 20);
    return td_gz_head(path, 1 << 20, &out);
}

static void test_read_fails_cleanly_when_out_of_memory(void **state) {
    static uint8_t data[200000];
    set_paths(state);
    fill(data, sizeof data);
    add_member(data, sizeof data);
    td_test_failing_allocations(read_it, NULL);
}

static void test_deflated_data_inflates_to_the_same(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 4096, 300000};
    for (size_t i = 0; i < TD_COUNTOF(sizes); i++) {
        TD_AUTO_FREE uint8_t *data = td_calloc(1, sizes[i] + 1), *back = td_calloc(1, sizes[i] + 1);
        TD_AUTO_BUF packed;
        size_t at = 0;
        td_buf_init(&packed, sizes[i] + 64);
        fill(data, sizes[i]);
        assert_ok(td_gz_deflate(data, sizes[i], &packed));
        assert_true(sizes[i] < 4096 || packed.len < sizes[i] * 3 / 4);
        assert_null(td_gz_inflate(packed.data, packed.len, back, sizes[i], &at));
        assert_memory_equal(data, back, sizes[i]);
        td_buf_finish(&packed);
        td_buf_init(&packed, packed.len / 2);
        td_status s = sizes[i] ? td_gz_deflate(data, sizes[i], &packed) : TD_OK;
        assert_true(sizes[i] ? td_status_code(s) == TD_RESOURCE_EXHAUSTED : !s);
        td_status_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deflated_data_inflates_to_the_same),
        test_in_scratch(test_contents_come_back_when_several_members),
        test_in_scratch(test_file_is_read_as_it_is_when_not_gzip),
        test_in_scratch(test_read_stops_at_the_cap_when_it_is_a_bomb),
        test_in_scratch(test_damage_is_named_when_cut_or_flipped),
        test_in_scratch(test_read_fails_cleanly_when_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
