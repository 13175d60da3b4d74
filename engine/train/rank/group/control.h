#ifndef TRAIND_ENGINE_TRAIN_RANK_GROUP_CONTROL_H
#define TRAIND_ENGINE_TRAIN_RANK_GROUP_CONTROL_H

// Control: how ranks agree to stop, to save, and that time is up.
//
// The launcher writes wishes into the page of each rank whenever it likes, so ranks see them at
// different steps. Nobody acts on what it saw. A rank raises flags, which the run of a step carries
// after the last gradient bucket (traind/accelerator.h). The all-reduce sums them, and every rank
// acts on the same sum at the same optimizer-step boundary. World 1 takes the same path, its sum is
// its own. Outside of optimizer steps (validation, test, batches from which host code updates
// nothing) the same flags travel in a small reduction of their own at batch boundaries. Also here:
// the progress words of the page, written with relaxed stores. Thread: the training thread.

#include "engine/train/checkpoint/manifest.h"
#include "engine/train/config/config.h"

// What all ranks agreed on.
struct td_agreement {
    bool stop;  // leave the loop at this boundary
    bool save;  // save at this boundary
    bool now;   // with stop: without saving, and also when training is over already
    bool timer; // the time limit is reached
    bool due;   // a periodic checkpoint is, by rank 0's clock
};

struct td_control {
    struct td_rank_page *page;
    bool is_zero;                   // raises what only one rank should raise
    int32_t seen_checkpoint;        // requests honoured
    int64_t timer_ns;               // td_mono at which the time limit is reached; 0: none
    int64_t interval_ns;            // between two checkpoints by time; 0: there are none
    int64_t due_ns;                 // td_mono of the next one
    float flags[TD_CONTROL_FLAGS];  // own before a run that carries them, then the sum
    float agreed[TD_CONTROL_FLAGS]; // sums that nobody has acted on, added up
};

// elapsed_ns: what earlier attempts have used of max_time_s (0: no limit).
void td_control_init(struct td_control *c, struct td_rank_page *page, bool is_zero,
                     int64_t max_time_s, int64_t elapsed_ns);
// Fit begins: the time of checkpoints counts from now on, if rank 0 asks for any (interval_s > 0).
void td_control_save_every(struct td_control *c, int64_t interval_s);
// A checkpoint is taken: the time of the next one counts from now on.
void td_control_saved(struct td_control *c);
// This rank's flags, into flags[TD_CONTROL_FLAGS]. Before the last bucket is reduced. A request for
// a checkpoint, or one that is due, is only raised, and used up, where an optimizer step follows.
// One that came while the rank was loading is raised with its first step.
void td_control_raise(struct td_control *c, float *flags, bool step_follows);
// flags are a sum: adds them to what is to be acted on.
void td_control_agreed(struct td_control *c);
// Did ranks agree, were it on nothing to do, since the last td_control_take?
bool td_control_has_agreed(const struct td_control *c);
// Is there something to act on at the next boundary?
bool td_control_is_pending(const struct td_control *c);
// Takes what was agreed on since the last call. A save serves every request that there is by now.
struct td_agreement td_control_take(struct td_control *c);
// A sum's meaning.
struct td_agreement td_control_read(const float *flags);
// ABORTED (class collective) once the launcher has said that a peer is gone.
TD_MUST_USE td_status td_control_check_abort(const struct td_control *c);

// Says that this rank is alive: at each batch of an evaluation or a prediction.
void td_control_beat(struct td_control *c);
void td_control_phase(struct td_control *c, enum td_rank_phase phase);
void td_control_progress(struct td_control *c, const struct td_progress *p, int64_t own_samples,
                         float loss);

#endif
