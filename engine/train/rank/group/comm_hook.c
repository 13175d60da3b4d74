// Two hooks at most: what the job names, and a wrapper around it. The outer one reduces, the inner
// one has the state.

#include "engine/train/rank/group/comm_hook.h"

#include <inttypes.h>
#include <string.h>

#include "engine/train/rank/group/bucket_list.h"
#include "lib/base/floats/floats.h"
#include "lib/plugin/registry.h"

enum { ARENA_BYTES = 16 << 20 };
#define MEMORY_MAX_BYTES ((size_t)1 << 50) // so that sums of it are numbers of a plan

static bool is_named(const char *name) {
    return name && *name && strcmp(name, "none") != 0;
}

static td_status open(struct td_rank *r, const char *name, const struct td_json *knobs,
                      const struct td_rank_hook *inner, struct td_rank_hook *out) {
    const struct td_plugin_desc *desc;
    TD_TRY(td_registry_find(r->config->registry, TD_PLUGIN_COMM_HOOK, name, &desc));
    const struct td_comm_hook_ops *ops = desc->ops;
    const struct td_comm_hook_config config = {
        .struct_bytes = sizeof config,
        .rank = r->config->rank,
        .world_size = r->config->world_size,
        .collective_ops = r->group ? r->group_ops : NULL,
        .collective = r->group,
        .inner_ops = inner ? inner->ops : NULL,
        .inner = inner ? inner->hook : NULL,
        .knobs = knobs,
    };
    TD_TRY_CTX(ops->open(&config, &out->hook), "open comm_hook '%s'", name);
    out->ops = ops;
    return TD_OK;
}

td_status td_rank_open_hook(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    const char *name = c->comm_hook.name, *wrapper = c->comm_hook_wrapper;
    const bool is_again = r->hook_name;
    r->hook_name = "none";
    if (!is_named(name)) return TD_OK;
    if (c->world_size == 1) {
        if ((c->stages & TD_STAGE_FIT) && !is_again) {
            td_events_note(r->events, "comm_hook %s has nothing to do: there is one rank", name);
        }
        return TD_OK;
    }
    r->hook_name = is_named(wrapper) ? td_arena_printf(r->arena, "%s around %s", wrapper, name)
                                     : td_arena_strdup(r->arena, name);
    if (!r->hook_name) return td_fail_oom();
    if (!r->strategy_ops->rewrite || r->strategy_ops->reduce_gradients) {
        return td_bad_spec("strategy '%s' %s, so that comm_hook '%s' has nothing to do; use "
                           "comm_hook: none",
                           r->strategy_name,
                           r->strategy_ops->rewrite ? "reduces gradients by itself"
                                                    : "has no buckets of gradients",
                           name);
    }
    TD_TRY(open(r, name, c->comm_hook.knobs, NULL, &r->hooks[0]));
    r->hook = &r->hooks[0];
    if (!is_named(wrapper)) return TD_OK;
    TD_TRY(open(r, wrapper, NULL, &r->hooks[0], &r->hooks[1]));
    r->hook = &r->hooks[1];
    return TD_OK;
}

// The rank's buckets as a hook sees them.
static td_status list(const struct td_rank *r, struct td_arena *arena,
                      struct td_bucket **out_buckets) {
    const uint32_t n = td_state_n_buckets(r->state);
    struct td_bucket *b = td_arena_array(arena, n + 1, sizeof *b);
    if (!b) return td_fail_oom();
    TD_TRY(td_rank_list_buckets(r, arena, b));
    for (uint32_t i = 0; i < n; i++) {
        b[i].has_control = false;
        b[i].control_offset = 0;
    }
    *out_buckets = b;
    return TD_OK;
}

// What it takes, and what a save takes: its own copy, rows of all ranks, and their file's image.
static td_status measure(const struct td_rank *r, const struct td_bucket *buckets,
                         size_t *out_bytes) {
    const struct td_rank_hook *h = r->hook;
    const size_t world = (size_t)r->config->world_size;
    size_t state = 0;
    *out_bytes = 0;
    if (!h->ops->memory) return TD_OK;
    TD_TRY_CTX(h->ops->memory(h->hook, buckets, td_state_n_buckets(r->state), out_bytes, &state),
               "comm_hook '%s'", r->config->comm_hook.name);
    if (state > TD_PLUGIN_STATE_MAX_BYTES / world) {
        return td_bad_spec("comm_hook '%s' keeps %zu bytes on each of %zu ranks, and checkpoints "
                           "have room for %d of all; use another hook, or fewer ranks",
                           r->config->comm_hook.name, state, world, (int)TD_PLUGIN_STATE_MAX_BYTES);
    }
    if (*out_bytes > MEMORY_MAX_BYTES) {
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION,
                    "comm_hook '%s': its slot memory says %zu bytes, more than any machine has",
                    r->config->comm_hook.name, *out_bytes),
            TD_CLASS_USER_CODE);
    }
    *out_bytes += state * (1 + 3 * world);
    return TD_OK;
}

td_status td_rank_hook_bytes(const struct td_rank *r, size_t *out_bytes) {
    *out_bytes = 0;
    if (!r->hook) return TD_OK;
    TD_AUTO(td_arena) *arena = NULL;
    struct td_bucket *buckets;
    TD_TRY(td_arena_create(ARENA_BYTES, &arena));
    TD_TRY(list(r, arena, &buckets));
    return measure(r, buckets, out_bytes);
}

