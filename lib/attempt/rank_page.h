#ifndef TRAIND_LIB_ATTEMPT_RANK_PAGE_H
#define TRAIND_LIB_ATTEMPT_RANK_PAGE_H

// Rank page: the shared memory between a launcher and one rank, in one memfd that the launcher
// makes.
//
//   [0, 4096)                identity, progress, control words, last words
//   [4096, 4096 + ring)      metrics ring (td_ring of struct td_metric_record)
//
// The rank writes progress with relaxed stores and never waits for anyone: the launcher reads when
// it likes. The launcher writes the control words; the rank reads them once a step. Only the writer
// of a checkpoint waits, beside the training, for an answer (td_rank_page_ask_drain). The page
// outlives the rank, so the last words of a crash are there to be collected. Both sides check
// magic and version; everything read from the other side is checked before use.
//
// How a rank is started (all descriptors are inherited, no environment is read):
//   traind-worker run --plan FILE --rank R --world-size W --page-fd 3 --events-fd 4 [--group-fd 5]
//                    [--store-fd 6]
//   events-fd: SOCK_SEQPACKET, one JSON object of at most TD_EVENT_MAX bytes a datagram
//   group-fd:  memfd of plan.run.shared_bytes, the shm collective's mapping (world > 1)
//   store-fd:  SOCK_SEQPACKET, the rendezvous store (store_message.h; world > 1)
//   stdout, stderr: pipes that the launcher drains
//
// What a rank sends there are the rows of events.def that name it as writer, without "rank" and
// "real_ns": the launcher adds both.
// Exit codes (exit_codes.h) say the same where no datagram came.

#include <stdatomic.h>

#include "lib/base/ring.h"

enum { TD_RANK_PAGE_MAGIC = 0x54525031, TD_RANK_PAGE_VERSION = 2, TD_RANK_PAGE_BYTES = 4096 };
enum { TD_METRIC_RING_RECORDS = 8192 };

enum td_rank_phase {
    TD_PHASE_STARTING,
    TD_PHASE_LOADING,
    TD_PHASE_TRAINING,
    TD_PHASE_VALIDATING,
    TD_PHASE_TESTING,
    TD_PHASE_SAVING,
    TD_PHASE_ENDED,
    TD_PHASE_PREDICTING,
    // Of loading, what it is at, in this order; the same name.
    TD_PHASE_LOADING_DEVICES,
    TD_PHASE_LOADING_DATA,
    TD_PHASE_LOADING_CHECKPOINT,
    TD_PHASE_LOADING_MODEL,
    TD_PHASE_LOADING_WEIGHTS,
    TD_PHASE_LOADING_KERNELS,
};
const char *td_rank_phase_name(int64_t phase); // "training"; "unknown" of any other number
// What it is at and how far: "data (2 of 6)"; "": its name says all.
const char *td_rank_phase_detail(int64_t phase);

// How an attempt is asked to stop; the numbers are the wire's (Stop.Mode of node.proto,
// LauncherStop). Ranks agree on the first two through the control flags of the gradients. From weak
// to strong: checkpoint, now, abort, kill.
enum td_stop_mode {
    TD_STOP_NONE,
    TD_STOP_CHECKPOINT, // finish the step, save, exit TD_EXIT_STOPPED
    TD_STOP_NOW,        // finish the step, exit TD_EXIT_STOPPED without saving
    TD_STOP_KILL,       // SIGKILL at once; of launchers, never in a rank's page, as the next
    TD_STOP_ABORT,      // ranks on other nodes failed: leave every collective now
};
// From the word to abort until SIGKILL, on the node of the rank that failed and on all others. An
// attempt that has failed saves nothing, so this is only for what ranks still have to say. It is
// short because the attempt ends with its last rank, and one in user code does not see the word.
enum { TD_ABORT_GRACE_MS = 1000 };
// 0: none; the stronger of two has the larger number. -1: no mode.
int td_stop_strength(int mode);

