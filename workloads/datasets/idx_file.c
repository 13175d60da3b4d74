// Reads one idx file (see idx_file.h).
//
// Both reads go through td_gz_head, which decodes no more than it is asked for: the header alone,
// then header and body and one byte more. That byte is how a file that is longer than its header
// says is noticed at the cost of one byte. Every product of dimensions stays below 2^62 because the
// one before it was held to TD_IDX_MAX_BYTES.

#include "workloads/datasets/idx_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/files/files.h"
#include "lib/base/files/gz.h"
#include "workloads/datasets/mapped.h"

enum { MAGIC_BYTES = 4, DIM_BYTES = 4 };

td_status td_idx_find(const char *dir, const char *stem, struct td_idx_file *out_file) {
    static const char *const endings[] = {"", ".gz"};
    for (size_t i = 0; i < TD_COUNTOF(endings); i++) {
        int n = snprintf(out_file->path, sizeof out_file->path, "%s/%s%s", dir, stem, endings[i]);
        if (n < 0 || (size_t)n >= sizeof out_file->path) {
            return td_bad_spec("data.path is longer than %d bytes", TD_IDX_MAX_PATH);
        }
        if (td_fs_exists(out_file->path)) return TD_OK;
    }
    td_status s = td_fail(TD_NOT_FOUND,
                          "'%s/%s' is not there, nor with .gz: expected the idx files of the MNIST "
                          "family in data.path, on the node that trains",
                          dir, stem);
    return td_status_with_meta(td_status_with_class(s, TD_CLASS_DATA), "file", "%s/%s", dir, stem);
}

static uint32_t big_endian_u32(const char *p) {
    const uint8_t *b = (const uint8_t *)p;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static td_status check_magic(const struct td_idx_file *f, const char *head, int n_dims) {
    uint32_t found = big_endian_u32(head), expected = 0x800u | (uint32_t)n_dims;
    char what[80], a[16], b[16];
    if (found == expected) return TD_OK;
    snprintf(what, sizeof what, "magic of an idx file of unsigned bytes with %d dimension%s",
             n_dims, n_dims == 1 ? "" : "s");
    snprintf(a, sizeof a, "0x%08" PRIx32, expected);
    snprintf(b, sizeof b, "0x%08" PRIx32, found);
    return td_data_fail_text(f->path, 0, what, a, b);
}

td_status td_idx_read_header(struct td_idx_file *f, int n_dims) {
    TD_CHECK(n_dims >= 1 && n_dims <= TD_IDX_MAX_DIMS);
    f->header_bytes = MAGIC_BYTES + (size_t)n_dims * DIM_BYTES;
    f->body_bytes = 1;
    TD_AUTO_BUF head;
    td_buf_init(&head, f->header_bytes);
    TD_TRY(td_gz_head(f->path, f->header_bytes, &head));
    if (head.len >= MAGIC_BYTES) TD_TRY(check_magic(f, head.data, n_dims));
    if (head.len < f->header_bytes) {
        return td_data_fail(f->path, head.len, "bytes of the header", f->header_bytes, head.len);
    }
    for (int d = 0; d < n_dims; d++) {
        size_t at = MAGIC_BYTES + (size_t)d * DIM_BYTES;
        f->dim[d] = big_endian_u32(head.data + at);
        if (f->dim[d] == 0) return td_data_fail(f->path, at, "a dimension, at least", 1, 0);
        f->body_bytes *= f->dim[d]; // below 2^62: the product before was below 2^30
        if (f->body_bytes > TD_IDX_MAX_BYTES) {
            return td_data_fail(f->path, at, "bytes that the dimensions ask for, at most",
                                TD_IDX_MAX_BYTES, f->body_bytes);
        }
    }
    return TD_OK;
}

td_status td_idx_read_body(const struct td_idx_file *f, uint8_t *out) {
    size_t bytes = f->header_bytes + f->body_bytes;
    TD_AUTO_BUF all;
    td_buf_init(&all, bytes + 1);
    TD_TRY(td_buf_reserve(&all, bytes + 1));
    // One byte more than promised shows that there are more, without decoding them.
    TD_TRY(td_gz_head(f->path, bytes + 1, &all));
    if (all.len != bytes) {
        return td_data_fail(f->path, TD_MIN(all.len, bytes),
                            all.len > bytes ? "more bytes than the header promises; the length"
                                            : "the file is cut short; its length",
                            bytes, all.len);
    }
    memcpy(out, all.data + f->header_bytes, f->body_bytes);
    return TD_OK;
}
