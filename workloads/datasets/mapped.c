// Mapping a file of data, and the form of complaints about one; see mapped.h.

#include "workloads/datasets/mapped.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

#include "lib/base/files/named.h"

td_status td_mapped_init(const char *path, struct td_mapped *out_file) {
    struct stat st;
    TD_AUTO_CLOSE int fd = -1;
    td_status s = td_named_open(path, &fd, &st);
    if (s) return td_status_with_meta(s, "file", "%s", path);
    if (st.st_size == 0) return td_data_fail(path, 0, "bytes, at least", 1, 0);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        s = td_fail_errno(TD_RESOURCE_EXHAUSTED, "map '%s'", path);
        return td_status_with_class(s, TD_CLASS_OUT_OF_MEMORY);
    }
    *out_file = (struct td_mapped){map, (size_t)st.st_size};
    return TD_OK;
}

void td_mapped_finish(struct td_mapped *f) {
    if (f->data) munmap(f->data, f->bytes);
    *f = (struct td_mapped){0};
}

td_status td_data_fail_text(const char *path, uint64_t offset, const char *what,
                            const char *expected, const char *found) {
    td_status s = td_fail(TD_DATA_LOSS, "'%s' offset %" PRIu64 ": %s: expected %s, found %s", path,
                          offset, what, expected, found);
    s = td_status_with_meta(td_status_with_class(s, TD_CLASS_DATA), "file", "%s", path);
    s = td_status_with_meta(s, "offset", "%" PRIu64, offset);
    s = td_status_with_meta(s, "expected", "%s", expected);
    return td_status_with_meta(s, "found", "%s", found);
}

td_status td_data_fail(const char *path, uint64_t offset, const char *what, uint64_t expected,
                       uint64_t found) {
    char a[24], b[24];
    snprintf(a, sizeof a, "%" PRIu64, expected);
    snprintf(b, sizeof b, "%" PRIu64, found);
    return td_data_fail_text(path, offset, what, a, b);
}
