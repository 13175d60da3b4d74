#ifndef TRAIND_WORKLOADS_DATASETS_NPY_FILE_H
#define TRAIND_WORKLOADS_DATASETS_NPY_FILE_H

// One array as NumPy saves it: "\x93NUMPY", version (1, 2 or 3), length of the header, the header
// (a Python dict of descr, fortran_order and shape), then the elements, row-major.
//
// Little-endian numbers and booleans in C order are read; everything else (objects, text, records,
// big-endian, Fortran order) is refused, saying how to save it instead. The shape's product is held
// against the file's size, to the byte. Errors: DATA_LOSS, class data, with file, offset, expected
// and found. The file stays mapped for as long as the array is open. One thread.

#include "traind/types.h"
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

struct td_npy_range { // of floats
    float least, most;
};
extern const struct td_npy_range td_npy_finite; // any that is a number

struct td_npy {
    struct td_mapped file;
    char *path; // for messages
    enum td_npy_kind kind;
    struct td_shape shape;
    const char *data; // elements
    size_t offset;    // of data in the file
};

TD_MUST_USE td_status td_npy_open(const char *path, struct td_npy *out_array);
void td_npy_close(struct td_npy *a);
size_t td_npy_bytes(enum td_npy_kind kind); // of an element
bool td_npy_is_integer(enum td_npy_kind kind);
const char *td_npy_name(enum td_npy_kind kind); // "u1"
// n elements from `begin` on, as fp32.
void td_npy_floats(const struct td_npy *a, int64_t begin, int64_t n, float *out);
// If elements are floats: each of the n from `begin` on is in the range, once it is an fp32 number;
// else DATA_LOSS as above.
TD_MUST_USE td_status td_npy_check(const struct td_npy *a, const struct td_npy_range *range,
                                   int64_t begin, int64_t n);
// Element i of an array of integers; u8 beyond int64 is INT64_MAX.
int64_t td_npy_int(const struct td_npy *a, int64_t i);

#endif
