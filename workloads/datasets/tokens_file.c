// Reads and checks one file of token ids; see tokens_file.h.

#include "workloads/datasets/tokens_file.h"

#include <inttypes.h>
#include <stdio.h>

#include "workloads/datasets/foreign.h"
#include "workloads/datasets/npy_file.h"
#include "workloads/datasets/windows.h"

enum { HEADER_BYTES = 1024, VERSION_AT = 4, COUNT_AT = 8, WIDTH = 2, JUDGED = 64 };

static const struct format {
    uint32_t magic, version;
    int width;
} formats[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static uint32_t word_at(const void *data, size_t offset) {
    return (uint32_t)td_token_at((const char *)data + offset, 0, 4);
}

static const struct format *format_of(const void *data, size_t bytes) {
    for (size_t i = 0; bytes >= 4 && i < TD_COUNTOF(formats); i++) {
        if (word_at(data, 0) == formats[i].magic) return &formats[i];
    }
    return NULL;
}

// ---- headers ------------------------------------------------------------------------------------
static td_status read_llmc(const char *path, const void *data, size_t bytes, const struct format *f,
                           struct td_tokens *out) {
    if (bytes < HEADER_BYTES) {
        return td_data_fail(path, bytes, "bytes of llm.c's header", HEADER_BYTES, bytes);
    }
    uint32_t version = word_at(data, VERSION_AT), count = word_at(data, COUNT_AT);
    if (version != f->version) {
        return td_data_fail(path, VERSION_AT, "version of the token file", f->version, version);
    }
    uint64_t size = HEADER_BYTES + (uint64_t)count * (uint64_t)f->width;
    if (size != bytes) {
        char what[80];
        snprintf(what, sizeof what, "bytes of a file with %u tokens", count);
        return td_data_fail(path, COUNT_AT, what, size, bytes);
    }
    *out = (struct td_tokens){
        .data = (const char *)data + HEADER_BYTES, .n = count, .width = f->width};
    return count ? TD_OK : td_data_fail(path, COUNT_AT, "tokens, at least", 1, 0);
}

static bool holds_ids(enum td_npy_kind kind) {
    return kind == TD_NPY_U2 || kind == TD_NPY_U4 || kind == TD_NPY_I4 || kind == TD_NPY_I8;
}

static td_status read_npy(const char *path, const void *data, size_t bytes, struct td_tokens *out) {
    struct td_npy a;
    TD_TRY(td_npy_read(path, data, bytes, &a));
    if (!holds_ids(a.kind)) {
        return td_data_fail_text(path, 0, "type of the ids", "u2, u4, i4 or i8 (ids.astype('<u4'))",
                                 td_npy_name(a.kind));
    }
    if (a.is_fortran) {
        return td_data_fail_text(path, 0, "order of the ids",
                                 "C order (numpy.ascontiguousarray(ids))", "Fortran order");
    }
    *out = (struct td_tokens){.data = a.data,
                              .n = td_shape_elems(&a.shape),
                              .width = (int)td_npy_bytes(a.kind),
                              .is_signed = a.kind == TD_NPY_I4};
    return out->n ? TD_OK : td_data_fail(path, a.offset, "tokens, at least", 1, 0);
}

// ---- bare ids -----------------------------------------------------------------------------------
// How wide ids are that were taken for 2 bytes each; 2: they are.
static int likely_width(const struct td_tokens *t, int64_t vocab_size) {
    const int64_t most = (vocab_size - 1) >> 16;
    bool is_eight = t->n % 4 == 0;
    for (int64_t i = 1; i < t->n; i += 2) {
        const int64_t upper = td_token_at(t->data, i, WIDTH);
        if (upper > most) return WIDTH;
        if (i % 4 == 3) is_eight &= upper == 0 && td_token_at(t->data, i - 1, WIDTH) == 0;
    }
    return is_eight ? 8 : 4;
}

static td_status check_width(const char *path, const struct td_tokens *t, int64_t vocab_size) {
    const int likely = t->n < JUDGED ? WIDTH : likely_width(t, vocab_size);
    if (likely == WIDTH) return TD_OK;
    char found[96];
    snprintf(found, sizeof found,
             "every second number is at most %" PRId64 ", as in ids of %d bytes",
             (vocab_size - 1) >> 16, likely);
    td_status s = td_data_fail_text(path, WIDTH, "ids of 2 bytes", "ids of all sizes", found);
    return td_status_context(
        s, "set data.token_bytes: %d (or 2, if these really are ids of 2 bytes)", likely);
}

static td_status read_bare(const char *path, const void *data, size_t bytes, int width,
                           struct td_tokens *out) {
    const char *foreign = td_foreign_kind(data, bytes);
    if (foreign) return td_data_fail_text(path, 0, "kind of file", "tokens", foreign);
    const size_t extra = bytes % (size_t)width;
    if (extra) {
        char what[64];
        snprintf(what, sizeof what, "bytes, a multiple of %d: the length", width);
        return td_data_fail(path, bytes - extra, what, bytes - extra, bytes);
    }
    *out = (struct td_tokens){.data = data, .n = (int64_t)(bytes / (size_t)width), .width = width};
    return TD_OK;
}

// ---- all ----------------------------------------------------------------------------------------
static td_status check_ids(const char *path, size_t offset, const struct td_tokens *t,
                           int64_t vocab_size) {
    int64_t bad = td_tokens_find_bad(t->data, t->n, t->width, vocab_size);
    if (bad < 0) return TD_OK;
    int64_t id = td_token_at(t->data, bad, t->width);
    if (t->is_signed && t->width == 4) id = (int32_t)id;
    char expected[32], found[24];
    snprintf(expected, sizeof expected, "0 to %" PRId64, vocab_size - 1);
    snprintf(found, sizeof found, "%" PRId64, id);
    td_status s = td_data_fail_text(path, offset + (uint64_t)bad * (uint64_t)t->width, "token id",
                                    expected, found);
    return td_status_context(
        s, "token %lld is not in the vocabulary; data.vocab_size says how large it is",
        (long long)bad);
}

td_status td_tokens_read(const char *path, const void *data, size_t bytes, int64_t vocab_size,
                         int token_bytes, struct td_tokens *out_tokens) {
    struct td_tokens t;
    const struct format *f = format_of(data, bytes);
    const bool is_npy = td_npy_is(data, bytes), has_header = f || is_npy;
    if (f) {
        TD_TRY(read_llmc(path, data, bytes, f, &t));
    } else if (is_npy) {
        TD_TRY(read_npy(path, data, bytes, &t));
    } else {
        TD_TRY(read_bare(path, data, bytes, token_bytes ? token_bytes : WIDTH, &t));
    }
    if (has_header && token_bytes && token_bytes != t.width) {
        td_status s = td_data_fail(path, 0, "bytes of an id, by data.token_bytes and by the header",
                                   (uint64_t)token_bytes, (uint64_t)t.width);
        return td_status_context(s, "data.token_bytes is for files without a header: leave it out");
    }
    if (!has_header && !token_bytes) TD_TRY(check_width(path, &t, vocab_size));
    TD_TRY(check_ids(path, (size_t)((const char *)t.data - (const char *)data), &t, vocab_size));
    *out_tokens = t;
    return TD_OK;
}
