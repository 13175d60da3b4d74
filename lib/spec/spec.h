#ifndef TRAIND_LIB_SPEC_SPEC_H
#define TRAIND_LIB_SPEC_SPEC_H

// The job spec: what a person writes, what a coordinator accepts, what a rank obeys.
//
// Text (YAML or JSON) and overrides become one tree of lib/base/json.h. The tree is checked against
// the knob tables (knobs.def) and completed. That is the *canonical spec*, in which every knob has
// its resolved value, in the order of the tables. Only canonical specs are stored, shown, digested
// or planned; making one canonical again changes nothing. `struct td_spec` is a plain C view of a
// canonical tree.
//
// Errors: all of a file at once, as field violations of one status (INVALID_ARGUMENT, reason
// SPEC_INVALID, class bad_spec). Each has a path, "trainer.devcies (line 12)", and a text that says
// what was found, what is accepted and which known key is nearest. Nothing outside traind is
// touched: no file is opened, paths are checked for form only, because they are paths of the node
// that trains. Bounds: the text, its depth and its nodes (below); everything lives in the caller's
// arena, and TD_SPEC_ARENA_BYTES always suffices. Pure functions of their arguments, any thread.
//
// In reading order:
//
//   spec.h            what others call
//   knobs.def         a row for every key, with knobs_model.def and knobs_method.def
//   knobs.h           questions about rows
//   bounds.h          how large a spec may be
//   text.h            turns text into a tree: JSON here,
//   scalar.c, yaml.c  and YAML there
//   parse.c           adds overrides
//   document.c        walks the tree against the tables
//   value.c, rules.c  each value; what no row can say
//   place.h           where relative paths begin
//   hints.h           what other systems call a key or a name
//   refused.def       combinations of keys that are refused, with the reason
//   refused.h         the check of it, and its print
//   command.c         the same of kinds command and program
//   brought.h         sizes that come with weights
//   plugin_knobs.h    the same by the table that a plugin declares
//   check.h           gathers what was wrong
//   plan.h            wraps the result into plans
//   read.h            reads knobs of a checked section by key
//   completion_words.h  the words of an override, for completion
//   reference.c       prints the tables for people
//   rows.h            gives rows to lists of plugins
//   brief.h           a spec without its defaults
//   yaml_print.h      a tree as YAML
//   language.h        what plans are written in, for nodes of another build
//
// Only td_spec_parse needs libyaml; a program that reads plans (JSON) does not.

#include "lib/base/json.h"
#include "lib/job/kind.h"
#include "lib/job/limits.h"
#include "lib/spec/bounds.h"
#include "lib/spec/place.h"

// text -> canonical tree. Each override is "trainer.devices=4" or "model.layers=[8, 2]"; the value
// is YAML, a later override wins, an absent section is made. Overrides may be NULL if there are 0.
TD_MUST_USE td_status td_spec_parse(struct td_arena *a, const char *text, size_t len,
                                    const char *const *overrides, size_t n_overrides,
                                    struct td_json **out_tree);

// The same. said_by: for each override what messages call it, in place of its number; borrowed by
// the call.
TD_MUST_USE td_status td_spec_parse_said(struct td_arena *a, const char *text, size_t len,
                                         const char *const *overrides, const char *const *said_by,
                                         size_t n_overrides, struct td_json **out_tree);

// The same of a spec that was written somewhere: relative paths and `~` become absolute (place.h).
TD_MUST_USE td_status td_spec_parse_at(struct td_arena *a, const char *text, size_t len,
                                       const char *const *overrides, size_t n_overrides,
                                       struct td_spec_place *place, struct td_json **out_tree);

// Any tree -> canonical tree (a new one; the old is not changed).
TD_MUST_USE td_status td_spec_validate(struct td_arena *a, const struct td_json *tree, int flags,
                                       struct td_json **out_tree);

// ---- the view ----------------------------------------------------------------------------------
// All strings and nodes are borrowed from the tree. "" is an absent string. trainer.fast_dev_run
// and overfit_batches are in it as the limits and other values that they stand for.

// A part chosen by name: `knobs` is its whole section (with `name`), every knob resolved. Of a
// plugin: its own name, and the keys that it declares, which nobody has checked yet.
struct td_spec_part {
    const char *name;
    const struct td_json *knobs; // NULL: a bare name
    bool is_plugin;
};

struct td_spec_loader { // of data, whichever it is; batch_size is per rank
    int64_t batch_size;
    bool shuffle;
    bool drop_last;
    struct td_amount val_split; // of the training samples, to validate on; 0 batches: none
};

