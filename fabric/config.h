#ifndef TRAIND_FABRIC_CONFIG_H
#define TRAIND_FABRIC_CONFIG_H

// Config of fabric: what a process takes from its environment. That is which rank it is
// (rank_env.h), which call of a parent that spawns it serves (spawn_call.h), and where temporary
// files are. Besides, TRAIND_CPU_ISA bounds the CPU level where no launcher says one.
//
// The first two are read once. Then they are removed, and the descriptors that they name close on
// exec, so that what this process starts is not taken for the same rank. The first call belongs
// where a program begins: while it changes the environment, no other thread may use that.

#include "lib/attempt/rank_env.h"

// Which rank this process is; *out_env NULL: none. It lives as long as the process.
// Thread: the first call before other threads, later ones any.
// Errors, the same ones at each call: INVALID_ARGUMENT, RESOURCE_EXHAUSTED (the value is no rank
// environment), FAILED_PRECONDITION (a descriptor that it names is not open here).
TD_MUST_USE td_status td_fabric_env(const struct td_rank_env **out_env);
// The descriptor of the call that it serves; -1: it is not spawned. Errors: as td_fabric_env's.
TD_MUST_USE td_status td_fabric_call_fd(int *out_fd);
// TMPDIR where it is a path from the root, else /tmp.
const char *td_fabric_temp_dir(void);

#define TD_SPAWN_ENV "TRAIND_SPAWN"

// TRAIND_NVML, of tests: a file in the place of the NVIDIA driver's library; "": that.
const char *td_fabric_nvml_file(void);

#define TD_CPU_LEVEL_ENV "TRAIND_CPU_ISA"
// Its value; "": not set. Thread: any that may read the environment.
const char *td_fabric_cpu_level(void);
// FAILED_PRECONDITION where another launcher has started this process as one of several ranks: its
// variables name a world that nobody here would join.
TD_MUST_USE td_status td_fabric_check_launcher(void);

#endif
