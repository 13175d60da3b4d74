// See the header.

#include "engine/train/rank/programs/uneven.h"

#include <stdio.h>

#include "engine/train/rank/programs/batches.h"
#include "traind/sum.h"

static bool mode_has_sums(const struct td_rank *r, enum td_mode mode) {
    for (int kind = 0; kind < TD_SUM_KINDS; kind++) {
        const td_op_id op = td_sum_kind_op((enum td_sum_kind)kind);
        if (td_programs_have(r->programs, mode, op)) return true;
    }
    return false;
}

// The first share of a split has the most samples left at any batch, the last one the fewest.
static bool is_uneven(const struct td_rank *r, enum td_split split, int loader, int64_t *out_most,
                      int64_t *out_least) {
    const struct td_sampler *s = td_data_loader(r->data, split, loader);
    const int64_t batch = r->config->batch_size;
    const int64_t n = td_sampler_batches(s, 0, batch);
    // A user's own loop knows no limits.
    const bool is_played = r->config->manual || td_rank_loader_batches(r, split, loader) == n;
    if (n == 0 || !is_played) return false;
    const int64_t before = (n - 1) * batch;
    *out_most = td_sampler_left(s, 0, 0) - before;
    *out_least = TD_MAX(td_sampler_left(s, 0, r->share[split].n_replicas - 1) - before, 0);
    return *out_most != *out_least;
}

// ---- the programs -------------------------------------------------------------------------------
static struct td_program_key key_of(const struct td_rank *r, enum td_mode mode, int64_t n) {
    return mode == TD_MODE_PREDICT ? td_rank_predict_key(r, n) : td_rank_eval_key(r, n);
}

// What is done for each uneven batch of a mode whose programs sum.
typedef td_status uneven_fn(struct td_rank *r, enum td_split split, enum td_mode mode, int64_t most,
                            int64_t least);

static td_status visit_split(struct td_rank *r, enum td_split split, enum td_mode mode,
                             uneven_fn *fn) {
    int64_t most, least;
    if (!mode_has_sums(r, mode)) return TD_OK;
    for (int i = 0; i < td_data_n_loaders(r->data, split); i++) {
        if (is_uneven(r, split, i, &most, &least)) TD_TRY(fn(r, split, mode, most, least));
    }
    return TD_OK;
}

static td_status visit(struct td_rank *r, uneven_fn *fn) {
    for (int i = 0; i < TD_SPLIT_COUNT && r->facts.world_size > 1; i++) {
        const enum td_split split = (enum td_split)i;
        const bool predicts = split == TD_SPLIT_PREDICT;
        if (!td_rank_evaluates(r, split)) continue;
        if (!predicts) TD_TRY(visit_split(r, split, TD_MODE_EVAL, fn));
        if (!predicts && !td_rank_scores_predict(r)) continue;
        TD_TRY(visit_split(r, split, TD_MODE_PREDICT, fn));
    }
    return TD_OK;
}

static td_status add(struct td_rank *r, enum td_split split, enum td_mode mode, int64_t most,
                     int64_t least) {
    const struct td_program_key large = key_of(r, mode, most), small = key_of(r, mode, least);
    struct td_buffer zeros[TD_DATA_FIELDS];
    (void)split;
    TD_TRY(td_programs_add(r->programs, &large));
    if (least) return td_programs_add(r->programs, &small);
    return td_data_zeros(r->data, most, zeros); // so that they are counted, also by who plans
}

td_status td_rank_add_uneven(struct td_rank *r) {
    return visit(r, add);
}

// ---- what they sum ------------------------------------------------------------------------------
struct sums {
    const struct td_program *program;
    struct td_sums *list;
    td_node next;
};

static td_status never_called(void *arg, const struct td_sum *sum) {
    (void)arg, (void)sum;
    return td_fail(TD_INTERNAL, "a sum of a program that is only looked at");
}

static td_status sums_init(struct sums *s, const struct td_rank *r, enum td_mode mode, int64_t n) {
    const struct td_bindings lists = {
        .struct_bytes = sizeof lists, .collective = never_called, .collective_wait = never_called};
    for (size_t i = 0; i < td_programs_count(r->programs) && !s->program; i++) {
        const struct td_program *p = &td_programs_at(r->programs, i)->program;
        if (p->key.mode == mode && p->key.batch == n) s->program = p;
    }
    TD_CHECK(s->program);
    return td_sums_create(s->program, &lists, &s->list);
}

