// Conformance of sums over ranks, op by op. Other ranks are pretended by the bindings.

#include "tests/conform/op_bench.h"

// all_reduce and its await are the binding's: here it halves every gradient.
static void cases_all_reduce(struct subject *s) {
    struct op_case c = {.op = TD_OP_ALL_REDUCE, .n_in = 2, .ended_by = TD_OP_AWAIT};
    c.in[0] = c.in[1] = (struct operand){ANY, vec(17), TD_ROLE_GRAD, -1, 1};
    check(s, &c);
}

// Pieces of 3 ranks, of tensors with and without something past their end. All of a mean's pieces
// but one, and nothing of a gather's own, is another afterwards.
static void cases_pieces(struct subject *s) {
    static const int64_t lengths[] = {1, 48, 100};
    for (size_t j = 0; j < TD_COUNTOF(lengths); j++) {
        struct op_case c = {
            .op = TD_OP_REDUCE_SCATTER, .n_in = 2, .ended_by = TD_OP_AWAIT, .pieces = 3};
        c.in[0] = c.in[1] = (struct operand){ANY, vec(lengths[j]), TD_ROLE_GRAD, -1, 1};
        check(s, &c);
        c.op = TD_OP_ALL_GATHER;
        c.in[0].role = c.in[1].role = TD_ROLE_PARAM;
        check(s, &c);
    }
}

// rank_sum is the binding's, too: here a second rank has the same.
static void cases_rank_sum(struct subject *s) {
    struct op_case c = {.op = TD_OP_RANK_SUM, .n_in = 1};
    for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
        c.in[0] = tensor(mat(3, sizes[j]));
        check(s, &c);
    }
}

static const struct suite suites[] = {
    {"all_reduce", cases_all_reduce},
    {"pieces", cases_pieces},
    {"rank_sum", cases_rank_sum},
};

int main(int argc, char **argv) {
    (void)argc;
    return run_suites(argv[0], "conform_ops_sums", suites, TD_COUNTOF(suites));
}
