// The table of --profile. Kernels of all programs are summed by (op, type); FLOPs are those of the
// ops' cost rules, so that a row's GFLOP/s can be held against the machine's peak.

#include "engine/train/plan/profile.h"

#include "engine/graph/rules/rules.h"

struct row {
    enum td_op op;
    enum td_dtype dtype;
    uint64_t runs;
    int64_t ns;
    double flops;
};

enum { ROWS = (int)TD_OP_COUNT * (int)TD_DTYPE_COUNT };

static int by_time(const void *pa, const void *pb) {
    const struct row *a = pa, *b = pb;
    if (a->ns != b->ns) return a->ns > b->ns ? -1 : 1;
    return a->op != b->op ? (int)a->op - (int)b->op : (int)a->dtype - (int)b->dtype;
}

static void add_program(const struct td_programs *p, size_t i, struct row *rows) {
    const struct td_graph *g = td_programs_at(p, i)->graph;
    struct td_kernel_info k;
    for (uint32_t j = 0; td_programs_kernel(p, i, j, &k); j++) {
        struct row *r = &rows[(int)k.op * TD_DTYPE_COUNT + (int)k.dtype];
        r->op = k.op;
        r->dtype = k.dtype;
        r->runs += k.runs;
        r->ns += k.ns;
        if (k.node < td_graph_n_nodes(g)) {
            r->flops += (double)k.runs * td_op_flops(g, td_graph_node(g, k.node));
        }
    }
}

td_status td_profile_print(const struct td_programs *p, struct td_buf *out) {
    TD_AUTO_FREE struct row *rows = td_calloc(ROWS, sizeof *rows);
    if (!rows) return td_fail_oom();
    int64_t all_ns = 0;
    for (size_t i = 0; i < td_programs_count(p); i++) {
        add_program(p, i, rows);
    }
    qsort(rows, ROWS, sizeof *rows, by_time);
    for (size_t i = 0; i < ROWS; i++) {
        all_ns += rows[i].ns;
    }
    if (!all_ns) return td_buf_str(out, "profile: the accelerator counts no time by kernel\n");
    TD_TRY(td_buf_printf(out, "%-20s %-5s %10s %12s %10s %7s %9s\n", "op", "type", "runs", "ms",
                         "us a run", "share", "GFLOP/s"));
    for (size_t i = 0; i < ROWS && rows[i].ns; i++) {
        const struct row *r = &rows[i];
        TD_TRY(td_buf_printf(out, "%-20s %-5s %10llu %12.1f %10.1f %6.1f%% %9.1f\n",
                             td_op_name(r->op), td_dtype_name(r->dtype),
                             (unsigned long long)r->runs, (double)r->ns * 1e-6,
                             (double)r->ns * 1e-3 / (double)r->runs,
                             100.0 * (double)r->ns / (double)all_ns, r->flops / (double)r->ns));
    }
    return td_buf_printf(out, "%-37s %12.1f\n", "all kernels", (double)all_ns * 1e-6);
}
