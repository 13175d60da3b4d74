// The rendezvous store as a whole, simulated: the stores of two launchers and the coordinator's
// core are the real ones. Between them sessions break, links break, messages find no room and the
// coordinator is started again from its rows, all of it drawn from a seed. Each rank of four sets a
// key in each round and gets one of another rank. However it went, every get has the value that was
// set, and when the world is calm all ranks come to their end.

#include <sys/socket.h>

#include "daemon/coordinator/core/attempt/rendezvous.h"
#include "daemon/launcher/store.h"
#include "tests/unit/coordinator/core/meeting_rig.h"

enum { N_NODES = 2, RANKS_A_NODE = 2, N_RANKS = N_NODES * RANKS_A_NODE, ROUNDS = 40, CALM = 2000 };

struct sim_rank {
    int fd;
    int round;
    bool waits;
    enum td_store_call call;
    int other; // whose key it gets
};

struct sim_launcher {
    struct td_launch_store store;
    bool session, dropped;
};

struct sim {
    struct meeting meeting;
    uint64_t rng;
    bool calm;
    struct sim_rank ranks[N_RANKS];
    struct sim_launcher launchers[N_NODES];
    uint32_t n_breaks, n_starts, n_drops;
};

static uint64_t draw(struct sim *w) { // splitmix64
    uint64_t z = (w->rng += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static bool chance(struct sim *w, uint32_t one_in) {
    return !w->calm && draw(w) % one_in == 0;
}

// ---- ranks --------------------------------------------------------------------------------------
// What a rank sets in a round: as many bytes as would fill queues, if nothing held them back.
static size_t value_of(int round, int rank, uint8_t *out) {
    const size_t bytes = (size_t)(round * 1009 + rank * 257) % TD_STORE_VALUE_MAX;
    memset(out, round * N_RANKS + rank, bytes);
    return bytes;
}

static void ask(struct sim *w, int rank) {
    static uint8_t message[TD_STORE_MESSAGE_MAX], value[TD_STORE_VALUE_MAX];
    struct sim_rank *r = &w->ranks[rank];
    const bool set = r->call == TD_STORE_SET;
    struct td_store_request q = {.id = (uint32_t)r->round, .call = r->call, .data = value};
    q.bytes = set ? value_of(r->round, rank, value) : 0;
    snprintf(q.key, sizeof q.key, "%d/%d", r->round, set ? rank : r->other);
    const size_t n = td_store_request_write(&q, message);
    assert_int_equal(send(r->fd, message, n, MSG_DONTWAIT), (ssize_t)n);
    r->waits = true;
}

static void take_answer(struct sim *w, int rank, const struct td_store_answer *a) {
    static uint8_t value[TD_STORE_VALUE_MAX];
    struct sim_rank *r = &w->ranks[rank];
    assert_int_equal(a->code, TD_CODE_OK);
    assert_int_equal(a->id, r->round);
    r->waits = false;
    if (r->call == TD_STORE_SET) {
        r->call = TD_STORE_GET;
        r->other = (rank + 1 + (int)(draw(w) % (N_RANKS - 1))) % N_RANKS;
        return;
    }
    const size_t bytes = value_of(r->round, r->other, value);
    assert_int_equal(a->bytes, bytes);
    assert_memory_equal(a->data, value, bytes);
    r->call = TD_STORE_SET;
    r->round++;
}

static void step_rank(struct sim *w, int rank) {
    static uint8_t message[TD_STORE_MESSAGE_MAX];
    struct sim_rank *r = &w->ranks[rank];
    if (!r->waits && r->round < ROUNDS) ask(w, rank);
    assert_true(
        td_launch_store_drain(&w->launchers[rank / RANKS_A_NODE].store, rank % RANKS_A_NODE));
    const ssize_t n = recv(r->fd, message, sizeof message, MSG_DONTWAIT);
    struct td_store_answer a;
    if (n <= 0) return;
    assert_true(td_store_answer_read(message, (size_t)n, &a));
    take_answer(w, rank, &a);
}

// ---- what is between launchers and coordinator --------------------------------------------------
static void break_session(struct sim *w, int node) {
    if (!w->launchers[node].session) return;
    w->launchers[node].session = false;
    td_core_session_close(w->meeting.rig.core, w->meeting.rig.now, w->meeting.sessions[node]);
    take(&w->meeting.rig);
    w->n_breaks++;
}

static void begin_session(struct sim *w, int node) {
    enter(&w->meeting, node);
    w->launchers[node].session = true;
    w->launchers[node].dropped = false;
    td_launch_store_again(&w->launchers[node].store, true);
}

// One message of the coordinator. True: it was a value, and has left the node.
static bool deliver(struct sim *w, int node, const Traind__V1__CoordinatorMessage *m) {
    struct td_launch_store *s = &w->launchers[node].store;
    if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_STORE_DONE) {
        assert_int_equal(m->store_done->code, 0);
        if (chance(w, 40)) {
            td_launch_store_again(s, true); // the link broke: it was lost, and a new one is there
        } else {
            td_launch_store_done(s, m->store_done->key, TD_CODE_OK, "");
        }
        return false;
    }
    if (m->body_case != TRAIND__V1__COORDINATOR_MESSAGE__BODY_STORE_VALUE) return false;
    if (chance(w, 40)) {
        td_launch_store_again(s, true);
    } else {
        td_launch_store_value(s, m->store_value->key, m->store_value->value.data,
                              m->store_value->value.len);
    }
    return true;
}

static void say_up(struct sim *w, int node, Traind__V1__NodeMessage *m);

static void taken(struct sim *w, int node) {
    Traind__V1__StoreTaken t = TRAIND__V1__STORE_TAKEN__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    t.values = 1;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_STORE_TAKEN;
    m.store_taken = &t;
    if (w->launchers[node].session) say_up(w, node, &m);
}

static void say_up(struct sim *w, int node, Traind__V1__NodeMessage *m) {
    struct rig *r = &w->meeting.rig;
    bool broken[N_NODES] = {false};
    uint32_t n_taken[N_NODES] = {0};
    m->incarnation = 1;
    td_core_session_message(r->core, r->now, w->meeting.sessions[node], m);
    check_core(r);
    struct td_core_effects out = td_core_take(r->core);
    keep_rows(r, out.records);
    for (const struct td_action *a = out.actions; a; a = a->next) {
        for (int i = 0; a->message && i < N_NODES; i++) {
            if (!w->launchers[i].session || a->session != w->meeting.sessions[i]) continue;
            broken[i] = broken[i] || chance(w, 60); // with all that follows
            if (!broken[i] && deliver(w, i, a->message)) n_taken[i]++;
        }
    }
    td_core_effects_finish(&out);
    for (int i = 0; i < N_NODES; i++) {
        if (broken[i]) break_session(w, i);
        while (w->launchers[i].session && n_taken[i]) {
            n_taken[i]--;
            taken(w, i);
        }
    }
}

static void say_news(struct sim *w, int node, const struct td_launch_store_news *news) {
    Traind__V1__AttemptId id = attempt_id(&w->meeting.rig);
    Traind__V1__StoreSet set = TRAIND__V1__STORE_SET__INIT;
    Traind__V1__StoreWant want = TRAIND__V1__STORE_WANT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    char key[TD_STORE_KEY_MAX + 1];
    snprintf(key, sizeof key, "%s", news->key);
    set.id = want.id = &id;
    set.key = want.key = key;
    if (news->item) {
        set.value = (ProtobufCBinaryData){news->item->bytes, td_unconst(news->item->data)};
        m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_STORE_SET;
        m.store_set = &set;
    } else {
        m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_STORE_WANT;
        m.store_want = &want;
    }
    say_up(w, node, &m);
}

static void step_launcher(struct sim *w, int node) {
    struct sim_launcher *l = &w->launchers[node];
    struct td_launch_store_news news;
    if (!l->session) {
        if (w->calm || chance(w, 3)) begin_session(w, node);
        return;
    }
    if (l->dropped && (w->calm || chance(w, 3))) { // there is room again
        l->dropped = false;
        td_launch_store_again(&l->store, false);
    }
    while (l->session && td_launch_store_next(&l->store, &news)) {
        if (chance(w, 30)) { // no room
            l->dropped = true;
            w->n_drops++;
        } else {
            say_news(w, node, &news);
        }
    }
    if (chance(w, 100)) break_session(w, node);
}

static void start_coordinator_again(struct sim *w) {
    start_again(&w->meeting.rig, &meeting_options);
    for (int i = 0; i < N_NODES; i++) {
        w->launchers[i].session = false;
    }
    w->n_starts++;
}

// ---- the whole ----------------------------------------------------------------------------------
static bool all_done(const struct sim *w) {
    for (int i = 0; i < N_RANKS; i++) {
        if (w->ranks[i].round < ROUNDS) return false;
    }
    return true;
}

static void simulate(uint64_t seed, struct sim *w) {
    *w = (struct sim){.rng = seed};
    begin_meeting(&w->meeting, N_RANKS);
    for (int i = 0; i < N_RANKS; i++) {
        struct td_launch_store *s = &w->launchers[i / RANKS_A_NODE].store;
        if (i % RANKS_A_NODE == 0) assert_ok(td_launch_store_init(s, RANKS_A_NODE, false));
        assert_ok(td_launch_store_connect(s, i % RANKS_A_NODE, &w->ranks[i].fd));
        w->ranks[i].call = TD_STORE_SET;
    }
    for (int i = 0; i < N_NODES; i++) {
        w->launchers[i].session = true;
    }
    for (int step = 0; !all_done(w); step++) {
        w->calm = step > CALM;
        assert_true(step < 2 * CALM);
        for (int i = 0; i < N_RANKS; i++) {
            step_rank(w, i);
        }
        for (int i = 0; i < N_NODES; i++) {
            step_launcher(w, i);
        }
        if (chance(w, 100)) start_coordinator_again(w);
    }
    for (int i = 0; i < N_RANKS; i++) {
        close(w->ranks[i].fd);
    }
    for (int i = 0; i < N_NODES; i++) {
        td_launch_store_finish(&w->launchers[i].store);
    }
    end_meeting(&w->meeting);
}

static void test_ranks_meet_whatever_breaks(void **state) {
    (void)state;
    const uint64_t n_seeds = getenv("TD_FULL") ? 400 : 20;
    uint32_t breaks = 0, starts = 0, drops = 0;
    for (uint64_t seed = 1; seed <= n_seeds; seed++) {
        struct sim w;
        simulate(seed, &w);
        breaks += w.n_breaks;
        starts += w.n_starts;
        drops += w.n_drops;
    }
    print_message("# %u sessions broke, %u starts of the coordinator, %u messages found no room\n",
                  breaks, starts, drops);
    assert_true(breaks > n_seeds && starts > 0 && drops > n_seeds); // the world was not calm
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_meet_whatever_breaks)};
    return cmocka_run_group_tests_name("sim_rendezvous", tests, NULL, NULL);
}
