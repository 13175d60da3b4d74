#ifndef TRAIND_DAEMON_COORDINATOR_CORE_PLANS_CAPACITY_H
#define TRAIND_DAEMON_COORDINATOR_CORE_PLANS_CAPACITY_H

// Fits: can a job ever run here? One answer for CreateJob, PlanJob and the queue, so that what a
// plan calls possible is not refused later, and what is refused is refused in the same words.
//
// The questions are about the largest known node, connected or not: slots, from the spec alone;
// memory and devices, from what a node has planned. Only nodes count that have the labels which the
// job asks for (resources.labels). n_ranks are those of one node. Where no such node is known yet,
// or one whose devices are not known, nothing is refused. The failures have the reason
// UNSATISFIABLE. Pure; the core's thread.

#include "lib/base/base.h"
#include "lib/job/kind.h"

struct td_core;
struct td_host;
struct td_plan_entry;
struct td_spec_resources;

// FAILED_PRECONDITION UNSATISFIABLE if no known node has all of these labels, with what comes
// nearest. OK where no node is connected: it waits.
TD_MUST_USE td_status td_capacity_labels(const struct td_core *core, const char *labels);
// FAILED_PRECONDITION UNSATISFIABLE if no known node could ever hold the job.
TD_MUST_USE td_status td_capacity_slots(const struct td_core *core, const char *labels,
                                        uint32_t n_ranks, const struct td_spec_resources *r);
// The same of the memory that a plan found; p NULL: OK, nothing is known.
TD_MUST_USE td_status td_capacity_memory(const struct td_core *core, const char *labels,
                                         uint32_t n_ranks, const struct td_plan_entry *p);
// The same of devices: each rank has one of its own. accelerator: its key (host_devices.h). OK of
// GPUs that a command asks for (gpu_capacity.h).
TD_MUST_USE td_status td_capacity_devices(const struct td_core *core, const char *labels,
                                          uint32_t n_ranks, const char *accelerator);
// Of what nobody plans for: PERMISSION_DENIED NOT_ALLOWED if no known node allows the kind,
// UNSATISFIABLE if none of these has the memory that resources asks for. OK of a training.
TD_MUST_USE td_status td_capacity_kind(const struct td_core *core, const char *labels,
                                       enum td_job_kind kind, uint32_t n_ranks,
                                       const struct td_spec_resources *r);
// Memory of so many ranks on one node, as planned (p NULL: not yet) and as asked for each.
uint64_t td_capacity_bytes(uint32_t n_ranks, const struct td_plan_entry *p, uint64_t asked_bytes);
// The memory of n suffices for so many ranks, as planned (p NULL: not yet) and as asked for each.
bool td_capacity_on(const struct td_host *n, uint32_t n_ranks, const struct td_plan_entry *p,
                    uint64_t asked_bytes);
// That its ranks need on n, together.
uint32_t td_capacity_slots_of(const struct td_spec_resources *r, uint32_t n_ranks,
                              const struct td_host *n);

#endif
