// The head of a shard, and reading. The reader trusts nothing: a shard may have been cut short, or
// flipped by a disk, or written by somebody else. A mapped file that is truncated while it is read
// would raise SIGBUS; checkpoints are never rewritten, so that is left to the fatal handler.

#include "engine/train/checkpoint/safetensors.h"

#include <string.h>
#include <sys/mman.h>

#include "lib/base/files/named.h"
#include "lib/base/map.h"

enum { DATA_ALIGN = 64, NAME_MAX_BYTES = 255, ARENA_BYTES = 96 << 20 };
enum { VALUE_ALIGN = 16, SHORTEST = 10 }; // of bytes in memory; of a file

// ---- the head -----------------------------------------------------------------------------------

td_status td_safetensors_head(const struct td_tensor *tensors, size_t n, struct td_buf *b) {
    TD_TRY(td_buf_u64le(b, 0));
    TD_TRY(td_buf_str(b, "{\"__metadata__\":{\"format\":\"pt\"}"));
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const struct td_tensor *t = &tensors[i];
        TD_TRY(td_buf_str(b, ","));
        TD_TRY(td_json_print_string(t->name, strlen(t->name), b));
        TD_TRY(td_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", td_dtype_safetensors(t->dtype)));
        for (int d = 0; d < t->shape.n_dims; d++) {
            TD_TRY(td_buf_printf(b, "%s%lld", d ? "," : "", (long long)t->shape.dim[d]));
        }
        TD_TRY(td_buf_printf(b, "],\"data_offsets\":[%zu,%zu]}", at, at + t->bytes));
        at += t->bytes;
    }
    TD_TRY(td_buf_str(b, "}"));
    while (b->len % DATA_ALIGN) {
        TD_TRY(td_buf_str(b, " "));
    }
    for (int i = 0; i < 8; i++) {
        b->data[i] = (char)((b->len - 8) >> 8 * i);
    }
    return TD_OK;
}

// ---- reading -----------------------------------------------------------------------------------

struct td_safetensors {
    const void *file; // all its bytes
    size_t bytes;
    void *map;  // a file's; NULL: they are in memory
    void *copy; // of bytes that did not begin where they have to; NULL: none
    struct td_arena *arena;
    struct td_map *by_name;
    struct td_tensor *tensors;
    size_t n;
};

static td_status damaged(const char *path, const char *what) {
    return td_status_with_class(td_fail(TD_DATA_LOSS, "shard '%s': %s", path, what), TD_CLASS_DATA);
}

static td_status map_file(struct td_safetensors *f, const char *path) {
    struct stat st;
    TD_AUTO_CLOSE int fd = -1;
    TD_AUTO_STATUS td_status s = td_named_open(path, &fd, &st);
    if (td_path_rules_refused(s)) return td_steal(s);
    if (s) { // of any kind, there is no such shard
        return td_status_with_class(td_fail(TD_DATA_LOSS, "shard: %s", td_status_message(s)),
                                    TD_CLASS_DATA);
    }
    if (st.st_size < SHORTEST) return damaged(path, "shorter than a header");
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "map shard '%s'", path);
    f->file = f->map = map;
    f->bytes = (size_t)st.st_size;
    return TD_OK;
}

static bool dtype_of(const char *name, enum td_dtype *out) {
    for (int t = 0; t < TD_DTYPE_COUNT; t++) {
        if (strcmp(name, td_dtype_safetensors((enum td_dtype)t)) == 0) {
            *out = (enum td_dtype)t;
            return true;
        }
    }
    return false;
}

// Types of the format that no td_dtype is. Some have less than a byte an element.
#define TYPE(name, bits)                                                                           \
    { name, "of type " name, bits }
static const struct {
    const char *name, *said;
    size_t bits;
} foreign_types[] = {
    TYPE("I8", 8),      TYPE("I16", 16),    TYPE("U16", 16),    TYPE("U32", 32),
    TYPE("U64", 64),    TYPE("C64", 64),    TYPE("F8_E4M3", 8), TYPE("F8_E5M2", 8),
    TYPE("F8_E8M0", 8), TYPE("F6_E2M3", 6), TYPE("F6_E3M2", 6), TYPE("F4", 4),
};

