// Conformance of the calls that a backend may lack (enum td_collective_call). Every backend is
// visited, in worlds of 1 to 4 ranks as threads, with sizes around chunks and pieces of the stages.
// What a call gives is computed here from what each rank put in. A reduced value has the bits that
// all_reduce gives. Groups have every call themselves, beside each other and beside the group of
// all.

#include "tests/collective_ranks.h"
#include "tests/collective_trace.h"

#include "collectives/reduce.h"

struct backend {
    const struct td_plugin_desc *desc, *inner; // inner: of a decorator
    int32_t max_world;
};
static const struct backend backends[] = {
    {&td_collective_local, NULL, 1},
    {&td_collective_shm, NULL, 4},
    {&td_collective_trace, &td_collective_shm, 4},
    {&td_collective_trace, &td_collective_local, 1},
};

static void begin(struct ranks *rs, const struct backend *b, int32_t world) {
    if (b->inner) {
        ranks_init_wrapped(rs, b->desc, b->inner, trace_knobs, world, 0);
    } else {
        ranks_init(rs, b->desc, world, 0);
    }
}

static const size_t sizes[] = {0, 1, 7, 64, 4097, 32768, 65537, 131072, 131073, 300001};
static const int64_t counts[] = {0, 1, 15, 16, 17, 1000, 16385, 40000};

static void for_each_world(rank_fn *fn) {
    for (size_t b = 0; b < TD_COUNTOF(backends); b++) {
        for (int32_t world = 1; world <= backends[b].max_world; world++) {
            struct ranks rs;
            begin(&rs, &backends[b], world);
            ranks_run(&rs, fn, NULL);
            ranks_ok(&rs);
            ranks_finish(&rs);
        }
        print_message("# over collective %s\n", backends[b].desc->name);
    }
}

// Byte i of what rank `from` has for rank `to`.
static uint8_t byte_of(int32_t from, int32_t to, size_t i) {
    return (uint8_t)(i * 31 + (size_t)from * 7 + (size_t)to * 101 + (i >> 8));
}

static void fill(uint8_t *at, int32_t from, int32_t to, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        at[i] = byte_of(from, to, i);
    }
}

static bool holds(const uint8_t *at, int32_t from, int32_t to, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != byte_of(from, to, i)) return false;
    }
    return true;
}

// ---- reduce and reduce_scatter ------------------------------------------------------------------
static void fill_numbers(void *data, int64_t n, enum td_dtype t, int32_t rank) {
    for (int64_t i = 0; i < n; i++) {
        const double v = t == TD_BOOL ? (double)((i + rank) % 3 == 0)
                                      : (double)((i * 7 + rank * 5) % 23) / (t == TD_F32 ? 7 : 1);
        if (t == TD_F32) ((float *)data)[i] = (float)v;
        if (t == TD_F64) ((double *)data)[i] = v / 3;
        if (t == TD_I32) ((int32_t *)data)[i] = (int32_t)v - 9;
        if (t == TD_I64) ((int64_t *)data)[i] = (int64_t)v - 9;
        if (t == TD_U8 || t == TD_BOOL) ((uint8_t *)data)[i] = (uint8_t)v;
        // 16 bits: 1 to 1.99 in bf16, 1 to 2 in f16
        if (t == TD_BF16) ((uint16_t *)data)[i] = (uint16_t)(0x3f80 + (i + rank * 3) % 128);
        if (t == TD_F16) ((uint16_t *)data)[i] = (uint16_t)(0x3c00 + (i + rank * 3) % 1024);
    }
}

// Both against all_reduce, which conform_collective.c holds against plain sums.
static td_status check_reduced(struct rank_ctx *r, int64_t n, enum td_dtype t,
                               enum td_reduce_op op) {
    const size_t elem = td_dtype_bytes(t), all = (size_t)n * (size_t)r->world * elem;
    TD_AUTO_FREE char *in = td_calloc(all + 1, 1);
    TD_AUTO_FREE char *kept = td_calloc(all + 1, 1);
    TD_AUTO_FREE char *want = td_calloc(all + 1, 1);
    TD_AUTO_FREE char *out = td_calloc((size_t)n + 1, elem);
    if (!in || !kept || !want || !out) return td_fail_oom();
    fill_numbers(in, n * r->world, t, r->rank);
    memcpy(kept, in, all);
    memcpy(want, in, all);
    TD_TRY(r->ops->all_reduce(r->c, want, n * r->world, t, op));
    TD_TRY(r->ops->reduce_scatter(r->c, in, out, n, t, op));
    RANK_CHECK(memcmp(out, want + (size_t)r->rank * (size_t)n * elem, (size_t)n * elem) == 0);
    RANK_CHECK(memcmp(in, kept, all) == 0);
    const int32_t dst = (int32_t)(n % r->world);
    TD_TRY(r->ops->reduce(r->c, in, n * r->world, t, op, dst));
    RANK_CHECK(memcmp(in, r->rank == dst ? want : kept, all) == 0);
    return TD_OK;
}

