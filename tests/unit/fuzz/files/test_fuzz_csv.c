// A bounded run of the csv logger's fuzz entry: files as it writes them, torn, of somebody else,
// and mutations of them.

#include "tests/unit/test.h"

#include "tests/fuzz/files/fuzz_csv.c"

static const char *const words[] = {",",    "\r\n",  "\n",  "\"", "\"\"",
                                    "step", "epoch", "nan", "99", "9223372036854775808"};
#define TEXT(text)                                                                                 \
    { text, sizeof(text) - 1 }

static void test_csv_stands_when_fed_mutated_files(void **state) {
    (void)state;
    static char wide[6000];
    int at = snprintf(wide, sizeof wide, "epoch,step");
    for (int i = 0; i < 300; i++) { // more columns than are held
        at += snprintf(wide + at, sizeof wide - (size_t)at, ",m%d", i);
    }
    memcpy(wide + at, "\r\n", 2);
    const struct td_fuzz_input corpus[] = {
        TEXT("epoch,loss,step\r\n0,1.5,1\r\n0,nan,2\r\n1,,3\r\n"),
        TEXT("\"a,b\",epoch,\"q\"\"q\",step\r\n1.0,0,,7\r\n2.0,0,-inf,8\r\n1.0,0,0.5,700\r\n"),
        TEXT("epoch,loss,step\r\n0,1.5,1\r\n0,2"),
        TEXT("loss,step\r\n1.5,1\r\n"),
        TEXT("epoch,step\n1,2\n"),
        TEXT("epoch,step\r\n\"1,2\",3\r\n"),
        TEXT("epoch,st"),
        TEXT("\"a\0\0\0 "
             "some,text,,that\r\n5,b\",epoch,\"q\"\"q\",step\r\n1.0,0,,7\r\n2.0,0,-inf,8\r\n"),
        {wide, (size_t)at + 2},
        {"", 0},
    };
    td_fuzz_arrays(corpus, words, 1000);
}

TD_FUZZ_MAIN(test_csv_stands_when_fed_mutated_files)
