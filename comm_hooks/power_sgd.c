// Comm hook power_sgd: a matrix of gradients travels as two thin factors, M ~ P Q.
//
// A tensor is the matrix of its first dimension by all others. One that would not shrink by
// min_compression_rate travels whole, with the others of its bucket in one piece. For the rest:
//
//   M = gradient + error of the step before    (use_error_feedback)
//   P = M Q', mean over ranks, orthogonalized  Q: of the step before (warm_start), else random
//   Q = M' P, mean over ranks
//   gradient = P Q, error = M - P Q
//
// Ranks begin with the same random Q, keyed by seed and tensor, and get the same P and Q, so all
// have the same bits. Until step start_powerSGD_iter buckets travel whole, because early gradients
// compress badly. State, Q and the errors, is kept twice: a step writes the other half, and the
// next one takes that over, unless the step was skipped.
// With `16-mixed` gradients and errors are scaled by the loss scale; when that changes, one error
// is off by the factor, as in torch. fp64 is refused: factors are fp32. Source: Vogels,
// Karimireddy, Jaggi 2019, "PowerSGD"; knobs and defaults of torch's PowerSGDState.

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "comm_hooks/comm_hooks.h"
#include "comm_hooks/low_rank_loops.h"
#include "lib/base/base.h"
#include "lib/base/floats/floats.h"
#include "lib/base/rng.h"
#include "traind/comm_hook.h"

// A tensor that travels as factors. Places are elements of the bucket's arrays.
struct matrix {
    const char *name;
    int64_t at, rows, cols, rank;
    size_t p_at, q_at;
};

struct part {
    struct matrix *matrix; // (n_matrices)
    size_t n_matrices;
    int64_t n;       // elements of the bucket
    size_t n_p, n_q; // floats of all factors
    size_t n_whole;  // elements of tensors that travel whole
    float *q[2];     // (n_q)
    float *error[2]; // (n)
    bool reduced;    // in a step that nobody took back so far
    bool changed;    // by it: the other half is newer
    int now;         // which half counts
    int64_t steps;   // that were taken
};

struct td_comm_hook {
    struct td_comm_hook_config config;
    int64_t rank, start, seed; // knobs
    double least_rate, epsilon;
    bool feeds_back, warm;
    struct part *part; // (n_parts), by index of the bucket
    size_t n_parts;
    float *wide;      // a bucket of 16-bit elements in fp32
    float *p, *whole; // scratch, of the largest bucket
    char *kept;       // what state_save gave last
    uint64_t sent_bytes;
};

// ---- knobs and state -------------------------------------------------------------------------
enum { FORMAT = 1 };

// Before the parts, and of each of them before its factors and errors.
struct head {
    uint32_t format, n_parts;
    int64_t rank;
    uint64_t feeds_back, warm;
};
struct part_head {
    int64_t steps, n, n_q;
};

static td_status read_knobs(struct td_comm_hook *h, const struct td_json *k) {
    TD_TRY(td_knob_int(k, "matrix_approximation_rank", &h->rank));
    TD_TRY(td_knob_int(k, "start_powerSGD_iter", &h->start));
    TD_TRY(td_knob_real(k, "min_compression_rate", &h->least_rate));
    TD_TRY(td_knob_bool(k, "use_error_feedback", &h->feeds_back));
    TD_TRY(td_knob_bool(k, "warm_start", &h->warm));
    TD_TRY(td_knob_real(k, "orthogonalization_epsilon", &h->epsilon));
    TD_TRY(td_knob_int(k, "random_seed", &h->seed));
    if ((h->feeds_back || h->warm) && h->start < 2) {
        return td_bad_spec("comm_hook.start_powerSGD_iter is %" PRId64 ", but has to be at least 2 "
                           "with use_error_feedback or warm_start",
                           h->start);
    }
    return TD_OK;
}

static void power_close(struct td_comm_hook *h) {
    if (!h) return;
    for (size_t i = 0; i < h->n_parts; i++) {
        struct part *p = &h->part[i];
        for (int half = 0; half < 2; half++) {
            free(p->q[half]);
            free(p->error[half]);
        }
        free(p->matrix);
    }
    free(h->part);
    free(h->wide);
    free(h->p);
    free(h->whole);
    free(h->kept);
    free(h);
}

