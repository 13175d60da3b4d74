#ifndef TRAIND_ENGINE_TRAIN_CONFIG_CONFIG_H
#define TRAIND_ENGINE_TRAIN_CONFIG_CONFIG_H

// engine/train/config: what a job asks for, and pure functions of that.
//
// In reading order: config.h; limits.h, how often things happen; schedule.h, the learning rate of a
// step; plateau.h, its scale where it follows a metric. Last, early_stop.h ends fit by a metric.
//
// config.h is everything one rank needs to know before it trains, as plain C values.
//
// The engine knows no job spec: daemon/worker fills this from a plan, a test or a program fills it
// by hand. All pointers are borrowed and outlive the run. Names of plugins are resolved through the
// registry; knob trees go to the plugins as they are. Pure data, any thread.

#include "lib/attempt/rank_page.h"
#include "lib/base/cpu_level.h"
#include "lib/base/json.h"
#include "lib/job/limits.h"
#include "traind/graph.h"

struct td_registry;
struct td_store;
struct td_dump;

// A plugin by name, with its knobs.
struct td_part {
    const char *name;
    const struct td_json *knobs; // NULL: none
};

enum td_optimizer_kind {
    TD_OPTIMIZER_SGD,
    TD_OPTIMIZER_ADAM,
    TD_OPTIMIZER_ADAMW,
    TD_OPTIMIZER_LION,
    TD_OPTIMIZER_ADAFACTOR,
    TD_OPTIMIZER_MUON,
};
// How an update of Muon grows with the matrix, as torch names it.
enum td_muon_scale { TD_MUON_ORIGINAL, TD_MUON_MATCH_RMS_ADAMW, TD_MUON_SPECTRAL_UNCLAMPED };
struct td_muon_config {
    int ns_steps;
    double ns_coefficients[3];
    enum td_muon_scale scale;
    double adamw_lr; // of what is no hidden matrix
    struct td_optim_attrs adamw;
};
// Parameters that are treated apart, by the names that match: shell patterns, '|' between them.
struct td_optimizer_group {
    const char *match;
    double lr_scale; // 0: they stay as they are
    bool has_weight_decay;
    double weight_decay;
};
struct td_optimizer_config {
    enum td_optimizer_kind kind;
    double lr;
    struct td_optim_attrs attrs; // eps 0 of adafactor: that of the parameter's type
    struct td_muon_config muon;
    const struct td_optimizer_group *groups; // a parameter belongs to the first that matches
    size_t n_groups;
    double max_norm;  // gradient clip by global norm; 0: off
    double max_value; // gradient clip element by element; 0: off
    bool stochastic;  // stochastic rounding of 16-bit weights
    bool log_norm;    // metric "grad_norm" also without clipping
};

enum td_schedule_kind {
    TD_SCHEDULE_CONSTANT,
    TD_SCHEDULE_WARMUP_COSINE,
    TD_SCHEDULE_LINEAR,
    TD_SCHEDULE_COSINE,
    TD_SCHEDULE_STEP,
    TD_SCHEDULE_MULTISTEP,
    TD_SCHEDULE_EXPONENTIAL,
    TD_SCHEDULE_POLYNOMIAL,
    TD_SCHEDULE_INVERSE_SQRT,
    TD_SCHEDULE_ONE_CYCLE,
    TD_SCHEDULE_WARMUP_STABLE_DECAY,
    TD_SCHEDULE_REDUCE_ON_PLATEAU,
    TD_SCHEDULE_COUNT,
};
enum td_schedule_curve { TD_CURVE_LINEAR, TD_CURVE_COSINE, TD_CURVE_ONE_MINUS_SQRT };
enum { TD_SCHEDULE_MILESTONES = 64 };
// When the rate falls; what the values mean is that of the knobs (plateau.h).
struct td_plateau_config {
    const char *monitor; // "val_loss"
    bool larger_is_better;
    double factor;
    int64_t patience; // validations
    double threshold;
    bool threshold_is_absolute; // else a share of the best
    int64_t cooldown;           // validations
    double min_lr, eps;
};
// Each kind reads some of these; what they mean is that of the knobs they come from (schedule.h).
struct td_schedule_config {
    enum td_schedule_kind kind;
    int64_t warmup_steps;
    int64_t total_steps;                 // 0: the run's last step, filled in when it is known
    int64_t decay_steps;                 // warmup_stable_decay: at its end
    int64_t period_steps;                // step: between two factors
    int64_t timescale;                   // inverse_sqrt, in steps
    double min_lr;                       // warmup_cosine, cosine
    double start_factor;                 // linear, of the base rate
    double end_factor;                   // linear, warmup_stable_decay
    double gamma;                        // step, multistep, exponential
    double power;                        // polynomial
    double pct_start;                    // one_cycle: share of the run in which it rises
    double div_factor;                   // one_cycle: peak / first rate
    double final_div_factor;             // one_cycle: first rate / last rate
    bool three_phase;                    // one_cycle
    enum td_schedule_curve warmup_curve; // warmup_stable_decay
    enum td_schedule_curve decay_curve;  // warmup_stable_decay, one_cycle
    int64_t milestone[TD_SCHEDULE_MILESTONES];
    size_t n_milestones;
    struct td_plateau_config plateau; // reduce_on_plateau
};

