// The one table that a level's object exports; contract in kernels.h. It collects what the files of
// this folder export, the families in the order of families.def. What is too small for a file of
// its own is here as well.

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/linear_ce.h"
#include "accelerators/cpu/kernels/matmul/matmul.h"
#include "accelerators/cpu/kernels/matmul/pack.h"
#include "accelerators/cpu/kernels/matmul/winograd.h"
#include "accelerators/cpu/kernels/reorder.h"
#include "accelerators/cpu/kernels/strips.h"

static td_kernel_family *const families[] = {
#define TD_FAMILY(name) td_kernel_##name,
#include "accelerators/cpu/kernels/families.def"
#undef TD_FAMILY
};

static void update_in_place(float *v, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        v[i] = v[i] * 0.5f + 1.0f;
    }
}

const struct td_kernel_table TD_LEVELED(td_kernels) = {
    .image_lanes = TD_LAYOUT_LANES,
    .family = families,
    .n_families = TD_COUNTOF(families),
    .activation = td_kernel_activation,
    .linear_ce_take = td_linear_ce_take,
    .linear_ce_packs = td_linear_ce_packs,
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