// A step that is not taken would stay in what it keeps.
td_status td_rank_check_hook(struct td_rank *r) {
    const struct td_comm_hook_ops *o = r->hooks[0].ops;
    if (!r->hook || !o->state_save || o->end_step) return TD_OK;
    if (r->strategy_ops->optimizer_step) {
        return td_bad_spec("comm_hook '%s' keeps state but has no end_step, and strategy '%s' may "
                           "skip steps in its optimizer_step; use another comm_hook or strategy",
                           r->config->comm_hook.name, r->strategy_name);
    }
    if (!r->precision_ops->step_gate) return TD_OK;
    return td_bad_spec(
        "comm_hook '%s' keeps state but has no end_step, and precision '%s' may skip "
        "steps; use another precision, such as bf16-mixed",
        r->config->comm_hook.name, r->precision_name);
}

td_status td_rank_lay_hook(struct td_rank *r) {
    size_t bytes;
    if (!r->hook) return TD_OK;
    TD_TRY(list(r, r->arena, &r->hook_buckets));
    TD_TRY(measure(r, r->hook_buckets, &bytes));
    if (!r->hook->ops->place) return TD_OK;
    TD_TRY_CTX(r->hook->ops->place(r->hook->hook, r->hook_buckets, td_state_n_buckets(r->state)),
               "comm_hook '%s'", r->config->comm_hook.name);
    return TD_OK;
}

// Between tensors is what an earlier reduction left, which a hook would take for gradients.
static void clear_padding(const struct td_bucket *b) {
    const size_t elem = td_dtype_bytes(b->dtype);
    char *data = td_bucket_host(b);
    size_t at = 0;
    for (size_t i = 0; i <= b->n_tensors; i++) {
        const struct td_bucket_tensor *t = &b->tensors[i];
        const size_t next = i < b->n_tensors ? t->offset : (size_t)b->n * elem;
        memset(data + at, 0, next - at);
        if (i < b->n_tensors) at = next + (size_t)td_shape_elems(&t->shape) * elem;
    }
}

static bool is_finite(const struct td_bucket *b) {
    for (size_t i = 0; i < b->n_tensors; i++) {
        const struct td_bucket_tensor *t = &b->tensors[i];
        const char *data = (const char *)td_bucket_host(b) + t->offset;
        if (!td_float_all_finite(b->dtype, data, td_shape_elems(&t->shape))) return false;
    }
    return true;
}

// What a hook gives is the same on all ranks, so all of them come here or none does.
static td_status check_finite(struct td_rank *r, const struct td_bucket *b, bool was_finite) {
    int32_t of_backward = !was_finite;
    if (is_finite(b)) return TD_OK;
    TD_TRY_CTX(r->group_ops->all_reduce(r->group, &of_backward, 1, TD_I32, TD_REDUCE_MAX),
               "comm_hook '%s' made gradients of bucket %" PRIu32 " that are not finite",
               r->hook_name, b->index);
    if (of_backward) return TD_OK; // the loss will say so
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "comm_hook '%s', bucket %" PRIu32 ": the gradients of all ranks were finite, and "
                "what the hook made of them is not; clip gradients or use another hook",
                r->hook_name, b->index),
        TD_CLASS_NUMERIC);
}

td_status td_rank_hook_reduce(struct td_rank *r, const struct td_bucket *b) {
    // Where steps may be skipped one that is not finite is skipped, whoever made it so.
    const bool looks = !r->precision_ops->step_gate;
    clear_padding(b);
    const bool was_finite = looks && is_finite(b);
    r->hook_reduced += (uint64_t)b->n * td_dtype_bytes(b->dtype);
    td_status s = r->hook->ops->reduce(r->hook->hook, &r->hook_buckets[b->index]);
    if (s && td_status_class(s) == TD_CLASS_NONE && td_status_code(s) != TD_ABORTED &&
        td_status_code(s) != TD_DEADLINE_EXCEEDED) {
        s = td_status_with_class(s, TD_CLASS_USER_CODE);
    }
    TD_TRY_CTX(s, "comm_hook '%s', bucket %" PRIu32, r->config->comm_hook.name, b->index);
    if (looks) TD_TRY(check_finite(r, b, was_finite));
    if (!b->has_control) return TD_OK;
    char *flags = (char *)td_bucket_host(b) + b->control_offset;
    return r->group_ops->all_reduce(r->group, flags, TD_CONTROL_FLAGS, TD_F32, TD_REDUCE_SUM);
}

void td_rank_hook_end_step(struct td_rank *r, bool taken) {
    const struct td_rank_hook *h = &r->hooks[0];
    if (h->ops && h->ops->end_step) h->ops->end_step(h->hook, taken);
}

void td_rank_note_hook(const struct td_rank *r) {
    const struct td_rank_hook *h = &r->hooks[0];
    if (!r->hook || !r->facts.is_global_zero || !h->ops->sent_bytes || !r->hook_reduced) return;
    const uint64_t sent = h->ops->sent_bytes(h->hook);
    td_events_note(
        r->events,
        "comm_hook %s: each rank sent %" PRIu64 " bytes for %" PRIu64 " of gradients, %.3g %%",
        r->hook_name, sent, r->hook_reduced, 100 * (double)sent / (double)r->hook_reduced);
}
