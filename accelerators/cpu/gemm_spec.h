#ifndef TRAIND_ACCELERATORS_CPU_GEMM_SPEC_H
#define TRAIND_ACCELERATORS_CPU_GEMM_SPEC_H

// A matrix product, whoever computes it: y (m,n) = act(op(a) (m,k) @ op(b) (k,n) + bias), or
// y += that with accumulate (no act then).

#include "traind/graph.h"

struct td_gemm_spec {
    int64_t m, n, k;
    bool trans_a, trans_b, has_bias, accumulate;
    enum td_act act;
    enum td_dtype operands, result, bias;
    // Address of the parameter that b is (or is cast from), or NULL. A parameter may be packed once
    // a run into the layout that the product likes best, and products of one program share the
    // pack.
    const void *param;
    enum td_dtype stored; // type of the parameter
};

#endif
