// Who gives way where there are too many connections: by source, in any order of coming.

#include "tests/unit/test.h"

#include "lib/rpc/front/peer_slots.h"

struct guest {
    enum td_peer_slot_kind kind;
    struct td_peer_slot place;
};

static enum td_peer_slot_kind kind_of(void *owner) {
    const struct guest *g = owner;
    return g->kind;
}

static struct td_source source_of(uint8_t number) {
    return (struct td_source){.family = AF_INET, .bytes = {10, 9, 0, number}};
}

static void come(struct td_peer_slots *p, struct guest *g, uint8_t source) {
    struct td_source s = source_of(source);
    assert_ok(td_peer_slots_add(p, &s, g, &g->place));
}

static struct td_peer_slots_count count(const struct td_peer_slots *p, uint8_t newcomer) {
    struct td_source s = source_of(newcomer);
    return td_peer_slots_count(p, &s);
}

static void test_source_with_the_most_gives_way_when_all_places_are_taken(void **state) {
    (void)state;
    struct td_peer_slots p = {.kind_of = kind_of};
    struct guest g[7] = {0};
    static const uint8_t sources[] = {3, 1, 2, 1, 2, 2, 1};
    g[1].kind = TD_PEER_PLACE_UNCOUNTED; // the oldest of source 1
    g[6].kind = TD_PEER_PLACE_TRUSTED;
    for (size_t i = 0; i < TD_COUNTOF(g); i++) {
        come(&p, &g[i], sources[i]);
    }
    struct td_peer_slots_count c = count(&p, 4);
    assert_int_equal(c.all, 6);
    assert_int_equal(c.strangers, 5);
    assert_ptr_equal(c.oldest_of_most, &g[2]); // of source 2; g[0] is older, but alone
    assert_null(c.oldest_of_source);
    c = count(&p, 1);
    assert_int_equal(c.of_source, 2);
    assert_int_equal(c.strangers_of_source, 1);
    assert_ptr_equal(c.oldest_of_source, &g[3]);
    assert_ptr_equal(c.oldest_of_most, &g[2]);
    c = td_peer_slots_count(&p, NULL);
    assert_int_equal(c.of_source, 0);
    assert_ptr_equal(c.oldest_of_most, &g[2]);
    td_peer_slots_remove(&p, &g[2].place);
    td_peer_slots_remove(&p, &g[4].place);
    assert_ptr_equal(count(&p, 3).oldest_of_most, &g[0]); // none has more than it would have
    assert_ptr_equal(count(&p, 4).oldest_of_most, &g[0]); // all have one
    for (size_t i = 0; i < TD_COUNTOF(g); i++) {
        if (i != 2 && i != 4) td_peer_slots_remove(&p, &g[i].place);
    }
    assert_true(!p.first && !p.shares);
    assert_null(count(&p, 1).oldest_of_most);
}

// 400 come from each of two sources for each that comes from a third, which needs that long.
static void test_newcomer_keeps_its_place_when_two_sources_come_without_end(void **state) {
    (void)state;
    enum { PLACES = 256, PER_NEWCOMER = 800, NEWCOMERS = 5 };
    struct td_peer_slots p = {.kind_of = kind_of};
    static struct guest guests[NEWCOMERS * (PER_NEWCOMER + 1)];
    size_t n = 0;
    for (int i = 0; i < NEWCOMERS; i++) {
        const struct guest *newcomer = NULL;
        for (int k = 0; k <= PER_NEWCOMER; k++) {
            uint8_t source = k == 0 ? 3 : k % 2 ? 1 : 2;
            struct td_peer_slots_count c = count(&p, source);
            bool source_full = c.strangers_of_source >= PLACES / 2;
            struct guest *victim = source_full             ? c.oldest_of_source
                                   : c.strangers >= PLACES ? c.oldest_of_most
                                                           : NULL;
            assert_false(victim && victim == newcomer);
            if (victim) td_peer_slots_remove(&p, &victim->place);
            come(&p, &guests[n], source);
            if (k == 0) newcomer = &guests[n];
            n++;
        }
    }
    while (p.first) {
        td_peer_slots_remove(&p, p.first);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_source_with_the_most_gives_way_when_all_places_are_taken),
        cmocka_unit_test(test_newcomer_keeps_its_place_when_two_sources_come_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
