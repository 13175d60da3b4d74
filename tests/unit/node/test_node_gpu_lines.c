// Lines of `traind-worker devices` as the node reads them, whole and odd; and which GPUs jobs may
// have, by --gpus and CUDA_VISIBLE_DEVICES.

#include "daemon/node/shell/gpus/gpu_cut.h"
#include "daemon/node/shell/gpus/gpu_lines.h"
#include "lib/base/buf.h"
#include "tests/unit/test.h"

static td_status read_line(struct td_arena *a, const char *text, struct td_gpu_line *out) {
    return td_gpu_line_read(a, text, strlen(text), out);
}

static struct td_arena *make_arena(void) {
    struct td_arena *a = NULL;
    assert_ok(td_arena_create(TD_GPU_ARENA_BYTES, &a));
    return a;
}

// ---- whole lines --------------------------------------------------------------------------------
static void test_inventory_has_all_that_the_line_says(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = make_arena();
    struct td_gpu_line l;
    assert_ok(read_line(
        a,
        "{\"inventory\":{\"driver\":\"550.1\",\"notes\":\"one more\",\"devices\":["
        "{\"index\":0,\"uuid\":\"GPU-a\",\"name\":\"H100\",\"memory_bytes\":80,\"bus_id\":\"0:3B\","
        "\"capability\":\"9.0\",\"numa_nodes\":[0,1],\"peers\":[1]},"
        "{\"index\":1,\"uuid\":\"MIG-b\",\"parent\":\"GPU-b\",\"health\":\"lost\"}]}}",
        &l));
    assert_int_equal(l.kind, TD_GPU_LINE_INVENTORY);
    assert_string_equal(l.list.driver, "550.1");
    assert_string_equal(l.list.why, "one more");
    assert_int_equal(l.list.n_gpus, 2);
    const Traind__V1__Gpu *g = l.list.gpus[0], *m = l.list.gpus[1];
    assert_string_equal(g->name, "H100");
    assert_true(g->memory_bytes == 80 && g->n_numa_nodes == 2 && g->numa_nodes[1] == 1);
    assert_true(g->n_peers == 1 && g->peers[0] == 1);
    assert_string_equal(g->compute_capability, "9.0");
    assert_string_equal(m->parent, "GPU-b");
    assert_string_equal(m->health, "lost");
    assert_true(m->index == 1 && !m->memory_bytes && !m->n_numa_nodes && !m->name[0]);
}

static void test_sample_has_what_is_there_and_an_absent_value_is_absent(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = make_arena();
    struct td_gpu_line l;
    assert_ok(read_line(a,
                        "{\"samples\":[{\"uuid\":\"GPU-a\",\"used_bytes\":5,\"power_w\":1.5,"
                        "\"processes\":[{\"pid\":7,\"bytes\":9},{\"pid\":8}],\"more_processes\":3},"
                        "{\"uuid\":\"GPU-b\"}]}",
                        &l));
    assert_int_equal(l.kind, TD_GPU_LINE_SAMPLES);
    const Traind__V1__Gpu *g = l.list.gpus[0];
    assert_int_equal(g->n_measured, 2);
    assert_string_equal(g->measured[1]->key, "power_w");
    assert_true(g->measured[1]->value > 1.4 && g->n_processes == 2 && g->more_processes == 3);
    assert_true(g->processes[0]->pid == 7 && g->processes[0]->memory_bytes == 9);
    assert_true(!g->processes[1]->memory_bytes && !l.list.gpus[1]->n_measured);
}

static void test_other_kinds_are_told_apart(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = make_arena();
    struct td_gpu_line l;
    assert_ok(read_line(a, "{\"xid\":79,\"uuid\":\"GPU-a\"}", &l));
    assert_true(l.kind == TD_GPU_LINE_XID && l.xid == 79 && strcmp(l.uuid, "GPU-a") == 0);
    assert_ok(read_line(a, "{\"final\":true,\"none\":\"no driver\"}", &l));
    assert_true(l.kind == TD_GPU_LINE_NONE && l.final && strcmp(l.why, "no driver") == 0);
    assert_ok(read_line(a, "{\"of_a_newer_build\":1}", &l));
    assert_int_equal(l.kind, TD_GPU_LINE_OTHER);
}

