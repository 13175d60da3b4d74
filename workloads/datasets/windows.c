// Windows of tokens; see windows.h. Tokens are stored in 1, 2, 4 or 8 bytes and become i32 when
// they are gathered. The check of all ids runs once, when a file is opened. It is a plain maximum
// over blocks, which the compiler vectorizes, then a search in the block that has a bad one.

#include "workloads/datasets/windows.h"

#include <inttypes.h>
#include <string.h>

#include "traind/knobs.h"
#include "workloads/datasets/scan_loops.h"

#define MAX_BLOCK (INT64_C(1) << 20)
enum { PIECE = 1 << 14 };

void td_windows_init(struct td_windows *w, int64_t block, int64_t stride) {
    w->block = block;
    w->stride = stride;
    w->n = 0;
    w->n_runs = 0;
}

td_status td_windows_add(struct td_windows *w, const void *data, int64_t n_tokens, int width) {
    if (w->n_runs == TD_WINDOWS_RUNS) {
        return td_status_with_class(td_fail(TD_RESOURCE_EXHAUSTED,
                                            "more than %d files of tokens; join some",
                                            TD_WINDOWS_RUNS),
                                    TD_CLASS_BAD_SPEC);
    }
    w->run[w->n_runs++] = (struct td_token_run){data, n_tokens, w->n, width};
    if (n_tokens > w->block) w->n += (n_tokens - 1 - w->block) / w->stride + 1;
    return TD_OK;
}

int64_t td_token_at(const void *data, int64_t i, int width) {
    const uint8_t *p = (const uint8_t *)data + i * width;
    uint64_t v = 0;
    for (int b = width - 1; b >= 0; b--) {
        v = v << 8 | p[b];
    }
    return (int64_t)v;
}

// ---- checking -----------------------------------------------------------------------------------
int64_t td_tokens_find_bad(const void *data, int64_t n_tokens, int width, int64_t vocab_size) {
    if (width < 8 && vocab_size >> (8 * width)) return -1; // no id of that width is too large
    const uint64_t size = (uint64_t)vocab_size;            // of 8 bytes one below 0 is a large one
    const struct td_scan_loops *loops = TD_LEVELED_TABLE(td_scan_loops);
    for (int64_t begin = 0; begin < n_tokens; begin += PIECE) {
        const int64_t n = TD_MIN(n_tokens - begin, PIECE);
        const uint8_t *piece = (const uint8_t *)data + begin * width;
        if (width == 2 && loops->most_u16(piece, n) < size) continue;
        if (width == 4 && loops->most_u32(piece, n) < size) continue;
        if (width == 8 && loops->most_u64(piece, n) < size) continue;
        for (int64_t i = 0; i < n; i++) {
            if ((uint64_t)td_token_at(piece, i, width) >= size) return begin + i;
        }
    }
    return -1;
}

// ---- handing out --------------------------------------------------------------------------------
static void copy_tokens(const struct td_token_run *r, int64_t begin, int64_t n, int32_t *out) {
    const uint8_t *p = (const uint8_t *)r->data + begin * r->width;
    if (r->width == 1) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = p[i];
        }
    } else if (r->width == 2) {
        for (int64_t i = 0; i < n; i++) {
            uint16_t v;
            memcpy(&v, p + 2 * i, sizeof v);
            out[i] = v;
        }
    } else if (r->width == 4) {
        memcpy(out, p, (size_t)n * sizeof *out);
    } else {
        for (int64_t i = 0; i < n; i++) {
            memcpy(&out[i], p + 8 * i, sizeof *out); // the lower half: all are below 2^31
        }
    }
}

// The run that holds window `index`: the last one that begins at or before it.
static const struct td_token_run *run_of(const struct td_windows *w, int64_t index) {
    size_t low = 0, high = w->n_runs;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (w->run[middle].first <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &w->run[low];
}

td_status td_windows_gather(const struct td_windows *w, enum td_split split, const int64_t *index,
                            int64_t n, int32_t *x, int32_t *y) {
    for (int64_t i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= w->n) {
            return td_fail(TD_OUT_OF_RANGE, "sample %" PRId64 " of %" PRId64 " in split %s",
                           index[i], w->n, td_split_name(split));
        }
        const struct td_token_run *r = run_of(w, index[i]);
        const int64_t begin = (index[i] - r->first) * w->stride;
        copy_tokens(r, begin, w->block, x + i * w->block);
        copy_tokens(r, begin + 1, w->block, y + i * w->block);
    }
    return TD_OK;
}

size_t td_windows_fields(const struct td_windows *w, int64_t vocab_size,
                         struct td_field out_fields[8]) {
    for (int i = 0; i < 2; i++) {
        out_fields[i] = (struct td_field){.name = {(char)('x' + i)},
                                          .dtype = TD_I32,
                                          .sample_shape = {.n_dims = 1, .dim = {w->block}},
                                          .n_classes = vocab_size};
    }
    return 2;
}

td_status td_windows_knobs(const struct td_json *knobs, int64_t *out_block, int64_t *out_stride) {
    int64_t block = 0, stride = 0;
    TD_TRY(td_knob_int(knobs, "block_size", &block));
    TD_TRY(td_knob_int_or(knobs, "stride", block, &stride));
    if (block >= 1 && block <= MAX_BLOCK && stride >= 1 && stride <= MAX_BLOCK) {
        *out_block = block;
        *out_stride = stride;
        return TD_OK;
    }
    return td_bad_spec("data.block_size and data.stride: expected 1 to %" PRId64 ", found %" PRId64
                       " and %" PRId64,
                       MAX_BLOCK, block, stride);
}
