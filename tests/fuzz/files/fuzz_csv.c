// Fuzz entry of the csv logger: any bytes as the metrics.csv that a job finds when it goes on. It
// is refused with a text and left as it was, or it is cut to what holds. Then a row with a new
// column goes after it, and all of the file holds when it is taken up again. Run by
// tests/unit/fuzz/files/test_fuzz_csv.c.

#include "tests/fuzz/fuzz.h"

#include <sys/stat.h>

#include "daemon/launcher/loggers/logger_sink.h"
#include "lib/base/files/files.h"

enum { LAST = 100 };

static char dir[64];

// The directory goes when the process ends well; what a crash leaves is for whoever looks into it.
static void __attribute__((destructor)) leave(void) {
    if (dir[0]) td_status_free(td_fs_remove_tree(dir));
}

static const char *path_of_csv(void) {
    static char path[96];
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "/tmp/td-fuzz-csv-XXXXXX");
        td_fuzz_expect(mkdtemp(dir) != NULL);
    }
    snprintf(path, sizeof path, "%s/metrics.csv", dir);
    return path;
}

static void write_file(const char *path, const uint8_t *data, size_t size) {
    TD_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    td_fuzz_expect(fd >= 0 && write(fd, data, size) == (ssize_t)size);
}

static size_t bytes_of(const char *path) {
    struct stat st;
    td_fuzz_expect(stat(path, &st) == 0);
    return (size_t)st.st_size;
}

// Step LAST + 1: no row that was kept is later.
static void put_row(struct td_log_sink *s) {
    static struct td_log_row row = {
        .step = LAST + 1,
        .epoch = 2,
        .n = 2,
        .value = {{.name = "loss", .value = 0.5}, {.name = "a \"new\",\nstep", .value = -1}}};
    td_fuzz_expect(!td_log_csv.put(s, &row));
    td_fuzz_expect(!td_log_csv.flush(s));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = path_of_csv();
    struct td_log_open how = {.dir = dir, .attempt = 2, .last = LAST};
    struct td_log_sink *s = NULL;
    write_file(path, data, size);
    td_status refused = td_log_csv.open(&how, &s);
    if (refused) {
        td_fuzz_expect_refusal(refused, TD_FAILED_PRECONDITION, TD_FAILED_PRECONDITION);
        td_fuzz_expect(bytes_of(path) == size);
        return 0;
    }
    td_fuzz_expect(bytes_of(path) <= size);
    put_row(s);
    td_log_csv.close(s);
    const size_t whole = bytes_of(path);
    how.last = LAST + 1;
    td_fuzz_expect(!td_log_csv.open(&how, &s));
    td_fuzz_expect(bytes_of(path) == whole);
    put_row(s); // it is there
    td_log_csv.close(s);
    td_fuzz_expect(bytes_of(path) == whole);
    return 0;
}
