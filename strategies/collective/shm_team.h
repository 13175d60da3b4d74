#ifndef TRAIND_STRATEGIES_COLLECTIVE_SHM_TEAM_H
#define TRAIND_STRATEGIES_COLLECTIVE_SHM_TEAM_H

// Team: how ranks that share a mapping meet. This is the only part of the shared-memory collective
// that waits; shm.c moves and adds bytes between two meetings.
//
// Each rank has one cache line that nobody else writes to (but for the count of sleepers): the
// number of meetings it arrived at, and what it came for. A rank arrives by storing the next number
// there and then waits until every line shows it. No line is shared by writers, the wait sees
// exactly who is missing, and what the others came for travels in the same line. So a program whose
// ranks make different calls gets an error that says so instead of wrong sums.
//
// Waiting: a bounded number of pauses (long when every rank can have a core, short otherwise), then
// futex sleeps of at most WAIT_SLICE_NS. So an abort or a deadline is never missed however a peer
// died. Words written by a peer are compared, never used as an address or a size.
//
// Failure is sticky: the first rank that times out, finds a disagreement or is asked to abort sets
// the mapping's abort word and wakes all. Every meeting from then on fails at once.

#include <stdatomic.h>

#include "lib/base/base.h"
#include "lib/base/machine.h"
#include "traind/collective.h"

enum td_shm_kind {
    TD_SHM_ALL_REDUCE,
    TD_SHM_BUCKET,
    TD_SHM_ALL_GATHER,
    TD_SHM_BROADCAST,
    TD_SHM_BARRIER,
};

// What a rank came for. Equal on all ranks, or the program is wrong.
struct td_shm_call {
    uint8_t kind; // enum td_shm_kind
    uint8_t dtype, op;
    uint8_t reserved;
    // BUCKET: 0 without control flags, else 1 + how many fp32 they are after the last element.
    // BROADCAST: source; BARRIER: digest of the tag.
    uint32_t detail;
    int64_t n;     // elements or bytes
    int64_t place; // offset in the gradient region; -1: elsewhere
};

struct td_shm_slot {
    _Alignas(TD_LINE_BYTES) _Atomic uint32_t arrived; // meetings so far; wraps
    _Atomic uint32_t sleepers;                        // ranks inside a futex wait for this word
    struct td_shm_call call[2];                       // by the parity of the meeting
    _Atomic uint32_t joined;
};
_Static_assert(sizeof(struct td_shm_slot) == TD_LINE_BYTES, "a slot is one cache line");

// First bytes of the mapping; all zero when fresh.
struct td_shm_head {
    _Atomic uint64_t identity; // magic, version, world
    _Atomic uint64_t region_bytes;
    _Alignas(TD_LINE_BYTES) _Atomic uint32_t
        aborted;               // 0, 1 + rank that gave up, or TD_SHM_ABORT_OUTSIDE
    struct td_shm_slot slot[]; // [world]
};
#define TD_SHM_ABORT_OUTSIDE UINT32_C(0xffffffff)

struct td_shm_team {
    struct td_shm_head *head;
    int32_t rank, world;
    int64_t timeout_ns;
    bool (*aborted)(void *arg);
    void *aborted_arg;
    uint32_t meeting;     // that this rank arrived at last
    uint32_t call_parity; // of the meeting that opened the current call
    int spins;
    int64_t deadline_ns; // of the current call; 0: nothing waited yet
};

// Takes this rank's slot in a mapping whose head fits; FAILED_PRECONDITION says what differs,
// ALREADY_EXISTS that the rank is there, ABORTED that the group's time is over.
TD_MUST_USE td_status td_shm_team_init(struct td_shm_team *t,
                                       const struct td_collective_config *config,
                                       uint64_t region_bytes);
void td_shm_team_finish(struct td_shm_team *t);
// Meets all other ranks. Memory written before is seen by all after. `call` opens a call (its
// deadline starts, and the others must have come for the same); NULL is a later meeting of it.
TD_MUST_USE td_status td_shm_team_meet(struct td_shm_team *t, const struct td_shm_call *call);
void td_shm_team_abort(struct td_shm_team *t); // from any thread

#endif
