// The CPU level of this process; contract in cpu_level.h.
//
// The machine's level comes from CPUID alone, one table of bits, and from XGETBV, which says
// whether the operating system keeps the registers. A level that lacks one of its bits is not
// there, and so are those above it. Hypervisors hide single flags, and code that is compiled for a
// level uses all of them. Rejected: the compiler's __builtin_cpu_supports, which gcc and clang
// answer differently and which cannot be asked about another machine in a test.

#include "lib/base/cpu_level.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const level_names[TD_CPU_LEVEL_COUNT] = {
    [TD_CPU_GENERIC] = "generic",         [TD_CPU_AVX2] = "avx2", [TD_CPU_AVX512] = "avx512",
    [TD_CPU_AVX512_BF16] = "avx512_bf16", [TD_CPU_AMX] = "amx",
};

const char *td_cpu_level_name(enum td_cpu_level level) {
    return level_names[level];
}

bool td_cpu_level_parse(const char *name, enum td_cpu_level *out_level) {
    for (int i = 0; i < TD_CPU_LEVEL_COUNT; i++) {
        if (strcmp(name, level_names[i]) != 0) continue;
        *out_level = (enum td_cpu_level)i;
        return true;
    }
    return false;
}

void td_cpu_level_names(enum td_cpu_level most, char out[TD_CPU_LEVEL_NAMES]) {
    size_t len = 0;
    for (int i = 0; i <= (int)most; i++) {
        len += (size_t)snprintf(out + len, TD_CPU_LEVEL_NAMES - len, "%s%s", i ? ", " : "",
                                level_names[i]);
    }
}

td_status td_cpu_level_read(const char *from, const char *name, enum td_cpu_level most,
                            enum td_cpu_level *out_level) {
    enum td_cpu_level level = most;
    bool automatic = !*name || strcmp(name, "auto") == 0;
    bool known = automatic || td_cpu_level_parse(name, &level);
    if (known && level <= most) {
        *out_level = level;
        return TD_OK;
    }
    char names[TD_CPU_LEVEL_NAMES];
    td_cpu_level_names(most, names);
    td_status s =
        known ? td_fail(TD_INVALID_ARGUMENT, "%s: this machine has no CPU level %s; it has %s",
                        from, name, names)
              : td_fail(TD_INVALID_ARGUMENT,
                        "%s: '%.64s' is no CPU level; this machine has %s, and auto takes "
                        "the highest",
                        from, name, names);
    return td_status_with_class(s, TD_CLASS_BAD_SPEC);
}

// ---- the machine --------------------------------------------------------------------------------
enum word { LEAF1_ECX, LEAF7_EBX, LEAF7_EDX, LEAF7_1_EAX, EXT1_ECX, XCR0 };

// The bits of each level. The first row of a level is the instruction set that gives it its name.
struct feature {
    enum td_cpu_level level;
    enum word word;
    uint32_t bits;
    const char *name;
};
static const struct feature features[] = {
    {TD_CPU_AVX2, LEAF7_EBX, 1u << 5, "avx2"},
    {TD_CPU_AVX2, LEAF1_ECX, 1u << 12, "fma"},
    {TD_CPU_AVX2, LEAF1_ECX, 1u << 22, "movbe"},
    {TD_CPU_AVX2, LEAF1_ECX, 1u << 27, "osxsave"},
    {TD_CPU_AVX2, LEAF1_ECX, 1u << 28, "avx"},
    {TD_CPU_AVX2, LEAF1_ECX, 1u << 29, "f16c"},
    {TD_CPU_AVX2, LEAF7_EBX, 1u << 3, "bmi1"},
    {TD_CPU_AVX2, LEAF7_EBX, 1u << 8, "bmi2"},
    {TD_CPU_AVX2, EXT1_ECX, 1u << 5, "lzcnt"},
    {TD_CPU_AVX2, XCR0, 0x6, "the operating system's support of 256-bit registers"},
    {TD_CPU_AVX512, LEAF7_EBX, 1u << 16, "avx512f"},
    {TD_CPU_AVX512, LEAF7_EBX, 1u << 17, "avx512dq"},
    {TD_CPU_AVX512, LEAF7_EBX, 1u << 28, "avx512cd"},
    {TD_CPU_AVX512, LEAF7_EBX, 1u << 30, "avx512bw"},
    {TD_CPU_AVX512, LEAF7_EBX, 1u << 31, "avx512vl"},
    {TD_CPU_AVX512, XCR0, 0xe0, "the operating system's support of 512-bit registers"},
    {TD_CPU_AVX512_BF16, LEAF7_1_EAX, 1u << 5, "avx512_bf16"},
    {TD_CPU_AMX, LEAF7_EDX, 1u << 24, "amx_tile"},
    {TD_CPU_AMX, LEAF7_EDX, 1u << 22, "amx_bf16"},
    {TD_CPU_AMX, LEAF7_EDX, 1u << 25, "amx_int8"},
    {TD_CPU_AMX, XCR0, 0x60000, "the operating system's support of tiles"},
};

