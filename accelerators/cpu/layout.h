#ifndef TRAIND_ACCELERATORS_CPU_LAYOUT_H
#define TRAIND_ACCELERATORS_CPU_LAYOUT_H

// Layouts of images: in which order the bytes of a 4-D value (N,C,H,W) lie in memory.
//
// All layouts are one: channels in blocks of some lanes, (N, C / lanes, H, W, lanes). Plain has one
// lane, blocked sixteen, last all of them. They take the same bytes, so the memory plan need not
// know. Where all orders are the same (one channel, or one place an image) a value is neutral.
//
// td_layout_plan gives every value of a program a layout and says in which layout each node works;
// where the two differ, the compiler puts a reorder between them (a bridge), which goes through
// scratch memory. Convolutions decide: blocked where the channels divide by 16, else last. What
// works in any layout (elementwise ops, pools, batch norm, sums over places) takes over what the
// convolutions around it want. Everything else is plain: inputs, state, what a reshape sees, and
// ops that know nothing of layouts.

#include "lib/base/base.h"
#include "traind/graph.h"

enum td_image_layout { TD_LAYOUT_PLAIN, TD_LAYOUT_BLOCKED, TD_LAYOUT_LAST, TD_LAYOUT_COUNT };
enum { TD_LAYOUT_LANES = 16 };

static inline int64_t td_layout_lanes(enum td_image_layout l, int64_t channels) {
    return l == TD_LAYOUT_PLAIN ? 1 : l == TD_LAYOUT_LAST ? channels : TD_LAYOUT_LANES;
}

// An image by strips of at most sixteen channels: what kernels that work channel by channel walk.
// The channels of a strip lie side by side, its places `step` elements apart. Plain strips have one
// channel.
struct td_strips {
    int64_t n, channels, places, width, step;
};

static inline struct td_strips td_strips_of(const struct td_shape *s, enum td_image_layout layout) {
    struct td_strips t = {.n = s->dim[0], .channels = s->dim[1], .places = 1};
    for (int d = 2; d < s->n_dims; d++) {
        t.places *= s->dim[d];
    }
    if (t.places == 1) layout = TD_LAYOUT_LAST; // all are the same
    t.width = layout == TD_LAYOUT_PLAIN ? 1 : TD_LAYOUT_LANES;
    t.step = layout == TD_LAYOUT_LAST ? t.channels : t.width;
    return t;
}

static inline int64_t td_strips_count(const struct td_strips *t) { // of one image
    return (t->channels + t->width - 1) / t->width;
}

static inline int64_t td_strip_width(const struct td_strips *t, int64_t strip) {
    int64_t left = t->channels - strip * t->width;
    return left < t->width ? left : t->width;
}

// Where strip `strip` of image n begins.
static inline int64_t td_strip_at(const struct td_strips *t, int64_t n, int64_t strip) {
    int64_t c = strip * t->width, image = t->channels * t->places;
    return n * image + (t->step == t->channels ? c : c * t->places);
}

// What a node needs of the images that it reads and makes.
enum td_layout_need {
    TD_NEED_PLAIN,
    TD_NEED_ANY,  // alike
    TD_NEED_CONV, // what is best for this convolution
};

struct td_layout_plan {
    const uint8_t *need; // [n_nodes], borrowed
    uint8_t *of_value;   // [n_values + 1], enum td_image_layout
    uint8_t *of_node;    // [n_nodes]
    uint32_t n_bridges;
    size_t bridge_bytes; // the most that the bridges of one node take
};

// need: by node, enum td_layout_need; elementwise nodes are known without.
TD_MUST_USE td_status td_layout_plan_make(const struct td_graph *g, const uint8_t *need,
                                          struct td_layout_plan *out_plan);
void td_layout_plan_finish(struct td_layout_plan *plan);

// What node n wants value v (an operand or a result of it) to be.
enum td_image_layout td_layout_wanted(const struct td_graph *g, const struct td_layout_plan *plan,
                                      td_node n, td_value v);
// True if a reorder must stand between v and node n.
bool td_layout_bridged(const struct td_graph *g, const struct td_layout_plan *plan, td_node n,
                       td_value v);
// The two images of a convolution: what it reads or differentiates, and what it makes.
void td_conv_images(const struct td_node_info *n, td_value *out_x, td_value *out_y);

struct td_reorder {
    struct td_shape shape; // (N,C,H,W)
    enum td_image_layout from, to;
    size_t elem_bytes; // 1, 2, 4 or 8
};
// On n_threads threads; from and to do not overlap.
void td_reorder_run(const struct td_reorder *r, int32_t n_threads, const void *from, void *to);

#endif