static td_status rank_reduced(struct rank_ctx *r, void *arg) {
    (void)arg;
    for (size_t s = 0; s < TD_COUNTOF(counts); s++) {
        for (int i = 0; i < TD_DTYPE_COUNT * (TD_REDUCE_PRODUCT + 1); i++) {
            const enum td_dtype t = (enum td_dtype)(i % TD_DTYPE_COUNT);
            const enum td_reduce_op op = (enum td_reduce_op)(i / TD_DTYPE_COUNT);
            if (td_reduce_supports(t, op)) TD_TRY(check_reduced(r, counts[s], t, op));
        }
    }
    return TD_OK;
}
static void test_reduce_and_reduce_scatter_have_the_bits_of_all_reduce(void **state) {
    (void)state;
    for_each_world(rank_reduced);
}

// ---- copies -------------------------------------------------------------------------------------
static td_status check_rooted(struct rank_ctx *r, size_t bytes, int32_t root) {
    const size_t all = bytes * (size_t)r->world;
    const bool is_root = r->rank == root;
    TD_AUTO_FREE uint8_t *one = td_calloc(bytes + 1, 1);
    TD_AUTO_FREE uint8_t *many = td_calloc(all + 1, 1);
    if (!one || !many) return td_fail_oom();
    fill(one, r->rank, root, bytes);
    TD_TRY(r->ops->gather(r->c, one, bytes, is_root ? many : NULL, root));
    for (int32_t p = 0; is_root && p < r->world; p++) {
        RANK_CHECK(holds(many + (size_t)p * bytes, p, root, bytes));
    }
    for (int32_t p = 0; p < r->world; p++) {
        fill(many + (size_t)p * bytes, root, p, bytes);
    }
    TD_TRY(r->ops->scatter(r->c, is_root ? many : NULL, bytes, one, root));
    RANK_CHECK(holds(one, root, r->rank, bytes));
    return TD_OK;
}

static td_status rank_rooted(struct rank_ctx *r, void *arg) {
    (void)arg;
    for (size_t s = 0; s < TD_COUNTOF(sizes); s++) {
        for (int32_t root = 0; root < r->world; root++) {
            TD_TRY(check_rooted(r, sizes[s], root));
        }
    }
    return TD_OK;
}
static void test_gather_and_scatter_carry_every_byte_when_root_and_size_differ(void **state) {
    (void)state;
    for_each_world(rank_rooted);
}

static td_status rank_all_to_all(struct rank_ctx *r, void *arg) {
    (void)arg;
    for (size_t s = 0; s < TD_COUNTOF(sizes); s++) {
        const size_t bytes = sizes[s], all = bytes * (size_t)r->world;
        TD_AUTO_FREE uint8_t *in = td_calloc(all + 1, 1);
        TD_AUTO_FREE uint8_t *out = td_calloc(all + 1, 1);
        if (!in || !out) return td_fail_oom();
        for (int32_t p = 0; p < r->world; p++) {
            fill(in + (size_t)p * bytes, r->rank, p, bytes);
        }
        TD_TRY(r->ops->all_to_all(r->c, in, bytes, out));
        for (int32_t p = 0; p < r->world; p++) {
            RANK_CHECK(holds(out + (size_t)p * bytes, p, r->rank, bytes));
        }
    }
    return TD_OK;
}
static void test_all_to_all_transposes_what_ranks_have_for_each_other(void **state) {
    (void)state;
    for_each_world(rank_all_to_all);
}

// ---- uneven gathers -----------------------------------------------------------------------------
// What rank p gives of a round: nothing, little, or several chunks.
static size_t uneven_bytes(int32_t p, size_t round) {
    return sizes[((size_t)p * 3 + round) % TD_COUNTOF(sizes)];
}

