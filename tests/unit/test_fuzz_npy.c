// A bounded run of the .npy reader's fuzz entry: arrays as NumPy writes them, and headers that lie,
// then mutations of them. In check-full many more rounds.

#include "tests/unit/test.h"

#include "tests/fuzz/fuzz_npy.c"

static const char floats[] =
    "\x93NUMPY\1\0\x3c\0{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n"
    "\0\0\x80\x3f\0\0\0\xc0";
static const char labels[] =
    "\x93NUMPY\2\0\x3a\0\0\0{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }\n\1\2\3";
static const char halves[] =
    "\x93NUMPY\3\0\x3a\0\0\0{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }\n\0\x3c\1\0";
static const char lying[] = "\x93NUMPY\1\0\x4e\0{'descr': '<i8', 'fortran_order': False, 'shape': "
                            "(281474976710656, 65536), }\n12345678";

static const char *const words[] = {"'descr': ",
                                    "'fortran_order': ",
                                    "'shape': ",
                                    "False",
                                    "True",
                                    "(",
                                    ")",
                                    ",",
                                    "{",
                                    "}",
                                    "'",
                                    "0",
                                    "281474976710656",
                                    "<i8",
                                    "|b1",
                                    "<f8",
                                    "\x93NUMPY",
                                    " "};

static void test_npy_stands_when_fed_mutated_files(void **state) {
    (void)state;
    const struct td_fuzz_input corpus[] = {{floats, sizeof floats - 1},
                                           {labels, sizeof labels - 1},
                                           {halves, sizeof halves - 1},
                                           {lying, sizeof lying - 1}};
    struct td_npy a; // the corpus begins with files that are right
    for (size_t i = 0; i < 3; i++) {
        assert_ok(td_npy_open(td_fuzz_file(corpus[i].data, corpus[i].bytes), &a));
        td_npy_close(&a);
    }
    td_fuzz_arrays(corpus, words, 10000, 200000);
}

TD_FUZZ_MAIN(test_npy_stands_when_fed_mutated_files)
