#ifndef TRAIND_COLLECTIVES_SHM_TEAM_H
#define TRAIND_COLLECTIVES_SHM_TEAM_H

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
// Two ranks meet without the others in send and recv (shm_pair.c), in a line of their own beside
// the slot. While they wait there they look at the partner's slot, too. A partner that waits for
// them in a meeting never comes to the pair, so both learn it at once.
//
// A group of some ranks is a team with a head of its own in the same mapping. It shares the abort
// word of the whole group and calls its ranks by their numbers there.
//
// A rank may arrive and go on, and wait later (buckets, shm_reduce.c). Nobody is ever two meetings
// ahead, because it waits for one before it arrives at the next.
//
// Failure is sticky: the first rank that times out, finds a disagreement or is asked to abort sets
// the mapping's abort word and wakes all. Every meeting from then on fails at once.

#include <stdatomic.h>

#include "lib/base/base.h"
#include "lib/base/machine/machine.h"
#include "traind/collective.h"

enum td_shm_kind {
    TD_SHM_ALL_REDUCE,
    TD_SHM_BUCKET,
    TD_SHM_ALL_GATHER,
    TD_SHM_BROADCAST,
    TD_SHM_BARRIER,
    TD_SHM_REDUCE,
    TD_SHM_REDUCE_SCATTER,
    TD_SHM_GATHER,
    TD_SHM_SCATTER,
    TD_SHM_ALL_GATHER_UNEVEN,
    TD_SHM_ALL_TO_ALL,
    TD_SHM_GROUP_CREATE,
    TD_SHM_GROUP_DESTROY,
};

// What a rank came for. Equal on all ranks, or the program is wrong.
struct td_shm_call {
    uint8_t kind; // enum td_shm_kind
    uint8_t dtype, op;
    uint8_t is_cut; // BARRIER: 1 where the tag has more bytes than fit
    // BUCKET: 0 without control flags, else 1 + how many fp32 they are after the last element.
    // BROADCAST, SCATTER: source; REDUCE, GATHER: destination; BARRIER: digest of the tag;
    // GROUP_CREATE: digest of the ranks.
    uint32_t detail;
    union {
        struct {
            int64_t n;     // elements or bytes
            int64_t place; // offset in the gradient region; -1: elsewhere
        };
        char tag[16]; // BARRIER: how it begins, for messages; zeros after it
    };
};
_Static_assert(sizeof(struct td_shm_call) == 24, "calls are compared byte by byte: no padding");

// A message from one rank to another. The sender writes all but taken, done and wants_from; who it
// is for writes taken and done. The rank whose line it is writes wants_from.
struct td_shm_pair_line {
    _Alignas(TD_LINE_BYTES) _Atomic uint32_t posted; // its number and receiver (shm_pair.c)
    _Atomic uint32_t done;                           // equal to posted: nothing is on its way
    _Atomic uint32_t put, taken;                     // chunks so far; wraps
    _Atomic uint32_t wants_from;                     // 1 + the rank that this one receives from now
    _Atomic uint32_t sleepers;
    uint32_t tag, half; // of the message; which half of the sender's stage has it
    uint64_t bytes;
};
_Static_assert(sizeof(struct td_shm_pair_line) == TD_LINE_BYTES, "a pair's line is one cache line");

struct td_shm_slot {
    _Alignas(TD_LINE_BYTES) _Atomic uint32_t arrived; // meetings so far; wraps
    _Atomic uint32_t sleepers;                        // ranks inside a futex wait for this word
    struct td_shm_call call[2];                       // by the parity of the meeting
    _Atomic uint32_t joined;
    struct td_shm_pair_line pair;
};
_Static_assert(sizeof(struct td_shm_slot) == 2 * TD_LINE_BYTES, "a slot is two cache lines");

