// One configuration for both groups; what differs is the number and the part of the mapping.

#include "engine/train/rank/group/join.h"

#include "lib/base/machine/machine.h"
#include "traind/op.h"

static _Bool attempt_is_over(void *arg) {
    const struct td_rank_page *page = arg;
    return atomic_load_explicit(&page->abort, memory_order_relaxed) != 0;
}

static void note_of_group(void *arg, const char *text) {
    td_events_note(arg, "%s", text);
}

static bool may_join_again(const struct td_rank *r) {
    return r->config->n_nodes > 1 && r->group_facts.joins_nodes && r->group_facts.joins_again;
}

size_t td_rank_second_group_bytes(const struct td_rank *r) {
    if (!may_join_again(r) || td_rank_local_world(r->config) == 1) return 0;
    return td_align_up(r->base_ops->shared_bytes(td_rank_local_world(r->config), 0),
                       td_page_bytes());
}

// Sums of finish, as the norm of pieces has them, come when all buckets were awaited.
static bool sums_beside_buckets(const struct td_graph *g) {
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        const struct td_node_info *node = td_graph_node(g, n);
        if (node->op == TD_OP_RANK_SUM && node->segment < TD_SEG_FINISH) return true;
    }
    return false;
}

bool td_rank_sums_apart(const struct td_rank *r) {
    for (size_t i = 0; i < td_programs_count(r->programs) && may_join_again(r); i++) {
        const struct td_program *p = &td_programs_at(r->programs, i)->program;
        if (p->key.mode == TD_MODE_TRAIN && sums_beside_buckets(p->graph)) return true;
    }
    return false;
}

static td_status join(struct td_rank *r, int32_t group, struct td_collective **out_group) {
    const size_t second = td_rank_second_group_bytes(r), all = r->io->group_bytes;
    if (second > all) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "the ranks of this node share %zu bytes, groups of several nodes need %zu "
                       "beside the gradients; start them by this traind",
                       all, second);
    }
    char *const shared = r->io->group;
    const struct td_collective_config config = {
        .struct_bytes = sizeof config,
        .rank = r->config->rank,
        .world_size = r->config->world_size,
        .deadline = r->deadlines[r->deadline],
        .shared = shared && group ? shared + all - second : shared,
        .shared_bytes = group ? second : all - second,
        .aborted = attempt_is_over,
        .aborted_arg = r->io->page,
        .attempt = r->config->attempt,
        .inner = r->group_ops == r->base_ops ? NULL : r->base_ops,
        .knobs = r->config->decorator_knobs,
        .accel_ops = r->accel_ops,
        .accel = r->accel,
        .node_rank = r->config->node_rank,
        .n_nodes = r->config->n_nodes,
        .local_rank = r->config->local_rank,
        .local_world_size = r->config->local_world_size,
        .interface_address = r->config->interface_address,
        .store = r->io->store,
        .node_names = r->config->node_names,
        .link_timeout_ns = r->config->link_timeout_ns,
        .note = note_of_group,
        .note_arg = r->events,
        .group = group,
    };
    return r->group_ops->join(&config, out_group);
}

td_status td_rank_join_group(struct td_rank *r) {
    r->deadlines[TD_RANK_SAVES] =
        (struct td_collective_deadline){r->config->save_timeout_ns, "trainer.save_timeout"};
    r->deadlines[TD_RANK_TRAINS] = (struct td_collective_deadline){r->config->collective_timeout_ns,
                                                                   "trainer.collective_timeout"};
    r->deadline = TD_RANK_SAVES;
    TD_TRY_CTX(join(r, 0, &r->group), "join the group of ranks");
    return TD_OK;
}

td_status td_rank_join_second_group(struct td_rank *r) {
    static const char what[] = "join the group in which ranks sum while buckets are reduced";
    const struct td_collective_ops *o = r->group_ops;
    TD_TRY_CTX(join(r, 1, &r->sums), "%s", what);
    if (o->set_deadline) o->set_deadline(r->sums, &r->deadlines[TD_RANK_TRAINS]);
    TD_TRY_CTX(o->barrier(r->sums, "join"), "%s", what);
    if (o->set_deadline) o->set_deadline(r->sums, &r->deadlines[r->deadline]);
    return TD_OK;
}
