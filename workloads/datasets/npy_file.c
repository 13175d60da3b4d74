// Reads one array; see npy_file.h. The header is a Python literal, of which only what NumPy
// itself writes is taken. That is a dict of three known keys, strings without escapes, True or
// False, and a tuple of whole numbers. Anything else is refused at its offset.

#include "workloads/datasets/npy_file.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/files/files.h"
#include "lib/base/files/gz.h"
#include "lib/base/floats/half.h"
#include "workloads/datasets/scan_loops.h"
#include "workloads/datasets/zip_file.h"

enum { MAGIC_BYTES = 6, PREFIX_V1 = 10, PREFIX_V2 = 12, HEADER_MAX = 1 << 16 };
enum { CHECKED_MAX = 1 << 30 }; // bytes of a stored array whose checksum is compared
static const char magic[MAGIC_BYTES] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

static const struct {
    char name[3];
    uint8_t bytes;
} kinds[TD_NPY_COUNT] = {
    [TD_NPY_U1] = {"u1", 1}, [TD_NPY_I1] = {"i1", 1}, [TD_NPY_B1] = {"b1", 1},
    [TD_NPY_U2] = {"u2", 2}, [TD_NPY_I2] = {"i2", 2}, [TD_NPY_U4] = {"u4", 4},
    [TD_NPY_I4] = {"i4", 4}, [TD_NPY_U8] = {"u8", 8}, [TD_NPY_I8] = {"i8", 8},
    [TD_NPY_F2] = {"f2", 2}, [TD_NPY_F4] = {"f4", 4}, [TD_NPY_F8] = {"f8", 8},
};

size_t td_npy_bytes(enum td_npy_kind kind) {
    return kinds[kind].bytes;
}

const char *td_npy_name(enum td_npy_kind kind) {
    return kinds[kind].name;
}

bool td_npy_is_integer(enum td_npy_kind kind) {
    return kind < TD_NPY_F2;
}

// ---- the header ---------------------------------------------------------------------------------
struct cursor {
    const char *path, *begin, *at, *end; // begin: of the file
    enum td_npy_kind kind;
    struct td_shape shape;
    bool is_fortran;
    unsigned seen; // bits: descr, fortran_order, shape
};

static td_status unexpected(const struct cursor *c, const char *expected) {
    char found[32] = "the end of the header";
    if (c->at < c->end) {
        bool shown = *c->at >= 0x20 && *c->at < 0x7f;
        snprintf(found, sizeof found, shown ? "'%c'" : "byte %d",
                 shown ? *c->at : (int)(uint8_t)*c->at);
    }
    return td_data_fail_text(c->path, (uint64_t)(c->at - c->begin), "header of the array", expected,
                             found);
}

static void skip_blanks(struct cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) {
        c->at++;
    }
}

static bool take(struct cursor *c, char ch) {
    skip_blanks(c);
    if (c->at == c->end || *c->at != ch) return false;
    c->at++;
    return true;
}

static td_status take_string(struct cursor *c, struct td_str *out) {
    skip_blanks(c);
    char quote = c->at < c->end ? *c->at : 0;
    if (quote != '\'' && quote != '"') return unexpected(c, "a string");
    const char *text = ++c->at;
    while (c->at < c->end && *c->at != quote && *c->at != '\\') {
        c->at++;
    }
    if (c->at == c->end || *c->at != quote) return unexpected(c, "the end of a string");
    *out = (struct td_str){text, (size_t)(c->at++ - text)};
    return TD_OK;
}

static td_status take_descr(struct cursor *c) {
    struct td_str s;
    const char *at = c->at;
    TD_TRY(take_string(c, &s));
    for (int k = 0; k < TD_NPY_COUNT; k++) {
        bool order = s.len == 3 && (s.data[0] == '<' || (s.data[0] == '|' && kinds[k].bytes == 1));
        if (!order || memcmp(s.data + 1, kinds[k].name, 2) != 0) continue;
        c->kind = (enum td_npy_kind)k;
        return TD_OK;
    }
    char found[48];
    snprintf(found, sizeof found, "'%.*s'", (int)TD_MIN(s.len, 40), s.data);
    for (char *p = found; *p; p++) {
        if ((uint8_t)*p < 0x20 || (uint8_t)*p >= 0x7f) *p = '?';
    }
    return td_data_fail_text(c->path, (uint64_t)(at - c->begin), "type of the elements",
                             "little-endian numbers, such as '<f4' or '|u1' (x.astype('<f4'))",
                             found);
}

