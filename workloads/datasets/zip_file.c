// See the header. Numbers are little-endian; the layout is that of PKWARE's APPNOTE: local headers
// and data, then the directory, then its end, which is searched from the end of the file.

#include "workloads/datasets/zip_file.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/files/gz.h"

enum {
    LOCAL_SIGN = 0x04034b50,
    ENTRY_SIGN = 0x02014b50,
    END_SIGN = 0x06054b50,
    END64_SIGN = 0x06064b50,
    FIND64_SIGN = 0x07064b50,
    LOCAL_BYTES = 30,
    ENTRY_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    FIND64_BYTES = 20,
    COMMENT_MAX = 65535,
    ENTRIES_MAX = 4096, // of an archive
    STORED = 0,
    DEFLATED = 8,
    RATIO_MAX = 1032, // of deflate
};
#define BYTES_MAX ((uint64_t)1 << 36) // of an array that is compressed

static uint64_t number(const void *p, size_t bytes) {
    const uint8_t *b = p;
    uint64_t v = 0;
    for (size_t i = bytes; i-- > 0;) {
        v = v << 8 | b[i];
    }
    return v;
}

struct archive {
    const char *path;
    const char *data;
    size_t bytes;
    uint64_t at, n; // the directory, its entries
};

static td_status damaged(const struct archive *z, uint64_t offset, const char *what,
                         const char *expected, const char *found) {
    return td_data_fail_text(z->path, offset, what, expected, found);
}

// Room for `bytes` at an offset.
static bool has(const struct archive *z, uint64_t offset, uint64_t bytes) {
    return offset <= z->bytes && bytes <= z->bytes - offset;
}

// ---- the directory ------------------------------------------------------------------------------
static td_status find_directory(struct archive *z) {
    const size_t most = END_BYTES + COMMENT_MAX;
    const size_t least_at = z->bytes > most ? z->bytes - most : 0;
    if (z->bytes < END_BYTES) {
        return damaged(z, z->bytes, "end of the archive", "its directory", "the end of the file");
    }
    size_t at = z->bytes - END_BYTES;
    while (number(z->data + at, 4) != END_SIGN) {
        if (at-- > least_at) continue;
        return damaged(z, z->bytes, "end of the archive", "its directory",
                       "none: the file is cut short, or damaged there");
    }
    z->n = number(z->data + at + 10, 2);
    z->at = number(z->data + at + 16, 4);
    const bool is_large =
        at >= FIND64_BYTES && number(z->data + at - FIND64_BYTES, 4) == FIND64_SIGN;
    if (is_large) {
        const uint64_t end64 = number(z->data + at - FIND64_BYTES + 8, 8);
        if (!has(z, end64, END64_BYTES) || number(z->data + end64, 4) != END64_SIGN) {
            return damaged(z, at - FIND64_BYTES, "end of a large archive", "its directory", "none");
        }
        z->n = number(z->data + end64 + 32, 8);
        z->at = number(z->data + end64 + 48, 8);
    }
    if (z->n > ENTRIES_MAX) {
        return td_data_fail(z->path, at, "files of the archive, at most", ENTRIES_MAX, z->n);
    }
    return TD_OK;
}

struct entry {
    uint64_t at, bytes; // of itself
    struct td_str name;
    uint64_t flags, method, crc, stored, size, local;
};

// Numbers that do not fit 32 bits come after the name, in this order.
static void read_large(const struct archive *z, struct entry *e, uint64_t at, uint64_t end) {
    uint64_t *const large[] = {&e->size, &e->stored, &e->local};
    while (end - at >= 4) {
        const uint64_t id = number(z->data + at, 2), len = number(z->data + at + 2, 2);
        at += 4;
        if (len > end - at) return;
        if (id == 1) {
            const uint64_t stop = at + len;
            for (size_t i = 0; i < TD_COUNTOF(large); i++) {
                if (*large[i] != UINT32_MAX || stop - at < 8) continue;
                *large[i] = number(z->data + at, 8);
                at += 8;
            }
            return;
        }
        at += len;
    }
}

