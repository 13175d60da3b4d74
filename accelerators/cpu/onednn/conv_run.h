#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_CONV_RUN_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_CONV_RUN_H

// One convolution by one algorithm: what it holds, and a run of it. Thread: the training thread.

#include "accelerators/cpu/kernels/matmul/winograd.h"
#include "accelerators/cpu/onednn/conv_shape.h"
#include "accelerators/cpu/onednn/engine.h"
#include "accelerators/cpu/onednn/primitive.h"

struct td_pack; // packs.h

// oneDNN's Winograd, our own (kernels/matmul/winograd.h), and what every convolution has.
enum td_conv_algorithm { TD_CONV_WINOGRAD, TD_CONV_OWN_WINOGRAD, TD_CONV_DIRECT };

// Offsets in the scratch of operands and result as fp32, and their elements.
struct td_conv_widened {
    size_t x_at, w_at, bias_at, y_at;
    int64_t x, w, bias, y;
};

struct td_conv {
    struct td_dnnl *engine;
    struct td_conv_shape shape;
    struct td_dnnl_primitive primitive;
    dnnl_memory_t x, w, bias, y, scratch;
    struct td_pack *pack; // NULL: weights are read where they are
    // Of a gradient of weights: from own memory to the plain gradient; NULL: written in place.
    struct td_dnnl_primitive unpack;
    dnnl_memory_t w_plain;
    void *own; // memory of w
    size_t own_bytes;
    bool slow;            // oneDNN has nothing but its reference loops
    bool is_own_winograd; // no primitive, then
    struct td_winograd winograd;
    struct td_conv_widened wide; // where the node's types are not the primitive's
};

// d: of s. Scratch and packs are held from now on. finish also after a failure.
TD_MUST_USE td_status td_conv_init(struct td_conv *v, struct td_dnnl *e,
                                   const struct td_conv_shape *s, const struct td_conv_descs *d,
                                   enum td_conv_algorithm algorithm);
// The same for a race: weights are read, or their gradient is written, in the algorithm's own
// layout.
TD_MUST_USE td_status td_conv_init_bare(struct td_conv *v, struct td_dnnl *e,
                                        const struct td_conv_shape *s,
                                        const struct td_conv_descs *d,
                                        enum td_conv_algorithm algorithm);
// That layout. Borrowed.
const struct td_md *td_conv_weights(const struct td_conv *v, const struct td_conv_descs *d);
void td_conv_finish(struct td_conv *v);

// The node's operands, or places in the scratch.
struct td_conv_operands {
    const void *x, *w, *bias, *y;
    const void *result; // a gradient of weights: the plain one
};
TD_MUST_USE td_status td_conv_run(struct td_conv *v, const struct td_conv_operands *p);
TD_MUST_USE td_status td_conv_run_bare(struct td_conv *v, const struct td_conv_operands *p);

#endif