static td_status take_order(struct cursor *c) {
    static const char *const words[] = {"False", "True"};
    skip_blanks(c);
    for (size_t i = 0; i < TD_COUNTOF(words); i++) {
        size_t len = strlen(words[i]);
        if ((size_t)(c->end - c->at) < len || memcmp(c->at, words[i], len) != 0) continue;
        c->is_fortran = i > 0;
        c->at += len;
        return TD_OK;
    }
    return unexpected(c, "True or False");
}

static td_status take_dim(struct cursor *c) {
    int64_t v = 0;
    const char *first = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        v = v * 10 + (*c->at - '0');
        if (v > INT64_C(1) << 48) return unexpected(c, "a dimension below 2^48");
    }
    if (c->at == first) return unexpected(c, "a dimension");
    if (c->shape.n_dims == TD_MAX_DIMS) return unexpected(c, "at most 8 dimensions");
    c->shape.dim[c->shape.n_dims++] = v;
    return TD_OK;
}

static td_status take_shape(struct cursor *c) {
    if (!take(c, '(')) return unexpected(c, "a tuple");
    while (!take(c, ')')) {
        TD_TRY(take_dim(c));
        if (!take(c, ',') && (c->at == c->end || *c->at != ')')) return unexpected(c, "',' or ')'");
    }
    return TD_OK;
}

static td_status take_entry(struct cursor *c) {
    static const struct {
        const char *key;
        td_status (*take)(struct cursor *c);
    } entries[] = {{"descr", take_descr}, {"fortran_order", take_order}, {"shape", take_shape}};
    struct td_str key;
    TD_TRY(take_string(c, &key));
    for (size_t i = 0; i < TD_COUNTOF(entries); i++) {
        if (key.len != strlen(entries[i].key) || memcmp(key.data, entries[i].key, key.len) != 0) {
            continue;
        }
        if (c->seen & 1u << i) return unexpected(c, "each key once");
        if (!take(c, ':')) return unexpected(c, "':'");
        c->seen |= 1u << i;
        return entries[i].take(c);
    }
    return unexpected(c, "a key: descr, fortran_order or shape");
}

static td_status take_dict(struct cursor *c) {
    if (!take(c, '{')) return unexpected(c, "a dict");
    while (!take(c, '}')) {
        TD_TRY(take_entry(c));
        if (!take(c, ',') && (c->at == c->end || *c->at != '}')) return unexpected(c, "',' or '}'");
    }
    skip_blanks(c);
    if (c->at != c->end) return unexpected(c, "nothing after the dict");
    return c->seen == 7 ? TD_OK : unexpected(c, "descr, fortran_order and shape");
}

// ---- the file -----------------------------------------------------------------------------------
// at: of the array, in what begins with `begin`.
static td_status find_header(const char *path, const char *begin, struct td_str at,
                             struct cursor *out) {
    const uint8_t *p = (const uint8_t *)at.data;
    const uint64_t offset = (uint64_t)(at.data - begin);
    if (at.len < PREFIX_V2 || memcmp(p, magic, sizeof magic) != 0) {
        return td_data_fail_text(path, offset, "magic", "a NumPy array (numpy.save)",
                                 "something else");
    }
    if (p[6] < 1 || p[6] > 3) {
        return td_data_fail(path, offset + 6, "version of the format, 1 to 3", 1, p[6]);
    }
    size_t prefix = p[6] == 1 ? PREFIX_V1 : PREFIX_V2, len = (size_t)p[8] | (size_t)p[9] << 8;
    if (p[6] > 1) len |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (len > HEADER_MAX) {
        return td_data_fail(path, offset + 8, "bytes of the header, at most", HEADER_MAX, len);
    }
    if (prefix + len > at.len) {
        return td_data_fail(path, offset + 8, "bytes of the header, at most", at.len - prefix, len);
    }
    *out = (struct cursor){
        .path = path, .begin = begin, .at = at.data + prefix, .end = at.data + prefix + len};
    return TD_OK;
}

static td_status read_array(struct td_npy *a, const char *begin, struct td_str at) {
    struct cursor c;
    size_t bytes;
    TD_TRY(find_header(a->path, begin, at, &c));
    TD_TRY(take_dict(&c));
    a->kind = c.kind;
    a->shape = c.shape;
    a->is_fortran = c.is_fortran && c.shape.n_dims > 1;
    a->data = c.end;
    a->offset = (size_t)(c.end - begin);
    const size_t found = at.len - (size_t)(c.end - at.data);
    if (!td_shape_bytes(&a->shape, td_npy_bytes(a->kind), &bytes)) bytes = SIZE_MAX;
    if (bytes == found) return TD_OK;
    return td_data_fail(a->path, a->offset, "bytes of the elements that the header promises", bytes,
                        found);
}

