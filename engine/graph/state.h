#ifndef TRAIND_ENGINE_GRAPH_STATE_H
#define TRAIND_ENGINE_GRAPH_STATE_H

// The state table as the builder and the rewrites see it: marks, types and buckets of tensors.
// Everybody else has traind/graph.h. Thread: the graph's.

#include "lib/base/base.h"
#include "traind/graph.h"

void td_state_mark(struct td_state_table *t, uint32_t index, unsigned marks);
// The type that steps name, and (td_rewrite_state) storing the tensor in another one.
enum td_dtype td_state_recorded(const struct td_state_table *t, uint32_t index);
TD_MUST_USE td_status td_state_retype(struct td_state_table *t, uint32_t index,
                                      enum td_dtype dtype);
// Bucket of a gradient: false if it has none yet. Setting is refused once the layout is frozen.
bool td_state_bucket_of(const struct td_state_table *t, uint32_t index, uint32_t *out_bucket);
TD_MUST_USE td_status td_state_set_bucket(struct td_state_table *t, uint32_t index,
                                          uint32_t bucket);

int32_t td_state_rank(const struct td_state_table *t);
// See td_rewrite_split.
TD_MUST_USE td_status td_state_split(struct td_state_table *t, uint32_t index, int32_t n_pieces,
                                     bool alone);

TD_DEFINE_AUTO(td_state_table, td_state_table_destroy);

#endif