static const struct td_sum *next(struct sums *s) {
    while (s->next < td_graph_n_nodes(s->program->graph)) {
        const td_node n = s->next++;
        const struct td_sum *sum = td_sums_at(s->list, n);
        if (sum && sum->node == n) return sum;
    }
    return NULL;
}

static bool ranges_equal(const struct td_sum_range *a, uint32_t n_a, const struct td_sum_range *b,
                         uint32_t n_b) {
    bool equal = n_a == n_b;
    for (uint32_t i = 0; equal && i < n_a; i++) {
        equal = a[i].n == b[i].n;
    }
    return equal;
}

static enum td_segment segment_of(const struct sums *s, const struct td_sum *sum) {
    return td_graph_node(s->program->graph, sum->node)->segment;
}

static bool sums_equal(const struct sums *s, const struct td_sum *a, const struct sums *t,
                       const struct td_sum *b) {
    if (!a || !b) return a == b;
    return a->kind == b->kind && a->index == b->index && a->dtype == b->dtype && a->op == b->op &&
           a->group == b->group && segment_of(s, a) == segment_of(t, b) &&
           ranges_equal(a->in, a->n_in, b->in, b->n_in) &&
           ranges_equal(a->out, a->n_out, b->out, b->n_out);
}

// "node 5 is rank_sum of 16 f32 (forward)"
static void describe(const struct sums *s, const struct td_sum *sum, char *out, size_t bytes) {
    int64_t n = 0;
    if (!sum) {
        snprintf(out, bytes, "there is no other sum");
        return;
    }
    for (uint32_t i = 0; i < sum->n_in; i++) {
        n += sum->in[i].n;
    }
    snprintf(out, bytes, "node %u is %s of %lld %s (%s)", sum->node, td_sum_kind_name(sum->kind),
             (long long)n, td_dtype_name(sum->dtype), td_segment_name(segment_of(s, sum)));
}

static td_status compare(const struct td_rank *r, enum td_split split, struct sums *s,
                         struct sums *t) {
    const struct td_program_key *a = &s->program->key, *b = &t->program->key;
    const struct td_sum *x, *y;
    char of_x[160], of_y[160];
    do {
        x = next(s);
        y = next(t);
        if (!sums_equal(s, x, t, y)) break;
    } while (x);
    if (!x && !y) return TD_OK;
    describe(s, x, of_x, sizeof of_x);
    describe(t, y, of_y, sizeof of_y);
    return td_bad_spec(
        "model '%s' sums over ranks in step '%s' (%s), and at the last batch of split %s ranks "
        "have %lld and %lld samples, whose programs differ: of %lld %s, of %lld %s; sum values "
        "whose shape does not follow the batch, or have as many samples for each of %d ranks",
        r->config->model.name, a->step, td_mode_name(a->mode), td_split_name(split),
        (long long)a->batch, (long long)b->batch, (long long)a->batch, of_x, (long long)b->batch,
        of_y, r->share[split].n_replicas);
}

static td_status check(struct td_rank *r, enum td_split split, enum td_mode mode, int64_t most,
                       int64_t least) {
    struct sums s = {0}, t = {0};
    struct td_program_key idle;
    if (!least && td_rank_idle_key(r, mode, &idle)) least = idle.batch;
    if (most == least) return TD_OK;
    td_status bad = sums_init(&s, r, mode, most);
    if (!bad) bad = sums_init(&t, r, mode, least);
    if (!bad) bad = compare(r, split, &s, &t);
    td_sums_destroy(s.list);
    td_sums_destroy(t.list);
    return bad;
}

td_status td_rank_check_uneven(struct td_rank *r) {
    return visit(r, check);
}

// ---- a rank without samples ---------------------------------------------------------------------
bool td_rank_idle_key(const struct td_rank *r, enum td_mode mode, struct td_program_key *out_key) {
    const struct td_program_key *least = NULL;
    if (r->facts.world_size == 1 || !mode_has_sums(r, mode)) return false;
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_program_key *k = &td_programs_at(r->programs, i)->program.key;
        if (k->mode == mode && (!least || k->batch < least->batch)) least = k;
    }
    *out_key = *least;
    return true;
}
