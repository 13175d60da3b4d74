#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_MANIFEST_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_MANIFEST_H

// Manifest: what a checkpoint says about itself, `manifest.json`, format 1.
//
// It is written last, so a directory without it is no checkpoint. It names every file with its size
// and XXH3-128 digest, and every tensor with its role. It says where the run was (progress) and
// what its bits depend on (the resume key). It has copies of plan and frozen choices, so that a
// checkpoint can be understood and continued without the job's record. Reading checks form and
// bounds; whether the files match is restore.c's business. Pure but for file access; any thread.

#include "engine/train/checkpoint/best.h"
#include "engine/train/config/early_stop.h"
#include "engine/train/config/plateau.h"
#include "engine/train/events/tallies.h"
#include "lib/base/cpu_level.h"
#include "lib/base/digest.h"
#include "lib/plugin/registry.h"
#include "traind/dataset.h"
#include "traind/module.h"
#include "traind/precision.h"

enum {
    TD_MANIFEST_FORMAT = 1,
    TD_MANIFEST_MAX_BYTES = 32 << 20,
    TD_MANIFEST_MAX_FILES = 16,
    // Of a step, an epoch, a validation and each of its loaders.
    TD_MANIFEST_MAX_METRICS = (3 + TD_LOADERS_MAX) * TD_TALLIES,
    TD_MANIFEST_MAX_RANKS = 4096,
};

// Optimizer steps of one training step, where a module has several.
struct td_step_count {
    char name[TD_STEP_NAME];
    int64_t updates;
};

// Where a run is at an optimizer-step boundary. Everything that the loop needs to go on.
struct td_progress {
    int64_t step;          // optimizer steps completed, of all training steps
    int64_t epoch;         // the one being played, from 0
    int64_t epoch_offset;  // global sample offset inside that epoch
    int64_t epoch_batches; // batches of it that are done
    int64_t windows;       // played, whatever came of them; 0: not counted
    int64_t total_steps;   // of the whole run, as it is known here; 0: it has no end, or not known
    int64_t samples;       // of the whole job, all ranks
    int64_t elapsed_ns;    // training time of all attempts so far, for max_time
    struct td_precision_state precision;
    struct td_plateau plateau;                // of reduce_on_plateau
    struct td_early_stop early_stop;          // of early_stopping
    bool validation_pending;                  // a validation is due before the next batch
    struct td_step_count count[TD_STEPS_MAX]; // in the order of the module's steps
    int n_counts;                             // 0: it has one step
};

struct td_manifest_metric {
    char name[TD_METRIC_NAME_BYTES];
    double sum, count;
};

// What each rank had measured of the epoch that is played (epoch_metrics.h).
struct td_manifest_epoch {
    bool known; // false: an older traind wrote it, or the one that it goes on from
    size_t n;
    char name[TD_TALLIES][TD_METRIC_NAME_BYTES];
    int32_t n_ranks;
    const double *sums; // (n_ranks, TD_TALLIES, 2): sum and count
};

struct td_manifest_file {
    char name[64];
    uint64_t bytes;
    char digest[TD_DIGEST_HEX];
};

// What the bits of a run depend on, besides plan and data. Equal keys: resume is exact.
struct td_resume_key {
    int32_t world_size, threads;
    int32_t nodes;  // that share the ranks; 0: an older manifest, which does not say
    char cpu[64];   // accelerator's library; ", " and the CPU level, where its bits follow one
    char build[64]; // of the engine
    char precision[32];
    // Loaded plugins, by their files. n_plugins -1: an older manifest, which lists none.
    struct td_plugin_file plugin[TD_REGISTRY_MAX];
    int n_plugins;
};

struct td_plugin_state;

struct td_manifest {
    const char *job;
    int32_t attempt;
    uint32_t boundary; // that was passed with the save (td_metrics_pass), for who reads the file
    uint64_t seed;
    struct td_progress progress;
    struct td_resume_key key;
    const char *optimizer, *schedule;
    const char *spec_digest;
    const struct td_json *plan, *frozen; // NULL: none
    const struct td_json *tensors;       // read: the list of what was saved; NULL: it has none
    struct td_manifest_metric metric[TD_MANIFEST_MAX_METRICS];
    size_t n_metrics;
    struct td_manifest_epoch epoch_metrics;
    struct td_best best; // up to this checkpoint
    struct td_manifest_file file[TD_MANIFEST_MAX_FILES];
    size_t n_files;
    const struct td_plugin_state *own; // to save beside it, copied there; NULL: nothing, or read
};

// tensors: all of the state table that is saved; each is placed in the file of its role.
TD_MUST_USE td_status td_manifest_write(const char *path, const struct td_manifest *m,
                                        const struct td_state_table *state, size_t *out_bytes,
                                        char out_digest[TD_DIGEST_HEX]);
// DATA_LOSS (class data) when it is missing, malformed or of another format. Strings and trees of
// out_manifest live in the arena.
TD_MUST_USE td_status td_manifest_read(struct td_arena *a, const char *path,
                                       struct td_manifest *out_manifest);

// Does the list of saved tensors name this one? True where a manifest has no list.
bool td_manifest_lists(const struct td_manifest *m, const char *tensor);

void td_manifest_add_metric(struct td_manifest *m, const char *name, double sum, double count);
// The value of a metric as a monitor names it: "train_loss" is "train_loss_epoch", the mean over
// the epoch so far. NaN: there is none of that name, or it is not finite. JSON has no infinity, so
// a best of that value could not be read back, and the catalog would see another.
double td_manifest_metric(const struct td_manifest *m, const char *monitor);
// "" when equal; else what differs: "world size 2 -> 1". Where the CPU level alone does, it names
// the knob that keeps the bits; most: the highest level that a job can have here.
void td_resume_key_compare(const struct td_resume_key *saved, const struct td_resume_key *now,
                           enum td_cpu_level most, char *out_reason, size_t out_bytes);
// The file that holds a role: "model.safetensors" or "optimizer.safetensors".
const char *td_manifest_file_of(enum td_role role);

#endif
