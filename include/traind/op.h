#ifndef TRAIND_OP_H
#define TRAIND_OP_H

// The ops: their numbers, and what their rows in ops.def say. What depends on numbers is compiled
// again when a row is put between others: so what only passes graphs on includes graph.h alone.
// Constant data, any thread.

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
enum td_op : unsigned {
#else
enum td_op {
#endif
#define TD_OP(ID, ...) TD_OP_##ID,
#include "traind/ops.def"
#undef TD_OP
    TD_OP_COUNT
};
const char *td_op_name(enum td_op op); // "matmul"

// Element types that an op takes and gives; a precision makes operands fit (rewrite.h).
enum td_op_types {
    TD_OP_TYPES_ONE = 1,   // operands have one float type, and so has the result
    TD_OP_TYPES_DELICATE,  // likewise; 16 bits are too few: results span many powers of two
    TD_OP_TYPES_ALIKE,     // operands that are float have one type
    TD_OP_TYPES_PRODUCT,   // multiplies in the type that the job computes in
    TD_OP_TYPES_FIRST,     // the result follows the first operand, the others have their own
    TD_OP_TYPES_NORM_GRAD, // (x, gamma, dy...): dy is like x
    TD_OP_TYPES_STATE,     // what is stored is like the state tensor
    TD_OP_TYPES_GIVEN      // attrs.dtype
};

// Where the gradient of an op comes from.
enum td_op_gradient {
    TD_OP_GRADIENT_NONE = 1,
    TD_OP_GRADIENT_RULE,       // engine/graph/rules/gradient*.c
    TD_OP_GRADIENT_OF_OPERAND, // the next row, <name>_grad, of (operand, dy)
    TD_OP_GRADIENT_OF_RESULT,  // of (result, dy): the operand may be freed earlier
    TD_OP_GRADIENT_THEN        // none; a product may apply it to its result (attrs.then)
};

// What passes and accelerators need to know of an op besides its meaning.
enum td_op_is {
    // An element of the result is a function of the operands' elements in its place (NumPy
    // broadcasting): the result may overwrite an operand, and images may be in any layout. Cheap.
    TD_OP_IS_ELEMENTWISE = 1,
    TD_OP_IS_VIEW = 2,         // the operand's bytes under another shape
    TD_OP_IS_CHEAP = 4,        // `recompute: selective` makes it again rather than keep it
    TD_OP_IS_PRODUCT = 8,      // a matrix product by the second operand
    TD_OP_IS_CONVOLUTION = 16, // or the gradient of one
    TD_OP_IS_MADE = 32,        // by passes and rules; a module has no builder for it (build.h)
    TD_OP_IS_SERIES = 64,      // elementwise, of exp, erf, log: about 10 FLOPs an element
    // Begins a sum over ranks. Its last result is a token, which one await takes (verify.h).
    TD_OP_IS_START = 128
};
// True if op has any of the bits of what; op: a member of the enum, which is not checked.
bool td_op_is(enum td_op op, enum td_op_is what);

#ifdef __cplusplus
}
#endif
#endif
