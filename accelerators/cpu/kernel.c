// What families of kernels ask of a node's types. Contract in kernel.h.

#include "accelerators/cpu/kernel.h"

#include "accelerators/cpu/kernels/convert.h"

bool td_kernel_all(const struct td_kernel *k, enum td_dtype t) {
    bool all = true;
    for (uint32_t i = 0; i < k->n_in; i++) {
        all &= k->in_dtype[i] == t;
    }
    for (uint32_t i = 0; i < k->n_out; i++) {
        all &= k->out_dtype[i] == t;
    }
    return all;
}

bool td_kernel_narrow(const struct td_kernel *k) {
    enum td_dtype t = k->n_in ? k->in_dtype[0] : k->out_dtype[0];
    return td_cpu_is_narrow(t) && td_kernel_all(k, t);
}
