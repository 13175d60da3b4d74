// Which kernels run part by part; contract in parts.h.
//
// What a first convolution writes is larger than any cache of a core: sixteen or more channels of
// whole images. Read again at once, all of it comes from memory, or from the cache that all cores
// share. Ranks in lockstep do so at the same moment, and each waits for the other's bytes. A part
// is as many images as fill half of a core's second cache. It is a divisor of the batch, so one
// primitive serves all parts; where there is none of at least half that size, the kernels run one
// after the other. So they do where a rank has several threads: two meetings a part, and images
// that are in the cache of another core, doubled their time.
//
// Memory is planned for kernels that run one after the other, so the pool may write where the
// convolution reads. It does where weights were cast for the convolution, and where nobody reads
// its images again. Such a pair is left alone.

#include "accelerators/cpu/parts.h"

#include <unistd.h>

#include "traind/op.h"
#include "accelerators/cpu/onednn/conv.h"

enum { CACHE_BYTES = 512 << 10 }; // where the system does not say

static size_t bytes_of(const struct td_shape *s, enum td_dtype t) {
    return (size_t)td_shape_elems(s) * td_dtype_bytes(t);
}

// Images of a part; 0: the batch as a whole.
static int64_t choose(const struct td_kernel *conv) {
    const long found = sysconf(_SC_LEVEL2_CACHE_SIZE);
    const int64_t n = conv->out_shape.dim[0], cache = found > 0 ? found : CACHE_BYTES;
    const int64_t bytes = (int64_t)bytes_of(&conv->out_shape, conv->out_dtype[0]);
    const int64_t most = bytes && conv->n_threads == 1 ? cache / 2 * n / bytes : 0;
    for (int64_t part = TD_MIN(most, n); part * 2 > most; part--) {
        if (n % part == 0) return part < n ? part : 0;
    }
    return 0;
}

static bool overlaps(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
}

// Does the pool write where the convolution reads?
static bool collides(const struct td_kernel *conv, const struct td_kernel *pool) {
    for (uint32_t o = 0; o < pool->n_out; o++) {
        const size_t bytes = bytes_of(&pool->out_shape, pool->out_dtype[o]);
        for (uint32_t i = 0; i < conv->n_in; i++) {
            const char *in = conv->in[i].base; // NULL: an input of the run, which is elsewhere
            if (in && overlaps(in, bytes_of(&conv->shape[i], conv->in_dtype[i]), pool->out[o].base,
                               bytes)) {
                return true;
            }
        }
    }
    return false;
}

// Does nobody but the pool read what the convolution makes?
static bool is_alone(const struct td_graph *g, td_value made, td_node pool) {
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        const struct td_node_info *reader = td_graph_node(g, n);
        for (uint32_t i = 0; n != pool && i < reader->n_inputs; i++) {
            if (reader->inputs[i] == made) return false;
        }
    }
    return !td_kernel_is_output(g, made);
}

// Is the node after the convolution a pool of its result, with no reorder between them, and at most
// one around them? Bridges of all nodes are in the same memory.
static bool is_pair(const struct td_graph *g, const struct td_layout_plan *layout, td_node conv,
                    const struct td_kernel *kernel) {
    const td_node pool = conv + 1;
    const struct td_node_info *from = td_graph_node(g, conv), *to = td_graph_node(g, pool);
    const td_value x = from->inputs[0], made = from->outputs[0];
    if (from->op != TD_OP_CONV2D || kernel[conv].need != TD_NEED_CONV) return false;
    if (to->op != TD_OP_MAX_POOL && to->op != TD_OP_AVG_POOL) return false;
    if (kernel[pool].need != TD_NEED_ANY || to->inputs[0] != made) return false;
    if (to->segment != from->segment || !is_alone(g, made, pool)) return false;
    for (uint32_t i = 0; i < to->n_outputs; i++) {
        if (td_layout_bridged(g, layout, conv, x) &&
            td_layout_bridged(g, layout, pool, to->outputs[i])) {
            return false;
        }
    }
    if (!td_conv_takes_parts(&kernel[conv], td_layout_wanted(g, layout, conv, x),
                             td_layout_wanted(g, layout, conv, made))) {
        return false;
    }
    return !td_layout_bridged(g, layout, conv, made) && !td_layout_bridged(g, layout, pool, made);
}

void td_parts_plan(const struct td_graph *g, const struct td_layout_plan *layout,
                   struct td_kernel *kernel) {
    for (td_node n = 0; n + 1 < td_graph_n_nodes(g); n++) {
        struct td_kernel *conv = &kernel[n], *pool = conv + 1;
        if (!is_pair(g, layout, n, kernel) || collides(conv, pool)) continue;
        const int64_t part = choose(conv);
        if (!part) continue;
        conv->part = pool->part = part;
        conv->joined = 1;
    }
}