static td_status power_open(const struct td_comm_hook_config *config,
                            struct td_comm_hook **out_hook) {
    struct td_comm_hook *h = td_calloc(1, sizeof *h);
    if (!h) return td_fail_oom();
    h->config = *config;
    td_status s = read_knobs(h, config->knobs);
    if (s) {
        power_close(h);
        return s;
    }
    *out_hook = h;
    return TD_OK;
}

// ---- buckets ------------------------------------------------------------------------------------
// True: the tensor shrinks enough; out has all but its name and places.
static bool shrinks(const struct td_comm_hook *h, const struct td_shape *shape,
                    struct matrix *out) {
    const int64_t elems = td_shape_elems(shape);
    if (shape->n_dims < 2 || !elems) return false;
    out->rows = shape->dim[0];
    out->cols = elems / out->rows;
    out->rank = TD_MIN(h->rank, TD_MIN(out->rows, out->cols));
    const double sent = (double)(out->rows + out->cols) * (double)out->rank;
    return sent * h->least_rate < (double)elems;
}

static td_status check_dtype(const struct td_bucket *b) {
    if (td_is_float(b->dtype) && b->dtype != TD_F64) return TD_OK;
    return td_bad_spec("comm_hook power_sgd computes in fp32, and gradients of this precision are "
                       "%s; use another precision, or comm_hook: none",
                       td_dtype_name(b->dtype));
}

// Counts what a bucket needs; p->matrix NULL: it lists nothing.
static void list_matrices(const struct td_comm_hook *h, const struct td_bucket *b, struct part *p) {
    const size_t elem = td_dtype_bytes(b->dtype);
    p->n = b->n;
    p->n_matrices = p->n_p = p->n_q = p->n_whole = 0;
    for (size_t i = 0; i < b->n_tensors; i++) {
        const struct td_bucket_tensor *t = &b->tensors[i];
        struct matrix m = {.name = t->name, .at = (int64_t)(t->offset / elem)};
        if (!shrinks(h, &t->shape, &m)) {
            p->n_whole += (size_t)td_shape_elems(&t->shape);
            continue;
        }
        m.p_at = p->n_p;
        m.q_at = p->n_q;
        p->n_p += (size_t)(m.rows * m.rank);
        p->n_q += (size_t)(m.cols * m.rank);
        if (p->matrix) p->matrix[p->n_matrices] = m;
        p->n_matrices++;
    }
}

// Floats of scratch, for the largest bucket.
struct scratch {
    size_t wide, p, whole;
};

static td_status measure(const struct td_comm_hook *h, const struct td_bucket *buckets, size_t n,
                         struct scratch *out, size_t *out_state) {
    *out = (struct scratch){0};
    *out_state = 0;
    for (size_t i = 0; i < n; i++) {
        struct part p = {0};
        TD_TRY(check_dtype(&buckets[i]));
        list_matrices(h, &buckets[i], &p);
        if (buckets[i].dtype != TD_F32) out->wide = TD_MAX(out->wide, (size_t)p.n);
        out->p = TD_MAX(out->p, p.n_p);
        out->whole = TD_MAX(out->whole, p.n_whole);
        *out_state += 2 * (p.n_q + (h->feeds_back ? (size_t)p.n : 0));
    }
    return TD_OK;
}

static td_status power_memory(struct td_comm_hook *h, const struct td_bucket *buckets, size_t n,
                              size_t *out_bytes, size_t *out_state_bytes) {
    struct scratch s;
    size_t state;
    TD_TRY(measure(h, buckets, n, &s, &state));
    *out_state_bytes =
        sizeof(struct head) + n * sizeof(struct part_head) + state / 2 * sizeof(float);
    *out_bytes = (s.wide + s.p + s.whole + state) * sizeof(float) + *out_state_bytes;
    return TD_OK;
}

static float *make_floats(size_t n) {
    return td_calloc(n + 1, sizeof(float));
}

