// A spec without its defaults: it stays the same spec, is short, and survives as YAML; so it is
// where two keys mean the same. Texts that could be taken for something else.

#include "tests/unit/test.h"

#include <string.h>

#include "lib/spec/brief.h"
#include "lib/spec/spec.h"
#include "lib/spec/yaml_print.h"

static const char minimal[] =
    "model: {name: mlp, layers: [2, 2]}\n"
    "data: {name: synthetic, samples: 8, features: 2, classes: 2, batch_size: 4}\n"
    "optimizer: {name: sgd, lr: 0.1}\n";

static const char *const specs[] = {
    minimal,
    "kind: command\ncommand: [sh, -c, 'echo \"a: b\" #; exit 1', '007', 'null']\n",
    "model: {name: convnet, layers: [{name: conv, channels: 4, kernel: 3}, relu, flatten, "
    "{name: linear, features: 10}]}\n"
    "data: {name: idx, path: /d, batch_size: 4}\n"
    "optimizer: {name: adamw, lr: 1e-3}\n"
    "trainer: {max_epochs: 3, precision: bf16-mixed, limit_val_batches: 1.0, val_check_interval: "
    "2}\n"
    "checkpoint: {monitor: val_loss, every_n_train_steps: 7}\nloggers: [csv]\n",
};

static td_status parse(struct td_arena *a, const char *text, const char *const *overrides, size_t n,
                       struct td_json **out_tree) {
    return td_spec_parse(a, text, strlen(text), overrides, n, out_tree);
}

static void assert_same_tree(const struct td_json *a, const struct td_json *b) {
    TD_AUTO_BUF left, right;
    td_buf_init(&left, 1 << 20);
    td_buf_init(&right, 1 << 20);
    assert_ok(td_json_print(a, false, &left));
    assert_ok(td_json_print(b, false, &right));
    assert_string_equal(td_buf_cstr(&left), td_buf_cstr(&right));
}

static void test_spec_is_the_same_after_it_was_brief_and_yaml(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(specs); i++) {
        TD_AUTO(td_arena) *a = NULL;
        assert_ok(td_arena_create(4 * TD_SPEC_ARENA_BYTES, &a));
        TD_AUTO_BUF yaml, whole;
        td_buf_init(&yaml, 1 << 20);
        td_buf_init(&whole, 1 << 20);
        struct td_json *canonical, *again;
        const struct td_json *brief;
        assert_ok(parse(a, specs[i], NULL, 0, &canonical));
        assert_ok(td_spec_brief(a, canonical, &brief));
        assert_ok(td_yaml_print(brief, &yaml));
        assert_ok(td_yaml_print(canonical, &whole));
        assert_true(yaml.len < 2 * strlen(specs[i]) && 3 * yaml.len < whole.len);
        assert_ok(parse(a, td_buf_cstr(&yaml), NULL, 0, &again));
        assert_same_tree(canonical, again);
        assert_ok(parse(a, td_buf_cstr(&whole), NULL, 0, &again));
        assert_same_tree(canonical, again);
    }
}

static void test_spec_is_the_same_whichever_key_says_how_many_nodes(void **state) {
    (void)state;
    static const char *const said[][2] = {{"trainer.num_nodes=2", "trainer.num_nodes=2"},
                                          {"resources.nodes=2", "resources.nodes=2"},
                                          {"trainer.num_nodes=1", "resources.nodes=2"},
                                          {"trainer.num_nodes=2", "resources.nodes=2"}};
    for (size_t i = 0; i < TD_COUNTOF(said) * TD_COUNTOF(specs); i++) {
        TD_AUTO(td_arena) *a = NULL;
        assert_ok(td_arena_create(4 * TD_SPEC_ARENA_BYTES, &a));
        struct td_json *first, *other;
        const char *spec = specs[i / TD_COUNTOF(said)];
        assert_ok(parse(a, spec, said[0], 2, &first));
        assert_ok(parse(a, spec, said[i % TD_COUNTOF(said)], 2, &other));
        assert_int_equal(td_json_int(td_json_path(other, "trainer.num_nodes"), 0), 2);
        assert_same_tree(first, other);
    }
}