static td_status check_uneven(struct rank_ctx *r, size_t round) {
    size_t all = 0, said[RANKS_MAX] = {0};
    for (int32_t p = 0; p < r->world; p++) {
        all += uneven_bytes(p, round);
    }
    const size_t bytes = uneven_bytes(r->rank, round);
    TD_AUTO_FREE uint8_t *in = td_calloc(bytes + 1, 1);
    TD_AUTO_FREE uint8_t *out = td_calloc(all + 1, 1);
    if (!in || !out) return td_fail_oom();
    fill(in, r->rank, 0, bytes);
    // The last rank has too little room: all learn it, and what they need.
    const size_t room = r->rank == r->world - 1 && all ? all - 1 : all;
    td_status s = r->ops->all_gather_uneven(r->c, in, bytes, out, room, said);
    const enum td_code code = td_status_code(s);
    char name[32];
    snprintf(name, sizeof name, "rank %d has", r->world - 1);
    if (r->world < r->ranks->world) name[0] = '\0'; // a group of some calls it otherwise
    const bool is_named = s && strstr(td_status_message(s), name);
    td_status_free(s);
    if (all) RANK_CHECK(code == TD_RESOURCE_EXHAUSTED && is_named && !out[0]);
    for (int32_t p = 0; p < r->world; p++) {
        RANK_CHECK(said[p] == uneven_bytes(p, round));
        said[p] = 99;
    }
    TD_TRY(r->ops->all_gather_uneven(r->c, in, bytes, out, all, said));
    const uint8_t *at = out;
    for (int32_t p = 0; p < r->world; at += said[p], p++) {
        RANK_CHECK(said[p] == uneven_bytes(p, round) && holds(at, p, 0, said[p]));
    }
    return TD_OK;
}

static td_status rank_uneven(struct rank_ctx *r, void *arg) {
    (void)arg;
    for (size_t round = 0; round < TD_COUNTOF(sizes); round++) {
        TD_TRY(check_uneven(r, round));
    }
    return r->ops->barrier(r->c, "still well");
}
// Contract 5: uneven all_gather
static void test_uneven_gather_says_the_counts_and_who_lacks_room(void **state) {
    (void)state;
    for_each_world(rank_uneven);
}

// ---- send and recv ------------------------------------------------------------------------------
// Round a ring, rank 0 first; other ranks are in the barrier meanwhile.
static td_status rank_ring(struct rank_ctx *r, void *arg) {
    (void)arg;
    const int32_t next = (r->rank + 1) % r->world, last = (r->rank + r->world - 1) % r->world;
    for (size_t s = 0; r->world > 1 && s < TD_COUNTOF(sizes); s++) {
        const uint32_t tag = (uint32_t)s << 20;
        TD_AUTO_FREE uint8_t *token = td_calloc(sizes[s] + 1, 1);
        if (!token) return td_fail_oom();
        if (r->rank == 0) fill(token, 3, 4, sizes[s]);
        if (r->rank == 0) TD_TRY(r->ops->send(r->c, token, sizes[s], next, tag));
        memset(token, 0, sizes[s]);
        TD_TRY(r->ops->recv(r->c, token, sizes[s], last, tag));
        RANK_CHECK(holds(token, 3, 4, sizes[s]) && !token[sizes[s]]);
        if (r->rank) TD_TRY(r->ops->send(r->c, token, sizes[s], next, tag));
        if (s % 3 == 0) TD_TRY(r->ops->barrier(r->c, "after a round"));
    }
    return r->ops->barrier(r->c, "end");
}
static void test_message_arrives_whole_when_it_goes_from_rank_to_rank(void **state) {
    (void)state;
    for_each_world(rank_ring);
}

