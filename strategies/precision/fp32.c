// Precision 32-true: everything is fp32, programs stay as they were recorded. The yardstick of the
// mixed precisions, and the default.

#include "strategies/precision/fp32.h"

#include "lib/base/base.h"
#include "traind/precision.h"

static td_status fp32_open(struct td_precision **out_precision) {
    *out_precision = NULL; // nothing to keep
    return TD_OK;
}

static void fp32_close(struct td_precision *p) {
    (void)p;
}

static td_status fp32_facts(struct td_precision *p, struct td_precision_facts *out_facts) {
    (void)p;
    *out_facts = (struct td_precision_facts){
        .struct_bytes = sizeof *out_facts,
        .param = TD_F32,
        .compute = TD_F32,
        .gradient = TD_F32,
        .reduce = TD_F32,
        .master = TD_F32,
    };
    return TD_OK;
}

static const struct td_precision_ops fp32_ops = {
    .struct_bytes = sizeof fp32_ops,
    .open = fp32_open,
    .close = fp32_close,
    .facts = fp32_facts,
};

const struct td_plugin_desc td_precision_fp32 = {
    .struct_bytes = sizeof td_precision_fp32,
    .abi_major = TD_ABI_MAJOR,
    .abi_minor = TD_ABI_MINOR,
    .kind = TD_PLUGIN_PRECISION,
    .name = "fp32",
    .summary = "weights, gradients and arithmetic in fp32",
    .ops = &fp32_ops,
};