bool td_npy_is(const void *data, size_t bytes) {
    return bytes >= MAGIC_BYTES && memcmp(data, magic, MAGIC_BYTES) == 0;
}

td_status td_npy_read(const char *path, const void *data, size_t bytes, struct td_npy *out_array) {
    struct td_npy a = {.path = td_strdup(path)};
    if (!a.path) return td_fail_oom();
    td_status s = read_array(&a, data, (struct td_str){data, bytes});
    free(td_steal(a.path));
    if (!s) *out_array = a;
    return s;
}

// ---- images -------------------------------------------------------------------------------------
// What an image in the cache is made from.
struct source {
    const char *cache_dir, *file;
    const char *made; // how: the kind of the image
};

static td_status name_image(const struct td_npy *a, const struct source *from,
                            char out[TD_IMAGE_PATH]) {
    TD_AUTO_IMAGE_KEY key;
    td_image_key_init(&key, from->made);
    TD_TRY(td_buf_printf(&key.what, "%s 1 %s\n", from->made, a->path));
    TD_TRY(td_image_key_add(&key, from->file));
    return td_image_path(from->cache_dir, &key, out);
}

static td_status new_image(size_t bytes, struct td_image *out) {
    const size_t all = sizeof(struct td_image_head) + bytes;
    *out = (struct td_image){.data = td_calloc(1, all), .bytes = all};
    return out->data ? TD_OK : td_fail_oom();
}

static char *bytes_of(const struct td_image *image) {
    return (char *)image->data + sizeof(struct td_image_head);
}

// As row-major elements. Blocks of rows, so that lines of the cache are read once.
static void turn(const struct td_npy *a, char *out) {
    enum { ROWS = 64 };
    const size_t width = td_npy_bytes(a->kind);
    const int64_t n = a->shape.dim[0], each = td_shape_elems(&a->shape) / n;
    for (int64_t first = 0; first < n; first += ROWS) {
        const int64_t rows = TD_MIN(n - first, (int64_t)ROWS);
        int64_t at[TD_MAX_DIMS] = {0}; // of an element in its sample
        for (int64_t k = 0; k < each; k++) {
            int64_t to = 0;
            for (int d = 1; d < a->shape.n_dims; d++) {
                to = to * a->shape.dim[d] + at[d];
            }
            for (int64_t i = first; i < first + rows; i++) {
                memcpy(out + (size_t)(i * each + to) * width, a->data + (size_t)(k * n + i) * width,
                       width);
            }
            for (int d = 1; d < a->shape.n_dims && ++at[d] == a->shape.dim[d]; d++) {
                at[d] = 0;
            }
        }
    }
}

static td_status to_rows(struct td_npy *a, const char *cache_dir, const char *file) {
    static const char image_magic[8] = "TDROWS1";
    const struct source from = {cache_dir, file, "rows"};
    char path[TD_IMAGE_PATH];
    struct td_image image = {0};
    size_t bytes;
    TD_CHECK(td_shape_bytes(&a->shape, td_npy_bytes(a->kind), &bytes));
    if (cache_dir) TD_TRY(name_image(a, &from, path));
    if (!cache_dir || !td_image_map(path, image_magic, &image) ||
        image.bytes != bytes + sizeof(struct td_image_head)) {
        td_image_finish(&image);
        TD_TRY(new_image(bytes, &image));
        if (bytes) turn(a, bytes_of(&image));
        td_image_seal(&image, image_magic);
        if (cache_dir) td_image_share(cache_dir, path, &image);
    }
    td_image_finish(&a->image);
    a->image = image;
    a->data = bytes_of(&image);
    return TD_OK;
}

// ---- archives -----------------------------------------------------------------------------------
static td_status decode(const struct td_npy *a, const struct td_zip_entry *e,
                        struct td_image *out_image) {
    struct td_image image;
    size_t at;
    TD_TRY(new_image(e->bytes, &image));
    const char *wrong = td_gz_inflate(e->data, e->stored_bytes, bytes_of(&image), e->bytes, &at);
    td_status failed = TD_OK;
    if (wrong) {
        failed = td_data_fail_text(a->path, e->offset + at, "compressed data of the array",
                                   "what numpy.savez_compressed wrote", wrong);
    } else {
        failed = td_zip_check(a->path, e, bytes_of(&image));
    }
    if (failed) {
        td_image_finish(&image);
        return failed;
    }
    *out_image = image;
    return TD_OK;
}

