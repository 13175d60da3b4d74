// Reads and checks one file of token ids; see tokens_file.h.

#include "workloads/datasets/tokens_file.h"

#include <stdio.h>

#include "workloads/datasets/mapped.h"
#include "workloads/datasets/windows.h"

enum { HEADER_BYTES = 1024, VERSION_AT = 4, COUNT_AT = 8 };

static const struct format {
    uint32_t magic, version;
    int width;
    const char *foreign; // what else it is; NULL: tokens
} formats[] = {
    {20240520, 1, 2, NULL},
    {20240801, 7, 4, NULL},
    {20240326, 0, 0, "an llm.c model"},
    {20240527, 0, 0, "an llm.c optimizer state"},
    {20240522, 0, 0, "an llm.c evaluation set"},
    {20240328, 0, 0, "an llm.c tokenizer"},
    {20240327, 0, 0, "an llm.c debug state"},
};

static uint32_t word_at(const void *data, size_t offset) {
    return (uint32_t)td_token_at((const char *)data + offset, 0, 4);
}

static const struct format *format_of(const void *data, size_t bytes) {
    for (size_t i = 0; bytes >= 4 && i < TD_COUNTOF(formats); i++) {
        if (word_at(data, 0) == formats[i].magic) return &formats[i];
    }
    return NULL;
}

static td_status check_header(const char *path, const void *data, size_t bytes,
                              const struct format *f) {
    if (f->foreign) return td_data_fail_text(path, 0, "kind of file", "tokens", f->foreign);
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
    return count ? TD_OK : td_data_fail(path, COUNT_AT, "tokens, at least", 1, 0);
}

static td_status check_ids(const char *path, size_t offset, const struct td_tokens *t,
                           int64_t vocab_size) {
    int64_t bad = td_tokens_find_bad(t->data, t->n, t->width, vocab_size);
    if (bad < 0) return TD_OK;
    td_status s =
        td_data_fail(path, offset + (uint64_t)bad * (uint64_t)t->width, "token id, at most",
                     (uint64_t)vocab_size - 1, (uint64_t)td_token_at(t->data, bad, t->width));
    return td_status_context(
        s, "token %lld is not in the vocabulary; data.vocab_size says how large it is",
        (long long)bad);
}

td_status td_tokens_read(const char *path, const void *data, size_t bytes, int64_t vocab_size,
                         struct td_tokens *out_tokens) {
    const struct format *f = format_of(data, bytes);
    size_t header = f ? HEADER_BYTES : 0;
    if (f) TD_TRY(check_header(path, data, bytes, f));
    int width = f ? f->width : 2;
    if ((bytes - header) % (size_t)width) {
        return td_data_fail(path, bytes - 1, "bytes, a multiple of two: the length", bytes - 1,
                            bytes);
    }
    struct td_tokens t = {(const char *)data + header, (int64_t)((bytes - header) / (size_t)width),
                          width};
    TD_TRY(check_ids(path, header, &t, vocab_size));
    *out_tokens = t;
    return TD_OK;
}
