// GPUs of a node, as the coordinator keeps them. Clients see something before a list, with one,
// after another boot, of an older node, and of a list that no node of ours sends.

#include "daemon/coordinator/core/model/host_gpus.h"
#include "lib/base/arena.h"
#include "tests/unit/test.h"

static Traind__V1__Gpu make(const char *uuid) {
    Traind__V1__Gpu g = TRAIND__V1__GPU__INIT;
    g.uuid = td_unconst(uuid);
    g.name = td_unconst("H100");
    return g;
}

static void take(struct td_host_gpus *h, size_t n, Traind__V1__Gpu *gpus) {
    Traind__V1__GpuList l = TRAIND__V1__GPU_LIST__INIT;
    Traind__V1__Gpu *at[80];
    for (size_t i = 0; i < n; i++) {
        at[i] = &gpus[i];
    }
    l.n_gpus = n;
    l.gpus = at;
    l.driver = td_unconst("550.1");
    td_host_gpus_take(h, &l);
}

static const Traind__V1__GpuList *view(struct td_arena *a, const struct td_host_gpus *h) {
    const Traind__V1__GpuList *l = td_host_gpus_view(a, h);
    assert_non_null(l);
    return l;
}

static void test_why_says_what_is_missing_until_a_list_comes(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    struct td_host_gpus h = {.list = NULL};
    assert_ok(td_arena_create(1 << 20, &a));
    assert_non_null(strstr(view(a, &h)->why, "is away since the coordinator started"));
    td_host_gpus_register(&h, false, false);
    assert_non_null(strstr(view(a, &h)->why, "build does not list GPUs"));
    td_host_gpus_register(&h, true, false);
    assert_non_null(strstr(view(a, &h)->why, "not known yet"));
    Traind__V1__Gpu gpus[] = {make("GPU-a"), make("GPU-b")};
    take(&h, 2, gpus);
    const Traind__V1__GpuList *l = view(a, &h);
    assert_true(l->n_gpus == 2 && !l->why[0]);
    assert_string_equal(l->gpus[1]->uuid, "GPU-b");
    assert_string_equal(l->driver, "550.1");
    td_host_gpus_register(&h, true, false); // its session broke
    assert_int_equal(view(a, &h)->n_gpus, 2);
    td_host_gpus_register(&h, true, true); // its machine was started again
    assert_int_equal(view(a, &h)->n_gpus, 0);
    take(&h, 1, gpus);
    td_host_gpus_register(&h, false, false); // an older build of the daemon
    assert_int_equal(view(a, &h)->n_gpus, 0);
    td_host_gpus_finish(&h);
}

static void test_list_is_refused_with_the_reason_when_no_node_would_send_it(void **state) {
    (void)state;
    TD_AUTO(td_arena) *a = NULL;
    static char long_text[TD_HOST_GPUS_BYTES + 1];
    struct td_host_gpus h = {.list = NULL};
    Traind__V1__Gpu many[65], twice[] = {make("GPU-a"), make("GPU-a")}, odd[] = {make("GPU a")};
    Traind__V1__Gpu large[] = {make("GPU-a")};
    char uuid[65][16];
    assert_ok(td_arena_create(1 << 20, &a));
    td_host_gpus_register(&h, true, false);
    for (int i = 0; i < 65; i++) {
        snprintf(uuid[i], sizeof uuid[i], "GPU-%d", i);
        many[i] = make(uuid[i]);
    }
    memset(long_text, 'x', sizeof long_text - 1);
    large[0].name = long_text;
    take(&h, 64, many);
    assert_int_equal(view(a, &h)->n_gpus, 64);
    take(&h, 65, many);
    assert_non_null(strstr(view(a, &h)->why, "more than 64 GPUs"));
    assert_int_equal(view(a, &h)->n_gpus, 0);
    take(&h, 2, twice);
    assert_non_null(strstr(view(a, &h)->why, "a GPU twice"));
    take(&h, 1, odd);
    assert_non_null(strstr(view(a, &h)->why, "without a uuid"));
    take(&h, 1, large);
    assert_non_null(strstr(view(a, &h)->why, "more than 256 KiB"));
    td_host_gpus_finish(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_why_says_what_is_missing_until_a_list_comes),
        cmocka_unit_test(test_list_is_refused_with_the_reason_when_no_node_would_send_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