static td_status read_entry(const struct archive *z, uint64_t at, struct entry *out) {
    if (!has(z, at, ENTRY_BYTES) || number(z->data + at, 4) != ENTRY_SIGN) {
        return damaged(z, at, "directory of the archive", "a file of it", "something else");
    }
    const char *p = z->data + at;
    const uint64_t name = number(p + 28, 2), extra = number(p + 30, 2), note = number(p + 32, 2);
    *out = (struct entry){.at = at,
                          .bytes = ENTRY_BYTES + name + extra + note,
                          .name = {p + ENTRY_BYTES, (size_t)name},
                          .flags = number(p + 8, 2),
                          .method = number(p + 10, 2),
                          .crc = number(p + 16, 4),
                          .stored = number(p + 20, 4),
                          .size = number(p + 24, 4),
                          .local = number(p + 42, 4)};
    if (!has(z, at, out->bytes)) {
        return damaged(z, at, "directory of the archive", "a file of it", "the end of the file");
    }
    read_large(z, out, at + ENTRY_BYTES + name, at + ENTRY_BYTES + name + extra);
    if (out->name.len > 4 && memcmp(out->name.data + out->name.len - 4, ".npy", 4) == 0) {
        out->name.len -= 4;
    }
    return TD_OK;
}

// ---- a member -----------------------------------------------------------------------------------
static td_status take(const struct archive *z, const struct entry *e, struct td_zip_entry *out) {
    const char *head = z->data + (size_t)e->local;
    if (e->flags & 1) return damaged(z, e->at, "array", "one that is not encrypted", "one that is");
    if (e->method != STORED && e->method != DEFLATED) {
        return td_data_fail(z->path, e->at + 10,
                            "compression, 0 (numpy.savez) or 8 (numpy.savez_compressed)", STORED,
                            e->method);
    }
    if (!has(z, e->local, LOCAL_BYTES) || number(head, 4) != LOCAL_SIGN) {
        return damaged(z, e->local, "array in the archive", "its header", "something else");
    }
    const uint64_t at = e->local + LOCAL_BYTES + number(head + 26, 2) + number(head + 28, 2);
    if (!has(z, at, e->stored)) {
        return td_data_fail(z->path, at, "bytes of the array in the archive", e->stored,
                            at < z->bytes ? z->bytes - at : 0);
    }
    const bool is_deflated = e->method == DEFLATED;
    const uint64_t most = is_deflated ? TD_MIN(e->stored * RATIO_MAX + 64, BYTES_MAX) : e->stored;
    if (e->size > most || (!is_deflated && e->size != e->stored)) {
        return td_data_fail(z->path, e->at + 24, "bytes of the array, at most", most, e->size);
    }
    *out = (struct td_zip_entry){.name = e->name,
                                 .data = z->data + at,
                                 .stored_bytes = (size_t)e->stored,
                                 .bytes = (size_t)e->size,
                                 .offset = at,
                                 .crc = (uint32_t)e->crc,
                                 .is_deflated = is_deflated};
    return TD_OK;
}

static bool is_named(const struct entry *e, const char *name) {
    return e->name.len == strlen(name) && memcmp(e->name.data, name, e->name.len) == 0;
}

// Adds a name to those that an error lists.
static void list_name(char *list, size_t bytes, const struct entry *e) {
    const size_t len = strlen(list);
    char shown[40];
    snprintf(shown, sizeof shown, "%.*s", (int)TD_MIN(e->name.len, sizeof shown - 1), e->name.data);
    for (char *p = shown; *p; p++) {
        if ((uint8_t)*p < 0x20 || (uint8_t)*p >= 0x7f) *p = '?';
    }
    snprintf(list + len, bytes - len, "%s%s", len ? ", " : "", shown);
}

bool td_zip_is(const struct td_mapped *f) {
    return f->bytes >= 4 && (number(f->data, 4) == LOCAL_SIGN || number(f->data, 4) == END_SIGN);
}

td_status td_zip_find(const char *path, const struct td_mapped *f, const char *name, bool is_asked,
                      struct td_zip_entry *out_entry) {
    struct archive z = {.path = path, .data = f->data, .bytes = f->bytes};
    struct entry e;
    char list[256] = "", wanted[96];
    TD_TRY(find_directory(&z));
    uint64_t at = z.at;
    for (uint64_t i = 0; i < z.n; i++, at += e.bytes) {
        TD_TRY(read_entry(&z, at, &e));
        if (is_named(&e, name) || (!is_asked && z.n == 1)) return take(&z, &e, out_entry);
        list_name(list, sizeof list, &e);
    }
    snprintf(wanted, sizeof wanted, "'%.60s' (or name another: FILE.npz:NAME)", name);
    return damaged(&z, z.at, "array in the archive", wanted, *list ? list : "none");
}

td_status td_zip_check(const char *path, const struct td_zip_entry *e, const void *data) {
    const uint32_t found = td_gz_crc32(data, e->bytes);
    if (found == e->crc) return TD_OK;
    td_status s = td_data_fail(path, e->offset, "checksum of the array", e->crc, found);
    return td_status_context(s, "the array is damaged: save or copy the file again");
}
