// A program of somebody's own for kind: program, for test_s25_programs.py: the rank's side of
// TRAIND_RANK by hand, so that the launcher is tested and not the library's loop.
//
//   program MODE [NUMBER]
//     train N   steps to N, saves every 100, obeys stop and abort words; from the plan's
//     resume_from code N    attaches, then exits with N and says no more fail      attaches, then
//     says that its data are wrong other     finds a rank page of another version deaf attaches,
//     then ignores its page and SIGTERM term      attaches, then ends by itself when SIGTERM comes,
//     and says so silent    steps a little, then never again group     grows the group's memory and
//     meets the other ranks in it store     leaves values for the other rank, and gets its
// Each says on stdout what it does.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/train/events/events.h"
#include "fabric/attach.h"
#include "fabric/signals/fatal.h"
#include "lib/attempt/event_writer.h"
#include "lib/attempt/rank_env.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/clock.h"
#include "lib/base/digest.h"
#include "lib/base/files/files.h"
#include "lib/spec/plan.h"
#include "traind/store.h"

enum { PLAN_MAX = 4 << 20, SAVE_EVERY = 100, GROUP_BYTES = 1 << 20, PATIENCE_S = 30 };

struct rank {
    struct td_rank_env env;
    struct td_rank_io io;
    struct td_events events;
    struct td_arena *arena;
    struct td_plan plan;
};

static td_status read_plan(struct rank *r) {
    TD_AUTO_BUF text;
    td_buf_init(&text, PLAN_MAX);
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &r->arena));
    TD_TRY(td_fs_read(r->env.plan, PLAN_MAX, &text));
    return td_plan_parse(r->arena, text.data, text.len, &r->plan);
}

static td_status attach(struct rank *r) {
    const struct td_rank_args args = {.rank = r->env.rank,
                                      .world_size = r->env.world_size,
                                      .page_fd = r->env.page_fd,
                                      .events_fd = r->env.events_fd,
                                      .group_fd = r->env.group_fd,
                                      .store_fd = r->env.store_fd};
    TD_TRY(td_rank_attach(&args, &r->io));
    TD_TRY(td_fatal_install(r->io.train.page));
    TD_TRY(read_plan(r));
    td_events_ready(&r->events);
    printf("attached attempt=%d threads=%d from=%s\n", r->plan.run.attempt,
           r->plan.run.threads_per_rank, r->plan.run.resume_from);
    return TD_OK;
}

// ---- training -----------------------------------------------------------------------------------
static void beat(struct rank *r, int64_t step) {
    struct td_rank_page *p = r->io.train.page;
    struct td_metric_record m = {.name = "loss",
                                 .step = (int32_t)step,
                                 .sum = 1.0 / (double)step,
                                 .count = 1,
                                 .real_ns = td_real_now().ns,
                                 .flags = TD_METRIC_SUM_COUNT};
    (void)td_ring_push(&r->io.train.ring, &m);
    atomic_store(&p->phase, TD_PHASE_TRAINING);
    atomic_store(&p->step, step);
    atomic_fetch_add(&p->samples, 1);
    atomic_store(&p->heartbeat_ns, td_mono_now().ns);
}

// One file that holds the step, and what is called a manifest. Rank 0 alone saves.
static td_status save(struct rank *r, int64_t step) {
    char text[32], digest[TD_DIGEST_HEX], path[TD_FS_PATH_BYTES], dir[TD_FS_PATH_BYTES], label[64];
    int n = snprintf(text, sizeof text, "%lld\n", (long long)step);
    if (r->env.rank != 0) return TD_OK;
    TD_TRY(td_fs_path(dir, "%s/step-%lld", r->plan.run.checkpoint_dir, (long long)step));
    TD_TRY(td_fs_mkdirs(dir, 0777));
    const char *const names[] = {"state", "manifest.json"};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        TD_TRY(td_fs_path(path, "%s/%s", dir, names[i]));
        TD_TRY(td_fs_write(path, text, (size_t)n, 0666, TD_FS_WRITE_DURABLE));
    }
    td_xxh3_128_hex(text, (size_t)n, digest);
    snprintf(label, sizeof label, "a%d/step-%lld", r->plan.run.attempt, (long long)step);
    TD_AUTO_BUF line;
    td_buf_init(&line, TD_EVENT_MAX);
    struct td_event_writer w;
    td_event_open(&w, TD_EVENT_CHECKPOINT, &line);
    td_event_checkpoint_step(&w, step);
    td_event_checkpoint_epoch(&w, 0);
    td_event_checkpoint_path(&w, label);
    td_event_checkpoint_directory(&w, dir);
    td_event_checkpoint_bytes(&w, 2 * n);
    td_event_checkpoint_manifest(&w, digest);
    td_event_checkpoint_files(&w);
    td_event_add_file(&w, "state", (uint64_t)n, digest);
    td_event_end_list(&w);
    td_event_checkpoint_metrics(&w);
    td_event_add_metric(&w, "loss", 1.0 / (double)step);
    td_event_end_list(&w);
    TD_TRY(td_event_close(&w));
    td_events_send(&r->events, line.data, line.len);
    return TD_OK;
}

