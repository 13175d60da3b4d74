#ifndef TRAIND_TESTS_FUZZ_FUZZ_H
#define TRAIND_TESTS_FUZZ_FUZZ_H

// Feeds a fuzz entry point without libFuzzer: a corpus, then mutations of it, for a stated number
// of rounds from a stated seed, so a failure is found again. tests/unit/fuzz/<room>/test_fuzz_<x>.c
// holds the corpus and runs tests/fuzz/<room>/fuzz_<x>.c so in every `make check`. `make fuzz`
// compiles the same entry with clang -fsanitize=fuzzer and lets it run for as long as one likes,
// beginning with the same corpus. With TD_FUZZ_CORPUS=DIR set, the driver writes it there and runs
// nothing.
//
// Rooms: texts that people write, messages of processes to each other, and files.

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/base.h"

// What a driver of tests/unit does with its arrays. Where it is for finding more, libFuzzer runs.
#define td_fuzz_arrays(corpus, words, rounds)                                                      \
    td_fuzz_run(corpus, TD_COUNTOF(corpus), words, TD_COUNTOF(words), rounds, 1)
// main of a driver that has one test.
#define TD_FUZZ_MAIN(f)                                                                            \
    int main(void) {                                                                               \
        const struct CMUnitTest tests[] = {cmocka_unit_test(f)};                                   \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct td_fuzz_input {
    const void *data;
    size_t bytes;
};

enum { TD_FUZZ_MAX = 8192 };

// What must hold whatever comes in; libFuzzer and the driver both see an abort.
static inline void td_fuzz_expect(bool x) {
    if (!x) abort();
}

// An answer to bad bytes: one of two codes, with a text. Consumes the status.
static inline void td_fuzz_expect_refusal(td_status s, enum td_code a, enum td_code b) {
    enum td_code code = td_status_code(s);
    td_fuzz_expect(code == a || code == b);
    td_fuzz_expect(*td_status_message(s) != '\0');
    td_status_free(s);
}

// The bytes as a file, for decoders that take a path; good until the next call.
static inline const char *td_fuzz_file(const void *data, size_t bytes) {
    static int fd = -1;
    static char path[32];
    if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
    td_fuzz_expect(fd >= 0 && ftruncate(fd, 0) == 0);
    td_fuzz_expect(pwrite(fd, data, bytes, 0) == (ssize_t)bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

static inline uint32_t td_fuzz_next(uint64_t *state) { // splitmix64
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(z >> 32);
}

// One change: flip, set, insert from the dictionary, cut out, double a piece.
static inline size_t td_fuzz_mutate(uint8_t *data, size_t len, const char *const *words,
                                    size_t n_words, uint64_t *state) {
    size_t at = len ? td_fuzz_next(state) % len : 0;
    size_t n = len - at ? 1 + td_fuzz_next(state) % (len - at < 32 ? len - at : 32) : 0;
    switch (td_fuzz_next(state) % 5) {
    case 0:
        if (len) data[at] ^= (uint8_t)(1U << td_fuzz_next(state) % 8);
        return len;
    case 1:
        if (len) data[at] = (uint8_t)td_fuzz_next(state);
        return len;
    case 2: {
        const char *word = words[td_fuzz_next(state) % n_words];
        size_t word_len = strlen(word);
        if (len + word_len > TD_FUZZ_MAX) return len;
        memmove(data + at + word_len, data + at, len - at);
        memcpy(data + at, word, word_len);
        return len + word_len;
    }
    case 3:
        memmove(data + at, data + at + n, len - at - n);
        return len - n;
    default:
        if (len + n > TD_FUZZ_MAX) return len;
        memmove(data + at + n, data + at, len - at);
        return len + n;
    }
}

static inline void td_fuzz_write_corpus(const char *dir, const struct td_fuzz_input *corpus,
                                        size_t n_corpus) {
    for (size_t i = 0; i < n_corpus; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/seed-%zu", dir, i);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        td_fuzz_expect(fd >= 0);
        td_fuzz_expect(write(fd, corpus[i].data, corpus[i].bytes) == (ssize_t)corpus[i].bytes);
        close(fd);
    }
}

static inline void td_fuzz_run(const struct td_fuzz_input *corpus, size_t n_corpus,
                               const char *const *words, size_t n_words, int rounds,
                               uint64_t seed) {
    static uint8_t data[TD_FUZZ_MAX];
    const char *corpus_dir = getenv("TD_FUZZ_CORPUS");
    if (corpus_dir) {
        td_fuzz_write_corpus(corpus_dir, corpus, n_corpus);
        return;
    }
    for (size_t i = 0; i < n_corpus; i++) {
        LLVMFuzzerTestOneInput(corpus[i].data, corpus[i].bytes);
    }
    for (int round = 0; round < rounds; round++) {
        const struct td_fuzz_input *from = &corpus[td_fuzz_next(&seed) % n_corpus];
        size_t len = from->bytes < TD_FUZZ_MAX ? from->bytes : TD_FUZZ_MAX;
        if (len) memcpy(data, from->data, len);
        for (uint32_t n = 1 + td_fuzz_next(&seed) % 8; n > 0; n--) {
            len = td_fuzz_mutate(data, len, words, n_words, &seed);
        }
        // A block of the exact size, so that the address sanitizer sees a read past its end.
        uint8_t *exact = malloc(len ? len : 1);
        if (!exact) abort();
        memcpy(exact, data, len);
        LLVMFuzzerTestOneInput(exact, len);
        free(exact);
    }
}

#endif
