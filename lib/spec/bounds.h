#ifndef TRAIND_LIB_SPEC_BOUNDS_H
#define TRAIND_LIB_SPEC_BOUNDS_H

// Bounds of a job spec, and what may be asked when one is checked: what both the tables' side
// (knobs.h, check.h) and the outside (spec.h) know.

enum {
    TD_SPEC_MAX_BYTES = 1 << 20,    // of text; more is RESOURCE_EXHAUSTED
    TD_SPEC_MAX_DEPTH = 16,         // of nested lists and maps
    TD_SPEC_MAX_NODES = 10000,      // values, overrides included
    TD_SPEC_MAX_KEYS = 256,         // of one map
    TD_SPEC_MAX_SCALAR = 64 << 10,  // bytes of one value
    TD_SPEC_MAX_OVERRIDES = 256,    // of one job
    TD_SPEC_ARENA_BYTES = 16 << 20, // enough for any spec within these bounds
    TD_SPEC_MAX_RANKS = 1024,       // trainer.devices * trainer.num_nodes
    TD_SPEC_MAX_GPUS = 64,          // trainer.devices * resources.gpus_per_rank
};

enum td_spec_validate_flags { TD_SPEC_PLAN = 1 }; // also requires `format`, allows `run`

#endif
