#ifndef TRAIND_DAEMON_WORKER_WORKER_H
#define TRAIND_DAEMON_WORKER_WORKER_H

// The worker: one rank of a job, and what a node asks of the engine besides.
//
// In reading order:
//
//   main.c                           the command line
//   worker.h                         the verbs
//   run.c, plan.c, compare.c, rates.c, probe.c, devices.c
//                                    a verb each; probe_plugins.h, the other half of probe
//   reports/                         another verb: metrics of what a script says by itself
//   precision.h                      what trainer.precision: auto is
//
// What a rank in a process needs besides is in fabric/ (fabric/fabric.h).
//
// Each verb returns an exit code (enum td_exit_code).
//
//   traind-worker run --plan FILE [--rank R --world-size W --page-fd N --events-fd N --group-fd N]
//       [--device UUID]               of the accelerator; else that of the rank's number
//       [--profile]                   at the end a table of kernels and their time, on stderr
//       [--plugin-dirs DIRS]          run, plan: where the plan's plugins may be
//       [--path-rules JSON]           run, plan, compare: what its paths may name
//   traind-worker plan --plan FILE    sizes, steps and FLOPs of a plan, as one JSON object
//       [--dump-graph PASS [--json]]  the main program as that pass leaves it, as text
//       [--choices-dir DIR]           the node's cache: kernels that were measured, which it only
//                                     reads, rates, and decoded data
//       [--checkpoints-dir DIR]       where a node has checkpoints of jobs that name no place
//       [--busy]                      measure nothing, ranks run on this machine
//   traind-worker compare --plan FILE a plan and what it read: has that changed? one JSON object
//   traind-worker rates --choices-dir DIR [--threads N] [--accelerator NAME]
//                                     measure rates of this machine for a moment and keep them
//   traind-worker probe [--plugins]   accelerators found here, a JSON object each; or what a spec
//                                     can name as `name: plugin`, and traind's own
//   traind-worker devices [--interval-ms N]
//                                     what NVML says of GPUs, as JSON lines, until it is killed
//   traind-worker reports --reports-fd N --settings JSON
//                                     started by a launcher: metrics of what a script says
//   traind-worker version
//
// All take --cpu-level LEVEL: no newer instructions than that. It and the plan's trainer.cpu_level
// are one bound, the lower holds.

#include "fabric/configure/configure.h"
#include "lib/attempt/exit_codes.h"

int td_worker_run(const struct td_rank_args *args);
int td_worker_plan(const struct td_rank_args *args);
int td_worker_compare(const struct td_rank_args *args);
int td_worker_probe(const struct td_rank_args *args);
int td_worker_rates(const struct td_rank_args *args);
int td_worker_devices(int32_t interval_ms);

#endif