// ---- groups -------------------------------------------------------------------------------------
// Every call in a group whose rank i is list[i], and the same beside it in the whole.
static td_status use_group(struct rank_ctx *r, struct td_collective *g, const int32_t *list,
                           int32_t n) {
    struct rank_ctx in = *r;
    in.c = g;
    in.world = n;
    for (in.rank = 0; list[in.rank] != r->rank; in.rank++) {
        continue;
    }
    float x[2] = {(float)(1 << r->rank), (float)r->rank}, want = 0;
    for (int32_t i = 0; i < n; i++) {
        want += (float)(1 << list[i]);
    }
    TD_TRY(r->ops->all_reduce(g, x, 2, TD_F32, TD_REDUCE_SUM));
    RANK_CHECK(x[0] == want);
    void *region;
    size_t bytes;
    TD_TRY(r->ops->gradients(g, &region, &bytes));
    RANK_CHECK(!region && !bytes);
    TD_TRY(r->ops->broadcast(g, x, sizeof x, n - 1));
    TD_TRY(check_reduced(&in, 5000, TD_I32, TD_REDUCE_PRODUCT));
    TD_TRY(check_rooted(&in, 20000, n - 1));
    TD_TRY(check_uneven(&in, 6));
    return rank_ring(&in, NULL);
}

static const struct split {
    int32_t n[2], list[2][4];
} splits[] = {
    {{1, 1}, {{0}, {1}}},       {{1, 2}, {{0}, {0, 1}}},
    {{2, 2}, {{0, 1}, {1, 2}}}, // with a rank in both
    {{2, 2}, {{0, 2}, {1, 3}}}, {{3, 4}, {{1, 2, 3}, {0, 1, 2, 3}}},
};

static td_status fail_unless(td_status s, enum td_code code, const char *said) {
    if (td_status_code(s) == code && strstr(td_status_message(s), said)) {
        td_status_free(s);
        return TD_OK;
    }
    td_status failed = td_fail(TD_INTERNAL, "got '%s' instead of '%s'",
                               s ? td_status_message(s) : "success", said);
    td_status_free(s);
    return failed;
}

static td_status two_groups(struct rank_ctx *r, const struct split *split) {
    struct td_collective *g[2] = {NULL, NULL}, *none = NULL;
    for (int i = 0; i < 2; i++) {
        if (split->list[i][split->n[i] - 1] >= r->world) return TD_OK;
    }
    for (int i = 0; i < 2; i++) {
        const int32_t *list = split->list[i], n = split->n[i];
        bool is_in = false;
        for (int32_t k = 0; k < n; k++) {
            is_in = is_in || list[k] == r->rank;
        }
        TD_TRY(r->ops->group_create(r->c, list, n, &g[i]));
        RANK_CHECK(is_in == (g[i] != NULL));
        TD_TRY(fail_unless(r->ops->group_create(r->c, list, n, &none), TD_ALREADY_EXISTS,
                           "there is a group of these"));
        if (g[i]) {
            TD_TRY(fail_unless(r->ops->group_create(g[i], list, 1, &none), TD_UNIMPLEMENTED,
                               "of all ranks"));
        }
    }
    for (int turn = 0; turn < 3; turn++) { // one after the other, and the whole between
        for (int i = 0; i < 2; i++) {
            if (g[i]) TD_TRY(use_group(r, g[i], split->list[i], split->n[i]));
        }
        TD_TRY(r->ops->barrier(r->c, "between"));
    }
    TD_TRY(r->ops->group_destroy(r->c, g[1]));
    if (g[0]) TD_TRY(use_group(r, g[0], split->list[0], split->n[0]));
    return r->ops->group_destroy(r->c, g[0]);
}

static td_status rank_groups(struct rank_ctx *r, void *arg) {
    (void)arg;
    for (int again = 0; again < 12; again++) { // more often than there are places
        for (size_t i = 0; i < TD_COUNTOF(splits); i++) {
            TD_TRY(two_groups(r, &splits[i]));
        }
    }
    return r->ops->barrier(r->c, "still well");
}
// Contract 8: groups are made and destroyed again, two at once, one made twice is an error
static void test_groups_work_beside_each_other_when_made_and_destroyed_again(void **state) {
    (void)state;
    for_each_world(rank_groups);
}

// What is left is gone with the group of all, and can be made again by the next.
static td_status rank_leaves_a_group(struct rank_ctx *r, void *arg) {
    (void)arg;
    struct td_collective *g;
    const int32_t zero = 0;
    TD_TRY(r->ops->group_create(r->c, &zero, 1, &g));
    if (g) r->ops->leave(g); // does nothing
    return g ? r->ops->barrier(g, "alive") : TD_OK;
}
static void test_group_is_gone_when_the_whole_is_left(void **state) {
    (void)state;
    for (size_t b = 0; b < TD_COUNTOF(backends); b++) {
        struct ranks rs;
        begin(&rs, &backends[b], backends[b].max_world);
        for (int i = 0; i < TD_GROUPS_MAX + 2; i++) {
            ranks_run(&rs, rank_leaves_a_group, NULL);
            ranks_ok(&rs);
        }
        ranks_finish(&rs);
    }
}

