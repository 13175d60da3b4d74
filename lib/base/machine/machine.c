// Asked of the machine; contract in machine.h. The page size is libc's answer, which the kernel
// gave it at start. Modes of denormals are a register of the thread, which a new thread inherits
// from its creator on Linux, and which nothing else of ours writes.

#include "lib/base/machine/machine.h"

size_t td_page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

void td_denormals_flush(void) {
#if defined(__SSE__)
    enum { FTZ = 1 << 15, DAZ = 1 << 6 };
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | FTZ | DAZ);
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    control |= UINT64_C(1) << 24; // FZ
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
#endif
}
