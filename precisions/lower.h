#ifndef TRAIND_PRECISIONS_LOWER_H
#define TRAIND_PRECISIONS_LOWER_H

// Lowering: the one rewrite of all precisions. It takes a program that was recorded in fp32 and
// gives every value the type that a precision wants for its role, with a cast where two meet.
//
//   products   matmul, convolution, attention and their gradients take operands of `compute`
//   alike      ops whose operands must have one type (add, relu_grad, ...) keep it when they have
//              it already, else take `compute`
//   fp32       exp, log, softmax and losses, when mixed: f32
//   the rest   follows its first operand: reshapes, activations, norms (whose scales stay as they
//              are stored), pools, reductions
//   fp64       where that is computed in, all operands are f64: nothing is left to follow an input
//              of f32
//
// A value that only ends in stored gradients has the gradients' type: a product writes its sum into
// an fp32 gradient unrounded (attrs.wide). Scalars are f32, or f64 under 64-true. What a cast costs
// is a later pass's business: pairs of casts vanish in simplify, and an accelerator may read a cast
// parameter directly. Pure; the graph's thread.

#include "traind/precision.h"

struct td_lowering {
    enum td_dtype param, compute, gradient; // as in td_precision_facts
    bool mixed;                             // parameters and what is delicate stay f32
    bool wide_loss; // a loss takes f32 logits: its gradient is yet to be scaled
};

TD_MUST_USE td_status td_precision_lower(struct td_graph *g, const struct td_lowering *how);

#endif
