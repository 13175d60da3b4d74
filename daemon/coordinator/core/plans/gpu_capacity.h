#ifndef TRAIND_DAEMON_COORDINATOR_CORE_PLANS_GPU_CAPACITY_H
#define TRAIND_DAEMON_COORDINATOR_CORE_PLANS_GPU_CAPACITY_H

// GPUs that jobs of kinds command and program ask for (resources.gpus_per_rank): which will do, can
// so many ever be had, and how many ranks `trainer.devices: auto` means beside them. As in
// capacity.h: the questions are about all known nodes, and a node that has not said yet which GPUs
// it has may have any. Pure; the core's thread.

#include "daemon/coordinator/core/model/host_devices.h"

struct td_arena;
struct td_core;
struct td_json;
struct td_spec_resources;

// Of so many ranks on one node. Its text is r's. Without gpus_per_rank: n 0.
struct td_device_want td_gpu_want(const struct td_spec_resources *r, uint32_t n_ranks);
// "4 GPUs", "1 GPU like *H100* of at least 40.0 GiB".
enum { TD_GPU_WORDS = 192 };
const char *td_gpu_words(const struct td_device_want *want, char out[TD_GPU_WORDS]);
// How ranks find theirs, in a few words; "": they get none.
const char *td_gpu_view(const struct td_spec_resources *r);

// FAILED_PRECONDITION UNSATISFIABLE if no known node could ever have them, with what comes nearest.
// OK without gpus_per_rank, and where no node is known.
TD_MUST_USE td_status td_gpu_capacity(const struct td_core *core, const char *labels,
                                      uint32_t n_ranks, const struct td_spec_resources *r);

// A canonical spec that asks for GPUs and leaves the ranks to `auto` gets them as a number. It is
// what each of trainer.num_nodes nodes has GPUs for, of those with the most. Others stay as they
// are.
// FAILED_PRECONDITION: no node has said which GPUs it has, or UNSATISFIABLE.
TD_MUST_USE td_status td_gpu_settle_ranks(const struct td_core *core, struct td_arena *arena,
                                          struct td_json *inout_spec);

#endif