static td_status rank_too_many_groups(struct rank_ctx *r, void *arg) {
    (void)arg;
    struct td_collective *g[TD_GROUPS_MAX + 1] = {NULL};
    const int32_t list[] = {0, 1, 2, 3};
    for (int i = 0; i < TD_GROUPS_MAX; i++) {
        TD_TRY(r->ops->group_create(r->c, list + i % 4, 1 + i / 4 * (3 - i % 4), &g[i]));
        if (i % 4 == 3) TD_TRY(r->ops->group_destroy(r->c, g[i])); // {3} comes twice
    }
    TD_TRY(r->ops->group_create(r->c, list, 2, &g[3]));
    TD_TRY(r->ops->group_create(r->c, list, 3, &g[7]));
    TD_TRY(fail_unless(r->ops->group_create(r->c, list + 1, 2, &g[TD_GROUPS_MAX]),
                       TD_RESOURCE_EXHAUSTED, "there are 8 groups"));
    TD_TRY(r->ops->group_destroy(r->c, g[7]));
    TD_TRY(r->ops->group_create(r->c, list + 1, 2, &g[7]));
    return r->ops->barrier(r->c, "still well");
}
static void test_group_is_refused_when_all_places_are_taken(void **state) {
    (void)state;
    struct ranks rs;
    ranks_init(&rs, &td_collective_shm, 4, 0);
    ranks_run(&rs, rank_too_many_groups, NULL);
    ranks_ok(&rs);
    ranks_finish(&rs);
}

// ---- bad calls and facts ------------------------------------------------------------------------
static td_status rank_bad_calls(struct rank_ctx *r, void *arg) {
    (void)arg;
    const struct td_collective_ops *o = r->ops;
    float x[4] = {0};
    size_t n[RANKS_MAX];
    const int32_t twice[] = {0, 0}, far[] = {r->world}, below[] = {-1}, zero = 0;
    struct td_collective *g = NULL, *never = (struct td_collective *)x;
    td_status bad[] = {
        o->reduce(r->c, x, 1, TD_BOOL, TD_REDUCE_SUM, 0),
        o->reduce(r->c, x, 1, TD_F32, TD_REDUCE_SUM, r->world),
        o->reduce_scatter(r->c, NULL, x, 1, TD_F32, TD_REDUCE_SUM),
        o->reduce_scatter(r->c, x, NULL, 1, TD_F32, TD_REDUCE_SUM),
        o->reduce_scatter(r->c, x, x, INT64_MAX / 2, TD_F64, TD_REDUCE_SUM),
        o->gather(r->c, NULL, 4, x, 0),
        o->gather(r->c, x, 4, NULL, r->rank),
        o->gather(r->c, x, 4, x, -1),
        o->scatter(r->c, NULL, 4, x, r->rank),
        o->scatter(r->c, x, 4, NULL, 0),
        o->all_gather_uneven(r->c, x, 4, x, 4, NULL),
        o->all_gather_uneven(r->c, NULL, 4, x, 4, n),
        o->all_gather_uneven(r->c, x, 4, NULL, 4, n),
        o->all_to_all(r->c, NULL, 4, x),
        o->all_to_all(r->c, x, 4, NULL),
        o->send(r->c, x, 4, r->rank, 0),
        o->send(r->c, x, 4, r->world, 0),
        o->recv(r->c, x, 4, r->rank, 0),
        o->recv(r->c, x, 4, -1, 0),
        o->group_create(r->c, twice, 2, &g),
        o->group_create(r->c, far, 1, &g),
        o->group_create(r->c, below, 1, &g),
        o->group_create(r->c, &zero, 0, &g),
        o->group_create(r->c, NULL, 1, &g),
        o->group_destroy(r->c, never),
    };
    td_status failed = TD_OK;
    for (size_t i = 0; i < TD_COUNTOF(bad); i++) {
        if (td_status_code(bad[i]) != TD_INVALID_ARGUMENT && !failed) {
            failed = td_fail(TD_INTERNAL, "bad call %zu gave '%s'", i,
                             bad[i] ? td_status_message(bad[i]) : "success");
        }
        td_status_free(bad[i]);
    }
    return failed ? failed : o->barrier(r->c, "still well");
}
static void test_bad_call_is_refused_before_anybody_waits(void **state) {
    (void)state;
    for_each_world(rank_bad_calls);
}

