// Which checkpoints of an attempt's log are gone from the disk, though the log does not say so.

#include "daemon/node/shell/shards/gone_checkpoints.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/files/files.h"
#include "tests/unit/test.h"

static void write_file(const char *dir, const char *name, const char *text) {
    char path[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(path, "%s/%s", dir, name));
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_ok(td_fs_mkdirs(path, 0700));
    *slash = '/';
    assert_ok(td_fs_write(path, text, strlen(text), 0600, 0));
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void test_checkpoint_is_gone_when_the_rank_was_killed_as_it_removed_it(void **state) {
    TD_AUTO(td_arena) *a = NULL;
    char **gone = NULL;
    size_t n = 0;
    write_file(*state, "events.log",
               "{\"event\":\"launched\",\"pid\":1}\n"
               "{\"event\":\"checkpoint\",\"step\":50,\"path\":\"a1/step-50\"}\n"
               "{\"event\":\"checkpoint\",\"step\":100,\"path\":\"a1/step-100\"}\n"
               "{\"event\":\"removed\",\"step\":50,\"path\":\"a1/step-50\"}\n"
               "{\"event\":\"checkpoint\",\"step\":150,\"path\":\"a1/step-150\"}\n"
               "{\"event\":\"checkpoint\",\"step\":200,\"path\":\"../step-200\"}\n"
               "{\"event\":\"checkpoint\",\"step\":250,\"path\":\"a1/step-250\"}\n"
               "{\"event\":\"checkpoint\",\"step\":300,\"path\":\"a1/ste");
    write_file(*state, "c/a1/step-150/manifest.json", "{}");
    write_file(*state, "c/a1/step-250/model.safetensors", "half removed");
    char checkpoints[TD_FS_PATH_BYTES];
    assert_ok(td_fs_path(checkpoints, "%s/c", (const char *)*state));
    assert_ok(td_arena_create(1 << 16, &a));
    assert_ok(td_gone_checkpoints(*state, checkpoints, a, &gone, &n));
    assert_int_equal(n, 2);
    qsort(gone, n, sizeof *gone, compare);
    assert_string_equal(gone[0], "a1/step-100");
    assert_string_equal(gone[1], "a1/step-250");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_checkpoint_is_gone_when_the_rank_was_killed_as_it_removed_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
