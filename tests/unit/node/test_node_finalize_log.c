// Settling: the last line of a log whose launcher was killed, whatever it left.

#include "daemon/node/shell/attempts/finalize_log.h"

#include <fcntl.h>

#include "lib/base/digest.h"
#include "lib/base/json.h"
#include "tests/unit/test.h"

static const char *path_in(const char *dir, const char *name) {
    static char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/%s", dir, name));
    return path;
}

static void write_log(const char *dir, const char *text) {
    assert_ok(td_fs_write(path_in(dir, "events.log"), text, strlen(text), 0600, 0));
}

static char *read_log(const char *dir) {
    struct td_buf text;
    td_buf_init(&text, 1 << 20);
    assert_ok(td_fs_read(path_in(dir, "events.log"), 1 << 20, &text));
    return td_buf_take_cstr(&text);
}

static td_status finalize(const char *dir, bool rebooted, uint64_t sent, uint64_t *out_own) {
    static char checkpoints[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(checkpoints, "%s/a1", dir));
    const struct td_log_end s = {
        .dir = dir, .checkpoint_dir = checkpoints, .rebooted = rebooted, .sent = sent};
    return td_finalize_log(&s, out_own);
}

static td_status finalize_after(const char *dir, bool rebooted, uint64_t own, uint64_t committed) {
    const struct td_log_end s = {
        .dir = dir, .checkpoint_dir = dir, .rebooted = rebooted, .sent = committed};
    return td_finalize_log_after(&s, own);
}

static void test_log_gets_a_last_line_when_its_launcher_was_killed(void **state) {
    const char *before[] = {"", "{\"event\":\"launched\"}\n",
                            "{\"event\":\"launched\"}\n{\"event\":\"che", "{\"ev"};
    const char *kept[] = {"", "{\"event\":\"launched\"}\n", "{\"event\":\"launched\"}\n", ""};
    uint64_t own;
    for (size_t i = 0; i < TD_COUNTOF(before); i++) {
        write_log(*state, before[i]);
        assert_ok(finalize(*state, i == 1, 0, &own));
        assert_int_equal(own, strlen(kept[i]));
        TD_AUTO_FREE char *text = read_log(*state);
        assert_memory_equal(text, kept[i], strlen(kept[i]));
        const char *line = text + strlen(kept[i]);
        TD_AUTO(td_arena) *arena = NULL;
        struct td_json *v;
        assert_ok(td_arena_create(1 << 20, &arena));
        assert_ok(td_json_parse(arena, line, strlen(line), &v));
        assert_string_equal(td_json_string(td_json_get(v, "event"), ""), "launcher_lost");
        assert_string_equal(td_json_string(td_json_get(v, "class"), ""),
                            i == 1 ? "node_lost" : "internal");
        assert_int_equal(line[strlen(line) - 1], '\n');
        assert_ok(finalize(*state, false, 0, &own)); // once
        assert_int_equal(own, UINT64_MAX);
        TD_AUTO_FREE char *again = read_log(*state);
        assert_string_equal(again, text);
    }
}

static void test_log_stays_when_its_launcher_ended_well(void **state) {
    const char *whole =
        "{\"event\":\"launched\"}\n{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n";
    uint64_t own;
    write_log(*state, whole);
    assert_ok(finalize(*state, false, 0, &own));
    TD_AUTO_FREE char *text = read_log(*state);
    assert_string_equal(text, whole);
}

static void test_settling_is_refused_when_somebody_holds_the_lock(void **state) {
    TD_AUTO_CLOSE int lock = -1;
    uint64_t own;
    assert_ok(td_fs_lock(path_in(*state, "lock"), "pid 7 (somebody)", &lock));
    assert_fails(finalize(*state, false, 0, &own), TD_FAILED_PRECONDITION, "somebody");
    assert_false(td_fs_exists(path_in(*state, "events.log")));
    const struct td_log_end sure = {.dir = *state, .checkpoint_dir = *state, .unlocked = true};
    assert_ok(td_finalize_log(&sure, &own)); // its caller saw the launcher end
    TD_AUTO_FREE char *text = read_log(*state);
    assert_non_null(strstr(text, "launcher_lost"));
}

