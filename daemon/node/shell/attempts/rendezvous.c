// See the header.

#include "daemon/node/shell/attempts/rendezvous.h"

#include "daemon/node/shell/attempts/launcher_link.h"

static void send_up(struct td_local_attempt *a, Traind__V1__NodeMessage *m) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, a->owner);
    // Not registered: then all is said again when it is.
    if (!td_node_core_registered(n->core)) return;
    if (!td_node_daemon_deliver(m, n)) a->store_dropped = true;
}

static Traind__V1__AttemptId id_of(struct td_local_attempt *a) {
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    id.job = a->assigned.job;
    id.attempt = a->assigned.attempt;
    id.epoch = a->assigned.epoch;
    return id;
}

void td_rendezvous_set(struct td_local_attempt *a, const Traind__V1__LauncherStoreSet *m) {
    Traind__V1__AttemptId id = id_of(a);
    Traind__V1__StoreSet set = TRAIND__V1__STORE_SET__INIT;
    Traind__V1__NodeMessage up = TRAIND__V1__NODE_MESSAGE__INIT;
    set.id = &id;
    set.key = m->key;
    set.value = m->value;
    up.body_case = TRAIND__V1__NODE_MESSAGE__BODY_STORE_SET;
    up.store_set = &set;
    send_up(a, &up);
}

void td_rendezvous_want(struct td_local_attempt *a, const Traind__V1__LauncherStoreWant *m) {
    Traind__V1__AttemptId id = id_of(a);
    Traind__V1__StoreWant want = TRAIND__V1__STORE_WANT__INIT;
    Traind__V1__NodeMessage up = TRAIND__V1__NODE_MESSAGE__INIT;
    want.id = &id;
    want.key = m->key;
    up.body_case = TRAIND__V1__NODE_MESSAGE__BODY_STORE_WANT;
    up.store_want = &want;
    send_up(a, &up);
}

// One that the session has no room for is sent with the next.
void td_rendezvous_taken(struct td_local_attempt *a, uint32_t n_values) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, a->owner);
    a->store_taken += n_values;
    if (!a->store_taken || !td_node_core_registered(n->core)) return;
    Traind__V1__StoreTaken taken = TRAIND__V1__STORE_TAKEN__INIT;
    Traind__V1__NodeMessage up = TRAIND__V1__NODE_MESSAGE__INIT;
    taken.values = a->store_taken;
    up.body_case = TRAIND__V1__NODE_MESSAGE__BODY_STORE_TAKEN;
    up.store_taken = &taken;
    if (td_node_daemon_deliver(&up, n)) a->store_taken = 0;
}

void td_rendezvous_deliver(struct td_local_attempt *a, const Traind__V1__CoordinatorMessage *m) {
    if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_STORE_DONE) {
        if (a->link) td_launcher_link_store_done(a->link, m->store_done);
    } else if (!a->link || !td_launcher_link_store_value(a->link, m->store_value)) {
        td_rendezvous_taken(a, 1);
    }
}

void td_rendezvous_again(struct td_local_attempt *a) {
    a->store_taken = 0; // of another session
    a->store_dropped = false;
    if (a->link) td_launcher_link_store_again(a->link, true);
}

void td_rendezvous_poke(struct td_local_attempt *a) {
    td_rendezvous_taken(a, 0);
    if (!a->store_dropped) return;
    a->store_dropped = false;
    if (a->link) td_launcher_link_store_again(a->link, false);
}
