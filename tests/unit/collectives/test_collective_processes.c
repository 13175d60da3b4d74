// The shared-memory collective with ranks as processes, as a launcher has them. This program starts
// itself once per rank on one memfd and plays the launcher, whose page at the end of the mapping
// holds the abort word and each rank's progress. It kills ranks at random moments. The others must
// leave, with ABORTED when the launcher says so and with DEADLINE_EXCEEDED when nobody does.

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "collectives/collectives.h"
#include "lib/base/clock.h"
#include "lib/base/machine/proc.h"

enum { WORLD = 3, GROUP_FD = 3, GRADIENT_BYTES = 256 << 10, PAGE = 4096 };
enum { EXIT_ABORTED = 31, EXIT_DEADLINE = 32, EXIT_OTHER = 33 };
static const int64_t patience_ns = 20 * TD_NS_PER_S;

struct page { // after the group's mapping
    _Atomic uint32_t abort;
    _Atomic uint32_t progress[WORLD];
};

struct mapping {
    void *data;
    size_t group_bytes;
    struct page *page;
};

static const struct td_collective_ops *shm(void) {
    return td_collective_shm.ops;
}

static bool map_group(int fd, struct mapping *out) {
    out->group_bytes = shm()->shared_bytes(WORLD, GRADIENT_BYTES);
    out->data = mmap(NULL, out->group_bytes + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    out->page = (struct page *)((char *)out->data + out->group_bytes);
    return out->data != MAP_FAILED;
}

// ---- the rank ----------------------------------------------------------------------------------
static bool launcher_says_abort(void *arg) {
    return atomic_load(&((struct page *)arg)->abort) != 0;
}

static td_status rank_run(struct td_collective *g, int32_t rank, struct page *page,
                          uint32_t n_calls) {
    void *region;
    size_t bytes;
    TD_TRY(shm()->gradients(g, &region, &bytes));
    for (uint32_t i = 0; i < n_calls; i++) {
        float *grads = region;
        int64_t n = 1 + (int64_t)(i * 2654435761u % (GRADIENT_BYTES / 4 - 17));
        for (int64_t j = 0; j < n + 16; j += 1024) {
            grads[j] = (float)rank;
        }
        grads[n + 15] = 1;
        const struct td_bucket bucket = {
            .struct_bytes = sizeof bucket,
            .n_buckets = 1,
            .dtype = TD_F32,
            .buffer = td_buffer_of_host(grads, bytes),
            .n = n,
            .has_control = true,
            .control_offset = (size_t)n * sizeof *grads,
        };
        TD_TRY(shm()->all_reduce_bucket(g, &bucket));
        TD_TRY(shm()->wait_buckets(g));
        if (grads[0] != 1.0f || grads[n + 15] != (float)WORLD) {
            return td_fail(TD_INTERNAL, "call %u: %g, %g", i, (double)grads[0],
                           (double)grads[n + 15]);
        }
        atomic_store(&page->progress[rank], i + 1);
    }
    return TD_OK;
}

// argv: rank, its index, timeout in ms, number of calls
static int rank_main(char **argv) {
    struct mapping m;
    struct td_collective *g = NULL;
    if (!map_group(GROUP_FD, &m)) return EXIT_OTHER;
    struct td_collective_config config = {.struct_bytes = sizeof config,
                                          .rank = (int32_t)strtol(argv[2], NULL, 10),
                                          .world_size = WORLD,
                                          .deadline.timeout_ns =
                                              strtol(argv[3], NULL, 10) * TD_NS_PER_MS,
                                          .shared = m.data,
                                          .shared_bytes = m.group_bytes,
                                          .aborted = launcher_says_abort,
                                          .aborted_arg = m.page};
    td_status s = shm()->join(&config, &g);
    if (!s) s = rank_run(g, config.rank, m.page, (uint32_t)strtoul(argv[4], NULL, 10));
    enum td_code code = td_status_code(s);
    if (s && code != TD_ABORTED && code != TD_DEADLINE_EXCEEDED) {
        fprintf(stderr, "rank %s: %s\n", argv[2], td_status_message(s));
    }
    td_status_free(s);
    shm()->leave(g);
    if (code == TD_ABORTED) return EXIT_ABORTED;
    return code == TD_CODE_OK ? 0 : code == TD_DEADLINE_EXCEEDED ? EXIT_DEADLINE : EXIT_OTHER;
}

// ---- the launcher ------------------------------------------------------------------------------
struct job {
    int fd;
    struct mapping m;
    struct td_proc rank[WORLD];
};

static void job_start(struct job *j, const char *timeout_ms, const char *n_calls) {
    char self[4096], index[WORLD][16];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    size_t bytes = shm()->shared_bytes(WORLD, GRADIENT_BYTES) + PAGE;
    j->fd = memfd_create("group", MFD_CLOEXEC);
    assert_true(j->fd >= 0 && ftruncate(j->fd, (off_t)bytes) == 0 && map_group(j->fd, &j->m));
    for (int r = 0; r < WORLD; r++) {
        snprintf(index[r], sizeof index[r], "%d", r);
        const char *const argv[] = {self, "rank", index[r], timeout_ms, n_calls, NULL};
        const char *env[] = {"TSAN_OPTIONS=exitcode=0", NULL};
        const struct td_proc_fd fds[] = {{2, 2}, {j->fd, GROUP_FD}};
        const struct td_proc_options o = {
            .path = self, .argv = argv, .env = env, .fds = fds, .n_fds = 2};
        td_status s = td_proc_spawn(&o, &j->rank[r]);
        if (s) fail_msg("%s", td_status_message(s));
    }
}

// Exit code, or -signal; kills and fails after patience_ns.
static int job_wait(struct job *j, int r) {
    struct pollfd p = {.fd = j->rank[r].pidfd, .events = POLLIN};
    struct td_mono end = td_mono_add(td_mono_now(), patience_ns);
    while (poll(&p, 1, 1000) != 1) {
        if (td_mono_now().ns < end.ns) continue;
        for (int i = 0; i < WORLD; i++) {
            kill(j->rank[i].pid, SIGKILL);
        }
        fail_msg("rank %d did not end", r);
    }
    int status = 0;
    while (waitpid(j->rank[r].pid, &status, 0) < 0 && errno == EINTR) {
        continue;
    }
    close(j->rank[r].pidfd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void job_finish(struct job *j) {
    munmap(j->m.data, j->m.group_bytes + PAGE);
    close(j->fd);
}

static void job_await_progress(struct job *j, int r, uint32_t least) {
    struct td_mono end = td_mono_add(td_mono_now(), patience_ns);
    while (atomic_load(&j->m.page->progress[r]) < least) {
        if (td_mono_now().ns > end.ns) fail_msg("rank %d makes no progress", r);
    }
}

static void test_ranks_agree_when_they_are_processes(void **state) {
    (void)state;
    struct job j;
    job_start(&j, "20000", "300");
    for (int r = 0; r < WORLD; r++) {
        assert_int_equal(job_wait(&j, r), 0);
    }
    job_finish(&j);
}

static void test_peers_leave_when_a_rank_is_killed_at_any_moment(void **state) {
    (void)state;
    uint32_t dice = 4711;
    for (int round = 0; round < 24; round++) {
        struct job j;
        dice = dice * 1664525u + 1013904223u;
        int victim = (int)(dice >> 16) % WORLD;
        job_start(&j, "600000", "1000000000");
        if (round % 4) job_await_progress(&j, victim, dice >> 25);
        for (volatile uint32_t i = dice >> 12 & 0x3fff; i; i--) {
            continue; // anywhere in a call
        }
        kill(j.rank[victim].pid, SIGKILL);
        assert_int_equal(job_wait(&j, victim), -SIGKILL);
        struct td_mono asked = td_mono_now();
        atomic_store(&j.m.page->abort, 1);
        for (int r = 0; r < WORLD; r++) {
            if (r != victim) assert_int_equal(job_wait(&j, r), EXIT_ABORTED);
        }
        assert_true(td_mono_now().ns - asked.ns < 60 * TD_NS_PER_S);
        job_finish(&j);
    }
}

static void test_peers_leave_when_a_rank_is_killed_and_nobody_tells_them(void **state) {
    (void)state;
    struct job j;
    job_start(&j, "2000", "1000000000");
    job_await_progress(&j, 1, 10);
    kill(j.rank[1].pid, SIGKILL);
    assert_int_equal(job_wait(&j, 1), -SIGKILL);
    int a = job_wait(&j, 0), b = job_wait(&j, 2); // the first to give up aborts the other
    assert_true(a == EXIT_DEADLINE || b == EXIT_DEADLINE);
    assert_true(a == EXIT_DEADLINE || a == EXIT_ABORTED);
    assert_true(b == EXIT_DEADLINE || b == EXIT_ABORTED);
    job_finish(&j);
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "rank") == 0) return rank_main(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_agree_when_they_are_processes),
        cmocka_unit_test(test_peers_leave_when_a_rank_is_killed_at_any_moment),
        cmocka_unit_test(test_peers_leave_when_a_rank_is_killed_and_nobody_tells_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
