// See the header. Kernels of all programs are summed by (mode, op, type, plain loops or not). FLOPs
// are those of the ops' cost rules, so that a row's GFLOP/s can be held against the machine's peak.

#include "engine/train/plan/profile.h"

#include "traind/op.h"
#include "engine/graph/rules/rules.h"

struct row {
    enum td_mode mode;
    enum td_op op;
    enum td_dtype dtype;
    bool slow; // on plain loops
    uint64_t runs;
    int64_t ns;
    double flops;
};

enum {
    MODES = (int)TD_MODE_PREDICT + 1,
    KINDS = (int)TD_OP_COUNT * (int)TD_DTYPE_COUNT * 2, // of kernels, in a mode
    ROWS = MODES * KINDS,
};

struct td_profile {
    struct row row[ROWS]; // sorted; those that took time first
    size_t n;             // that took time
    int64_t all_ns[MODES];
};

// Rows without time last.
static int by_time(const void *pa, const void *pb) {
    const struct row *a = pa, *b = pb;
    if (!a->ns || !b->ns) return !a->ns - !b->ns;
    if (a->mode != b->mode) return (int)a->mode - (int)b->mode;
    if (a->ns != b->ns) return a->ns > b->ns ? -1 : 1;
    if (a->op != b->op) return (int)a->op - (int)b->op;
    return a->dtype != b->dtype ? (int)a->dtype - (int)b->dtype : (int)a->slow - (int)b->slow;
}

static void add_program(const struct td_programs *p, size_t i, struct td_profile *to) {
    const struct td_compiled *program = td_programs_at(p, i);
    const struct td_graph *g = program->graph;
    const enum td_mode mode = td_graph_mode(g);
    struct td_kernel_info k = {.struct_bytes = sizeof k};
    for (uint32_t j = 0; td_programs_kernel(p, i, j, &k); j++) {
        const size_t kind = ((size_t)k.op * TD_DTYPE_COUNT + (size_t)k.dtype) * 2 + k.slow;
        struct row *r = &to->row[(size_t)mode * KINDS + kind];
        r->mode = mode;
        r->op = k.op;
        r->dtype = k.dtype;
        r->slow = k.slow;
        r->runs += k.runs;
        r->ns += k.ns;
        if (k.node < td_graph_n_nodes(g)) {
            r->flops += (double)k.runs * td_op_flops(g, td_graph_node(g, k.node));
        }
    }
}

td_status td_profile_take(const struct td_programs *p, struct td_profile **out_profile) {
    struct td_profile *to = td_calloc(1, sizeof *to);
    if (!to) return td_fail_oom();
    for (size_t i = 0; i < td_programs_count(p); i++) {
        add_program(p, i, to);
    }
    qsort(to->row, ROWS, sizeof *to->row, by_time);
    while (to->n < ROWS && to->row[to->n].ns) {
        to->all_ns[to->row[to->n].mode] += to->row[to->n].ns;
        to->n++;
    }
    *out_profile = to;
    return TD_OK;
}

void td_profile_destroy(struct td_profile *p) {
    free(p);
}

bool td_profile_is_empty(const struct td_profile *p) {
    return p->n == 0;
}

static double share_of(const struct td_profile *p, const struct row *r) {
    return (double)r->ns / (double)p->all_ns[r->mode];
}

td_status td_profile_print(const struct td_profile *p, struct td_buf *out) {
    if (td_profile_is_empty(p)) {
        return td_buf_str(out, "profile: the accelerator counts no time by kernel\n");
    }
    TD_TRY(td_buf_printf(out, "%-7s %-20s %-5s %10s %12s %10s %7s %9s\n", "step", "op", "type",
                         "runs", "ms", "us a run", "share", "GFLOP/s"));
    for (size_t i = 0; i < p->n; i++) {
        const struct row *r = &p->row[i];
        TD_TRY(td_buf_printf(out, "%-7s %-20s %-5s %10llu %12.1f %10.1f %6.1f%% %9.1f%s\n",
                             td_mode_name(r->mode), td_op_name(r->op), td_dtype_name(r->dtype),
                             (unsigned long long)r->runs, (double)r->ns * 1e-6,
                             (double)r->ns * 1e-3 / (double)r->runs, 100.0 * share_of(p, r),
                             r->flops / (double)r->ns, r->slow ? "  plain loops" : ""));
    }
    for (int m = 0; m < MODES; m++) {
        if (!p->all_ns[m]) continue;
        TD_TRY(td_buf_printf(out, "%-7s %-37s %12.1f\n", td_mode_name((enum td_mode)m),
                             "all kernels", (double)p->all_ns[m] * 1e-6));
    }
    return TD_OK;
}

td_status td_profile_json(const struct td_profile *p, const char *what, struct td_buf *out) {
    TD_TRY(td_buf_printf(out, "{%s,\"kernels\":[", what));
    for (size_t i = 0; i < p->n; i++) {
        const struct row *r = &p->row[i];
        TD_TRY(td_buf_printf(out,
                             "%s\n{\"step\":\"%s\",\"op\":\"%s\",\"type\":\"%s\","
                             "\"plain_loops\":%s,\"runs\":%llu,\"seconds\":%.9f,"
                             "\"share\":%.6f,\"gflops_per_s\":%.3f}",
                             i ? "," : "", td_mode_name(r->mode), td_op_name(r->op),
                             td_dtype_name(r->dtype), r->slow ? "true" : "false",
                             (unsigned long long)r->runs, (double)r->ns * 1e-9, share_of(p, r),
                             r->flops / (double)r->ns));
    }
    return td_buf_str(out, "]}\n");
}
