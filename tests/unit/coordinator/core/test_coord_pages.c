// Pages of listings. They end at a number of rows and at a number of bytes; one row is always
// taken, and the next page begins where the last one ended.

#include <stdio.h>

#include "daemon/coordinator/core/page.h"
#include "daemon/coordinator/core/view.h"
#include "tests/unit/coordinator/core/coord_rig.h"

static void test_page_ends_at_its_rows(void **state) {
    (void)state;
    const Traind__V1__Job row = TRAIND__V1__JOB__INIT;
    struct td_page p = td_page_of(2);
    assert_true(td_page_takes(&p, &row.base) && td_page_takes(&p, &row.base));
    assert_false(td_page_takes(&p, &row.base));
    assert_int_equal(td_page_of(0).most, TD_PAGE_ROWS);
    assert_int_equal(td_page_of(UINT32_MAX).most, TD_PAGE_MAX_ROWS);
}

static void test_page_ends_at_its_bytes_and_takes_one_row_always(void **state) {
    (void)state;
    TD_AUTO_FREE char *text = malloc(TD_PAGE_BYTES + 1);
    Traind__V1__Job row = TRAIND__V1__JOB__INIT;
    memset(text, 'x', TD_PAGE_BYTES);
    text[TD_PAGE_BYTES] = '\0';
    row.name = text;
    struct td_page p = td_page_of(10);
    assert_true(td_page_takes(&p, &row.base));
    assert_false(td_page_takes(&p, &row.base));
    p = td_page_of(10);
    text[TD_PAGE_BYTES / 3] = '\0';
    assert_true(td_page_takes(&p, &row.base) && td_page_takes(&p, &row.base));
    assert_false(td_page_takes(&p, &row.base));
}

static void test_nodes_come_page_by_page_each_once(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    struct rig r = {0};
    char id[16], last[16] = "", all[256] = "";
    assert_ok(td_arena_create(1 << 20, &a));
    begin(&r, 4);
    for (int i = 2; i <= 5; i++) {
        snprintf(id, sizeof id, "n-%d", i);
        r.session = td_core_session_open(r.core, r.now, false);
        say_register(&r, id, 4);
    }
    for (int page = 0; page < 3; page++) {
        const Traind__V1__ListNodesResponse *m =
            td_view_nodes(a, r.core, r.now, td_page_of(2), last);
        assert_non_null(m);
        for (size_t i = 0; i < m->n_nodes; i++) {
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s ", m->nodes[i]->id);
        }
        assert_int_equal(m->next_page_token[0] != '\0', page < 2);
        snprintf(last, sizeof last, "%s", m->next_page_token);
    }
    assert_string_equal(all, "n-1 n-2 n-3 n-4 n-5 ");
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_ends_at_its_rows),
        cmocka_unit_test(test_page_ends_at_its_bytes_and_takes_one_row_always),
        cmocka_unit_test(test_nodes_come_page_by_page_each_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
