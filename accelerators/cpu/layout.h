#ifndef TRAIND_ACCELERATORS_CPU_LAYOUT_H
#define TRAIND_ACCELERATORS_CPU_LAYOUT_H

// Layouts of images: in which order the bytes of a 4-D value (N,C,H,W) are in memory.
//
// All layouts are one: channels in blocks of some lanes, (N, C / lanes, H, W, lanes). Plain has one
// lane, blocked as many as the CPU level has (16 with AVX-512, else 8), last all of them. They take
// the same bytes, so the memory plan need not know. Where all orders are the same (one channel, or
// one place an image) a value is neutral.
//
// td_layout_plan gives every value of a program a layout and says in which layout each node works.
// Where the two differ, the compiler puts a reorder between them (a bridge), which goes through
// scratch memory. Convolutions decide, each for itself (onednn/conv_shape.c). What works in any
// layout (elementwise ops, pools, batch norm, sums over places) takes over what the convolutions
// around it want. Everything else is plain: inputs, state, what a reshape sees, and ops that know
// nothing of layouts.

#include "lib/base/base.h"
#include "traind/graph.h"

enum td_image_layout { TD_LAYOUT_PLAIN, TD_LAYOUT_BLOCKED, TD_LAYOUT_LAST, TD_LAYOUT_COUNT };

// How many channels are side by side; block: those of a block at the CPU level in use (kernels.h).
static inline int64_t td_layout_lanes(enum td_image_layout l, int64_t channels, int64_t block) {
    return l == TD_LAYOUT_PLAIN ? 1 : l == TD_LAYOUT_LAST ? channels : block;
}

// What a node needs of the images that it reads and makes.
enum td_layout_need {
    TD_NEED_PLAIN,
    TD_NEED_ANY,  // alike
    TD_NEED_CONV, // what is best for this convolution
};

// Of a node that is a convolution: the layouts that it wants its two images in.
struct td_conv_layouts {
    uint8_t x, y; // enum td_image_layout
};

struct td_layout_plan {
    const uint8_t *need;                // [n_nodes], borrowed, and so is
    const struct td_conv_layouts *conv; // [n_nodes]
    uint8_t *of_value;                  // [n_values + 1], enum td_image_layout
    uint8_t *of_node;                   // [n_nodes]
    uint32_t n_bridges;
    size_t bridge_bytes; // the most that the bridges of one node take
};

// need: by node, enum td_layout_need; elementwise nodes are known without. conv: of those that need
// TD_NEED_CONV.
TD_MUST_USE td_status td_layout_plan_make(const struct td_graph *g, const uint8_t *need,
                                          const struct td_conv_layouts *conv,
                                          struct td_layout_plan *out_plan);
void td_layout_plan_finish(struct td_layout_plan *plan);

// What node n wants value v (an operand or a result of it) to be.
enum td_image_layout td_layout_wanted(const struct td_graph *g, const struct td_layout_plan *plan,
                                      td_node n, td_value v);
// True if there must be a reorder between v and node n.
bool td_layout_bridged(const struct td_graph *g, const struct td_layout_plan *plan, td_node n,
                       td_value v);
// The two images of a convolution: what it reads or differentiates, and what it makes.
void td_conv_images(const struct td_node_info *n, td_value *out_x, td_value *out_y);

#endif
