// A spec is checked by the coordinator. Here only what can never be sent is refused: a file that is
// not there, more than 1 MiB, bytes that are not UTF-8 (a binary given by mistake). All of it is
// wrong usage of this program, hence INVALID_ARGUMENT and exit 2.

#include "client/jobs/spec_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/files/files.h"
#include "lib/base/utf8.h"

static td_status read_stdin(struct td_buf *out) {
    char chunk[TD_SPEC_FILE_CHUNK];
    for (;;) {
        ssize_t n = read(STDIN_FILENO, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return td_fail_errno(TD_INVALID_ARGUMENT, "read the spec from standard input");
        if (n == 0) return TD_OK;
        size_t room = TD_SPEC_FILE_MAX + 1 - out->len; // one byte over is refused by the caller
        TD_TRY(td_buf_append(out, chunk, TD_MIN((size_t)n, room)));
        if (out->len > TD_SPEC_FILE_MAX) return TD_OK;
    }
}

static td_status read_file(const char *path, struct td_buf *out) {
    struct stat st;
    if (stat(path, &st) != 0) return td_fail_errno(TD_INVALID_ARGUMENT, "job spec '%s'", path);
    if (!S_ISREG(st.st_mode)) {
        return td_fail(TD_INVALID_ARGUMENT, "job spec '%s' is not a file", path);
    }
    if (st.st_size > TD_SPEC_FILE_MAX) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "job spec '%s' has %lld bytes, at most %d (1 MiB) are taken", path,
                       (long long)st.st_size, TD_SPEC_FILE_MAX);
    }
    return td_fs_read(path, TD_SPEC_FILE_MAX, out);
}

td_status td_spec_file_read(const char *path, struct td_buf *out) {
    bool from_stdin = !strcmp(path, "-");
    if (from_stdin) {
        TD_TRY(read_stdin(out));
    } else {
        TD_TRY(read_file(path, out));
    }
    const char *shown = from_stdin ? "standard input" : path;
    if (out->len > TD_SPEC_FILE_MAX) {
        return td_fail(TD_INVALID_ARGUMENT, "job spec on %s has more than %d bytes (1 MiB)", shown,
                       TD_SPEC_FILE_MAX);
    }
    if (!td_utf8_valid(out->data, out->len) || (out->len && memchr(out->data, 0, out->len))) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "'%s' is not text (UTF-8 without NUL bytes is expected); a job spec is YAML "
                       "or JSON, see examples/fashion-mnist.yaml",
                       shown);
    }
    return TD_OK;
}
