#ifndef TRAIND_DATASET_H
#define TRAIND_DATASET_H

// Dataset: samples by index, for each split. It holds no position: the sampler decides which sample
// comes when, so every dataset resumes exactly and shards alike.
//
// open() checks the files before training (class data: file, offset, expected and found) and may
// keep decoded data in the node's cache, keyed by digest, mapped by all ranks.
// Thread: open on the training thread; gather from any one thread at a time.
// Ownership: what a slot is handed is borrowed until it returns; what open() gives is freed by
// close(). Errors: an output is written only on success, but for gather, which may have written a
// part of it; the attempt ends with the status.

#include "traind/module.h"

#ifdef __cplusplus
extern "C" {
#endif

enum td_split { TD_SPLIT_TRAIN, TD_SPLIT_VAL, TD_SPLIT_TEST, TD_SPLIT_PREDICT, TD_SPLIT_COUNT };
// Loaders of one split, at most.
enum { TD_LOADERS_MAX = 8 };
const char *td_split_name(enum td_split s); // "train"; lives as long as the process

struct td_dataset_config {
    uint32_t struct_bytes;
    const struct td_json *knobs;      // read with traind/knobs.h
    const char *cache_dir;            // NULL: decode into private memory
    const struct td_targets *targets; // what the module takes, alive during open; NULL: all 0
    // Of a dataset that says takes_floats: the type of its fields of numbers. TD_F64 where the job
    // computes in it; else, and for all others, TD_F32.
    enum td_dtype floats;
};

struct td_dataset;

struct td_dataset_ops {
    uint32_t struct_bytes;
    // Errors: class bad_spec for knobs that cannot be, class data for files that are not as said.
    td_status (*open)(const struct td_dataset_config *config, struct td_dataset **out_dataset);
    void (*close)(struct td_dataset *d); // accepts NULL
    // Writes the fields in the order the module takes them; returns how many, at most 8.
    size_t (*fields)(struct td_dataset *d, struct td_field out_fields[8]);
    int64_t (*length)(struct td_dataset *d, enum td_split split); // samples; 0: no such split
    // Copies samples index[0..n), each from 0 and below length, into out[field], which is the
    // caller's memory: (n, sample_shape) of the field's type, row-major.
    td_status (*gather)(struct td_dataset *d, enum td_split split, const int64_t *index, int64_t n,
                        void *const *out);
    // (optional) Loaders of split val or test: parts that are evaluated one after the other, each
    // with metrics of its own. Writes how many samples each has, at least 1, and returns how many
    // loaders there are. Together they are the split, in order. Called after open, for a split with
    // samples. Absent: one loader.
    size_t (*loaders)(struct td_dataset *d, enum td_split split,
                      int64_t out_samples[TD_LOADERS_MAX]);
    // (optional) Fields of numbers have the type config.floats. A module records them as f32 all
    // the same, and the precision makes f64 of it, as of everything else. False: they have the type
    // that `fields` says, and the module sees that.
    bool takes_floats;
};

#ifdef __cplusplus
}
#endif
#endif
