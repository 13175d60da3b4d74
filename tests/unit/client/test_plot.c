// Curves as text: what a cell shows, and what there is no room or no number for.

#include "client/screen/plot.h"

#include <math.h>
#include <string.h>

#include "lib/base/utf8.h"
#include "tests/unit/test.h"

static const double steps[] = {0, 1, 2, 3, 4};

static char *draw(struct td_plot *p, const struct td_plot_series *series, size_t n) {
    struct td_buf out;
    td_buf_init(&out, 1 << 20);
    for (size_t i = 0; i < n; i++) {
        td_plot_widen(p, &series[i]);
    }
    assert_ok(td_plot_draw(p, series, n, &out));
    return td_buf_take_cstr(&out);
}

static struct td_plot_series series_of(const char *label, const double *y) {
    return (struct td_plot_series){.label = label, .x = steps, .y = y, .n = 5};
}

static void test_line_goes_from_corner_to_corner_when_values_rise(void **state) {
    (void)state;
    const double y[] = {0, 1, 2, 3, 4};
    const struct td_plot_series s = series_of("rise", y);
    struct td_plot p = {.columns = 24};
    char *text = draw(&p, &s, 1);
    assert_non_null(strstr(text, "rise\n        4 |          "));
    assert_non_null(strstr(text, "*\n          |"));
    assert_non_null(
        strstr(text, "        0 |*\n          +-------------\n           0           4\n"));
    free(text);
}

static void test_cell_has_eight_dots_when_the_locale_has_braille(void **state) {
    (void)state;
    const double y[] = {1, 1, 1, 1, 1};
    const struct td_plot_series s = series_of("flat", y);
    struct td_plot p = {.columns = 20, .utf8 = true};
    char *text = draw(&p, &s, 1);
    assert_true(td_utf8_valid(text, strlen(text)));
    assert_non_null(strstr(text, "\u28c0\u28c0\u28c0"));
    assert_null(strchr(text, '*'));
    free(text);
}

static void test_series_have_characters_of_their_own_when_there_is_no_colour(void **state) {
    (void)state;
    const double low[] = {0, 0, 0, 0, 0}, high[] = {9, 9, 9, 9, 9};
    const struct td_plot_series s[] = {series_of("low", low), series_of("high", high)};
    struct td_plot p = {.columns = 29, .utf8 = true};
    char *text = draw(&p, s, 2);
    assert_non_null(strstr(text, "* low  + high\n"));
    assert_non_null(strstr(text, "        9 \u2502++++++++++++++++++\n"));
    assert_non_null(strstr(text, "        0 \u2502******************\n"));
    free(text);
    struct td_plot colored = {.columns = 30, .utf8 = true, .color = true};
    text = draw(&colored, s, 2);
    assert_non_null(strstr(text, "\033[36mlow\033[0m  \033[33mhigh\033[0m\n"));
    assert_null(strstr(text, "+++"));
    free(text);
}

static void test_legend_goes_on_with_the_next_line_when_the_screen_is_narrow(void **state) {
    (void)state;
    const double y[] = {0, 1, 2, 3, 4};
    const struct td_plot_series s[] = {series_of("train_loss_step", y),
                                       series_of("train_loss_epoch", y), series_of("val_loss", y)};
    struct td_plot p = {.columns = 40};
    char *text = draw(&p, s, 3);
    assert_true(strncmp(text, "* train_loss_step  + train_loss_epoch\no val_loss\n", 49) == 0);
    free(text);
    p = (struct td_plot){.columns = 43, .utf8 = true, .color = true};
    text = draw(&p, s, 3);
    assert_non_null(
        strstr(text, "_step\033[0m  \033[33mtrain_loss_epoch\033[0m  \033[32mval_loss"));
    free(text);
    p.columns = 42;
    text = draw(&p, s, 3);
    assert_non_null(strstr(text, "train_loss_epoch\033[0m\n\033[32mval_loss\033[0m\n"));
    free(text);
}

static void test_gap_is_left_when_a_value_is_no_number(void **state) {
    (void)state;
    const double y[] = {1, 1, (double)NAN, 1, (double)INFINITY};
    const struct td_plot_series s = series_of("holes", y);
    struct td_plot p = {.columns = 22};
    char *text = draw(&p, &s, 1);
    assert_non_null(strstr(text, "|****      *\n"));
    free(text);
    const double none[] = {NAN, NAN, NAN, NAN, NAN};
    const struct td_plot_series empty = series_of("none", none);
    struct td_plot q = {.columns = 22};
    text = draw(&q, &empty, 1);
    assert_string_equal(text, "none\n  (no finite points)\n");
    free(text);
}

static void test_no_line_is_wider_than_the_screen_when_it_is_narrow_or_wide(void **state) {
    (void)state;
    const double y[] = {-1e300, 1e300, 0, -1, 1};
    for (int columns = 20; columns < 1200; columns += 59) {
        const struct td_plot_series s = series_of("x", y);
        struct td_plot p = {.columns = columns};
        char *text = draw(&p, &s, 1);
        for (char *line = text; *line; line = strchr(line, '\n') + 1) {
            assert_true(strcspn(line, "\n") <= (size_t)columns);
        }
        free(text);
    }
}

static void test_label_does_not_act_on_the_terminal_when_it_has_control_characters(void **state) {
    (void)state;
    const double y[] = {0, 1, 2, 3, 4};
    const struct td_plot_series s = series_of("a\033[31m", y);
    struct td_plot p = {.columns = 40};
    char *text = draw(&p, &s, 1);
    assert_null(strchr(text, '\033'));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_goes_from_corner_to_corner_when_values_rise),
        cmocka_unit_test(test_cell_has_eight_dots_when_the_locale_has_braille),
        cmocka_unit_test(test_series_have_characters_of_their_own_when_there_is_no_colour),
        cmocka_unit_test(test_legend_goes_on_with_the_next_line_when_the_screen_is_narrow),
        cmocka_unit_test(test_gap_is_left_when_a_value_is_no_number),
        cmocka_unit_test(test_no_line_is_wider_than_the_screen_when_it_is_narrow_or_wide),
        cmocka_unit_test(test_label_does_not_act_on_the_terminal_when_it_has_control_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
