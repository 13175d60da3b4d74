#ifndef TRAIND_ENGINE_GRAPH_GRAPH_TEXT_H
#define TRAIND_ENGINE_GRAPH_GRAPH_TEXT_H

// Graph text: a stable, readable form of graphs and memory plans, for golden files and for
// `--dump-graph`. It is written, never read. Values print as the input's name, "@state", "$scalar"
// or "%n". The values of "%n" are numbered in the order of their making, so that the text does not
// depend on how many values earlier passes threw away.

#include "lib/base/buf.h"
#include "traind/graph.h"

TD_MUST_USE td_status td_graph_text(const struct td_graph *g, struct td_buf *out);
// The same under the program's key; once memory is planned, with each value's place in the arena
// and the arena's size.
TD_MUST_USE td_status td_program_text(const struct td_program *p, struct td_buf *out);
// The same with what `note` writes after the line of each node: lines of its own, or nothing.
typedef td_status td_node_note(void *arg, td_node n, struct td_buf *out);
TD_MUST_USE td_status td_program_text_noted(const struct td_program *p, td_node_note *note,
                                            void *arg, struct td_buf *out);
// "f32(128,784)"; always ends in NUL, cut at bytes.
void td_shape_text(enum td_dtype dtype, const struct td_shape *shape, char *out, size_t bytes);

#endif