// Bits of an element; 0: there is no such type.
static size_t read_type(const char *name, struct td_tensor *t) {
    if (dtype_of(name, &t->dtype)) return 8 * td_dtype_bytes(t->dtype);
    for (size_t i = 0; i < TD_COUNTOF(foreign_types); i++) {
        if (strcmp(name, foreign_types[i].name) != 0) continue;
        t->foreign = foreign_types[i].said;
        return foreign_types[i].bits;
    }
    return 0;
}

// *out_elems: of all its elements. What has no td_shape is foreign.
static bool read_shape(const struct td_json *shape, struct td_tensor *t, size_t *out_elems) {
    size_t elems = 1;
    bool is_empty = false;
    if (!shape || shape->kind != TD_JSON_ARRAY) return false;
    if (shape->n_children > TD_MAX_DIMS) t->foreign = "of too many dimensions";
    for (const struct td_json *d = shape->first; d; d = d->next) {
        const int64_t n = td_json_int(d, -1);
        if (n < 0 || (n && !td_size_mul(elems, (size_t)n, &elems))) return false;
        if (elems > INT64_MAX) return false;
        is_empty |= n == 0;
        if (!t->foreign) t->shape.dim[t->shape.n_dims++] = n;
    }
    *out_elems = is_empty ? 0 : elems;
    return true;
}

static const char *read_tensor(const struct td_json *v, const char *data, size_t data_bytes,
                               struct td_tensor *t) {
    if (v->kind != TD_JSON_OBJECT || strlen(v->key) > NAME_MAX_BYTES) {
        return "an entry is malformed";
    }
    size_t elems, bits = read_type(td_json_string(td_json_get(v, "dtype"), ""), t);
    const struct td_json *offsets = td_json_get(v, "data_offsets");
    t->name = v->key;
    if (!bits) return "unknown dtype";
    if (!read_shape(td_json_get(v, "shape"), t, &elems)) return "a shape is malformed";
    if (!td_size_mul(elems, bits, &bits)) return "a shape is out of range";
    if (!offsets || offsets->kind != TD_JSON_ARRAY || offsets->n_children != 2) {
        return "data_offsets are malformed";
    }
    int64_t begin = td_json_int(offsets->first, -1), end = td_json_int(offsets->last, -1);
    if (begin < 0 || end < begin || bits % 8 || (size_t)(end - begin) != bits / 8) {
        return "data_offsets do not match its shape";
    }
    if ((size_t)end > data_bytes) return "data_offsets are past the end: the file is cut short";
    t->data = data + begin;
    t->bytes = bits / 8;
    return NULL;
}

static int by_place(const void *a, const void *b) {
    const struct td_tensor *x = *(const struct td_tensor *const *)a;
    const struct td_tensor *y = *(const struct td_tensor *const *)b;
    const char *begin_x = x->data, *begin_y = y->data;
    if (begin_x != begin_y) return begin_x < begin_y ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; // those without elements come first
}

// The header may name tensors in any order, but their bytes must fill the file: no hole, no
// overlap.
static td_status check_places(const struct td_safetensors *f, const char *path, const char *data,
                              size_t data_bytes) {
    const struct td_tensor **order = td_arena_array(f->arena, f->n + 1, sizeof *order);
    if (!order) return td_fail_oom();
    for (size_t i = 0; i < f->n; i++) {
        order[i] = &f->tensors[i];
    }
    qsort(order, f->n, sizeof *order, by_place);
    const char *at = data;
    for (size_t i = 0; i < f->n; i++) {
        const char *begin = order[i]->data;
        if (begin != at) {
            td_status s = damaged(path, begin < at ? "data_offsets overlap those of another tensor"
                                                   : "data_offsets leave a hole before it");
            return td_status_context(s, "tensor '%.64s'", order[i]->name);
        }
        at += order[i]->bytes;
    }
    if (at == data + data_bytes) return TD_OK;
    return damaged(path, "bytes after the last tensor, or some are missing");
}

