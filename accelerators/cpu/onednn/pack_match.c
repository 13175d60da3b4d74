// Which of oneDNN's packed layouts are the ones that kernels/matmul/pack.c writes; contract in
// pack_match.h. A layout is recognised by its blocks, in oneDNN's own description. Whatever is not
// one of ours is packed by oneDNN's reorder.

#include "accelerators/cpu/onednn/pack_match.h"

// Columns of a block in which there are TD_PACK_PAIRS pairs of rows, 0: the layout is another.
static int64_t pairs_block_of(const struct td_md_view *layout) {
    static const dnnl_dims_t idxs = {0, 1, 0};
    bool pairs = layout->type == dnnl_bf16 && layout->inner_nblks == 3 &&
                 layout->inner_blks[0] == TD_PACK_PAIRS && layout->inner_blks[2] == 2;
    for (int i = 0; i < 3; i++) {
        pairs &= layout->inner_idxs[i] == idxs[i];
    }
    return pairs && layout->inner_blks[1] <= TD_PACK_MAX_BLOCK ? layout->inner_blks[1] : 0;
}

// Rows of a block of columns, one after another, 0: it is none of ours.
static int64_t block_of(const struct td_md_view *layout) {
    const bool half = layout->type == dnnl_bf16;
    if (layout->inner_nblks != (half ? 3 : 2) || layout->inner_idxs[0] != 1 ||
        layout->inner_idxs[1] != 0) {
        return 0;
    }
    if (layout->inner_blks[0] != (half ? TD_PACK_COLS / 2 : TD_PACK_COLS)) return 0;
    if (half && (layout->inner_blks[2] != 2 || layout->inner_idxs[2] != 1)) return 0;
    int64_t rows = layout->inner_blks[1];
    return rows % TD_PACK_STRIP || rows > TD_PACK_MAX_BLOCK ? 0 : rows;
}

struct td_pack_shape td_pack_shape_of(const struct td_md_view *plain,
                                      const struct td_md_view *layout) {
    const struct td_pack_shape none = {0};
    bool kinds = plain->blocked && layout->blocked;
    bool narrows = plain->type == dnnl_f32 && layout->type == dnnl_bf16;
    bool keeps =
        plain->type == layout->type && (plain->type == dnnl_f32 || plain->type == dnnl_bf16);
    if (!kinds || !(narrows || keeps) || plain->ndims != 2 || layout->ndims != 2) return none;
    int64_t rows = plain->dims[0], cols = plain->dims[1];
    const int64_t pairs = pairs_block_of(layout), block = pairs ? pairs : block_of(layout);
    bool rows_of_plain =
        plain->inner_nblks == 0 && plain->strides[1] == 1 && plain->strides[0] == cols;
    if (!block || (!pairs && cols % TD_PACK_COLS) || !rows_of_plain) return none;
    const bool half = layout->type == dnnl_bf16;
    return (struct td_pack_shape){.rows = rows,
                                  .cols = cols,
                                  .pairs_rows = pairs,
                                  .block = block,
                                  .row_block = layout->strides[0] / (half ? 2 : 1),
                                  .col_block = layout->strides[1] / (half ? 2 : 1),
                                  .from_half = plain->type == dnnl_bf16,
                                  .to_half = half};
}