struct td_spec_trainer {
    struct td_spec_part accelerator; // auto cpu reference, or a plugin
    const char *cpu_level;           // auto, or a name of lib/base/cpu_level.h
    struct td_spec_part strategy;    // auto single_device ddp, or a plugin
    struct td_spec_part precision;   // auto, 32-true, 64-true, bf16-mixed, bf16-true, 16-mixed,
                                     // 16-true, or a plugin
    struct td_spec_part collective;  // auto, trace, or a plugin that wraps
    int64_t collective_timeout_s, save_timeout_s;
    bool stochastic_rounding;
    int32_t devices; // per node; 0 = auto. td_spec_ranks() resolves it
    int32_t num_nodes;
    struct td_limits limits;             // max_epochs resolved: 1000 when there is no other limit
    const char *accumulate;              // batches, tokens
    double gradient_clip_val;            // 0: off
    const char *gradient_clip_algorithm; // norm, value
    bool log_grad_norm;
    bool find_unused_parameters;
    bool sync_batchnorm;
    bool use_distributed_sampler;
    const char *sampler; // torch, keyed
    bool deterministic;
    const char *recompute; // auto, none, selective, full
    bool detect_anomaly;
    bool profile;
    const char *trace_dir; // "": none
};

struct td_spec_checkpoint {
    int32_t every_n_epochs;        // 0: not by epochs
    int32_t every_n_train_steps;   // 0: not by steps
    int64_t train_time_interval_s; // 0: not by time
    int32_t save_top_k;            // -1 all, 0 none
    const char *monitor;           // "": none
    const char *mode;              // min max
    const char *store;             // auto fs stream
    const char *dir;               // "": the daemon's own
};

struct td_spec_early_stopping {
    const char *monitor; // "": none
    const char *mode;    // min max
    int64_t patience;    // checks
    double min_delta;
    bool check_finite;
    bool has_stopping, has_divergence;
    double stopping_threshold, divergence_threshold;
    bool says_when; // else as Lightning chooses
    bool at_epoch;  // if says_when: at the end of an epoch of training, not of a validation
};

enum { TD_SPEC_MAX_BACKOFF = 16 };
struct td_spec_restart {
    int32_t max;
    int32_t backoff_s[TD_SPEC_MAX_BACKOFF]; // before restart i; the last one repeats
    int32_t n_backoff;                      // at least 1
    int64_t stuck_timeout_s;                // of a silent rank; 0: never
};

struct td_spec_resources {
    int32_t threads;      // per rank; 0 = auto: one slot's worth
    int64_t memory_bytes; // per rank; 0 = auto
    int32_t processes;    // of a command, per rank; 0 = auto
    int32_t open_files;   // of a command, per process; 0 = auto
    int32_t gpus_per_rank;
    const char *gpu_model;    // pattern of their names; "": any
    int64_t gpu_memory_bytes; // that each has at least
    bool isolate_gpus;        // a rank sees its own alone
    bool gpu_indexes;         // CUDA_VISIBLE_DEVICES has places in PCI order, not uuids
    bool unmanaged_gpus;      // that variable is not set by traind
};

struct td_spec {
    const struct td_json *tree;
    const char *name;
    enum td_job_kind kind;         // TRAIN alone has a model, data, an optimizer and stages
    uint64_t seed;                 // seed_everything
    unsigned stages;               // enum td_stage
    const struct td_json *metrics; // names of those of validations and the test
    struct td_spec_part model;
    struct td_spec_part data;
    struct td_spec_part optimizer;
    struct td_spec_part lr_scheduler;
    struct td_spec_part comm_hook;    // none, or what ranks send of gradients
    const struct td_json *optimizers; // list of maps; empty: `optimizer` is the only one
    struct td_spec_loader loader;
    struct td_spec_trainer trainer;
    struct td_spec_checkpoint checkpoint;
    struct td_spec_early_stopping early_stopping;
    struct td_spec_restart restart;
    struct td_spec_resources resources;
    const char *ckpt_path;             // resume everything from here; ""
    bool strict;                       // of init_from
    const char *init_from;             // weights only; ""
    const char *evaluate_from;         // best, last or a path; "": best where fit has a monitor
    const struct td_json *plugins;     // list of paths: the user's own shared objects
    const struct td_json *paths_from;  // list: where relative paths in knobs of plugins begin
    const struct td_json *labels;      // map of texts, by key (lib/job/labels.h)
    const struct td_json *node_labels; // the same of resources: what its nodes have
};

// tree must be canonical (from td_spec_parse, td_spec_validate, or stored text of one).
void td_spec_read(const struct td_json *tree, struct td_spec *out_spec);

// Ranks of the whole job: devices (auto = 1 on cpu and reference, as in Lightning) x num_nodes.
int32_t td_spec_ranks(const struct td_spec *s);
int32_t td_spec_node_ranks(const struct td_spec *s); // those of each node
// Slots that one rank takes on a node of `cores` cores in `slots` slots (both >= 1): 1, or as many
// slots of cores/slots threads as resources.threads needs. And the threads that the rank gets.
int32_t td_spec_slots(const struct td_spec_resources *r, int32_t cores, int32_t slots);
int32_t td_spec_threads(const struct td_spec_resources *r, int32_t cores, int32_t slots);

// ---- texts -------------------------------------------------------------------------------------
// The reference of every key, from the tables, as Markdown (`traind --dump-spec`,
// docs/job-spec.md).
TD_MUST_USE td_status td_spec_reference(struct td_buf *out);

#endif