static td_status load(struct rank *r, int64_t *out_step) {
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF text;
    td_buf_init(&text, 4096);
    *out_step = 0;
    const char *from =
        r->plan.run.resume_from[0] ? r->plan.run.resume_from : r->plan.spec.ckpt_path;
    if (!from[0]) return TD_OK;
    TD_TRY(td_fs_path(path, "%s/state", from));
    TD_TRY(td_fs_read(path, 4096, &text));
    *out_step = strtoll(td_buf_cstr(&text), NULL, 10);
    td_events_resumed(&r->events, *out_step, "");
    return TD_OK;
}

// The pace of a step.
static void compute(void) {
    const struct td_mono until = td_mono_add(td_mono_now(), TD_NS_PER_MS);
    while (td_mono_now().ns < until.ns) {}
}

static td_status train(struct rank *r, int64_t last, bool *out_stopped) {
    int64_t step, begun;
    struct td_rank_page *p = r->io.train.page;
    TD_TRY(load(r, &begun));
    atomic_store(&p->total_steps, last);
    for (step = begun + 1; step <= last; step++) {
        compute();
        beat(r, step);
        if (step == begun + 1) td_events_step1(&r->events, step);
        int stop = atomic_load(&p->stop);
        if (atomic_load(&p->abort)) return td_fail(TD_ABORTED, "a peer is gone");
        if (stop == TD_STOP_CHECKPOINT || step % SAVE_EVERY == 0) TD_TRY(save(r, step));
        *out_stopped = stop != TD_STOP_NONE;
        if (*out_stopped) return TD_OK;
    }
    return TD_OK;
}

// ---- the group ----------------------------------------------------------------------------------
// Every rank adds itself to a word past the header once the memory is that large.
static td_status meet(struct rank *r) {
    unsigned char header[TD_GROUP_HEADER_BYTES], zeros[TD_GROUP_HEADER_BYTES] = {0};
    struct stat st;
    int fd = r->env.group_fd;
    const struct td_mono until = td_mono_add(td_mono_now(), PATIENCE_S * TD_NS_PER_S);
    if (r->env.rank == 0) {
        bool clear = pread(fd, header, sizeof header, 0) == (ssize_t)sizeof header &&
                     memcmp(header, zeros, sizeof header) == 0;
        if (!clear) return td_fail(TD_INTERNAL, "the header is not 4096 zeros");
        if (ftruncate(fd, 0) == 0) return td_fail(TD_INTERNAL, "the group could be made smaller");
        if (ftruncate(fd, GROUP_BYTES) != 0) return td_fail_errno(TD_INTERNAL, "grow the group");
    }
    while (fstat(fd, &st) == 0 && st.st_size < GROUP_BYTES) {
        if (td_mono_now().ns > until.ns) return td_fail(TD_DEADLINE_EXCEEDED, "it never grew");
    }
    TD_TRY(td_rank_attach_group(&(struct td_rank_args){.group_fd = fd}, r->env.world_size, &r->io));
    _Atomic int *here = (_Atomic int *)(void *)((char *)r->io.train.group + TD_GROUP_HEADER_BYTES);
    atomic_fetch_add(here, 1);
    while (atomic_load(here) < r->env.world_size) {
        if (td_mono_now().ns > until.ns) return td_fail(TD_DEADLINE_EXCEEDED, "nobody else came");
    }
    printf("all %d are here\n", r->env.world_size);
    return TD_OK;
}

