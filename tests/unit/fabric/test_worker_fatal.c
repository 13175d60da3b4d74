// Last words of a crash: what the handler says of the place, and that it stays one line however
// long the names are. Each case crashes a child, whose stderr is read to its end.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/signals/fatal.h"
#include "lib/base/clock.h"
#include "tests/unit/test.h"

enum { NAME_BYTES = 48, LONG_NAME_BYTES = 200, WORDS_BYTES = 1024 };

static struct td_rank_page left; // what the last child left in its page

// What a child that crashes in there leaves on stderr, NUL-terminated.
static size_t words_of(void (*crash)(void), int sig, char *out, size_t out_bytes) {
    size_t page_bytes = sizeof(struct td_rank_page);
    struct td_rank_page *page =
        mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        dup2(ends[1], STDERR_FILENO);
        if (!td_fatal_install(page)) crash();
        _exit(0);
    }
    close(ends[1]);
    size_t len = 0;
    for (ssize_t got; (got = read(ends[0], out + len, out_bytes - 1 - len)) > 0;) {
        len += (size_t)got;
    }
    out[len] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == sig);
    assert_int_equal(strlen(page->last_words), len - 1);
    assert_memory_equal(page->last_words, out, len - 1);
    left = *page;
    munmap(page, page_bytes);
    return len;
}

// Its code may no longer be run, so that its first byte faults.
static void call_what_cannot_run(void) {
    void *at = dlsym(RTLD_DEFAULT, "td_real_format");
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    char text[64];
    if (!at || mprotect((char *)at - (uintptr_t)at % page_bytes, page_bytes, PROT_READ)) return;
    td_real_format((struct td_real){0}, text, sizeof text);
}

static void test_place_is_the_function_when_its_first_byte_faults(void **state) {
    (void)state;
    char words[4096];
    words_of(call_what_cannot_run, SIGSEGV, words, sizeof words);
    print_message("# %.300s\n", words);
    // A sanitizer is between the handler and backtrace(3): one frame more of no interest.
    bool sanitized = dlsym(RTLD_DEFAULT, "__sanitizer_print_stack_trace") != NULL;
    assert_non_null(strstr(words, sanitized ? "backtrace " : "backtrace td_real_format+0x0 "));
}

static __attribute__((noinline)) void dive(volatile int *depth) {
    if (*depth == 0) __builtin_trap();
    --*depth;
    if (*depth >= 0) dive(depth);
    ++*depth; // no jump: the frame stays
}

static void crash_deep_in_long_names(void) {
    static char name[LONG_NAME_BYTES + 1];
    memset(name, 'n', LONG_NAME_BYTES);
    program_invocation_short_name = name; // what a function that nobody exports is called
    volatile int depth = 64;
    dive(&depth);
}

static void test_words_are_one_line_of_many_places_when_names_are_long(void **state) {
    (void)state;
    char words[4096];
    size_t len = words_of(crash_deep_in_long_names, SIGILL, words, sizeof words);
    print_message("# %.300s\n", words);
    assert_int_equal(len, WORDS_BYTES);
    assert_ptr_equal(strchr(words, '\n'), words + len - 1);
    size_t n_whole = 0;
    for (const char *at = words; (at = strstr(at, " n")) != NULL; at++) {
        if (!strchr(at + 1, '+')) break; // cut off
        assert_int_equal(strspn(at + 1, "n"), NAME_BYTES);
        n_whole++;
    }
    assert_in_range(n_whole, 12, WORDS_BYTES / NAME_BYTES);
}

// ---- a file that is cut short -------------------------------------------------------------------
static char file_path[128];
static int file_flags;

static void read_past_the_end(void) {
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    const int fd = open(file_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)(4 * page_bytes)) != 0) return;
    const char *at = mmap(NULL, 3 * page_bytes, PROT_READ, file_flags, fd, (off_t)page_bytes);
    if (at == MAP_FAILED || ftruncate(fd, 100) != 0) return;
    (void)*(volatile const char *)(at + page_bytes + 7);
}

static void test_file_and_offset_are_named_when_it_was_cut_short(void **state) {
    char words[4096], place[256];
    const long long offset = 2 * sysconf(_SC_PAGESIZE) + 7;
    snprintf(file_path, sizeof file_path, "%s/some data.npy", (const char *)*state);
    snprintf(place, sizeof place, " in '%s' offset %lld, phase ", file_path, offset);
    file_flags = MAP_SHARED;
    words_of(read_past_the_end, SIGBUS, words, sizeof words);
    assert_non_null(strstr(words, place));
    assert_string_equal(left.lost_data, file_path);
    assert_int_equal(left.lost_offset, offset);
    file_flags = MAP_PRIVATE; // of the cache
    words_of(read_past_the_end, SIGBUS, words, sizeof words);
    assert_non_null(strstr(words, place));
    assert_string_equal(left.lost_data, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place_is_the_function_when_its_first_byte_faults),
        cmocka_unit_test(test_words_are_one_line_of_many_places_when_names_are_long),
        test_in_scratch(test_file_and_offset_are_named_when_it_was_cut_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