static td_status read_header(struct td_safetensors *f, const char *path) {
    const unsigned char *p = f->file;
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) {
        header = header << 8 | p[i];
    }
    if (header > TD_SAFETENSORS_HEADER_MAX || header + 8 > f->bytes || header < 2) {
        return damaged(path, "header length is out of range");
    }
    TD_TRY(td_arena_create(ARENA_BYTES, &f->arena));
    struct td_json *root;
    td_status parsed = td_json_parse(f->arena, (const char *)p + 8, header, &root);
    if (td_status_code(parsed) == TD_RESOURCE_EXHAUSTED) return parsed;
    if (parsed) {
        td_status s = damaged(path, td_status_message(parsed));
        td_status_free(parsed);
        return s;
    }
    if (root->kind != TD_JSON_OBJECT || root->n_children > TD_SAFETENSORS_MAX) {
        return damaged(path, "header is not an object of tensors");
    }
    f->tensors = td_arena_array(f->arena, root->n_children + 1, sizeof *f->tensors);
    if (!f->tensors) return td_fail_oom();
    TD_TRY(td_map_create(TD_SAFETENSORS_MAX, &f->by_name));
    const char *data = (const char *)p + 8 + header;
    size_t data_bytes = f->bytes - 8 - header;
    for (struct td_json *v = root->first; v; v = v->next) {
        if (strcmp(v->key, "__metadata__") == 0) continue;
        struct td_tensor *t = &f->tensors[f->n];
        const char *why = read_tensor(v, data, data_bytes, t);
        if (why) return td_status_context(damaged(path, why), "tensor '%.64s'", v->key);
        TD_TRY(td_map_put(f->by_name, t->name, t, NULL));
        f->n++;
    }
    return check_places(f, path, data, data_bytes);
}

td_status td_safetensors_open(const char *path, struct td_safetensors **out_file) {
    TD_AUTO(td_safetensors) *f = td_calloc(1, sizeof *f);
    if (!f) return td_fail_oom();
    TD_TRY(map_file(f, path));
    TD_TRY(read_header(f, path));
    *out_file = td_steal(f);
    return TD_OK;
}

static td_status take_bytes(struct td_safetensors *f, const char *name, const void *data,
                            size_t bytes) {
    if (bytes < SHORTEST) return damaged(name, "shorter than a header");
    f->file = data;
    f->bytes = bytes;
    if ((uintptr_t)data % VALUE_ALIGN == 0) return TD_OK;
    f->copy = td_calloc(bytes, 1);
    if (!f->copy) return td_fail_oom();
    f->file = memcpy(f->copy, data, bytes);
    return TD_OK;
}

td_status td_safetensors_open_bytes(const char *name, const void *data, size_t bytes,
                                    struct td_safetensors **out_file) {
    TD_AUTO(td_safetensors) *f = td_calloc(1, sizeof *f);
    if (!f) return td_fail_oom();
    TD_TRY(take_bytes(f, name, data, bytes));
    TD_TRY(read_header(f, name));
    *out_file = td_steal(f);
    return TD_OK;
}

void td_safetensors_close(struct td_safetensors *f) {
    if (!f) return;
    td_map_destroy(f->by_name);
    td_arena_destroy(f->arena);
    if (f->map) munmap(f->map, f->bytes);
    free(f->copy);
    free(f);
}

size_t td_safetensors_count(const struct td_safetensors *f) {
    return f->n;
}

const struct td_tensor *td_safetensors_at(const struct td_safetensors *f, size_t i) {
    return i < f->n ? &f->tensors[i] : NULL;
}

const struct td_tensor *td_safetensors_find(const struct td_safetensors *f, const char *name) {
    return td_map_get(f->by_name, name);
}

void td_safetensors_bytes(const struct td_safetensors *f, const void **out_data,
                          size_t *out_bytes) {
    *out_data = f->file;
    *out_bytes = f->bytes;
}