// ---- the store ----------------------------------------------------------------------------------
static td_status fetch(struct td_store *store, const char *key, char out[128]) {
    size_t bytes;
    TD_TRY(store->get(store, key, PATIENCE_S * TD_NS_PER_S, out, 127, &bytes));
    out[bytes] = '\0';
    printf("%s is %s\n", key, out);
    return TD_OK;
}

// Leaves its own, waits for that of the other rank.
static td_status exchange(struct rank *r, const char *round) {
    struct td_store *store = r->io.train.store;
    char key[64], value[128];
    snprintf(key, sizeof key, "%s/%d", round, r->env.rank);
    snprintf(value, sizeof value, "of rank %d", r->env.rank);
    TD_TRY(store->set(store, key, value, strlen(value)));
    snprintf(key, sizeof key, "%s/%d", round, (r->env.rank + 1) % r->env.world_size);
    return fetch(store, key, value);
}

// Two exchanges; with a number a key between them that somebody else sets.
static td_status rendezvous(struct rank *r, int64_t number) {
    char word[128];
    if (!r->io.train.store) return td_fail(TD_INTERNAL, "this rank was given no store");
    TD_TRY(exchange(r, "first"));
    if (number) TD_TRY(fetch(r->io.train.store, "go", word));
    return exchange(r, "second");
}

// ---- bad behaviour ------------------------------------------------------------------------------
static td_status be(struct rank *r, const char *mode, int64_t number, bool *out_stopped) {
    if (strcmp(mode, "train") == 0) return train(r, number, out_stopped);
    if (strcmp(mode, "group") == 0) return meet(r);
    if (strcmp(mode, "store") == 0) return rendezvous(r, number);
    if (strcmp(mode, "code") == 0) _exit((int)number);
    if (strcmp(mode, "fail") == 0) {
        return td_status_with_class(td_fail(TD_DATA_LOSS, "record 7 is torn"), TD_CLASS_DATA);
    }
    if (strcmp(mode, "silent") == 0) {
        for (int64_t step = 1; step < 20; step++) {
            compute();
            beat(r, step);
        }
    }
    if (strcmp(mode, "deaf") == 0) signal(SIGTERM, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    if (strcmp(mode, "term") == 0) sigprocmask(SIG_BLOCK, &set, NULL);
    printf("waits\n");
    for (int sig;;) {
        if (strcmp(mode, "term") != 0) {
            pause();
        } else if (sigwait(&set, &sig) == 0) {
            printf("SIGTERM with stop=%d\n", atomic_load(&r->io.train.page->stop));
            *out_stopped = true;
            return TD_OK;
        }
    }
}

static td_status run(struct rank *r, const char *mode, int64_t number, bool *out_stopped) {
    if (strcmp(mode, "other") == 0) {
        void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r->env.page_fd, 0);
        if (map == MAP_FAILED) return td_fail_errno(TD_INTERNAL, "map the page");
        ((struct td_rank_page *)map)->version = 99;
    }
    TD_TRY(attach(r));
    return be(r, mode, number, out_stopped);
}

int main(int argc, char **argv) {
    static struct rank r;
    bool stopped = false;
    char *env = getenv(TD_RANK_ENV);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2 || !env) {
        fprintf(stderr, "usage: program MODE [NUMBER], started by traind\n");
        return 2;
    }
    td_status s = td_rank_env_parse(env, &r.env);
    td_events_init(&r.events, s ? -1 : r.env.events_fd);
    if (!s) s = run(&r, argv[1], argc > 2 ? strtoll(argv[2], NULL, 10) : 0, &stopped);
    enum td_class cls = td_status_code(s) == TD_ABORTED ? TD_CLASS_COLLECTIVE : td_status_class(s);
    if (td_status_code(s) == TD_FAILED_PRECONDITION) cls = TD_CLASS_BAD_SPEC; // as the worker does
    if (s) s = td_status_with_class(s, cls);
    td_events_end(&r.events,
                  s         ? TD_OUTCOME_FAILED
                  : stopped ? TD_OUTCOME_STOPPED
                            : TD_OUTCOME_DONE,
                  s, 0);
    int code = s ? td_exit_code_of(cls) : stopped ? TD_EXIT_STOPPED : TD_EXIT_DONE;
    td_status_free(s);
    td_arena_destroy(r.arena);
    return code;
}
