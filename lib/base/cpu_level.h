#ifndef TRAIND_LIB_BASE_CPU_LEVEL_H
#define TRAIND_LIB_BASE_CPU_LEVEL_H

// The CPU level: which instructions this process uses.
//
// Levels are ordered; each has all that the ones before it have. A process holds one level, from
// its first question on: the machine's own, or a lower one that the job or the daemon asked for. So
// any level runs, and is tested, on every machine that has more, and a job can be resumed to the
// bit on an older machine. Nothing else in the tree asks the processor what it can do.
//
// Loops that gain from newer instructions are compiled once per code generation (enum td_cpu_code),
// one source, several objects. Each exports one table of functions, named by TD_LEVELED, and
// TD_LEVELED_TABLE picks the table of the level in use. Results of lib/, engine/, strategies/ and
// workloads/ are the same bits at every level; those of the cpu accelerator are not.
//
// Thread: td_cpu_level_hold is called by main before other threads exist, or by tests; the rest by
// any thread.

#include "lib/base/base.h"

enum td_cpu_level {
    TD_CPU_GENERIC,     // SSE2 on x86, plain C elsewhere
    TD_CPU_AVX2,        // x86-64-v3: AVX2, FMA, F16C, BMI
    TD_CPU_AVX512,      // x86-64-v4: AVX-512 F, BW, CD, DQ, VL
    TD_CPU_AVX512_BF16, // and dot products of bf16
    TD_CPU_AMX,         // and tiles of bf16
    TD_CPU_LEVEL_COUNT
};

// What objects are compiled for. bf16 and amx only choose among oneDNN's kernels.
enum td_cpu_code { TD_CODE_GENERIC, TD_CODE_V3, TD_CODE_V4, TD_CODE_COUNT };

// "generic", "avx2", "avx512", "avx512_bf16", "amx"; static.
const char *td_cpu_level_name(enum td_cpu_level level);
// False: no level has this name.
bool td_cpu_level_parse(const char *name, enum td_cpu_level *out_level);
// A level that somebody asks for by name, on a machine that has all up to `most`; "" and "auto" are
// `most`. from: "--cpu-level", "trainer.cpu_level". INVALID_ARGUMENT of class bad_spec, which names
// what is there: the name of no level, or of one above `most`.
TD_MUST_USE td_status td_cpu_level_read(const char *from, const char *name, enum td_cpu_level most,
                                        enum td_cpu_level *out_level);
// "generic, avx2, avx512": the names of all levels up to `most`.
enum { TD_CPU_LEVEL_NAMES = 64 };
void td_cpu_level_names(enum td_cpu_level most, char out[TD_CPU_LEVEL_NAMES]);

// What CPUID and XGETBV answer, as far as levels depend on it; all zero: not an x86 processor.
struct td_cpu_words {
    uint32_t leaf1_ecx, leaf7_ebx, leaf7_edx, leaf7_1_eax, ext1_ecx;
    uint64_t xcr0; // which registers the operating system keeps
};
enum { TD_CPU_GAP_BYTES = 128 };
// The highest level that these words have. out_gap: "" or, where the instruction set that names the
// next level is there and something else that the level needs is not, one sentence that says so.
enum td_cpu_level td_cpu_level_of(const struct td_cpu_words *words, char out_gap[TD_CPU_GAP_BYTES]);
// The same of this machine; out_gap may be NULL.
enum td_cpu_level td_cpu_level_of_machine(char *out_gap);

// Holds the process to a level, for good. INVALID_ARGUMENT: the machine has not got it, which names
// what it has. FAILED_PRECONDITION: the process holds another one already.
TD_MUST_USE td_status td_cpu_level_hold(enum td_cpu_level level);
// The level in use; the machine's from now on, if none was held before.
enum td_cpu_level td_cpu_level(void);
// Of the level in use, and of a level.
enum td_cpu_code td_cpu_code(void);
enum td_cpu_code td_cpu_code_of(enum td_cpu_level level);

// ---- code that is compiled once per level
// TD_LEVEL is set by the Makefile for such sources: generic, v3 or v4. TD_LEVELED(td_x) is the name
// of the one table that the object exports.
#define TD_LEVELED_JOIN(name, level) name##_##level
#define TD_LEVELED_OF(name, level)   TD_LEVELED_JOIN(name, level)
#define TD_LEVELED(name)             TD_LEVELED_OF(name, TD_LEVEL)
// Declares a table's objects: TD_LEVELED_DECLARE(struct td_x_loops, td_x);
// TD_LEVELED_TABLE(td_x) is the address of the one of the level in use.
#if defined(__x86_64__)
#define TD_LEVELED_DECLARE(type, name) extern const type name##_generic, name##_v3, name##_v4
#define TD_LEVELED_TABLE(name)                                                                     \
    (td_cpu_code() == TD_CODE_V4   ? &name##_v4                                                    \
     : td_cpu_code() == TD_CODE_V3 ? &name##_v3                                                    \
                                   : &name##_generic)
#else
#define TD_LEVELED_DECLARE(type, name) extern const type name##_generic
#define TD_LEVELED_TABLE(name)         (&name##_generic)
#endif

#endif
