// Precisions bf16-mixed and 16-mixed: weights, gradients and optimizer state stay fp32, products
// and what is between them are of 16 bits.
//
// 16-mixed scales the loss so that small gradients do not vanish. The rules and numbers are those
// of torch's GradScaler. The scale begins at 65536, doubles after 2000 steps without an overflow,
// halves at each overflow, and the step that overflowed is skipped. All factors are powers of two,
// so scaling and unscaling lose nothing. A scale that has fallen below 2^-24 without ever finding
// finite gradients means that the model itself overflows: the run ends instead of skipping forever.

#include "lib/base/base.h"
#include "precisions/lower.h"
#include "precisions/precisions.h"

enum { GROWTH_INTERVAL = 2000 };
static const double first_scale = 65536, most_scale = 0x1p100, least_scale = 0x1p-24;

struct td_precision {
    struct td_precision_state scaler; // of fp16 alone
};

static td_status mixed_open(const struct td_precision_config *config,
                            struct td_precision **out_precision) {
    (void)config;
    struct td_precision *p = td_calloc(1, sizeof *p);
    if (!p) return td_fail_oom();
    p->scaler.loss_scale = first_scale;
    *out_precision = p;
    return TD_OK;
}

static void mixed_close(struct td_precision *p) {
    free(p);
}

static td_status fill_facts(enum td_dtype compute, struct td_precision_facts *out_facts) {
    *out_facts = (struct td_precision_facts){
        .struct_bytes = sizeof *out_facts,
        .param = TD_F32,
        .compute = compute,
        .moments = TD_F32,
        .scales_loss = compute == TD_F16,
    };
    return TD_OK;
}

// ---- the loss scale -----------------------------------------------------------------------------
static td_status scaler_pre_backward(struct td_precision *p, double *scalars) {
    scalars[TD_SCALAR_LOSS_SCALE] = p->scaler.loss_scale;
    return TD_OK;
}

static td_status scaler_step_gate(struct td_precision *p, bool finite, bool *out_steps) {
    struct td_precision_state *s = &p->scaler;
    if (finite) {
        bool grows = ++s->clean_steps >= GROWTH_INTERVAL;
        if (grows) s->loss_scale = TD_MIN(2 * s->loss_scale, most_scale);
        if (grows) s->clean_steps = 0;
        *out_steps = true;
        return TD_OK;
    }
    s->loss_scale /= 2;
    s->clean_steps = 0;
    s->skipped_steps++;
    if (s->loss_scale < least_scale) {
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION,
                    "gradients are not finite however small the loss scale (now %g, %lld steps "
                    "skipped): the model overflows fp16; use `precision: bf16-mixed` or a lower "
                    "learning rate",
                    s->loss_scale, (long long)s->skipped_steps),
            TD_CLASS_NUMERIC);
    }
    *out_steps = false;
    return TD_OK;
}

static td_status scaler_state_save(struct td_precision *p, struct td_precision_state *out_state) {
    *out_state = p->scaler;
    return TD_OK;
}

static td_status scaler_state_load(struct td_precision *p, const struct td_precision_state *state) {
    if (state->loss_scale > 0) p->scaler = *state; // else it comes from another precision
    return TD_OK;
}

// ---- the plugins --------------------------------------------------------------------------------
static td_status bf16_facts(struct td_precision *p, struct td_precision_facts *out_facts) {
    (void)p;
    return fill_facts(TD_BF16, out_facts);
}

static td_status bf16_rewrite(struct td_precision *p, struct td_graph *g,
                              const struct td_program_key *key) {
    static const struct td_lowering how = {
        .param = TD_F32, .compute = TD_BF16, .gradient = TD_F32, .mixed = true};
    (void)p, (void)key;
    return td_precision_lower(g, &how);
}

static td_status fp16_facts(struct td_precision *p, struct td_precision_facts *out_facts) {
    (void)p;
    return fill_facts(TD_F16, out_facts);
}

static td_status fp16_rewrite(struct td_precision *p, struct td_graph *g,
                              const struct td_program_key *key) {
    static const struct td_lowering how = {
        .param = TD_F32, .compute = TD_F16, .gradient = TD_F32, .mixed = true, .wide_loss = true};
    (void)p, (void)key;
    return td_precision_lower(g, &how);
}

static const struct td_precision_ops bf16_ops = {
    .struct_bytes = sizeof bf16_ops,
    .open = mixed_open,
    .close = mixed_close,
    .facts = bf16_facts,
    .rewrite = bf16_rewrite,
};

static const struct td_precision_ops fp16_ops = {
    .struct_bytes = sizeof fp16_ops,
    .open = mixed_open,
    .close = mixed_close,
    .facts = fp16_facts,
    .rewrite = fp16_rewrite,
    .pre_backward = scaler_pre_backward,
    .step_gate = scaler_step_gate,
    .state_save = scaler_state_save,
    .state_load = scaler_state_load,
};

const struct td_plugin_desc td_precision_bf16_mixed =
    TD_PLUGIN_DESC(PRECISION, "bf16_mixed", "fp32 weights, products in bf16", &bf16_ops);

const struct td_plugin_desc td_precision_fp16_mixed = TD_PLUGIN_DESC(
    PRECISION, "fp16_mixed", "fp32 weights, products in fp16, scaled loss", &fp16_ops);
