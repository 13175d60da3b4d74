// See the header.

#include "daemon/node/shell/shell.h"

#include "daemon/node/shell/assignment/assignment.h"
#include "lib/base/clock.h"
#include "lib/base/files/path_rules.h"
#include "lib/loop/loop.h"

void td_node_daemon_answer(struct td_node_daemon *n) {
    struct td_node_action action;
    while (td_node_core_next(n->core, &action)) {
        n->carry_out(n, &action);
    }
    struct td_mono wake = td_node_core_wake(n->core);
    if (wake.ns == INT64_MAX) {
        td_loop_timer_disarm(n->timer);
    } else {
        td_loop_timer_arm(n->timer, wake.ns - td_mono_now().ns);
    }
}

void td_node_daemon_give(struct td_node_daemon *n, struct td_node_attempt *a,
                         enum td_attempt_event event, td_status take_failure) {
    td_node_core_event(n->core, td_mono_now(), a, event, take_failure);
    td_node_daemon_answer(n);
}

enum td_transport_send td_node_daemon_send(struct td_node_daemon *n, Traind__V1__NodeMessage *m) {
    m->incarnation = td_node_core_incarnation(n->core);
    return n->transport->ops->send(n->transport, m);
}

bool td_node_daemon_deliver(Traind__V1__NodeMessage *m, void *node) {
    return td_node_daemon_send(TD_CAST(td_node_daemon, node), m) != TD_TRANSPORT_REFUSED;
}

bool td_node_daemon_is_idle(const struct td_node_daemon *n) {
    const struct td_node_attempt *a;
    for (size_t i = 0; (a = td_node_core_attempt(n->core, i)); i++) {
        if (a->state != TD_AT_ENDED) return false;
    }
    return true;
}

td_status td_node_daemon_path_rules(const struct td_node_daemon *n, const char *job, bool trusted,
                                    struct td_buf *out) {
    char own[TD_FS_PATH_BYTES] = "";
    if (job) TD_TRY(td_assignment_checkpoints("", n->state_dir, job, own, sizeof own));
    const struct td_path_rules rules = {.is_owner = trusted,
                                        .state_dir = n->state_dir,
                                        .own_dir = own,
                                        .token_file = n->token_file,
                                        .read_roots = n->read_roots,
                                        .write_roots = n->write_roots};
    return td_path_rules_print(&rules, out);
}
