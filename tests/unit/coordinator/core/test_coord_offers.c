// What nodes have of plugins, merged for clients: equal rows count their nodes, others stay apart,
// and a newer list takes the place of the older one. And specs against what was declared.

#include "daemon/coordinator/core/plans/offers.h"
#include "daemon/coordinator/core/plans/offers_check.h"
#include "tests/unit/coordinator/core/coord_rig.h"

static void connect(struct rig *r, const char *name) {
    r->session = td_core_session_open(r->core, r->now, false);
    say_register(r, name, 1);
}

// One knob as a node declares it: of its own words, so that they can be wrong.
struct declared {
    char name[16], type[16], fallback[16], values[16];
    double min, max;
};

// A list of one module, with one knob, and the strategy that all have; NULL: of the strategy alone.
static void say_declared(struct rig *r, const char *module, struct declared *knob) {
    char kind[] = "module", common[] = "strategy", name[32], ddp[] = "ddp", file[] = "skip.so";
    snprintf(name, sizeof name, "%s", module ? module : "");
    Traind__V1__PluginKnob one = TRAIND__V1__PLUGIN_KNOB__INIT, *knobs[] = {&one};
    Traind__V1__Plugin first = TRAIND__V1__PLUGIN__INIT, second = TRAIND__V1__PLUGIN__INIT;
    Traind__V1__Plugin *plugins[] = {&second, &first};
    Traind__V1__PluginList list = TRAIND__V1__PLUGIN_LIST__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    if (knob) {
        one.name = knob->name;
        one.type = knob->type;
        one.fallback = knob->fallback;
        one.values = knob->values;
        one.min = knob->min;
        one.max = knob->max;
    }
    first.kind = kind;
    first.name = name;
    first.file = file;
    first.n_knobs = knob ? 1 : 0;
    first.knobs = knobs;
    second.kind = common;
    second.name = ddp;
    list.n_plugins = module ? 2 : 1;
    list.plugins = plugins;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PLUGIN_LIST;
    m.plugin_list = &list;
    say(r, &m);
}

static void say_plugins(struct rig *r, const char *module, const char *knob) {
    struct declared one = {"", "int", "8", "", 1, 64};
    snprintf(one.name, sizeof one.name, "%s", knob ? knob : "");
    say_declared(r, module, knob ? &one : NULL);
}

// "module skip 2, strategy ddp 3; 3"
static const char *shown(struct rig *r, char *out, size_t out_bytes) {
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(1 << 20, &a));
    const Traind__V1__ListPluginsResponse *m = td_view_plugins(a, r->core);
    assert_non_null(m);
    size_t len = 0;
    for (size_t i = 0; i < m->n_plugins; i++) {
        const Traind__V1__Plugin *p = m->plugins[i]->plugin;
        len += (size_t)snprintf(out + len, out_bytes - len, "%s %s%s%s %u, ", p->kind, p->name,
                                p->n_knobs ? "." : "", p->n_knobs ? p->knobs[0]->name : "",
                                m->plugins[i]->nodes);
    }
    snprintf(out + len, out_bytes - len, "of %u", m->nodes);
    return out;
}

static void test_rows_count_their_nodes_when_lists_differ(void **state) {
    (void)state;
    struct rig r;
    char text[512];
    begin(&r, 1);
    assert_string_equal(shown(&r, text, sizeof text), "of 0");
    say_plugins(&r, "skip", "width");
    connect(&r, "second");
    say_plugins(&r, "skip", "width"); // shares the first one's
    connect(&r, "third");
    say_plugins(&r, "skip", "depth"); // of another build
    assert_string_equal(shown(&r, text, sizeof text),
                        "module skip.width 2, module skip.depth 1, strategy ddp 3, of 3");
    say_plugins(&r, NULL, NULL); // its file is gone
    assert_string_equal(shown(&r, text, sizeof text), "module skip.width 2, strategy ddp 3, of 3");
    td_offers_forget(r.core, "second");
    td_offers_forget(r.core, "nobody");
    assert_string_equal(shown(&r, text, sizeof text), "module skip.width 1, strategy ddp 2, of 2");
    end(&r);
}