// ---- odd ones -----------------------------------------------------------------------------------
static void test_odd_line_is_refused_with_the_member(void **state) {
    (void)state;
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"", "line of GPUs"},
        {"[1]", "an object"},
        {"{\"inventory\":{\"devices\":", "line of GPUs"},
        {"{\"inventory\":3}", "devices"},
        {"{\"inventory\":{\"devices\":7}}", "devices"},
        {"{\"inventory\":{\"devices\":[7]}}", "uuid"},
        {"{\"inventory\":{\"devices\":[{\"index\":0}]}}", "uuid"},
        {"{\"inventory\":{\"devices\":[{\"uuid\":\"GPU a\"}]}}", "uuid"},
        {"{\"inventory\":{\"devices\":[{\"uuid\":\"a\\u0000b\"}]}}", "line of GPUs"},
        {"{\"inventory\":{\"devices\":[{\"uuid\":\"GPU-a\"},{\"uuid\":\"GPU-a\"}]}}", "once"},
        {"{\"inventory\":{\"devices\":[{\"uuid\":\"GPU-a\",\"index\":-1}]}}", "index"},
        {"{\"inventory\":{\"devices\":[{\"uuid\":\"GPU-a\",\"index\":64}]}}", "index"},
        {"{\"inventory\":{\"devices\":[{\"uuid\":\"GPU-a\",\"index\":1.5}]}}", "index"},
        {"{\"inventory\":{\"devices\":[{\"uuid\":\"GPU-a\",\"name\":3}]}}", "name"},
        {"{\"inventory\":{\"devices\":[{\"uuid\":\"GPU-a\",\"memory_bytes\":-5}]}}",
         "memory_bytes"},
        {"{\"inventory\":{\"devices\":[{\"uuid\":\"GPU-a\",\"peers\":[64]}]}}", "peers"},
        {"{\"inventory\":{\"devices\":[{\"uuid\":\"GPU-a\",\"peers\":{\"a\":1}}]}}", "peers"},
        {"{\"samples\":[{\"uuid\":\"GPU-a\",\"power_w\":\"hot\"}]}", "power_w"},
        {"{\"samples\":[{\"uuid\":\"GPU-a\",\"processes\":[{\"pid\":-1}]}]}", "pid"},
        {"{\"samples\":[{\"uuid\":\"GPU-a\",\"processes\":8}]}", "processes"},
        {"{\"xid\":\"79\"}", "xid"},
        {"{\"xid\":79,\"uuid\":\"..\\n\"}", "uuid"},
        {"{\"none\":5}", "none"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        TD_AUTO(td_arena) *a = make_arena();
        struct td_gpu_line l;
        print_message("# %s\n", rows[i].text);
        assert_fails(read_line(a, rows[i].text, &l), TD_INVALID_ARGUMENT, rows[i].said);
    }
}

static void test_bounds_hold_at_64_devices_and_not_at_65(void **state) {
    (void)state;
    for (int n = 64; n <= 65; n++) {
        TD_AUTO(td_arena) *a = make_arena();
        TD_AUTO_BUF text;
        struct td_gpu_line l;
        td_buf_init(&text, 1 << 20);
        assert_ok(td_buf_str(&text, "{\"inventory\":{\"devices\":["));
        for (int i = 0; i < n; i++) {
            assert_ok(td_buf_printf(&text, "%s{\"uuid\":\"GPU-%d\"}", i ? "," : "", i));
        }
        assert_ok(td_buf_str(&text, "]}}"));
        td_status s = td_gpu_line_read(a, td_buf_cstr(&text), text.len, &l);
        assert_int_equal(s == TD_OK, n == 64);
        td_status_free(s);
    }
}

// ---- which of them ------------------------------------------------------------------------------
static const char listed[] =
    "{\"inventory\":{\"devices\":[{\"index\":0,\"uuid\":\"GPU-aa1\",\"peers\":[1,3]},"
    "{\"index\":1,\"uuid\":\"GPU-aa2\",\"peers\":[0]},"
    "{\"index\":2,\"uuid\":\"MIG-1\",\"parent\":\"GPU-b\"},"
    "{\"index\":2,\"uuid\":\"MIG-2\",\"parent\":\"GPU-b\"},"
    "{\"index\":3,\"uuid\":\"GPU-c\",\"peers\":[0]}]}}";