// Unit length, each at right angles to those before it. One that is nothing but what others have
// becomes 0. How many did.
static int64_t orthogonalize(float *f, int64_t rank, int64_t n, double epsilon) {
    int64_t n_zero = 0;
    for (int64_t k = 0; k < rank; k++) {
        float *v = f + k * n;
        double before = 0, norm = 0;
        for (int64_t i = 0; i < n; i++) {
            before += (double)v[i] * (double)v[i];
        }
        for (int64_t j = 0; j < k; j++) {
            const float *u = f + j * n;
            double along = 0;
            for (int64_t i = 0; i < n; i++) {
                along += (double)u[i] * (double)v[i];
            }
            for (int64_t i = 0; i < n; i++) {
                v[i] = (float)((double)v[i] - along * (double)u[i]);
            }
        }
        for (int64_t i = 0; i < n; i++) {
            norm += (double)v[i] * (double)v[i];
        }
        const bool is_nothing = norm <= before * 1e-12; // what fp32 leaves of a difference
        const double length = sqrt(norm) + epsilon;
        n_zero += is_nothing;
        for (int64_t i = 0; i < n; i++) {
            v[i] = is_nothing ? 0 : (float)((double)v[i] / length);
        }
    }
    return n_zero;
}

// Column k of a matrix's first factors; `step`: another one gives others.
static void fill_column(const struct td_comm_hook *h, const struct matrix *m, int64_t step,
                        int64_t k, float *column) {
    const struct td_philox_key key = td_philox_key_of((uint64_t)h->seed, m->name);
    const uint64_t first = ((uint64_t)step * (uint64_t)m->rank + (uint64_t)k) * (uint64_t)m->cols;
    td_philox_uniforms(key, first, (size_t)m->cols, column);
    for (int64_t j = 0; j < m->cols; j++) {
        column[j] -= 0.5f;
    }
}

// A column of Q that is 0 would stay it: a matrix of zeros, or of a lower rank, leaves such ones.
// Like all of Q they are the same on every rank.
static void orthogonalize_q(const struct td_comm_hook *h, const struct matrix *m, int64_t step,
                            float *q) {
    if (!orthogonalize(q, m->rank, m->cols, h->epsilon)) return;
    for (int64_t k = 0; k < m->rank; k++) {
        bool is_zero = true;
        for (int64_t j = 0; j < m->cols; j++) {
            is_zero = is_zero && q[k * m->cols + j] == 0;
        }
        if (is_zero) fill_column(h, m, step + 1, k, q + k * m->cols);
    }
    (void)orthogonalize(q, m->rank, m->cols, h->epsilon);
}

static void begin_factors(const struct td_comm_hook *h, struct part *p, float *q) {
    for (size_t i = 0; i < p->n_matrices; i++) {
        const struct matrix *m = &p->matrix[i];
        for (int64_t k = 0; k < m->rank; k++) {
            fill_column(h, m, h->warm ? 0 : p->steps, k, q + m->q_at + k * m->cols);
        }
    }
}

static td_status place_part(struct td_comm_hook *h, const struct td_bucket *b, struct part *p) {
    p->matrix = td_calloc(b->n_tensors + 1, sizeof *p->matrix);
    if (!p->matrix) return td_fail_oom();
    list_matrices(h, b, p);
    for (int half = 0; half < 2; half++) {
        p->q[half] = make_floats(p->n_q);
        p->error[half] = h->feeds_back ? make_floats((size_t)p->n) : NULL;
        if (!p->q[half] || (h->feeds_back && !p->error[half])) return td_fail_oom();
    }
    begin_factors(h, p, p->q[0]);
    return TD_OK;
}

static td_status power_place(struct td_comm_hook *h, const struct td_bucket *buckets, size_t n) {
    struct scratch s;
    size_t state;
    TD_TRY(measure(h, buckets, n, &s, &state));
    h->part = td_calloc(n + 1, sizeof *h->part);
    h->wide = make_floats(s.wide);
    h->p = make_floats(s.p);
    h->whole = make_floats(s.whole);
    if (!h->part || !h->wide || !h->p || !h->whole) return td_fail_oom();
    h->n_parts = n;
    for (size_t i = 0; i < n; i++) {
        TD_TRY(place_part(h, &buckets[i], &h->part[i]));
    }
    return TD_OK;
}

// ---- the step -----------------------------------------------------------------------------------
// The step that reduced it last is known to be taken.
static void take_over(struct part *p) {
    p->steps += p->reduced;
    p->now ^= p->changed;
    p->reduced = p->changed = false;
}

static void power_end_step(struct td_comm_hook *h, bool taken) {
    for (size_t i = 0; i < h->n_parts; i++) {
        struct part *p = &h->part[i];
        if (taken) take_over(p);
        p->reduced = p->changed = false;
    }
}