// One of several optimizers, with the parameters that are its.
struct td_named_optimizer {
    const char *name;
    const char *match; // shell patterns, '|' between them
    struct td_optimizer_config optimizer;
    struct td_schedule_config schedule; // not reduce_on_plateau
};
enum { TD_OPTIMIZERS_MAX = 8 };

struct td_checkpoint_config {
    const char *dir;               // parent of "step-<n>"; NULL: none are written
    const char *label;             // what events call that parent: "a1"
    int64_t patience_ns;           // how long the writing of one is waited for
    int32_t every_n_epochs;        // 0: not by epochs
    int32_t every_n_train_steps;   // 0: not by steps
    int64_t train_time_interval_s; // 0: not by time
    int32_t save_top_k;            // -1 all, 0 none but the one of an agreed stop
    const char *monitor;           // NULL: keep the newest k
    bool monitor_max;              // larger is better
};

// What ends fit by a metric; what the values mean is that of the knobs (early_stop.h).
enum td_early_stop_when {
    TD_EARLY_STOP_USUAL,
    TD_EARLY_STOP_AT_EPOCH,
    TD_EARLY_STOP_AT_VALIDATION
};
struct td_early_stop_config {
    const char *monitor; // NULL: nothing does
    bool larger_is_better;
    bool check_finite;
    bool has_stopping, has_divergence;
    int64_t patience; // checks
    double min_delta;
    double stopping_threshold, divergence_threshold; // where there are any
    enum td_early_stop_when when;                    // it is checked
};

// What is written of a sample. USUAL: classes where the module's targets are classes, else logits.
enum td_predict_values { TD_PREDICT_USUAL, TD_PREDICT_CLASSES, TD_PREDICT_LOGITS };
struct td_predict_config {
    const char *output; // file; NULL: in the directory of the checkpoints
    enum td_predict_values values;
    const char *prompt;                  // NULL: none
    const struct td_json *prompt_tokens; // list, when there is no text; NULL or empty: none
    int64_t max_new_tokens;
    double temperature; // 0: always the likeliest
    int64_t top_k;      // 0: all
    uint64_t seed;
};

// Metrics of an evaluation that are asked for (rank/scores/scores.h).
enum td_score {
    TD_SCORE_PERPLEXITY = 1,
    TD_SCORE_F1_MACRO = 2,
    TD_SCORE_F1_MICRO = 4,
    TD_SCORE_R2 = 8,
    TD_SCORE_CONFUSION = 16,
};

