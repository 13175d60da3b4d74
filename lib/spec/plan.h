#ifndef TRAIND_LIB_SPEC_PLAN_H
#define TRAIND_LIB_SPEC_PLAN_H

// The plan: what a worker trains from. JSON with the keys of a canonical job spec at its top level,
// `format: 1`, and a `run` object with the facts of this attempt. It is the same on every rank
// of a node: which rank a process is, it learns from its launcher (none: rank 0 of world 1).
//
// A plan may be written by hand. Whatever is left out takes its default, as in a spec, and it is
// checked by the same tables. Only `format`, `model`, `data` and `optimizer` are needed.
// Errors as in spec.h. The text is bounded as a spec's is. Pure, any thread.

#include "lib/spec/spec.h"

enum { TD_PLAN_FORMAT = 1, TD_PLAN_PRECISION_BYTES = 160 };

struct td_plan_run {
    const char *job;          // "": started by hand
    int32_t attempt;          // from 1
    int32_t world_size;       // 0: as the launcher says
    int32_t threads_per_rank; // 0: auto, all cores that the process may use
    // Parent of "step-<n>"; "": checkpoint.dir, and if that is "" too, none are written.
    const char *checkpoint_dir;
    const char *cache_dir;   // decoded data; "": none
    const char *resume_from; // directory of a checkpoint; "": from the start
    // Directories of older ones to fall back on, newest first; NULL: none.
    const struct td_json *resume_before;
    const char *precision; // that trainer.precision: auto was settled to; "": nothing yet
    const char *cpu_level; // the highest that ranks may use, as other nodes have no more; "": any
    // Of a job over several nodes; else "".
    const char *master_address;       // of the node of rank 0
    int32_t master_port;              // there, of a command or program; 0: none
    const char *collective_interface; // of this node: what goes to ranks of others goes through it
    const char *collective_address;   // its address
    const struct td_json *nodes;      // names, in the order of their ranks; NULL: none are given
    int32_t link_timeout_ms;          // 0: the default
    const struct td_json *frozen;     // choices of the first start, an object; NULL: none yet
};

struct td_plan {
    struct td_spec spec;
    struct td_plan_run run;
    const struct td_json *tree; // canonical
};

TD_MUST_USE td_status td_plan_parse(struct td_arena *a, const char *text, size_t len,
                                    struct td_plan *out_plan);
// Canonical spec + facts -> plan; NULL strings in run count as "".
TD_MUST_USE td_status td_plan_build(struct td_arena *a, const struct td_json *spec_tree,
                                    const struct td_plan_run *run, struct td_plan *out_plan);
// Appends the JSON, indented, with a final newline.
TD_MUST_USE td_status td_plan_print(const struct td_plan *p, struct td_buf *out);
// Appends what td_plan_parse reads as the same plan, made of texts. These are a canonical
// spec's and that of the frozen choices (NULL: none; those in run do not count, nor does
// resume_before). Nothing is checked here.
TD_MUST_USE td_status td_plan_join(const char *spec_json, const struct td_plan_run *run,
                                   const char *frozen_json, struct td_buf *out);
// The note of a job whose trainer.precision is auto. Seconds are those of a step, estimated; 0:
// they are not known. other: what it was compared with; "": nothing.
void td_plan_say_precision(const char *precision, double seconds, const char *other,
                           double other_seconds, char out[TD_PLAN_PRECISION_BYTES]);

#endif
