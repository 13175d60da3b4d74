// A bounded run of the .npy reader's fuzz entry: arrays as NumPy writes them, and headers that lie,
// then mutations of them.

#include "tests/unit/test.h"

#include "tests/fuzz/files/fuzz_npy.c"

static const char floats[] =
    "\x93NUMPY\1\0\x3c\0{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n"
    "\0\0\x80\x3f\0\0\0\xc0";
static const char labels[] =
    "\x93NUMPY\2\0\x3a\0\0\0{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }\n\1\2\3";
static const char halves[] =
    "\x93NUMPY\3\0\x3a\0\0\0{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }\n\0\x3c\1\0";
static const char lying[] = "\x93NUMPY\1\0\x4e\0{'descr': '<i8', 'fortran_order': False, 'shape': "
                            "(281474976710656, 65536), }\n12345678";

// Archives with such an array, x, as Python's zipfile writes them: stored, with sizes of 64 bits;
// and deflated.
static const char stored[] =
    "\120\113\003\004\055\000\000\000\000\000\000\000\041\000\207\144\027\216\377\377"
    "\377\377\377\377\377\377\005\000\024\000\170\056\156\160\171\001\000\020\000\115"
    "\000\000\000\000\000\000\000\115\000\000\000\000\000\000\000\223\116\125\115\120"
    "\131\001\000\073\000\173\047\144\145\163\143\162\047\072\040\047\074\146\064\047"
    "\054\040\047\146\157\162\164\162\141\156\137\157\162\144\145\162\047\072\040\124"
    "\162\165\145\054\040\047\163\150\141\160\145\047\072\040\050\062\054\040\061\051"
    "\054\040\175\012\000\000\200\077\000\000\000\300\120\113\001\002\055\003\055\000"
    "\000\000\000\000\000\000\041\000\207\144\027\216\115\000\000\000\115\000\000\000"
    "\005\000\000\000\000\000\000\000\000\000\000\000\200\001\000\000\000\000\170\056"
    "\156\160\171\120\113\005\006\000\000\000\000\001\000\001\000\063\000\000\000\204"
    "\000\000\000\000\000";
static const char deflated[] =
    "\120\113\003\004\024\000\000\000\010\000\000\000\041\000\207\144\027\216\112\000"
    "\000\000\115\000\000\000\005\000\000\000\170\056\156\160\171\233\354\027\352\033"
    "\020\311\310\140\315\120\255\236\222\132\234\134\244\156\245\240\156\223\146\242"
    "\256\243\240\236\226\137\124\122\224\230\027\237\137\224\222\012\022\017\051\052"
    "\115\005\012\027\147\044\026\244\002\271\032\106\072\012\206\232\072\012\265\134"
    "\014\014\015\366\014\014\014\007\000\120\113\001\002\024\003\024\000\000\000\010"
    "\000\000\000\041\000\207\144\027\216\112\000\000\000\115\000\000\000\005\000\000"
    "\000\000\000\000\000\000\000\000\000\200\001\000\000\000\000\170\056\156\160\171"
    "\120\113\005\006\000\000\000\000\001\000\001\000\063\000\000\000\155\000\000\000"
    "\000\000";

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
                                    "PK\1\2",
                                    "PK\3\4",
                                    "PK\5\6",
                                    " "};

static void test_npy_stands_when_fed_mutated_files(void **state) {
    (void)state;
    const struct td_fuzz_input corpus[] = {
        {floats, sizeof floats - 1}, {labels, sizeof labels - 1},     {halves, sizeof halves - 1},
        {stored, sizeof stored - 1}, {deflated, sizeof deflated - 1}, {lying, sizeof lying - 1}};
    struct td_npy a; // the corpus begins with files that are right
    for (size_t i = 0; i < 5; i++) {
        assert_ok(td_npy_open(td_fuzz_file(corpus[i].data, corpus[i].bytes), "x", NULL, &a));
        td_npy_close(&a);
    }
    td_fuzz_arrays(corpus, words, 10000);
}

TD_FUZZ_MAIN(test_npy_stands_when_fed_mutated_files)