static void test_last_lines_come_after_what_is_committed_when_the_disk_lost_some(void **state) {
    static const char kept[] = "{\"event\":\"launched\"}\n", blank[] = "\n\n\n\n\n\n\n";
    for (int rebooted = 0; rebooted < 2; rebooted++) {
        uint64_t own, again;
        write_log(*state, kept);
        assert_ok(finalize(*state, rebooted, 0, &own));
        assert_ok(finalize_after(*state, rebooted, own, own + 7));
        TD_AUTO_FREE char *after = read_log(*state);
        assert_memory_equal(after, kept, sizeof kept - 1);
        assert_memory_equal(after + own, blank, 7);
        assert_memory_equal(after + own + 7, "{\"event\":\"launcher_lost\"", 24);
        bool named = strstr(after, "events.log of the attempt was cut to 21 of 28 bytes") != NULL;
        assert_true(named != rebooted && (strstr(after, "DATA_LOSS") != NULL) == named);
        assert_string_equal(strchr(after + own + 7, '\n'), "\n"); // one end
        assert_ok(finalize(*state, rebooted, 0, &again));         // it is the last line still
        assert_int_equal(again, UINT64_MAX);
    }
}

// What was lost may be more than any buffer holds.
static void test_end_of_a_long_log_is_sent_when_the_log_was_removed(void **state) {
    enum { COMMITTED = 17 << 20 };
    uint64_t own;
    assert_ok(finalize(*state, false, 0, &own));
    assert_int_equal(own, 0);
    assert_ok(finalize_after(*state, false, own, COMMITTED));
    TD_AUTO_FREE char *tail = td_calloc(1, 4096);
    TD_AUTO_CLOSE int fd = open(path_in(*state, "events.log"), O_RDONLY);
    assert_true(fd >= 0 && pread(fd, tail, 4095, COMMITTED) > 0);
    assert_memory_equal(tail, "{\"event\":\"launcher_lost\"", 24);
    assert_non_null(strstr(tail, "events.log of the attempt was removed"));
}

static void test_end_names_the_log_when_it_was_removed_cut_or_replaced(void **state) {
    static const char whole[] = "{\"event\":\"launched\"}\n{\"event\":\"launcher_end\"}\n";
    static const struct {
        const char *log, *lost, *why; // log NULL: there is none
        uint64_t sent, end;
    } rows[] = {
        {NULL, NULL, "events.log of the attempt was removed", 21, 21},
        {"{\"event\":\"launched\"}\n", NULL, "was cut to 21 of 40 bytes", 40, 40},
        {whole, NULL, "was cut to 46 of 50 bytes", 50, 50}, // another file
        {whole, "events.log of the attempt was replaced by another file", "was replaced", 5, 5},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char dir[TD_FS_PATH_BYTES - 64];
        uint64_t own;
        snprintf(dir, sizeof dir, "%s/%zu", (char *)*state, i); // the first is not even there
        if (rows[i].log) {
            assert_ok(td_fs_mkdirs(dir, 0700));
            write_log(dir, rows[i].log);
        }
        if (rows[i].lost) {
            assert_ok(
                td_fs_write(path_in(dir, "lost"), rows[i].lost, strlen(rows[i].lost), 0600, 0));
        }
        assert_ok(finalize(dir, false, rows[i].sent, &own));
        assert_int_equal(own, rows[i].end);
        TD_AUTO_FREE char *text = read_log(dir);
        assert_memory_equal(text + own, "{\"event\":\"launcher_lost\"", 24);
        assert_non_null(strstr(text, rows[i].why));
        assert_non_null(strstr(text, "\"code\":\"DATA_LOSS\""));
        assert_ok(finalize(dir, false, own, &own)); // once
        assert_int_equal(own, UINT64_MAX);
    }
}

static void test_half_written_checkpoints_go_when_their_rank_is_dead(void **state) {
    const char *names[] = {"step-3", "step-5.tmp", "step-x.tmp", "other"};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        assert_ok(td_fs_mkdirs(path_in(*state, names[i]), 0700));
    }
    td_remove_unfinished_checkpoints(*state);
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        assert_int_equal(td_fs_exists(path_in(*state, names[i])), i != 1);
    }
    td_remove_unfinished_checkpoints(path_in(*state, "absent"));
}

static void put_checkpoint(const char *dir, int step, const char *manifest) {
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/a1/step-%d", dir, step));
    assert_ok(td_fs_mkdirs(path, 0700));
    assert_ok(td_fs_path(path, "%s/a1/step-%d/manifest.json", dir, step));
    if (manifest) assert_ok(td_fs_write(path, manifest, strlen(manifest), 0600, 0));
}