static void test_job_of_any_kind_is_refused_when_it_has_too_many_ranks(void **state) {
    (void)state;
    static const char *const many[] = {"trainer.num_nodes=2", "trainer.devices=513"};
    for (size_t i = 0; i < TD_COUNTOF(specs); i++) {
        TD_AUTO(td_arena) *a = NULL;
        struct td_json *canonical;
        assert_ok(td_arena_create(4 * TD_SPEC_ARENA_BYTES, &a));
        assert_fails(parse(a, specs[i], many, 2, &canonical), TD_INVALID_ARGUMENT,
                     "more than 1024 ranks");
    }
}

static void test_brief_has_what_differs_and_nothing_else(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(4 * TD_SPEC_ARENA_BYTES, &a));
    TD_AUTO_BUF yaml;
    td_buf_init(&yaml, 1 << 20);
    static const char *const overrides[] = {"trainer.devices=2", "trainer.log_every_n_steps=50",
                                            "seed_everything=7"};
    struct td_json *canonical;
    const struct td_json *brief;
    assert_ok(parse(a, minimal, overrides, TD_COUNTOF(overrides), &canonical));
    assert_ok(td_spec_brief(a, canonical, &brief));
    assert_ok(td_yaml_print(brief, &yaml));
    assert_string_equal(td_buf_cstr(&yaml), "seed_everything: 7\n"
                                            "model:\n  name: mlp\n  layers: [2, 2]\n"
                                            "data:\n  name: synthetic\n  samples: 8\n"
                                            "  features: 2\n  classes: 2\n  batch_size: 4\n"
                                            "optimizer:\n  name: sgd\n  lr: 0.1\n"
                                            "trainer:\n  devices: 2\n");
}

static void take(struct td_json *map, const char *key) {
    for (struct td_json **at = &map->first, *before = NULL; *at; before = *at, at = &(*at)->next) {
        if (strcmp((*at)->key, key) != 0) continue;
        if (map->last == *at) map->last = before;
        *at = (*at)->next;
        map->n_children--;
        return;
    }
    fail_msg("there is no key %s", key);
}

// 88 lines of 21 were shown, because the tables did not give back what was stored.
static void test_spec_of_an_older_build_is_as_brief_as_one_of_today(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(4 * TD_SPEC_ARENA_BYTES, &a));
    struct td_json *canonical, *old;
    const struct td_json *brief, *filled;
    TD_AUTO_BUF was, now;
    td_buf_init(&was, 1 << 20);
    td_buf_init(&now, 1 << 20);
    static const char *const given[] = {"trainer.sync_batchnorm=true"};
    assert_ok(parse(a, minimal, given, 1, &canonical));
    old = td_json_copy(a, canonical);
    take(td_unconst(td_json_get(old, "trainer")), "log_grad_norm");
    take(td_unconst(td_json_get(old, "trainer")), "sampler");
    take(old, "comm_hook");
    assert_ok(td_spec_brief(a, canonical, &brief));
    assert_ok(td_json_print(brief, false, &was));
    assert_ok(td_spec_brief(a, old, &brief));
    assert_ok(td_json_print(brief, false, &now));
    assert_string_equal(td_buf_cstr(&was), td_buf_cstr(&now));
    assert_ok(td_spec_fill(a, old, &filled));
    assert_same_tree(filled, canonical);
}

static void test_spec_that_these_tables_refuse_is_given_whole(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(4 * TD_SPEC_ARENA_BYTES, &a));
    struct td_json *canonical;
    const struct td_json *brief, *filled;
    assert_ok(parse(a, minimal, NULL, 0, &canonical));
    assert_true(td_json_set(a, canonical, "of_a_newer_build", td_json_new_string(a, "x")));
    assert_ok(td_spec_fill(a, canonical, &filled));
    assert_null(filled);
    assert_ok(td_spec_brief(a, canonical, &brief));
    assert_same_tree(canonical, brief);
}

