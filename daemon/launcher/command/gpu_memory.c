// See the header.

#include "daemon/launcher/command/gpu_memory.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/launcher/state.h"
#include "lib/base/files/files.h"

enum { TAIL_BYTES = 16 << 10 };

bool td_gpu_memory_ran_out(const char *tail) {
    static const char *const words[] = {"CUDA out of memory", "CUDA error: out of memory",
                                        "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError"};
    const char *from = tail + strlen(tail);
    for (int n = 0; from > tail; from--) {
        n += from[0] && from[-1] == '\n';
        if (n == TD_GPU_MEMORY_LINES) break;
    }
    for (size_t i = 0; i < TD_COUNTOF(words); i++) {
        if (strstr(from, words[i])) return true;
    }
    return false;
}

bool td_command_lacks_gpu_memory(const struct td_launcher *l, const struct td_launch_rank *r) {
    static char tail[TAIL_BYTES + 1]; // one thread
    char path[TD_FS_PATH_BYTES];
    snprintf(path, sizeof path, "%s/" TD_SEGMENT_ERR, l->o.dir, (unsigned)r->rank);
    TD_AUTO_CLOSE int fd = -1;
    td_status_free(td_fs_open(path, &fd, NULL));
    uint64_t from = r->err.file_bytes > TAIL_BYTES ? r->err.file_bytes - TAIL_BYTES : 0;
    ssize_t n = fd >= 0 ? pread(fd, tail, TAIL_BYTES, (off_t)from) : 0;
    if (n <= 0) return false;
    for (ssize_t i = 0; i < n; i++) {
        if (!tail[i]) tail[i] = ' ';
    }
    tail[n] = '\0';
    return td_gpu_memory_ran_out(tail);
}