static td_status read_compressed(struct td_npy *a, const struct td_zip_entry *e,
                                 const char *cache_dir, const char *file) {
    static const char image_magic[8] = "TDNPZ01";
    const struct source from = {cache_dir, file, "npz"};
    char path[TD_IMAGE_PATH];
    if (cache_dir) TD_TRY(name_image(a, &from, path));
    if (!cache_dir || !td_image_map(path, image_magic, &a->image)) {
        TD_TRY(decode(a, e, &a->image));
        td_image_seal(&a->image, image_magic);
        if (cache_dir) td_image_share(cache_dir, path, &a->image);
    }
    const char *begin = bytes_of(&a->image);
    const size_t bytes = a->image.bytes - sizeof(struct td_image_head);
    return read_array(a, begin, (struct td_str){begin, bytes});
}

static td_status read_member(struct td_npy *a, const char *file, const char *name, bool is_asked,
                             const char *cache_dir) {
    struct td_zip_entry e;
    char full[TD_FS_PATH_BYTES];
    TD_TRY(td_zip_find(file, &a->file, name, is_asked, &e));
    TD_TRY(td_fs_path(full, "%s:%.*s", file, (int)e.name.len, e.name.data));
    free(a->path);
    a->path = td_strdup(full);
    if (!a->path) return td_fail_oom();
    if (e.is_deflated) return read_compressed(a, &e, cache_dir, file);
    if (e.bytes <= CHECKED_MAX) TD_TRY(td_zip_check(a->path, &e, e.data));
    return read_array(a, a->file.data, (struct td_str){e.data, e.bytes});
}

// ---- opening ------------------------------------------------------------------------------------
// "/d/set.npz:images" is the file and the name; of another path NULL.
static const char *name_in(const char *where) {
    const char *colon = strrchr(where, ':');
    const size_t len = colon ? (size_t)(colon - where) : 0;
    return len > 4 && memcmp(colon - 4, ".npz", 4) == 0 && colon[1] ? colon + 1 : NULL;
}

static td_status open_array(struct td_npy *a, const char *where, const char *key,
                            const char *cache_dir) {
    char file[TD_FS_PATH_BYTES];
    const char *name = name_in(where);
    TD_TRY(
        td_fs_path(file, "%.*s", (int)(name ? (size_t)(name - 1 - where) : strlen(where)), where));
    TD_TRY(td_mapped_init(file, &a->file));
    a->path = td_strdup(file);
    if (!a->path) return td_fail_oom();
    if (td_zip_is(&a->file)) {
        TD_TRY(read_member(a, file, name ? name : key, name != NULL, cache_dir));
    } else {
        const struct td_str all = {a->file.data, a->file.bytes};
        TD_TRY(read_array(a, all.data, all));
    }
    return a->is_fortran ? to_rows(a, cache_dir, file) : TD_OK;
}

td_status td_npy_open(const char *where, const char *key, const char *cache_dir,
                      struct td_npy *out_array) {
    struct td_npy a = {.data = NULL};
    td_status s = open_array(&a, where, key, cache_dir);
    if (s) {
        td_npy_close(&a);
        return s;
    }
    *out_array = a;
    return TD_OK;
}

void td_npy_close(struct td_npy *a) {
    td_mapped_finish(&a->file);
    td_image_finish(&a->image);
    free(td_steal(a->path));
}

// In Fortran order the first index moves fastest.
size_t td_npy_offset(const struct td_npy *a, int64_t i) {
    int64_t in_file = i;
    if (a->is_fortran) {
        int64_t stride[TD_MAX_DIMS], at = 1;
        for (int d = 0; d < a->shape.n_dims; d++) {
            stride[d] = at;
            at *= a->shape.dim[d];
        }
        in_file = 0;
        for (int d = a->shape.n_dims; d-- > 0; i /= a->shape.dim[d]) {
            in_file += i % a->shape.dim[d] * stride[d];
        }
    }
    return a->offset + (size_t)in_file * td_npy_bytes(a->kind);
}