static td_status mean(struct td_comm_hook *h, void *data, size_t n, enum td_dtype dtype) {
    const struct td_comm_hook_config *c = &h->config;
    h->sent_bytes += n * td_dtype_bytes(dtype);
    return n ? c->collective_ops->all_reduce(c->collective, data, (int64_t)n, dtype, TD_REDUCE_MEAN)
             : TD_OK;
}

// Tensors that travel whole, into one piece or back.
static void move_whole(const struct td_bucket *b, const struct part *p, float *bucket, float *piece,
                       bool back) {
    const size_t elem = td_dtype_bytes(b->dtype);
    size_t next = 0; // matrices are in the order of the tensors
    for (size_t i = 0; i < b->n_tensors; i++) {
        const struct td_bucket_tensor *t = &b->tensors[i];
        if (next < p->n_matrices && p->matrix[next].name == t->name) {
            next++;
            continue;
        }
        const size_t n = (size_t)td_shape_elems(&t->shape);
        float *at = bucket + t->offset / elem;
        memcpy(back ? at : piece, back ? piece : at, n * sizeof *at);
        piece += n;
    }
}

static td_status reduce_factors(struct td_comm_hook *h, struct part *p, float *bucket) {
    const struct td_low_rank_loops *loops = TD_LEVELED_TABLE(td_low_rank_loops);
    float *q = p->q[!p->now], *error = h->feeds_back ? p->error[!p->now] : NULL;
    if (h->warm) {
        memcpy(q, p->q[p->now], p->n_q * sizeof *q);
    } else {
        begin_factors(h, p, q);
    }
    for (size_t i = 0; i < p->n_matrices; i++) {
        const struct matrix *m = &p->matrix[i];
        if (error) loops->add(bucket + m->at, p->error[p->now] + m->at, m->rows * m->cols);
        orthogonalize_q(h, m, p->steps, q + m->q_at);
        loops->left(bucket + m->at, m->rows, m->cols, q + m->q_at, m->rank, h->p + m->p_at);
    }
    TD_TRY(mean(h, h->p, p->n_p, TD_F32));
    for (size_t i = 0; i < p->n_matrices; i++) {
        const struct matrix *m = &p->matrix[i];
        (void)orthogonalize(h->p + m->p_at, m->rank, m->rows, h->epsilon);
        loops->right(bucket + m->at, m->rows, m->cols, h->p + m->p_at, m->rank, q + m->q_at);
    }
    TD_TRY(mean(h, q, p->n_q, TD_F32));
    for (size_t i = 0; i < p->n_matrices; i++) {
        const struct matrix *m = &p->matrix[i];
        loops->expand(bucket + m->at, m->rows, m->cols, h->p + m->p_at, q + m->q_at, m->rank,
                      error ? error + m->at : NULL);
    }
    p->changed = true;
    return TD_OK;
}

static td_status power_reduce(struct td_comm_hook *h, const struct td_bucket *b) {
    void *data = td_bucket_host(b);
    struct part *p = &h->part[b->index];
    take_over(p); // of the step before
    p->reduced = true;
    if (p->steps < h->start || !p->n_matrices) return mean(h, data, (size_t)b->n, b->dtype);
    float *bucket = b->dtype == TD_F32 ? data : h->wide;
    if (b->dtype != TD_F32) td_float_convert(b->dtype, data, b->n, TD_F32, bucket);
    move_whole(b, p, bucket, h->whole, false);
    TD_TRY(mean(h, h->whole, p->n_whole, TD_F32));
    move_whole(b, p, bucket, h->whole, true);
    TD_TRY(reduce_factors(h, p, bucket));
    if (b->dtype != TD_F32) td_float_convert(TD_F32, bucket, b->n, b->dtype, data);
    return TD_OK;
}

static uint64_t power_sent_bytes(const struct td_comm_hook *h) {
    return h->sent_bytes;
}

// ---- checkpoints --------------------------------------------------------------------------------
static struct head head_of(const struct td_comm_hook *h) {
    return (struct head){FORMAT, (uint32_t)h->n_parts, h->rank, h->feeds_back, h->warm};
}

static size_t kept_floats(const struct td_comm_hook *h, const struct part *p) {
    return p->n_q + (h->feeds_back ? (size_t)p->n : 0);
}

