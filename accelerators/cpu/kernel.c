// What families of kernels ask of a node's op and types, and of a value. Contract in kernel.h.

#include "accelerators/cpu/kernel.h"

#include <string.h>

#include "accelerators/cpu/kernels/convert.h"

bool td_kernel_is(const struct td_kernel *k, const char *op) {
    return strcmp(k->name, op) == 0;
}

td_kernel_fn *td_kernel_of(const struct td_kernel *k, const struct td_kernel_row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (td_kernel_is(k, rows[i].op)) return rows[i].run;
    }
    return NULL;
}

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

bool td_kernel_is_output(const struct td_graph *g, td_value v) {
    for (uint32_t i = 0; i < td_graph_n_outputs(g); i++) {
        td_value output;
        td_graph_output_at(g, i, NULL, &output, NULL);
        if (output == v) return true;
    }
    return false;
}