// First bytes of the mapping; all zero when fresh.
struct td_shm_head {
    _Atomic uint64_t identity; // magic, version, world
    _Atomic uint64_t region_bytes;
    _Alignas(TD_LINE_BYTES) _Atomic uint32_t
        aborted;                   // 0, 1 + rank that gave up, or TD_SHM_ABORT_OUTSIDE
    _Atomic uint32_t group_answer; // what rank 0 found for a new group (shm_groups.c)
    struct td_shm_slot slot[];     // [world]
};
#define TD_SHM_ABORT_OUTSIDE UINT32_C(0xffffffff)

struct td_shm_team {
    struct td_shm_head *head;
    _Atomic uint32_t *aborted_by; // that of the whole group
    const uint16_t *names;        // (world) ranks in the whole group; NULL: the same numbers
    int32_t rank, world;
    struct td_collective_deadline joined; // that of join
    const struct td_collective_deadline *_Atomic set;
    const struct td_collective_deadline *_Atomic *deadlines; // `set` of the whole group
    bool (*aborted)(void *arg);
    void *aborted_arg;
    uint32_t meeting;     // that this rank arrived at last
    uint32_t awaited;     // the last one to which all came; meeting, or the one before
    bool opens_call;      // the meeting that this rank arrived at last
    uint32_t call_parity; // of the meeting that opened the current call
    int spins;
    int64_t deadline_ns;                           // of the current call; 0: nothing waited yet
    const struct td_collective_deadline *deadline; // which one that is, once something waited
};

// Takes this rank's slot in a mapping whose head fits; FAILED_PRECONDITION says what differs,
// ALREADY_EXISTS that the rank is there, ABORTED that the group's time is over.
TD_MUST_USE td_status td_shm_team_init(struct td_shm_team *t,
                                       const struct td_collective_config *config,
                                       uint64_t region_bytes);
// The same for some of the ranks of `whole`, whose deadline and end it shares. head is zeroed,
// names (world) lives until finish; waits for nobody.
void td_shm_team_split(struct td_shm_team *t, const struct td_shm_team *whole,
                       struct td_shm_head *head, const uint16_t *names, int32_t rank,
                       int32_t world);
void td_shm_team_finish(struct td_shm_team *t);
// Meets all other ranks. Memory written before is seen by all after. `call` opens a call (its
// deadline starts, and the others must have come for the same); NULL is a later meeting of it.
TD_MUST_USE td_status td_shm_team_meet(struct td_shm_team *t, const struct td_shm_call *call);
// Its two halves. arrive waits for nobody; await comes before the next arrive. In between this rank
// may do what needs no other.
TD_MUST_USE td_status td_shm_team_arrive(struct td_shm_team *t, const struct td_shm_call *call);
TD_MUST_USE td_status td_shm_team_await(struct td_shm_team *t);
void td_shm_team_abort(struct td_shm_team *t); // from any thread
// Of calls that begin from now on, those of split teams, too. Borrowed. From any thread.
void td_shm_team_set_deadline(struct td_shm_team *t, const struct td_collective_deadline *deadline);
// DEADLINE_EXCEEDED of a wait for a started call: the call that this rank came for last, and who
// did not come to it. After the abort.
td_status td_shm_team_fail_late(struct td_shm_team *t, int64_t timeout_ns);

// ---- for shm_pair.c -----------------------------------------------------------------------------
int32_t td_shm_team_name(const struct td_shm_team *t, int32_t rank); // in the whole group
void td_shm_team_open_pair(struct td_shm_team *t);                   // the deadline starts
// Waits until *word, which rank `peer` writes, is another than `seen`, or a little while. what: for
// messages, as "send of 8 bytes (tag 1) to rank 2". Errors: those of a meeting; FAILED_PRECONDITION
// when the peer waits for this rank in another call.
TD_MUST_USE td_status td_shm_team_pause(struct td_shm_team *t, int32_t peer, _Atomic uint32_t *word,
                                        uint32_t seen, _Atomic uint32_t *sleepers,
                                        const char *what);
// This rank is in `what` while another is in `theirs`: the end of the group.
TD_MUST_USE td_status td_shm_team_differ(struct td_shm_team *t, const char *what, int32_t peer,
                                         const char *theirs);

#endif
