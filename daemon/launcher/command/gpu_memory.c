// See the header.

#include "daemon/launcher/command/gpu_memory.h"

#include <string.h>

#include "lib/base/base.h"

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