static bool has(const struct td_cpu_words *w, const struct feature *f) {
    const uint32_t words[] = {
        [LEAF1_ECX] = w->leaf1_ecx,     [LEAF7_EBX] = w->leaf7_ebx, [LEAF7_EDX] = w->leaf7_edx,
        [LEAF7_1_EAX] = w->leaf7_1_eax, [EXT1_ECX] = w->ext1_ecx,   [XCR0] = (uint32_t)w->xcr0};
    return (words[f->word] & f->bits) == f->bits;
}

enum td_cpu_level td_cpu_level_of(const struct td_cpu_words *words,
                                  char out_gap[TD_CPU_GAP_BYTES]) {
    enum td_cpu_level level = TD_CPU_GENERIC;
    const struct feature *name = NULL;
    out_gap[0] = '\0';
    for (size_t i = 0; i < TD_COUNTOF(features); i++) {
        const struct feature *f = &features[i];
        if (!name || f->level != name->level) name = f;
        if (has(words, f)) {
            level = f->level; // as long as none of its bits is missing, see below
            continue;
        }
        level = (enum td_cpu_level)(f->level - 1);
        if (f != name) {
            snprintf(out_gap, TD_CPU_GAP_BYTES, "%s without %s: CPU level %s", name->name, f->name,
                     level_names[level]);
        }
        return level;
    }
    return level;
}

static void read_words(struct td_cpu_words *out) {
    *out = (struct td_cpu_words){0};
#if defined(__x86_64__)
    uint32_t a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) out->leaf1_ecx = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        uint32_t n_subleaves = a;
        out->leaf7_ebx = b;
        out->leaf7_edx = d;
        if (n_subleaves && __get_cpuid_count(7, 1, &a, &b, &c, &d)) out->leaf7_1_eax = a;
    }
    if (__get_cpuid(0x80000001, &a, &b, &c, &d)) out->ext1_ecx = c;
    if (out->leaf1_ecx & 1u << 27) {
        uint32_t low, high;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        out->xcr0 = (uint64_t)high << 32 | low;
    }
#endif
}

enum td_cpu_level td_cpu_level_of_machine(char *out_gap) {
    struct td_cpu_words words;
    char gap[TD_CPU_GAP_BYTES];
    read_words(&words);
    return td_cpu_level_of(&words, out_gap ? out_gap : gap);
}

// ---- the process --------------------------------------------------------------------------------
static _Atomic int held = -1; // enum td_cpu_level

td_status td_cpu_level_hold(enum td_cpu_level level) {
    enum td_cpu_level most = td_cpu_level_of_machine(NULL);
    if (level > most) {
        char names[TD_CPU_LEVEL_NAMES];
        td_cpu_level_names(most, names);
        return td_status_with_class(td_fail(TD_INVALID_ARGUMENT,
                                            "this machine has no CPU level %s; it has %s",
                                            level_names[level], names),
                                    TD_CLASS_BAD_SPEC);
    }
    int before = -1;
    if (atomic_compare_exchange_strong(&held, &before, (int)level) || before == (int)level) {
        return TD_OK;
    }
    return td_fail(
        TD_FAILED_PRECONDITION,
        "this process runs at CPU level %s; another level (%s) needs a process of its own",
        level_names[before], level_names[level]);
}

enum td_cpu_level td_cpu_level(void) {
    int level = atomic_load_explicit(&held, memory_order_relaxed);
    if (level >= 0) return (enum td_cpu_level)level;
    int machine = (int)td_cpu_level_of_machine(NULL);
    if (!atomic_compare_exchange_strong(&held, &level, machine)) return (enum td_cpu_level)level;
    return (enum td_cpu_level)machine;
}

enum td_cpu_code td_cpu_code_of(enum td_cpu_level level) {
    return level >= TD_CPU_AVX512 ? TD_CODE_V4
           : level == TD_CPU_AVX2 ? TD_CODE_V3
                                  : TD_CODE_GENERIC;
}

enum td_cpu_code td_cpu_code(void) {
    return td_cpu_code_of(td_cpu_level());
}
