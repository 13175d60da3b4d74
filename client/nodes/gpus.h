#ifndef TRAIND_CLIENT_NODES_GPUS_H
#define TRAIND_CLIENT_NODES_GPUS_H

// GPUs of nodes for people: a cell of `node list`, a table of `node list -o wide`, and facts of
// `node show`. What the driver does not say is "-" in a table, and no line.

#include "lib/base/base.h"
#include "traind/v1/admin.pb-c.h"

struct td_arena;

// "8 NVIDIA H100 80GB HBM3", of several models with ", " between; "-": none. NULL: no memory.
const char *td_gpus_cell(struct td_arena *arena, const Traind__V1__GpuList *l);
// Each GPU of all nodes, and why there are none or not all.
TD_MUST_USE td_status td_gpus_table(struct td_arena *arena, Traind__V1__Node *const *nodes,
                                    size_t n_nodes);
void td_gpus_facts(const Traind__V1__GpuList *l);
// What excludes it, or the whole GPU that it is an instance of; NULL: nothing does.
const Traind__V1__GpuExclusion *td_gpus_exclusion(const Traind__V1__GpuList *l,
                                                  const Traind__V1__Gpu *g);
// The uuid of the list that begins so; as it was said where none does.
const char *td_gpus_whole_uuid(const Traind__V1__GpuList *l, const char *said);

#endif