// The uuids that are left, with blanks between.
static const char *cut_to(const char *gpus, const char *visible, char why[TD_GPU_WHY]) {
    static char left[256];
    TD_AUTO(td_arena) *a = make_arena();
    struct td_gpu_line l;
    const struct td_gpu_cut cut = {.gpus = gpus, .visible = visible};
    assert_ok(read_line(a, listed, &l));
    td_gpu_cut_apply(&cut, &l.list, why, TD_GPU_WHY);
    left[0] = '\0';
    for (size_t i = 0; i < l.list.n_gpus; i++) {
        size_t len = strlen(left);
        snprintf(left + len, sizeof left - len, "%s%s", i ? " " : "", l.list.gpus[i]->uuid);
    }
    return left;
}

static void test_gpus_are_those_that_the_two_lists_leave(void **state) {
    (void)state;
    static const char all[] = "GPU-aa1 GPU-aa2 MIG-1 MIG-2 GPU-c";
    static const struct {
        const char *gpus, *visible, *left, *why;
    } rows[] = {
        {"auto", NULL, all, ""},
        {"auto", "0,1,2,3", all, ""},
        {"auto", "3, 0", "GPU-aa1 GPU-c", ""},
        {"auto", "2", "MIG-1 MIG-2", ""},
        {"auto", "", "", "leaves none of 5"},
        {"auto", "-1", "", "leaves none of 5"},
        {"auto", "0,-1,1", "GPU-aa1", ""},
        {"auto", "NoDevFiles", "", "names 'NoDevFiles', which is not here"},
        {"auto", "1,7,0", "GPU-aa2", "names '7', which is not here"},
        {"auto", "GPU-c,GPU-aa1", "GPU-aa1 GPU-c", ""},
        {"auto", "GPU-aa,GPU-c", "", "names 'GPU-aa', which fits several devices"},
        {"auto", "GPU-aa2,GPU-x,GPU-c", "GPU-aa2", "names 'GPU-x', which is not here"},
        {"auto", "MIG-2", "MIG-2", ""},
        {"auto", "GPU-b", "MIG-1 MIG-2", ""},
        {"auto", "99999999999999999999", "", "is not here"},
        {"none", NULL, "", ""},
        {"GPU-c,MIG-1", "0", "MIG-1 GPU-c", ""}, // given by name: the variable says nothing
        {"GPU-x,GPU-c,GPU-aa", NULL, "GPU-c",
         "--gpus names GPU-x, which is not here; --gpus names GPU-aa, which fits several devices"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char why[TD_GPU_WHY];
        print_message("# %s %s\n", rows[i].gpus, rows[i].visible ? rows[i].visible : "unset");
        assert_string_equal(cut_to(rows[i].gpus, rows[i].visible, why), rows[i].left);
        if (rows[i].why[0]) assert_non_null(strstr(why, rows[i].why));
        if (!rows[i].why[0]) assert_string_equal(why, "");
    }
}

static void test_peers_are_only_those_that_are_left(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = make_arena();
    struct td_gpu_line l;
    char why[TD_GPU_WHY];
    const struct td_gpu_cut cut = {.gpus = "auto", .visible = "0,3"};
    assert_ok(read_line(a, listed, &l));
    td_gpu_cut_apply(&cut, &l.list, why, sizeof why);
    assert_int_equal(l.list.n_gpus, 2);
    assert_true(l.list.gpus[0]->n_peers == 1 && l.list.gpus[0]->peers[0] == 3);
}

static void test_words_that_name_no_gpu_are_refused_with_the_rule(void **state) {
    (void)state;
    static const char *const bad[] = {"",        "0",         "all",     "GPU-a,",
                                      "GPU-a,1", "auto,none", "GPU-a b", "GPU-\x01"};
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        print_message("# '%s'\n", bad[i]);
        assert_fails(td_gpu_cut_check(bad[i]), TD_INVALID_ARGUMENT, "nvidia-smi -L");
    }
    assert_ok(td_gpu_cut_check("auto"));
    assert_ok(td_gpu_cut_check("none"));
    assert_ok(td_gpu_cut_check("GPU-8932f937, MIG-1-2"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inventory_has_all_that_the_line_says),
        cmocka_unit_test(test_sample_has_what_is_there_and_an_absent_value_is_absent),
        cmocka_unit_test(test_other_kinds_are_told_apart),
        cmocka_unit_test(test_odd_line_is_refused_with_the_member),
        cmocka_unit_test(test_bounds_hold_at_64_devices_and_not_at_65),
        cmocka_unit_test(test_gpus_are_those_that_the_two_lists_leave),
        cmocka_unit_test(test_peers_are_only_those_that_are_left),
        cmocka_unit_test(test_words_that_name_no_gpu_are_refused_with_the_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