// A canonical spec names a checkpoint of another job by that job's id.
static void test_spec_that_begins_from_a_job_is_brief(void **state) {
    static const char *const keys[] = {"ckpt_path", "init_from"};
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(keys); i++) {
        TD_AUTO(td_arena) *a = NULL;
        assert_ok(td_arena_create(4 * TD_SPEC_ARENA_BYTES, &a));
        struct td_json *canonical;
        const struct td_json *brief;
        assert_ok(parse(a, minimal, NULL, 0, &canonical));
        assert_true(td_json_set(a, canonical, keys[i], td_json_new_string(a, "j-0123456789/last")));
        assert_ok(td_spec_brief(a, canonical, &brief));
        assert_string_equal(td_json_string(td_json_get(brief, keys[i]), ""), "j-0123456789/last");
        assert_int_equal(brief->n_children, 4); // with model, data and optimizer
    }
}

static void test_yaml_reads_back_as_the_text_that_it_was(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",    "null", "~",    "True", "no",  "12",   "0x1f",       "1e3", ".inf", "-",
        "- a", "a: b", "a #b", "#b",   " a ", "it's", "\"q\"",      "{a}", "[a",   "&a",
        "*a",  "!a",   "|",    ">",    "%a",  "@a",   "`a",         "é",   "/a b", "a:",
        "?",   "---",  "...",  "<<",   "=",   "1:30", "2026-11-25", "y",   "_x",   "a,b"};
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        TD_AUTO(td_arena) *a = NULL;
        assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
        TD_AUTO_BUF yaml;
        td_buf_init(&yaml, 1 << 16);
        struct td_json *tree = td_json_new(a, TD_JSON_OBJECT),
                       *list = td_json_new(a, TD_JSON_ARRAY);
        assert_true(td_json_push(list, td_json_new_string(a, "true")));
        assert_true(td_json_set(a, tree, "kind", td_json_new_string(a, "command")));
        assert_true(td_json_push(list, td_json_new_string(a, texts[i])));
        assert_true(td_json_set(a, tree, "command", list));
        assert_ok(td_yaml_print(tree, &yaml));
        struct td_json *again;
        assert_ok(parse(a, td_buf_cstr(&yaml), NULL, 0, &again));
        const struct td_json *read = td_json_get(again, "command");
        assert_string_equal(td_json_string(read->first, "?"), "true");
        assert_string_equal(td_json_string(read->last, "?"), texts[i]);
    }
}

static void test_yaml_has_no_character_that_acts_on_a_terminal(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    TD_AUTO_BUF yaml;
    td_buf_init(&yaml, 1 << 16);
    assert_ok(td_yaml_print(td_json_new_string(a, "a\x1b[31m\xc2\x9b\x7f"), &yaml));
    assert_string_equal(td_buf_cstr(&yaml), "\"a\\e[31m\\x9B\\x7F\"\n");
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spec_is_the_same_after_it_was_brief_and_yaml),
        cmocka_unit_test(test_spec_is_the_same_whichever_key_says_how_many_nodes),
        cmocka_unit_test(test_job_of_any_kind_is_refused_when_it_has_too_many_ranks),
        cmocka_unit_test(test_brief_has_what_differs_and_nothing_else),
        cmocka_unit_test(test_spec_of_an_older_build_is_as_brief_as_one_of_today),
        cmocka_unit_test(test_spec_that_these_tables_refuse_is_given_whole),
        cmocka_unit_test(test_spec_that_begins_from_a_job_is_brief),
        cmocka_unit_test(test_yaml_reads_back_as_the_text_that_it_was),
        cmocka_unit_test(test_yaml_has_no_character_that_acts_on_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