struct td_train_config {
    const char *job; // "": started by hand
    int32_t attempt;
    int32_t rank, world_size;
    // Where the attempt is on several nodes; else zeros.
    int32_t node_rank, n_nodes, local_rank, local_world_size;
    const char *interface_address; // numeric: what traffic between nodes binds to
    const char *const *node_names; // (n_nodes); NULL: nobody gave them any
    int64_t link_timeout_ns;       // 0: the collective's own
    struct td_part model, data;
    const char *accelerator;       // auto, or a plugin
    const char *auto_accelerator;  // what auto means where no first start settled it
    const char *collective;        // in which the ranks of this attempt meet
    int64_t collective_timeout_ns; // of each meeting
    int64_t save_timeout_ns;       // of those to which one may come late (rank/group/group.h)
    const char *decorator;         // a collective that wraps it; NULL: none
    int32_t device;                // of the accelerator, which the rank opens
    const char *strategy;          // auto, single_device, ddp, or another plugin
    struct td_part comm_hook;      // what ranks send of gradients; name NULL or "none": all of them
    const char *comm_hook_wrapper; // a hook around it; NULL or "none": none
    // 32-true, 64-true, bf16-mixed, bf16-true, 16-mixed, 16-true, or another plugin; "auto" is
    // settled by the caller.
    const char *precision;
    // Knobs of a plugin that is none of these; NULL: none.
    const struct td_json *accelerator_knobs, *strategy_knobs, *precision_knobs, *decorator_knobs;
    struct td_optimizer_config optimizer;
    struct td_schedule_config schedule;
    const struct td_named_optimizer *optimizers; // instead of the two above
    int n_optimizers;                            // 0: there is one; at most TD_OPTIMIZERS_MAX
    uint64_t seed;
    unsigned stages;            // enum td_stage
    unsigned scores;            // enum td_score, of validations and the test
    bool counts_tokens;         // gradients are of sums, divided by what was counted (counted.h)
    bool manual;                // fit is a loop of somebody else's (loop/manual.h)
    bool manual_accumulates;    // in which micro-batches may add up
    bool manual_keeps_forwards; // and forwards of several steps may be open at once
    int64_t batch_size;
    bool shuffle, drop_last;
    bool keyed_order;           // of what is shuffled (rank/data/keyed_order.h)
    struct td_amount val_split; // of the training samples, to validate on; 0 batches: none
    struct td_limits limits;
    struct td_checkpoint_config checkpoint;
    struct td_early_stop_config early_stop;
    struct td_predict_config predict;
    int32_t n_threads;
    enum td_cpu_level most_cpu_level; // that a job can have here, for what a note advises
    const char *trace_dir;            // of its timeline; NULL: it writes none
    bool profile;                 // print where the time went, to stderr, when the run has ended
    bool profile_file;            // and write it beside the checkpoints
    struct td_registry *registry; // of all plugins
    const char *cache_dir;        // NULL: none
    const char *choices_dir; // what was measured on this machine: kernels, rates; NULL: cache_dir
    bool busy;               // ranks run on this machine: an estimate measures nothing
    bool deterministic;      // choose nothing by timing
    const char *recompute;   // none, selective, full; auto or NULL: what the memory allows
    size_t memory_bytes;     // that this rank may use; 0: no limit of its own
    bool detect_anomaly;     // look at every tensor that a step makes
    bool find_unused_parameters; // parameters that no training step reaches are left alone
    bool whole_data;             // every rank goes over all samples; whoever gathers them divides
    bool sync_batchnorm;         // batch norms train over the samples of all ranks
    const char *build;           // of the engine, part of the resume key
    // Checkpoints to resume from, the newest first: the first undamaged one is taken. Weights only:
    // init_from.
    const char *const *resume_from;
    size_t n_resume_from;
    const char *init_from; // NULL: none
    const void *init_data; // its bytes in memory; NULL: it is a path
    size_t init_data_bytes;
    bool init_loosely;                                // init_from: load what fits, skip the rest
    bool (*init_filter)(void *arg, const char *name); // tensors of init_from; NULL: all
    void *init_filter_arg;
    // Weights of validate, test and predict: "best", "last" or a path as init_from. NULL: best
    // where fit monitors a metric, else last.
    const char *evaluate_from;
    const struct td_json *plan;   // whole, copied into manifests; NULL: none
    const struct td_json *frozen; // choices of the first start; NULL: none yet
    const char *spec_digest;      // XXH3-128 hex; "": none
    struct td_dump *dump;         // takes the text of a graph; NULL: none
};

// Where a rank's signals come from and go to. Without a launcher the worker makes its own page and
// ring, and prints what would have been sent.
struct td_train_io {
    struct td_rank_page *page; // never NULL
    struct td_ring ring;       // of struct td_metric_record
    bool print_metrics;        // nobody else drains the ring: print it as JSON lines on stdout
    void *group;               // shared mapping of the ranks; NULL for world 1
    size_t group_bytes;
    struct td_store *store; // of the attempt (traind/store.h); NULL: by hand, or world 1
};

#endif
