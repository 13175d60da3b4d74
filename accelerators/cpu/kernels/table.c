// The one table that a level's object exports; contract in kernels.h. It lists the families in the
// order in which they are asked for a node; no two take the same one, so the order only matters for
// how soon the answer comes. What is too small for a file of its own is here as well.

#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/matmul.h"
#include "accelerators/cpu/kernels/pack.h"
#include "accelerators/cpu/kernels/strips.h"
#include "accelerators/cpu/kernels/winograd.h"

static td_kernel_family *const families[] = {
    td_kernel_elementwise, td_kernel_activation, td_kernel_channel,   td_kernel_reduce,
    td_kernel_optim,       td_kernel_norm,       td_kernel_attention, td_kernel_embedding,
    td_kernel_softmax,     td_kernel_dropout,    td_kernel_pool,      td_kernel_batch_norm,
    td_kernel_adafactor,   td_kernel_muon,       td_kernel_loss,      td_kernel_pair,
    td_kernel_rope};

static void update_in_place(float *v, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
        v[i] = v[i] * 0.5f + 1.0f;
}

const struct td_kernel_table TD_LEVELED(td_kernels) = {
    .image_lanes = TD_LAYOUT_LANES,
    .family = families,
    .n_families = TD_COUNTOF(families),
    .activation = td_kernel_activation,
    .head_take = td_head_take,
    .head_packs = td_head_packs,
    .pack_rows = td_pack_rows,
    .matmul_panels = td_matmul_panels,
    .matmul_panel_bytes = td_matmul_panel_bytes,
    .matmul_scratch_bytes = td_matmul_scratch_bytes,
    .matmul_run = td_matmul_run,
    .winograd_scratch_bytes = td_winograd_scratch_bytes,
    .winograd_run = td_winograd_run,
    .reorder = td_reorder_run,
    .convert = td_cpu_convert,
    .update_in_place = update_in_place,
};
