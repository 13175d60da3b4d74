#ifndef TRAIND_FABRIC_SPAWN_SPAWN_RANK_H
#define TRAIND_FABRIC_SPAWN_SPAWN_RANK_H

// Spawn rank: one rank as the parent that spawned it sees it: memory, process, results.
//
// A rank is over when its process was reaped and all that it wrote was read. How it ended is a
// status: what it said itself, else what its exit or its signal and last words say. Nothing here
// blocks but finish, which kills first. Owned by the thread of td_spawn.

#include "fabric/spawn/results.h"
#include "lib/attempt/rank_page.h"
#include "lib/base/clock.h"
#include "lib/base/machine/proc.h"

struct td_spawn_rank {
    int32_t rank;
    struct td_rank_page *page; // NULL: not mapped
    struct td_ring ring;
    struct td_proc proc; // pid 0: not started, or reaped
    int results_fd;      // -1: all was read
    struct td_result_reader reader;
    bool done;         // it said that its function returned
    td_status failure; // the first; TD_OK: none
    struct td_mono failed_at;
    bool signalled; // this parent sent SIGTERM or SIGKILL
    struct td_mono done_at;
    char cut[128]; // where what it wrote breaks off; "": nowhere
};

// What all ranks of a call share.
struct td_spawn_group {
    const char *const *argv;
    int32_t world_size;
    int group_fd, call_fd, dir_fd;
    uint64_t max_bytes;
    struct td_results *results; // of this call
};

void td_spawn_rank_init(struct td_spawn_rank *r, int32_t rank);
TD_MUST_USE td_status td_spawn_rank_start(struct td_spawn_rank *r, const struct td_spawn_group *g);
void td_spawn_rank_finish(struct td_spawn_rank *r); // kills and reaps

static inline bool td_spawn_rank_runs(const struct td_spawn_rank *r) {
    return r->proc.pid > 0;
}
void td_spawn_rank_signal(struct td_spawn_rank *r, int sig);
// Takes what is there of its results, bounded.
void td_spawn_rank_read(struct td_spawn_rank *r, const struct td_spawn_group *g);
// Takes the rest and its end, if it ended.
void td_spawn_rank_reap(struct td_spawn_rank *r, const struct td_spawn_group *g);
// Metric points go nowhere, but who saves a checkpoint waits until they were taken.
void td_spawn_rank_drain_points(struct td_spawn_rank *r);

#endif