struct td_rank_page {
    uint32_t magic, version;
    int32_t rank, world_size;
    // written by the rank
    _Alignas(TD_LINE_BYTES) _Atomic int32_t phase; // enum td_rank_phase
    _Atomic int32_t epoch;
    _Atomic int64_t step;            // optimizer steps completed (global_step)
    _Atomic int64_t total_steps;     // 0: unknown
    _Atomic int64_t samples;         // processed by this rank in this attempt
    _Atomic int64_t heartbeat_ns;    // td_mono of the last step or evaluation batch
    _Atomic int64_t collective_seq;  // collectives entered
    _Atomic uint32_t last_loss_bits; // float
    _Atomic uint32_t drain_asked;    // counts up, see td_rank_page_ask_drain
    _Atomic uint32_t boundary;       // counts up, see td_rank_page_pass
    // written by the launcher
    _Alignas(TD_LINE_BYTES) _Atomic int32_t stop; // enum td_stop_mode
    // Counts up; all ranks save when that of one of them changes. SIGUSR1 of the rank adds to it.
    _Atomic int32_t checkpoint_request;
    _Atomic int32_t abort;       // non-zero: a peer is gone, leave every collective now
    _Atomic uint32_t drain_done; // the last drain_asked that was answered
    // last words, written by the rank's fatal handler or before a failing exit
    _Alignas(TD_LINE_BYTES) _Atomic int32_t fatal_signal;
    char last_words[1024]; // NUL-terminated text
    char lost_data[512];   // the file of data that could not be read any more (SIGBUS); "": none
    int64_t lost_offset;   // in it
    char plugin[128];      // of the user's own, whose code crashed: "module 'x'"; "": none
};
_Static_assert(sizeof(struct td_rank_page) <= TD_RANK_PAGE_BYTES, "it fits its place");

// The part of whoever starts ranks: a sealed memfd with page and ring, allocated before use, and
// mapped. Bytes that each rank needs so; both are the caller's, to close and to unmap.
size_t td_rank_page_memory(void);
// Errors: RESOURCE_EXHAUSTED, of class out_of_memory where that is why.
TD_MUST_USE td_status td_rank_page_make(int32_t rank, int32_t world_size, int *out_fd,
                                        struct td_rank_page **out_page, struct td_ring *out_ring);

// The launcher's part: what the rank says of its progress. It may write anything there, so each
// number is brought into its range: from 0, and steps and epochs to INT32_MAX. Their differences
// then overflow nowhere.
struct td_rank_progress {
    int32_t phase; // enum td_rank_phase, or any other number
    int32_t epoch;
    int32_t step, total_steps;
    int64_t samples, heartbeat_ns, collective_seq;
};
struct td_rank_progress td_rank_page_progress(const struct td_rank_page *p);

// All ranks save at the same boundaries of their loops, and each counts them here: whatever it
// pushed into its ring before is of the steps up to that boundary. Returns its number, from 1.
uint32_t td_rank_page_pass(struct td_rank_page *p);
// The launcher's part: the last one that the rank has passed; what it pushed before is in the ring.
uint32_t td_rank_page_boundary(const struct td_rank_page *p);

// A launcher that is killed takes along what is in the rings. So that no attempt goes on from a
// checkpoint with points before it missing, its writer asks for a drain before it commits.
// Everything that its ranks pushed before the boundary that this one has passed is then in the
// launcher's files; where they pass none, what they pushed before the call. Returns what to await.
// Thread: one at a time.
uint32_t td_rank_page_ask_drain(struct td_rank_page *p);
// DEADLINE_EXCEEDED: no answer within timeout_ns.
TD_MUST_USE td_status td_rank_page_await_drain(struct td_rank_page *p, uint32_t asked,
                                               int64_t timeout_ns);
// The launcher's part: reads what was asked, drains the rings of all its ranks, then answers that.
uint32_t td_rank_page_drain_asked(const struct td_rank_page *p);
void td_rank_page_answer_drain(struct td_rank_page *p, uint32_t asked);

enum td_metric_flags {
    TD_METRIC_SUM_COUNT = 1, // sum and count merge over ranks; else last value
    TD_METRIC_NUMBERED = 2,  // its name is the one that was defined with that number
    TD_METRIC_DEVICE = 4,    // of a device of the rank, by its launcher: "gpu0.power"
    TD_METRIC_NAMES = 0x80,  // no point: it defines a name (metric_names.h)
};
enum {
    TD_METRIC_NAME_BYTES = 64,   // of a metric's name, with its NUL
    TD_METRIC_SHORT_BYTES = 24,  // the same of one that is in each of its records
    TD_METRIC_LONG_NAMES = 4096, // longer ones of a rank in an attempt
};

// One metric point of one rank. Shown value = sum / count over ranks; NaN where that count is 0
// (all labels of a step were to be ignored). A mean over nothing is no number, and 0 would be the
// best.
struct td_metric_record {
    char name[TD_METRIC_SHORT_BYTES]; // NUL-terminated: "train_loss_step"; all 0 where numbered
    int32_t step;                     // global_step
    int32_t epoch;
    double sum, count;
    int64_t real_ns;
    uint32_t flags;
    uint32_t number; // of its name, where numbered
};
_Static_assert(sizeof(struct td_metric_record) == 64, "ring records are a cache line");

#endif