// ---- elements -----------------------------------------------------------------------------------
int64_t td_npy_int(const struct td_npy *a, int64_t i) {
    size_t width = td_npy_bytes(a->kind);
    const uint8_t *p = (const uint8_t *)a->data + (size_t)i * width;
    uint64_t v = 0;
    for (size_t b = width; b-- > 0;) {
        v = v << 8 | p[b];
    }
    bool is_signed = a->kind == TD_NPY_I1 || a->kind == TD_NPY_I2 || a->kind == TD_NPY_I4 ||
                     a->kind == TD_NPY_I8;
    if (!is_signed) return v > INT64_MAX ? INT64_MAX : (int64_t)v;
    unsigned unused = 64 - 8 * (unsigned)width;
    return (int64_t)(v << unused) >> unused;
}

static double element(const struct td_npy *a, int64_t i) {
    const char *p = a->data + (size_t)i * td_npy_bytes(a->kind);
    uint16_t half;
    float single;
    double real;
    switch (a->kind) {
    case TD_NPY_F2:
        memcpy(&half, p, sizeof half);
        return (double)td_f32_of_f16(half);
    case TD_NPY_F4:
        memcpy(&single, p, sizeof single);
        return (double)single;
    case TD_NPY_F8:
        memcpy(&real, p, sizeof real);
        return real;
    case TD_NPY_U1:
    case TD_NPY_I1:
    case TD_NPY_B1:
    case TD_NPY_U2:
    case TD_NPY_I2:
    case TD_NPY_U4:
    case TD_NPY_I4:
    case TD_NPY_U8:
    case TD_NPY_I8:
    case TD_NPY_COUNT:
        break;
    }
    return (double)td_npy_int(a, i);
}

// An integer is rounded once.
static float element_f32(const struct td_npy *a, int64_t i) {
    return td_npy_is_integer(a->kind) ? (float)td_npy_int(a, i) : (float)element(a, i);
}

void td_npy_floats(const struct td_npy *a, enum td_dtype type, int64_t begin, int64_t n,
                   void *out) {
    const size_t width = td_dtype_bytes(type);
    float *const singles = out;
    double *const doubles = out;
    if (a->kind == (type == TD_F64 ? TD_NPY_F8 : TD_NPY_F4)) {
        memcpy(out, a->data + (size_t)begin * width, (size_t)n * width);
    } else if (type == TD_F64) {
        for (int64_t i = 0; i < n; i++) {
            doubles[i] = element(a, begin + i);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            singles[i] = element_f32(a, begin + i);
        }
    }
}

// One that is finite in the file may be too large for fp32.
static td_status not_in_range(const struct td_npy *a, const struct td_npy_range *range, int64_t i) {
    const char *const type = range->type == TD_F64 ? "fp64" : "fp32";
    const double v = element(a, i);
    char expected[64], found[32];
    snprintf(expected, sizeof expected, "a finite number of %s", type);
    if (range->has_ends) {
        snprintf(expected, sizeof expected, "a number from %g to %g", range->least, range->most);
    }
    snprintf(found, sizeof found, "%.9g", v);
    if (!isfinite(v)) snprintf(found, sizeof found, "%s", isnan(v) ? "nan" : "infinity");
    td_status s = td_data_fail_text(a->path, td_npy_offset(a, i), "element", expected, found);
    int64_t each = td_shape_elems(&a->shape) / a->shape.dim[0];
    return td_status_context(s, "sample %" PRId64 " %s", i / each,
                             !isfinite(v)      ? "is no number"
                             : range->has_ends ? "is out of range"
                                               : "does not fit fp32");
}

td_status td_npy_check(const struct td_npy *a, const struct td_npy_range *range, int64_t begin,
                       int64_t n) {
    enum { SOME = 4096 };
    const struct td_scan_loops *loops = TD_LEVELED_TABLE(td_scan_loops);
    const bool wide = range->type == TD_F64;
    const double end = wide ? DBL_MAX : (double)FLT_MAX;
    const double least = range->has_ends ? range->least : -end;
    const double most = range->has_ends ? range->most : end;
    double doubles[SOME];
    float singles[SOME];
    if (td_npy_is_integer(a->kind)) return TD_OK;
    for (int64_t i = 0; i < n; i += SOME) {
        const int64_t here = TD_MIN(n - i, (int64_t)SOME);
        td_npy_floats(a, range->type, begin + i, here, wide ? (void *)doubles : singles);
        if (wide ? loops->all_within_f64(doubles, here, least, most)
                 : loops->all_within(singles, here, (float)least, (float)most)) {
            continue;
        }
        int64_t k = 0;
        for (double v; (v = wide ? doubles[k] : (double)singles[k]) >= least && v <= most;) {
            k++;
        }
        return not_in_range(a, range, begin + i + k);
    }
    return TD_OK;
}
