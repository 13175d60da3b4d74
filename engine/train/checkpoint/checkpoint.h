#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_CHECKPOINT_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_CHECKPOINT_H

// engine/train/checkpoint: the state of a rank on disk.
//
// In reading order:
//
//   checkpoint.h         writes one
//   shard.h              makes its files, in the format of safetensors.h
//   plugin_state.h       the file of what plugins keep
//   manifest.h           what is in it
//   early_stop_state.h   the part of it that early_stopping keeps
//   best.h, retention.h  which one is best, and which are kept
//   restore.h            reads one back
//   weights.h            reads what others made
//   weights_file.h       writes weights alone
//   outputs.h             what is written to before the first step
//
// Checkpointer: turns the state of a rank into a directory that can be loaded, while it trains on.
//
//   <dir>/step-<n>/ model.safetensors  optimizer.safetensors  [plugins.safetensors]
//                   [config.json]  manifest.json
//
// With config.json, which a module may supply, the directory is also one of Hugging Face's.
//
// save() copies the state into one bounded snapshot buffer and returns (shard.h; the background
// thread makes the buffer's pages after the first step). With a shadow it returns when copies are
// queued: first from the state to the shadow, as large on the device, then from there to the
// buffer. Later runs wait for the first of both alone, and the background thread for the other. A
// copy that fails leaves no checkpoint. That thread writes the buffer: into
// "step-<n>.tmp", every file fsynced, manifest last, directory fsynced, renamed, parent fsynced.
// The rename waits until the points before that step are out of the node's rings: an attempt that
// goes on from here after this one was killed makes no others. Points of other nodes are waited for
// by the coordinator, by the number of the boundary: each rank counts its saves (td_metrics_pass),
// the owner and all others. Only then comes the "checkpoint" event, and only then are older ones
// pruned (save_top_k) with a "removed" event each. Paths are never rewritten. One save at a time is
// written. A save that finds the writer busy waits for it, at most the patience of its config, when
// it is to stay. To stay are a final one, one that a daemon asks for, and one that save_top_k keeps
// (all, or one of the best k so far). Rejected: a second buffer for it, as large as the whole
// state. Any other, which the next one replaces, is skipped, at the end of an epoch as well. Both
// are counted. Parameters that are not finite are not saved: class numeric. A failed write leaves
// no file and is reported by the next poll: class disk. Bound: one snapshot (parameters, buffers,
// optimizer state and what plugins keep once more in memory). Thread: the training thread; the
// buffer belongs to the background thread while it writes.

#include "engine/train/checkpoint/manifest.h"
#include "engine/train/events/background.h"
#include "engine/train/events/events.h"
#include "engine/train/events/metrics.h"
#include "traind/accelerator.h"
#include "traind/strategy.h"

struct td_checkpointer_options {
    const struct td_checkpoint_config *config; // dir NULL: save() does nothing
    uint32_t roles; // bits 1 << td_role that this rank writes; 0: none, another rank is the owner
    uint32_t whole_roles; // of them, those whose memory comes by whole_offset
    const struct td_state_table *state;
    const struct td_accelerator_ops *accel_ops;
    struct td_accelerator *accel;
    bool shadows; // copies are queued, by way of a shadow (td_sizes_shadows)
    const struct td_strategy_ops *strategy_ops;
    struct td_strategy *strategy;
    struct td_background *background;
    struct td_events *events;
    struct td_metrics *metrics;
    struct td_registry *registry; // the manifest lists its files; NULL: lists none
    const char *config_json;      // text of that file; NULL: none
    const char *resumed_from;     // never removed; NULL: none
    int64_t resumed_step;         // its step, which need not be saved again; -1: none
};

// Bytes of the snapshot buffer of a rank that writes `roles`.
TD_MUST_USE td_status td_checkpointer_room(const struct td_state_table *state, uint32_t roles,
                                           size_t *out_bytes);

struct td_checkpointer;
// The state is another one than that of the last save: it is saved again, also at the same step.
void td_checkpointer_restart(struct td_checkpointer *c);
TD_MUST_USE td_status td_checkpointer_create(const struct td_checkpointer_options *options,
                                             struct td_checkpointer **out_checkpointer);
// Accepts NULL. The background thread, which may be writing, has to be destroyed before.
void td_checkpointer_destroy(struct td_checkpointer *c);
TD_DEFINE_AUTO(td_checkpointer, td_checkpointer_destroy);

// Makes the snapshot's memory ready and reads the plugins' digests in the background, once. A save
// does it too, and waits for it; the loop asks after its first step, which both would slow down.
void td_checkpointer_prepare(struct td_checkpointer *c);

enum td_checkpointer_save_flags {
    TD_SAVE_FINAL = 1, // waits for the buffer and until the checkpoint is durable
    TD_SAVE_ASKED = 2, // waits for the buffer
};
// Saves m->progress.step once; a step that was saved already is left alone. m's files and the
// plugins of its resume key are filled in here, its borrowed strings outlive the write; m->own is
// copied.
TD_MUST_USE td_status td_checkpointer_save(struct td_checkpointer *c,
                                           const struct td_strategy_memory *memory,
                                           const struct td_manifest *m, int flags);
// The failure of an earlier write, once. Cheap: one load.
TD_MUST_USE td_status td_checkpointer_poll(struct td_checkpointer *c);
// Until nothing is being written. DEADLINE_EXCEEDED, class disk: the patience is over.
TD_MUST_USE td_status td_checkpointer_wait(struct td_checkpointer *c);
// Saves that found the writer busy: left out, and waiting for it.
struct td_checkpointer_counts {
    uint64_t skipped, waited;
    int64_t waited_ns; // in all
};
struct td_checkpointer_counts td_checkpointer_counts(const struct td_checkpointer *c);

#endif
