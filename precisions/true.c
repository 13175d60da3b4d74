// Precisions 32-true, 64-true, bf16-true and 16-true: weights, gradients, optimizer state and
// values all have one type, as after torch's module.to(type). Arithmetic inside an op is fp32 for
// the 16-bit types, and what is reduced to a scalar stays fp32. 32-true leaves programs as they
// were recorded: it is the yardstick, and the default. No loss is scaled: as in Lightning, 16-true
// is for models that tolerate it. State: none.
//
// One exception: the optimizer's own tensors are fp32 under 16-true. A second moment is a square,
// and fp16 ends at 6e-8, so that with Adam every gradient below 0.008 would leave a zero there. The
// update then divides by what is left of the newest square alone, or by eps, and training blows up
// within some steps. An eps that hides it, 1e-4, is larger than most denominators. What torch's
// module.to(float16) does there is of no use to anybody; 4 bytes more a moment and element are.

#include "lib/base/base.h"
#include "precisions/lower.h"
#include "precisions/precisions.h"

static td_status true_open(const struct td_precision_config *config,
                           struct td_precision **out_precision) {
    (void)config;
    *out_precision = NULL; // nothing to keep
    return TD_OK;
}

static void true_close(struct td_precision *p) {
    (void)p;
}

static td_status fill_facts(enum td_dtype t, struct td_precision_facts *out_facts) {
    *out_facts = (struct td_precision_facts){
        .struct_bytes = sizeof *out_facts,
        .param = t,
        .compute = t,
        .moments = t == TD_F16 ? TD_F32 : t,
    };
    return TD_OK;
}

static td_status fp32_facts(struct td_precision *p, struct td_precision_facts *out_facts) {
    (void)p;
    return fill_facts(TD_F32, out_facts);
}

static const struct td_precision_ops fp32_ops = {
    .struct_bytes = sizeof fp32_ops,
    .open = true_open,
    .close = true_close,
    .facts = fp32_facts,
};

#define TRUE_PRECISION(ID, TYPE)                                                                   \
    static td_status ID##_facts(struct td_precision *p, struct td_precision_facts *out_facts) {    \
        (void)p;                                                                                   \
        return fill_facts(TYPE, out_facts);                                                        \
    }                                                                                              \
    static td_status ID##_rewrite(struct td_precision *p, struct td_graph *g,                      \
                                  const struct td_program_key *key) {                              \
        static const struct td_lowering how = {.param = TYPE, .compute = TYPE, .gradient = TYPE};  \
        (void)p, (void)key;                                                                        \
        return td_precision_lower(g, &how);                                                        \
    }                                                                                              \
    static const struct td_precision_ops ID##_ops = {                                              \
        .struct_bytes = sizeof ID##_ops,                                                           \
        .open = true_open,                                                                         \
        .close = true_close,                                                                       \
        .facts = ID##_facts,                                                                       \
        .rewrite = ID##_rewrite,                                                                   \
    };
TRUE_PRECISION(fp64, TD_F64)
TRUE_PRECISION(bf16, TD_BF16)
TRUE_PRECISION(fp16, TD_F16)

const struct td_plugin_desc td_precision_fp32 =
    TD_PLUGIN_DESC(PRECISION, "fp32", "weights, gradients and values in fp32", &fp32_ops);
const struct td_plugin_desc td_precision_fp64 =
    TD_PLUGIN_DESC(PRECISION, "fp64", "weights, gradients and values in fp64", &fp64_ops);
const struct td_plugin_desc td_precision_bf16_true =
    TD_PLUGIN_DESC(PRECISION, "bf16_true", "weights, gradients and values in bf16", &bf16_ops);
const struct td_plugin_desc td_precision_fp16_true =
    TD_PLUGIN_DESC(PRECISION, "fp16_true", "weights, gradients and values in fp16", &fp16_ops);