static void test_view_is_none_when_the_arena_is_full(void **state) {
    (void)state;
    struct rig r;
    begin(&r, 1);
    say_plugins(&r, "skip", "width");
    for (size_t bytes = 64; bytes <= 4096; bytes *= 2) {
        TD_AUTO(td_arena) *a = NULL;
        assert_ok(td_arena_create(bytes, &a));
        const Traind__V1__ListPluginsResponse *m = td_view_plugins(a, r.core);
        if (bytes == 64) assert_null(m);
    }
    end(&r);
}

// ---- specs --------------------------------------------------------------------------------------
static td_status check(struct rig *r, const char *model, const char *more) {
    TD_AUTO(td_arena) *a = NULL;
    struct td_json *tree = NULL;
    char text[512];
    snprintf(text, sizeof text,
             "model: %s\ndata: {name: synthetic, batch_size: 2}\noptimizer: {name: sgd}\n%s", model,
             more);
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    assert_ok(td_spec_parse(a, text, strlen(text), NULL, 0, &tree));
    return td_offers_check(r->core, tree);
}
#define WITH(knobs) "{name: plugin, module: skip, knobs: " knobs "}"

static void test_spec_is_refused_when_its_knobs_are_not_those_of_the_nodes(void **state) {
    (void)state;
    struct rig r;
    begin(&r, 1);
    assert_ok(check(&r, WITH("{width: 0}"), "")); // no node has said anything
    say_plugins(&r, "skip", "width");
    assert_ok(check(&r, WITH("{width: 64}"), ""));
    assert_fails(check(&r, WITH("{width: 65}"), ""), TD_INVALID_ARGUMENT,
                 "model.knobs.width (line 1): expected an integer from 1 to 64, found 65");
    assert_fails(check(&r, WITH("{widht: 1}"), ""), TD_INVALID_ARGUMENT, "did you mean width?");
    assert_ok(check(&r, WITH("{width: 65}"), "plugins: [/opt/mine]\n")); // may be another one
    assert_ok(check(&r, "{name: plugin, module: wide, knobs: {width: 65}}", ""));
    assert_ok(check(&r, "{name: mlp, layers: [2, 2]}", ""));
    connect(&r, "second");
    say_plugins(&r, "skip", "depth"); // another build: which one it is, the plan will see
    assert_ok(check(&r, WITH("{width: 65}"), ""));
    end(&r);
}

static void test_declared_knob_is_passed_over_when_no_registry_would_take_it(void **state) {
    (void)state;
    struct declared wrong[] = {
        {"width", "integer", "8", "", 1, 64},    {"width", "int", "", "", 1, 64},
        {"width", "int", "8", "2..4", 1, 64},    {"width", "ints", "[1]", "many", 1, 64},
        {"width", "ints", "[1]", "4..2", 1, 64}, {"width", "enum", "a", "", 0, 0},
        {"width", "enum", "a", "a||b", 0, 0},    {"width", "enum", "a", "!a", 0, 0},
        {"width", "int", "8", "", 64, 1},        {"", "int", "8", "", 1, 64},
    };
    struct rig r;
    begin(&r, 1);
    for (size_t i = 0; i < TD_COUNTOF(wrong); i++) {
        say_declared(&r, "skip", &wrong[i]);
        assert_ok(check(&r, WITH("{width: 65}"), ""));
    }
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_count_their_nodes_when_lists_differ),
        cmocka_unit_test(test_view_is_none_when_the_arena_is_full),
        cmocka_unit_test(test_spec_is_refused_when_its_knobs_are_not_those_of_the_nodes),
        cmocka_unit_test(test_declared_knob_is_passed_over_when_no_registry_would_take_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