static td_status rank_after_abort(struct rank_ctx *r, void *arg) {
    (void)arg;
    struct td_collective *g = NULL;
    int32_t all[RANKS_MAX];
    for (int32_t p = 0; p < r->world; p++) {
        all[p] = p;
    }
    TD_TRY(r->ops->group_create(r->c, all, r->world, &g));
    if (r->rank == 0) r->ops->abort(g);
    for (int i = 0; i < 2; i++) { // one ends both
        td_status s = r->ops->barrier(i ? g : r->c, "never");
        const enum td_code code = td_status_code(s);
        td_status_free(s);
        RANK_CHECK(code == TD_ABORTED);
    }
    return TD_OK;
}
static void test_abort_ends_the_whole_when_it_is_called_in_a_group(void **state) {
    (void)state;
    for (size_t b = 0; b < TD_COUNTOF(backends); b++) {
        struct ranks rs;
        begin(&rs, &backends[b], backends[b].max_world);
        ranks_run(&rs, rank_after_abort, NULL);
        for (int32_t p = 0; p < rs.world; p++) { // a late one meets it where the group is made
            if (td_status_code(rs.status[p]) != TD_ABORTED && rs.status[p]) ranks_ok(&rs);
        }
        ranks_free_statuses(&rs);
        ranks_finish(&rs);
    }
}

static void test_facts_name_every_call_that_has_a_slot(void **state) {
    (void)state;
    for (size_t b = 0; b < TD_COUNTOF(backends); b++) {
        const struct td_collective_ops *ops = backends[b].desc->ops;
        struct td_collective_facts f = {.struct_bytes = sizeof f};
        assert_null(ops->facts(&f));
        assert_null(td_collective_check_calls(&f, ops, "x"));
        assert_int_equal(f.wraps, backends[b].inner != NULL);
        assert_int_equal(f.max_groups, TD_GROUPS_MAX);
        for (int i = 0; i < TD_CALL_COUNT; i++) {
            const enum td_collective_call call = (enum td_collective_call)i;
            assert_null(td_collective_require(&f, "x", call));
            struct td_collective_facts less = f;
            less.calls &= ~(1u << i);
            td_status s = td_collective_require(&less, "mute", call);
            assert_int_equal(td_status_code(s), TD_UNIMPLEMENTED);
            assert_non_null(strstr(td_status_message(s), "'mute'"));
            assert_non_null(strstr(td_status_message(s), td_collective_call_name(call)));
            td_status_free(s);
        }
    }
    struct td_collective_facts boasts = {.struct_bytes = sizeof boasts,
                                         .calls = 1u << TD_CALL_SEND_RECV};
    struct td_collective_ops ops = *(const struct td_collective_ops *)td_collective_shm.ops;
    ops.recv = NULL;
    td_status s = td_collective_check_calls(&boasts, &ops, "boaster");
    assert_int_equal(td_status_code(s), TD_FAILED_PRECONDITION);
    assert_non_null(strstr(td_status_message(s), "'boaster'"));
    assert_non_null(strstr(td_status_message(s), "send and recv"));
    td_status_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_and_reduce_scatter_have_the_bits_of_all_reduce),
        cmocka_unit_test(test_gather_and_scatter_carry_every_byte_when_root_and_size_differ),
        cmocka_unit_test(test_all_to_all_transposes_what_ranks_have_for_each_other),
        cmocka_unit_test(test_uneven_gather_says_the_counts_and_who_lacks_room),
        cmocka_unit_test(test_message_arrives_whole_when_it_goes_from_rank_to_rank),
        cmocka_unit_test(test_groups_work_beside_each_other_when_made_and_destroyed_again),
        cmocka_unit_test(test_group_is_gone_when_the_whole_is_left),
        cmocka_unit_test(test_group_is_refused_when_all_places_are_taken),
        cmocka_unit_test(test_bad_call_is_refused_before_anybody_waits),
        cmocka_unit_test(test_abort_ends_the_whole_when_it_is_called_in_a_group),
        cmocka_unit_test(test_facts_name_every_call_that_has_a_slot),
    };
    return cmocka_run_group_tests(tests, make_trace_knobs, drop_trace_knobs);
}