static void
test_log_names_the_checkpoints_that_were_finished_when_its_launcher_was_killed(void **state) {
    static const char reported[] =
        "{\"event\":\"launched\"}\n"
        "{\"event\":\"checkpoint\",\"step\":10,\"path\":\"a1/step-10\"}\n"
        "{\"event\":\"checkpoint\",\"step\":20,\"path\":\"a1/step-20\"}\n";
    static const char found[] =
        "{\"format\":1,\"step\":40,\"epoch\":3,\"metrics\":{\"val_loss\":{"
        "\"sum\":3.0,\"count\":2},\"val_error\":{\"sum\":null,\"count\":2}},"
        "\"files\":[{\"name\":\"m\",\"bytes\":7,\"xxh3_128\":"
        "\"00112233445566778899aabbccddeeff\"}]}";
    TD_AUTO_FREE char *log = malloc(sizeof reported + 8);
    snprintf(log, sizeof reported + 8, "%s{\"even", reported);
    write_log(*state, log);
    put_checkpoint(*state, 10, found); // an older one, which could not be removed
    put_checkpoint(*state, 20, found);
    put_checkpoint(*state, 30, "{\"format\":1,\"step\":31}");
    put_checkpoint(*state, 40, found);
    put_checkpoint(*state, 50, NULL);
    uint64_t own;
    assert_ok(finalize(*state, false, 0, &own));
    TD_AUTO_FREE char *text = read_log(*state);
    assert_memory_equal(text, reported, sizeof reported - 1);
    char *line = text + sizeof reported - 1, *end = strchr(line, '\n');
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v;
    assert_ok(td_arena_create(1 << 20, &arena));
    assert_ok(td_json_parse(arena, line, (size_t)(end - line), &v));
    assert_string_equal(td_json_string(td_json_get(v, "event"), ""), "checkpoint");
    assert_string_equal(td_json_string(td_json_get(v, "path"), ""), "a1/step-40");
    assert_string_equal(td_json_string(td_json_get(v, "directory"), ""),
                        path_in(*state, "a1/step-40"));
    assert_int_equal(td_json_int(td_json_get(v, "step"), 0), 40);
    assert_int_equal(td_json_int(td_json_get(v, "epoch"), 0), 3);
    assert_int_equal(td_json_int(td_json_get(v, "bytes"), 0), 7 + sizeof found - 1);
    assert_true(td_json_real(td_json_path(v, "metrics.val_loss"), 0) == 1.5);
    assert_string_equal(td_json_string(td_json_path(v, "metrics.val_error"), ""), "nan"); // not 0
    char hex[TD_DIGEST_HEX];
    td_xxh3_128_hex(found, sizeof found - 1, hex);
    assert_string_equal(td_json_string(td_json_get(v, "manifest"), ""), hex);
    const struct td_json *file = td_json_get(v, "files")->first;
    assert_null(file->next);
    assert_string_equal(td_json_string(td_json_get(file, "name"), ""), "m");
    assert_int_equal(td_json_int(td_json_get(file, "bytes"), 0), 7);
    assert_string_equal(td_json_string(td_json_get(file, "digest"), ""),
                        "00112233445566778899aabbccddeeff");
    assert_memory_equal(end + 1, "{\"event\":\"launcher_lost\"", 24);
    assert_string_equal(strchr(end + 1, '\n'), "\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_log_gets_a_last_line_when_its_launcher_was_killed),
        test_in_scratch(test_log_stays_when_its_launcher_ended_well),
        test_in_scratch(
            test_log_names_the_checkpoints_that_were_finished_when_its_launcher_was_killed),
        test_in_scratch(test_settling_is_refused_when_somebody_holds_the_lock),
        test_in_scratch(test_last_lines_come_after_what_is_committed_when_the_disk_lost_some),
        test_in_scratch(test_end_of_a_long_log_is_sent_when_the_log_was_removed),
        test_in_scratch(test_end_names_the_log_when_it_was_removed_cut_or_replaced),
        test_in_scratch(test_half_written_checkpoints_go_when_their_rank_is_dead),
    };
    return cmocka_run_group_tests_name("node_finalize_log", tests, NULL, NULL);
}
