// What is wrong in a section or an option is said by the name of the call or the option that said
// it. Sections are checked as a spec's are; that check knows numbers of overrides alone.

#include <string.h>

#include "tests/unit/test.h"
#include "traind/fabric.h"

static void test_options_are_named_when_a_section_is_wrong(void **state) {
    (void)state;
    static const char *const plugins[] = {"mine.so"};
    static const struct {
        struct td_fabric_options o;
        const char *names;
    } rows[] = {
        {{.trainer = "{gradient_clip_val: high}"}, "trainer.gradient_clip_val (options.trainer)"},
        {{.accelerator = "[cpu]"}, "trainer.accelerator (options.accelerator)"},
        {{.comm_hook = "{name: power_sgd, rank: none}"}, "comm_hook.rank (options.comm_hook)"},
        {{.plugins = plugins, .n_plugins = 1}, "(options.plugins)"},
        {{.threads = -1}, "threads"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct td_fabric_options o = rows[i].o;
        struct td_fabric *f;
        o.struct_bytes = sizeof o;
        o.quiet = true;
        td_status s = td_fabric_create(&o, &f);
        if (!s) {
            assert_ok(td_fabric_setup_module(f, "{name: mlp, layers: [8, 4]}"));
            assert_ok(td_fabric_setup_dataloaders(f, "{name: synthetic, samples: 64, features: 8, "
                                                     "classes: 4, batch_size: 8}"));
            s = td_fabric_finish(f, td_fabric_setup(f));
            td_fabric_destroy(f);
        }
        assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
        const char *text = td_status_message(s);
        if (!strstr(text, rows[i].names) || strstr(text, "override")) fail_msg("%s", text);
        td_status_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_are_named_when_a_section_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
