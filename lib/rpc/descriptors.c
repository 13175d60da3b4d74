// The bytes of build/gen/descriptors.bin, which protoc-c writes from every .proto of the tree.
//
// The assembler places them in read-only data. Rejected: a generated C array (slow to compile, and
// a tool more), and a file beside the binary (it may be missing or of another build). The path
// comes from the Makefile as TD_DESCRIPTORS. A zero byte follows, uncounted.

#include "lib/rpc/descriptors.h"

__asm__(".section .rodata\n"
        ".balign 8\n"
        ".globl td_rpc_descriptors_begin\n"
        ".hidden td_rpc_descriptors_begin\n"
        "td_rpc_descriptors_begin:\n"
        ".incbin \"" TD_DESCRIPTORS "\"\n"
        ".globl td_rpc_descriptors_end\n"
        ".hidden td_rpc_descriptors_end\n"
        "td_rpc_descriptors_end:\n"
        ".byte 0\n"
        ".previous\n");

extern const char td_rpc_descriptors_begin[];
extern const char td_rpc_descriptors_end[];

struct td_str td_rpc_descriptors(void) {
    return (struct td_str){
        td_rpc_descriptors_begin,
        (size_t)((uintptr_t)td_rpc_descriptors_end - (uintptr_t)td_rpc_descriptors_begin),
    };
}
