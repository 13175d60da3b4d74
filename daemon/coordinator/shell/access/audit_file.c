// The file is opened for each batch, so that whoever moved it away gets no more lines. The number
// of the last line is looked for from the end, a block at a time: lines of refused calls have none.

#include "daemon/coordinator/shell/access/audit_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/files/files.h"

enum { BLOCK_BYTES = 64 << 10, MARK_MAX = 64 };

td_status td_audit_file_sync(const char *path) {
    char dir[TD_FS_PATH_BYTES];
    TD_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) return TD_OK; // somebody moved it away
    if (fd < 0 || fdatasync(fd) != 0) return td_fs_fail("sync", path);
    TD_TRY(td_fs_path(dir, "%.*s", (int)(strrchr(path, '/') - path), path));
    return td_fs_fsync_dir(dir);
}

static td_status rotate(const char *path) {
    char from[TD_FS_PATH_BYTES], to[TD_FS_PATH_BYTES];
    TD_TRY(td_audit_file_sync(path));
    for (int i = TD_AUDIT_FILES - 1; i > 0; i--) {
        TD_TRY(i > 1 ? td_fs_path(from, "%s.%d", path, i - 1) : td_fs_path(from, "%s", path));
        TD_TRY(td_fs_path(to, "%s.%d", path, i));
        if (td_fs_exists(from)) TD_TRY(td_fs_rename(from, to));
    }
    return TD_OK;
}

td_status td_audit_file_append(const char *path, const char *text, size_t bytes) {
    struct stat st;
    if (stat(path, &st) == 0 && (size_t)st.st_size + bytes > TD_AUDIT_FILE_BYTES && st.st_size) {
        TD_TRY(rotate(path));
    }
    TD_AUTO_CLOSE int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fstat(fd, &st) != 0) return td_fs_fail("open", path);
    td_status failed = td_fd_write_all(fd, text, bytes, path);
    if (failed && ftruncate(fd, st.st_size) != 0) {
        return td_status_context(failed, "and a part of a line stays in the file");
    }
    return failed;
}

// The last in these bytes, after which a line ends there, too. A text in a line has its quotes
// escaped, so it holds no mark.
static uint64_t last_in(char *text, size_t bytes) {
    static const char mark[] = ",\"n\":";
    while (bytes && text[bytes - 1] != '\n') {
        bytes--;
    }
    text[bytes] = '\0';
    uint64_t number = 0;
    const char *at = text;
    while ((at = memmem(at, bytes - (size_t)(at - text), mark, sizeof mark - 1))) {
        at += sizeof mark - 1;
        number = strtoull(at, NULL, 10);
    }
    return number;
}

static td_status last_of(const char *path, uint64_t *out_number, bool *out_torn) {
    TD_AUTO_FREE char *block = malloc(BLOCK_BYTES + 1);
    struct stat st;
    if (!block) return td_fail_oom();
    *out_number = 0;
    *out_torn = false;
    TD_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT) return TD_OK;
    if (fd < 0 || fstat(fd, &st) != 0) return td_fs_fail("open", path);
    bool first = true;
    for (off_t end = st.st_size; end > 0 && !*out_number;) {
        off_t at = TD_MAX(end - BLOCK_BYTES, (off_t)0);
        ssize_t n = pread(fd, block, (size_t)(end - at), at);
        if (n != end - at) return td_fs_fail("read", path);
        if (first) *out_torn = block[n - 1] != '\n';
        first = false;
        *out_number = last_in(block, (size_t)n);
        end = at ? at + MARK_MAX : 0; // a mark may have been cut in two
    }
    return TD_OK;
}

td_status td_audit_file_last(const char *path, uint64_t *out_number, bool *out_torn) {
    char older[TD_FS_PATH_BYTES];
    bool torn, ignored;
    uint64_t number;
    TD_TRY(last_of(path, &number, &torn));
    for (int i = 1; i < TD_AUDIT_FILES && !number; i++) {
        TD_TRY(td_fs_path(older, "%s.%d", path, i));
        TD_TRY(last_of(older, &number, &ignored));
    }
    *out_number = number;
    *out_torn = torn;
    return TD_OK;
}