static size_t kept_bytes(const struct td_comm_hook *h) {
    size_t bytes = sizeof(struct head) + h->n_parts * sizeof(struct part_head);
    for (size_t i = 0; i < h->n_parts; i++) {
        bytes += kept_floats(h, &h->part[i]) * sizeof(float);
    }
    return bytes;
}

static td_status make_kept(struct td_comm_hook *h) {
    if (!h->kept) h->kept = malloc(kept_bytes(h));
    return h->kept ? TD_OK : td_fail_oom();
}

// Between the arrays that count and `at`; returns where the next part is.
static char *move_arrays(struct td_comm_hook *h, struct part *p, char *at, bool load) {
    float *arrays[] = {p->q[p->now], h->feeds_back ? p->error[p->now] : NULL};
    const size_t floats[] = {p->n_q, (size_t)p->n};
    for (int j = 0; j < 2 && arrays[j]; j++) {
        const size_t bytes = floats[j] * sizeof(float);
        memcpy(load ? (char *)arrays[j] : at, load ? at : (char *)arrays[j], bytes);
        at += bytes;
    }
    return at;
}

static td_status power_state_save(struct td_comm_hook *h, struct td_span *out_state) {
    const struct head head = head_of(h);
    TD_TRY(make_kept(h));
    memcpy(h->kept, &head, sizeof head);
    char *at = h->kept + sizeof head;
    for (size_t i = 0; i < h->n_parts; i++) {
        struct part *p = &h->part[i];
        take_over(p);
        const struct part_head of_part = {p->steps, p->n, (int64_t)p->n_q};
        memcpy(at, &of_part, sizeof of_part);
        at = move_arrays(h, p, at + sizeof of_part, false);
    }
    *out_state = (struct td_span){h->kept, kept_bytes(h)};
    return TD_OK;
}

static td_status refuse_state(const struct td_comm_hook *h, const struct head *was) {
    if (was->rank != h->rank || was->feeds_back != h->feeds_back || was->warm != h->warm) {
        return td_bad_spec("the checkpoint has power_sgd of rank %" PRId64 "%s%s, this job of rank "
                           "%" PRId64 "%s%s; give comm_hook the knobs of the job that saved it, or "
                           "begin from its weights with init_from",
                           was->rank, was->feeds_back ? ", use_error_feedback" : "",
                           was->warm ? ", warm_start" : "", h->rank,
                           h->feeds_back ? ", use_error_feedback" : "",
                           h->warm ? ", warm_start" : "");
    }
    return td_bad_spec(
        "the checkpoint has power_sgd of other gradients: the model or the precision "
        "is another; begin from its weights with init_from");
}

// A part of the state, if it is one of this job's; NULL: it is not.
static char *load_part(struct td_comm_hook *h, struct part *p, char *at) {
    struct part_head of_part;
    memcpy(&of_part, at, sizeof of_part);
    if (of_part.n != p->n || of_part.n_q != (int64_t)p->n_q) return NULL;
    p->steps = of_part.steps;
    return move_arrays(h, p, at + sizeof of_part, true);
}

static td_status power_state_load(struct td_comm_hook *h, const void *data, size_t bytes) {
    struct head was;
    const struct head is = head_of(h);
    if (bytes < sizeof was) {
        return td_fail(TD_DATA_LOSS, "power_sgd kept %zu bytes, which is not even a head", bytes);
    }
    memcpy(&was, data, sizeof was);
    if (bytes != kept_bytes(h) || memcmp(&was, &is, sizeof is) != 0) return refuse_state(h, &was);
    TD_TRY(make_kept(h));
    memcpy(h->kept, data, bytes);
    char *at = h->kept + sizeof was;
    for (size_t i = 0; i < h->n_parts && at; i++) {
        at = load_part(h, &h->part[i], at);
    }
    return at ? TD_OK : refuse_state(h, &was);
}

static const struct td_comm_hook_ops power_ops = {
    .struct_bytes = sizeof power_ops,
    .open = power_open,
    .close = power_close,
    .memory = power_memory,
    .place = power_place,
    .reduce = power_reduce,
    .end_step = power_end_step,
    .sent_bytes = power_sent_bytes,
    .state_save = power_state_save,
    .state_load = power_state_load,
};

const struct td_plugin_desc td_comm_hook_power_sgd = TD_PLUGIN_DESC(
    COMM_HOOK, "power_sgd", "matrices of gradients travel as two thin factors", &power_ops);
