#ifndef TRAIND_WORKLOADS_DATASETS_NPY_FILE_H
#define TRAIND_WORKLOADS_DATASETS_NPY_FILE_H

// One array as NumPy saves it: "\x93NUMPY", version (1, 2 or 3), length of the header, the header
// (a Python dict of descr, fortran_order and shape), then the elements.
//
// Little-endian numbers and booleans are read; everything else (objects, text, records, big-endian)
// is refused, saying how to save it instead. The shape's product is held against the file's size,
// to the byte. Errors: DATA_LOSS, class data, with file, offset, expected and found. The file stays
// mapped for as long as the array is open. One thread.
//
// Elements are row-major here. An array in Fortran order is turned once, into an image in the
// node's cache; so is one that an .npz holds compressed. One that is stored there is read in place.

#include "traind/types.h"
#include "workloads/datasets/cache.h"
#include "workloads/datasets/mapped.h"

enum td_npy_kind { // descr without its byte order
    TD_NPY_U1,
    TD_NPY_I1,
    TD_NPY_B1,
    TD_NPY_U2,
    TD_NPY_I2,
    TD_NPY_U4,
    TD_NPY_I4,
    TD_NPY_U8,
    TD_NPY_I8,
    TD_NPY_F2,
    TD_NPY_F4,
    TD_NPY_F8,
    TD_NPY_COUNT,
};

struct td_npy_range {   // of floats
    enum td_dtype type; // that they are handed out as: TD_F32 or TD_F64
    bool has_ends;      // least and most; else every number of the type will do
    double least, most;
};

struct td_npy {
    struct td_mapped file;
    struct td_image image; // decoded or turned: the elements are there
    char *path;            // for messages: the file, or FILE.npz:NAME
    enum td_npy_kind kind;
    struct td_shape shape;
    bool is_fortran;  // in the file
    const char *data; // elements, row-major
    size_t offset;    // of the elements in the file; of compressed ones in what it holds
};

bool td_npy_is(const void *data, size_t bytes); // by its first bytes
// One array that is in memory, the caller's: nothing of it is checked, turned or to be closed, and
// path stays NULL. Elements are in the file's order.
TD_MUST_USE td_status td_npy_read(const char *path, const void *data, size_t bytes,
                                  struct td_npy *out_array);

// where: a file of one array; or an .npz, whose array `key` is meant, or the only one that it has;
// or FILE.npz:NAME. cache_dir NULL: decode into private memory.
TD_MUST_USE td_status td_npy_open(const char *where, const char *key, const char *cache_dir,
                                  struct td_npy *out_array);
void td_npy_close(struct td_npy *a);
// Where element i is, as its offset.
size_t td_npy_offset(const struct td_npy *a, int64_t i);
size_t td_npy_bytes(enum td_npy_kind kind); // of an element
bool td_npy_is_integer(enum td_npy_kind kind);
const char *td_npy_name(enum td_npy_kind kind); // "u1"
// n elements from `begin` on, as type: TD_F32 or TD_F64.
void td_npy_floats(const struct td_npy *a, enum td_dtype type, int64_t begin, int64_t n, void *out);
// If elements are floats: each of the n from `begin` on is in the range, once it is a number of its
// type; else DATA_LOSS as above.
TD_MUST_USE td_status td_npy_check(const struct td_npy *a, const struct td_npy_range *range,
                                   int64_t begin, int64_t n);
// Element i of an array of integers; u8 beyond int64 is INT64_MAX.
int64_t td_npy_int(const struct td_npy *a, int64_t i);

#endif
