#ifndef TRAIND_TESTS_SIM_COORDINATOR_NODES_H
#define TRAIND_TESTS_SIM_COORDINATOR_NODES_H

// The nodes of test_sim_coordinator.c with their launchers and disks: what they answer, what they
// send, how they die. The invariants that belong to a message are checked where it arrives.

#include "tests/sim/coordinator_world.h"

// ---- nodes --------------------------------------------------------------------------------------
static void to_core(struct world *w, struct sim_node *n, Traind__V1__NodeMessage *m) {
    m->incarnation = n->incarnation;
    n->said_at = w->now_ns;
    w->registering = m->body_case == TRAIND__V1__NODE_MESSAGE__BODY_REGISTER ? n : NULL;
    td_core_session_message(w->core, now(w), n->session, m);
    after(w);
    w->registering = NULL;
}

static void line(struct held *h, const char *fmt, ...) TD_PRINTF(2, 3);
static void line(struct held *h, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    assert_ok(td_buf_printf(&h->events, "%s\n", text));
}

static struct held *find_held(struct sim_node *n, const Traind__V1__AttemptId *id) {
    return held_of(n, id->job, id->attempt, id->epoch);
}

static void drop_held(struct held *h) {
    td_buf_finish(&h->events);
    memset(h, 0, sizeof *h);
}

static uint32_t used_slots(const struct sim_node *n) {
    uint32_t used = 0;
    for (int i = 0; i < MAX_HELD; i++) {
        if (n->held[i].used && n->held[i].alive) used += n->held[i].slots;
    }
    return used;
}

static void end_attempt(struct held *h, const char *outcome, const char *cls) {
    if (strcmp(outcome, "failed") == 0) {
        line(h,
             "{\"event\":\"end\",\"rank\":%u,\"outcome\":\"failed\",\"class\":\"%s\","
             "\"code\":\"INTERNAL\",\"message\":\"sim\",\"step\":%u}",
             h->first_rank, cls, h->step);
    }
    line(h,
         "{\"event\":\"launcher_end\",\"outcome\":\"%s\",\"rank\":%u,\"class\":\"%s\","
         "\"code\":\"INTERNAL\",\"message\":\"sim\"}",
         outcome, h->first_rank, cls);
    h->alive = false;
    h->ended = true;
}

static void lose_launcher(struct held *h, const char *cls) {
    line(h, "{\"event\":\"launcher_lost\",\"class\":\"%s\",\"message\":\"killed\"}", cls);
    h->alive = false;
    h->ended = true;
}

static bool is_gang(const struct held *h) {
    return h->n_ranks < h->world;
}

static void save(struct sim_node *n, struct held *h) {
    sim_disk_write(&n->disk, h->job, h->attempt, h->step);
    line(h,
         "{\"event\":\"checkpoint\",\"rank\":0,\"step\":%u,\"epoch\":0,\"path\":\"a%u/step-%u\","
         "\"bytes\":1,\"boundary\":%u,\"files\":[{\"name\":\"m\",\"bytes\":1,"
         "\"digest\":\"00000000000000000000000000000000\"}]}",
         h->step, h->attempt, h->step, h->boundary);
    if (h->stream && h->n_unsent < TD_COUNTOF(h->unsent)) h->unsent[h->n_unsent++] = h->step;
}

// All ranks save at the same boundaries, whoever writes. What a rank recorded before is to be kept.
static void pass(struct world *w, struct sim_node *n, struct held *h) {
    char key[64];
    h->boundary++;
    for (uint32_t r = 0; is_gang(h) && r < h->n_ranks; r++) {
        line(h, "{\"event\":\"boundary\",\"rank\":%u,\"number\":%u,\"metrics_bytes\":%llu}",
             h->first_rank + r, h->boundary, (unsigned long long)h->metrics[r]);
        snprintf(key, sizeof key, "%s/%u/%u/%u", h->job, h->attempt, h->boundary,
                 h->first_rank + r);
        keep_number(w->passed, key, h->metrics[r]);
    }
    if (h->first_rank || h->saved == h->step) return;
    h->saved = h->step;
    snprintf(key, sizeof key, "%s/%u/%u", h->job, h->attempt, h->step);
    if (is_gang(h) && h->stream) keep_number(w->saved, key, h->boundary);
    save(n, h);
}

// No two attempts of a job train unless the older one is fenced: the core knows that it is.
static void check_single(struct world *w, const Traind__V1__AttemptId *id) {
    const struct td_job *j = NULL;
    td_status_free(td_core_find_job(w->core, id->job, &j));
    if (!j) return; // deleted with the message on its way
    for (int n = 0; n < N_NODES; n++) {
        for (int i = 0; i < MAX_HELD; i++) {
            const struct held *h = &w->nodes[n].held[i];
            if (!h->used || !h->alive || strcmp(h->job, id->job) != 0) continue;
            if (h->attempt == id->attempt) continue;
            const struct td_attempt *older = td_job_attempt(j, h->attempt);
            assert_int_equal(td_attempt_part_on(older, w->nodes[n].id)->state, TD_ATTEMPT_FENCED);
        }
    }
}

// No attempt goes on from a checkpoint while points of any rank from before it are missing.
static void check_points(struct world *w, const Traind__V1__Assign *m, const char *path) {
    char key[64];
    unsigned attempt, step;
    assert_int_equal(sscanf(path, "a%u/step-%u", &attempt, &step), 2);
    snprintf(key, sizeof key, "%s/%u/%u", m->id->job, attempt, step);
    const uint64_t *boundary = td_map_get(w->saved, key);
    if (!boundary) return; // of one node, or in a shared directory
    for (uint32_t r = 0; r < m->world_size; r++) {
        snprintf(key, sizeof key, "%s/%u/%u/%u", m->id->job, attempt, (unsigned)*boundary, r);
        const uint64_t *recorded = td_map_get(w->passed, key);
        snprintf(key, sizeof key, "%s/%u/%u", m->id->job, attempt, r);
        const uint64_t *have = td_map_get(w->cursors, key);
        assert_non_null(recorded);
        assert_true((have ? *have : 0) >= *recorded);
    }
    w->resumed++;
}

static void on_assign(struct world *w, struct sim_node *n, const Traind__V1__Assign *m) {
    check_single(w, m->id);
    check_plan(w, m);
    for (size_t i = 0; i < m->n_resume; i++) {
        check_points(w, m, m->resume[i]->path);
    }
    assert_null(find_held(n, m->id));
    uint32_t needed = m->n_ranks * m->slots_per_rank;
    assert_true(used_slots(n) + needed <= n->slots);
    struct held *h = n->held;
    while (h->used) {
        h++;
        assert_true(h < n->held + MAX_HELD);
    }
    td_buf_init(&h->events, 1 << 20);
    h->used = h->alive = h->adopted = true;
    snprintf(h->job, sizeof h->job, "%s", m->id->job);
    h->attempt = m->id->attempt;
    h->epoch = m->id->epoch;
    h->first_rank = m->first_rank;
    h->n_ranks = m->n_ranks;
    h->world = m->world_size;
    h->slots = needed;
    h->stream = m->stream_store;
    h->step = m->n_resume ? m->resume[0]->step : 0;
    h->last = 20 + (uint32_t)(m->id->epoch * 37 % 100); // the same in all parts
    w->gangs += m->n_ranks < m->world_size && m->first_rank == 0;
    if (h->last <= h->step) h->last = h->step + 1;
    line(h, "{\"event\":\"launched\",\"pid\":1,\"boundaries\":%s}", is_gang(h) ? "true" : "false");
    w->assigned++;
}

static void on_stop(struct world *w, struct sim_node *n, const Traind__V1__Stop *m) {
    struct held *h = find_held(n, m->id);
    if (!h || !h->alive) return;
    h->stop_asked = true;
    h->mode = m->mode;
    h->stop_in = (int)(draw(w) % 20);
}

static void on_registered(struct sim_node *n, const Traind__V1__Registered *m) {
    n->registered = true;
    for (size_t i = 0; i < m->n_adopt; i++) {
        struct held *h = find_held(n, m->adopt[i]->id);
        assert_non_null(h);
        h->adopted = h->tells_end = true;
        for (size_t o = 0; o < m->adopt[i]->n_offsets; o++) {
            const Traind__V1__SegmentOffset *s = m->adopt[i]->offsets[o];
            if (s->kind == TRAIND__V1__SEGMENT__KIND__EVENTS) h->sent = h->acked = s->offset;
            if (s->kind == TRAIND__V1__SEGMENT__KIND__METRICS) {
                const uint32_t r = s->rank - h->first_rank;
                assert_true(r < h->n_ranks); // its own ranks alone
                h->metrics_sent[r] = h->metrics_acked[r] = s->offset;
            }
        }
    }
    for (size_t i = 0; i < m->n_stop; i++) { // fenced: at once, and nothing of it is sent
        struct held *h = find_held(n, m->stop[i]);
        if (h) drop_held(h);
    }
}

static bool is_deleted(const struct world *w, const char *job) {
    for (int i = 0; i < N_JOBS; i++) {
        if (strcmp(w->jobs[i].id, job) == 0) return w->jobs[i].deleted;
    }
    return false;
}

static void on_forget(struct world *w, struct sim_node *n, const Traind__V1__Forget *m) {
    struct held *h = find_held(n, m->id);
    if (is_deleted(w, m->id->job)) { // whatever it still had to report
        if (h) drop_held(h);
        return;
    }
    assert_non_null(h);
    assert_false(h->alive);
    assert_int_equal(h->acked, h->events.len);
    for (uint32_t r = 0; r < h->n_ranks; r++) {
        char key[64];
        snprintf(key, sizeof key, "%s/%u/%u", h->job, h->attempt, h->first_rank + r);
        const uint64_t *have = td_map_get(w->cursors, key);
        assert_int_equal(have ? *have : 0, h->metrics[r]);
    }
    drop_held(h);
    w->forgotten++;
}

static void on_ack(struct sim_node *n, const Traind__V1__SegmentAck *m) {
    struct held *h = find_held(n, m->id);
    if (!h) return;
    if (m->kind == TRAIND__V1__SEGMENT__KIND__EVENTS) {
        assert_true(m->offset <= h->events.len);
        h->acked = m->offset;
    } else {
        h->metrics_acked[m->rank - h->first_rank] = m->offset;
    }
}

static void on_plan(struct world *w, struct sim_node *n, const Traind__V1__PlanRequest *m) {
    Traind__V1__PlanResult r = TRAIND__V1__PLAN_RESULT__INIT;
    Traind__V1__NodeMessage out = TRAIND__V1__NODE_MESSAGE__INIT;
    char empty[] = "", result[160], read[48], cls[] = "internal", changed[] = "it is another";
    snprintf(read, sizeof read, "[{\"of\":\"data\",\"digest\":\"%u\"}]", w->version);
    snprintf(result, sizeof result,
             "{\"state_bytes\":10,\"total_steps\":100,\"shared_bytes\":%u,\"read\":%s}",
             w->version + 1, read);
    r.request = m->request;
    if (m->read[0]) {
        r.same = strcmp(m->read, read) == 0;
        r.changed = r.same ? empty : changed;
        w->compared++, w->stale += !r.same;
    } else {
        r.result_json = chance(w, 4) && !w->calm ? empty : result;
        r.class_ = cls;
    }
    out.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PLAN_RESULT;
    out.plan_result = &r;
    to_core(w, n, &out);
}

// ---- reconcile ----------------------------------------------------------------------------------
static bool is_held(const struct sim_node *n, const Traind__V1__Reconcile *m) {
    for (int i = 0; i < MAX_HELD; i++) {
        const struct held *h = &n->held[i];
        if (h->used && strcmp(h->job, m->job) == 0 && sim_disk_is_over(m, h->attempt)) return true;
    }
    return false;
}

static void reconcile_some(struct world *w, struct sim_node *n) {
    for (int i = 0; i < SIM_DISK_WAITING; i++) {
        Traind__V1__CoordinatorMessage *m = n->disk.waiting[i];
        if (!m || !n->session || is_held(n, m->reconcile) || !chance(w, 3)) continue;
        if (!sim_disk_is_first(&n->disk, m->reconcile)) continue;
        n->disk.waiting[i] = NULL;
        sim_disk_carry_out(&n->disk, m->reconcile);
        Traind__V1__Reconciled r = TRAIND__V1__RECONCILED__INIT;
        Traind__V1__NodeMessage out = TRAIND__V1__NODE_MESSAGE__INIT;
        r.request = m->reconcile->request;
        r.job = m->reconcile->job;
        out.body_case = TRAIND__V1__NODE_MESSAGE__BODY_RECONCILED;
        out.reconciled = &r;
        to_core(w, n, &out);
        traind__v1__coordinator_message__free_unpacked(m, NULL);
    }
}

static void to_node(struct world *w, struct sim_node *n, const Traind__V1__CoordinatorMessage *m) {
    n->incarnation = m->incarnation;
    switch (m->body_case) {
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED:
        on_registered(n, m->registered);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_ASSIGN:
        on_assign(w, n, m->assign);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_STOP:
        on_stop(w, n, m->stop);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_FORGET:
        on_forget(w, n, m->forget);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_SEGMENT_ACK:
        on_ack(n, m->segment_ack);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_PLAN_REQUEST:
        on_plan(w, n, m->plan_request);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_PLAN_CANCEL: // it answers at once, or not at all
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_RECONCILE:
        assert_true(n->registered);
        sim_disk_keep(&n->disk, m);
        break;
    default:
        fail();
    }
}

static void carry_out(struct world *w, struct td_action *a) {
    if (a->kind == TD_ACTION_FORGET) { // the disk may refuse; then the next start asks again
        td_core_forgotten(w->core, now(w), a->job, w->calm || !chance(w, 4));
        after(w);
    }
    for (int i = 0; i < N_NODES && a->session; i++) {
        struct sim_node *n = &w->nodes[i];
        if (n->session != a->session) continue;
        if (a->kind == TD_ACTION_CLOSE) {
            lose_session(w, n, 500);
        } else if (chance(w, 400) && !w->calm) {
            lose_session(w, n, 1000); // it broke with the message in flight
        } else {
            to_node(w, n, a->message);
        }
        break;
    }
    td_action_destroy(a);
}

static void dial(struct world *w, struct sim_node *n) {
    sim_disk_drop(&n->disk); // of an earlier session
    n->session = td_core_session_open(w->core, now(w), false);
    Traind__V1__AttemptHeld held[MAX_HELD], *list[MAX_HELD];
    Traind__V1__AttemptId ids[MAX_HELD];
    Traind__V1__Register r = TRAIND__V1__REGISTER__INIT;
    for (int i = 0; i < MAX_HELD; i++) {
        struct held *h = &n->held[i];
        if (!h->used) continue;
        h->adopted = false;
        size_t k = r.n_attempts++;
        traind__v1__attempt_id__init(&ids[k]);
        traind__v1__attempt_held__init(&held[k]);
        ids[k].job = h->job;
        ids[k].attempt = h->attempt;
        ids[k].epoch = h->epoch;
        held[k].id = &ids[k];
        held[k].alive = h->alive;
        held[k].launcher_major = 1;
        list[k] = &held[k];
    }
    r.attempts = list;
    r.node_id = r.name = n->id;
    r.boot_id = n->boot;
    set_build(&r);
    r.devices = true;
    r.cores = r.slots = n->slots;
    r.collective_address = td_unconst("10.0.0.1");
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_REGISTER;
    m.register_ = &r;
    to_core(w, n, &m);
}

static bool is_cut(const struct world *w, const struct sim_node *n) {
    return w->now_ns < n->cut_until;
}

// Ranks of the attempt that this node reaches, and that are ready, or were when they ended well.
static uint32_t n_met(const struct world *w, const struct sim_node *own, const struct held *h) {
    uint32_t met = 0;
    for (int n = 0; n < N_NODES; n++) {
        const bool cut = is_cut(w, own) || is_cut(w, &w->nodes[n]);
        if (cut && &w->nodes[n] != own) continue;
        for (int i = 0; i < MAX_HELD; i++) {
            const struct held *p = &w->nodes[n].held[i];
            bool same = p->used && p->attempt == h->attempt && p->epoch == h->epoch &&
                        strcmp(p->job, h->job) == 0;
            if (same && p->ready && (p->alive || p->step >= p->last)) met += p->n_ranks;
        }
    }
    return met;
}

// Ranks sum their gradients: none is more than a step before the others.
static bool is_ahead(const struct world *w, const struct held *h) {
    for (int n = 0; n < N_NODES; n++) {
        for (int i = 0; i < MAX_HELD; i++) {
            const struct held *p = &w->nodes[n].held[i];
            bool same = p->used && p->attempt == h->attempt && p->epoch == h->epoch &&
                        strcmp(p->job, h->job) == 0;
            if (same && p->step < h->step) return true;
        }
    }
    return false;
}

// The other ranks of a gang: it steps with them alone. True: it does not step now.
static bool waits_for_peers(struct world *w, const struct sim_node *n, struct held *h) {
    if (h->world == h->n_ranks) return false;
    bool all = n_met(w, n, h) == h->world;
    h->met = h->met || all;
    if (!all && h->met && chance(w, 20)) end_attempt(h, "failed", "collective"); // it lost one
    return !all || !h->alive || is_ahead(w, h);
}

static void train(struct world *w, struct sim_node *n, struct held *h) {
    if (!h->ready) {
        if (!chance(w, 4)) return;
        for (uint32_t r = 0; r < h->n_ranks; r++) {
            line(h, "{\"event\":\"ready\",\"rank\":%u,\"pid\":1}", h->first_rank + r);
        }
        h->ready = true;
    }
    if (h->stop_asked && h->stop_in-- <= 0) {
        bool save_first = h->mode == TRAIND__V1__STOP__MODE__CHECKPOINT;
        if (h->mode == TRAIND__V1__STOP__MODE__ABORT) {
            w->aborted++;
            end_attempt(h, "failed", "collective");
            return;
        }
        if (save_first && h->step) pass(w, n, h);
        end_attempt(h, h->mode == TRAIND__V1__STOP__MODE__KILL ? "killed" : "stopped", "none");
        return;
    }
    if (!chance(w, 3) || waits_for_peers(w, n, h)) return;
    h->step++;
    for (uint32_t r = 0; r < h->n_ranks; r++) {
        h->metrics[r] += RECORD;
    }
    if (h->step % 10 == 0) {
        pass(w, n, h);
    } else if (h->step % 10 == 5 && !h->first_rank) {
        sim_disk_write(&n->disk, h->job, h->attempt, h->step); // of which no event came: an orphan
    }
    if (h->step >= h->last) {
        pass(w, n, h);
        end_attempt(h, "done", "none");
    } else if (chance(w, 300) && !w->calm) {
        end_attempt(h, "failed", chance(w, 2) ? "internal" : "collective");
    } else if (chance(w, 400) && !w->calm) {
        lose_launcher(h, "internal");
    }
}

static void send_segment(struct world *w, struct sim_node *n, const struct held *h,
                         Traind__V1__Segment__Kind kind, uint32_t rank, uint64_t offset,
                         const void *data, size_t bytes) {
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    Traind__V1__Segment s = TRAIND__V1__SEGMENT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    id.job = td_unconst(h->job);
    id.attempt = h->attempt;
    id.epoch = h->epoch;
    s.id = &id;
    s.kind = kind;
    s.rank = kind == TRAIND__V1__SEGMENT__KIND__METRICS ? h->first_rank + rank : 0;
    s.offset = offset;
    s.data.data = td_unconst(data);
    s.data.len = bytes;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT;
    m.segment = &s;
    to_core(w, n, &m);
}

static void send_metrics(struct world *w, struct sim_node *n, struct held *h, uint32_t rank) {
    uint64_t from = h->metrics_sent[rank];
    if (chance(w, 5)) from = h->metrics_acked[rank]; // again
    if (from >= h->metrics[rank]) return;
    size_t k = (size_t)(h->metrics[rank] - from) / RECORD;
    struct td_metric_record *p = calloc(k, sizeof *p);
    for (size_t i = 0; i < k; i++) { // in the sim, record i of an attempt is its step i + 1
        snprintf(p[i].name, sizeof p[i].name, "train_loss_step");
        p[i].step = (int32_t)(from / RECORD + i + 1);
        p[i].sum = p[i].count = 1;
        p[i].flags = TD_METRIC_SUM_COUNT;
    }
    h->metrics_sent[rank] = h->metrics[rank];
    send_segment(w, n, h, TRAIND__V1__SEGMENT__KIND__METRICS, rank, from, p, k * RECORD);
    free(p);
}

static void send_final(struct world *w, struct sim_node *n, const struct held *h) {
    for (uint32_t r = 0; r < h->n_ranks; r++) {
        Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
        Traind__V1__LogState s = TRAIND__V1__LOG_STATE__INIT;
        Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
        id.job = td_unconst(h->job);
        id.attempt = h->attempt;
        id.epoch = h->epoch;
        s.id = &id;
        s.rank = h->first_rank + r;
        s.metrics_bytes = h->metrics[r];
        s.final = 1;
        m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_LOG_STATE;
        m.log_state = &s;
        to_core(w, n, &m);
    }
}

// PutShard: a file at a time; may come before its event or long after the end.
static void send_file(struct world *w, struct held *h) {
    if (!h->n_unsent || !chance(w, 4) || w->committed < h->put_ticket) return;
    if (h->put_ticket) { // the answer passed the gate
        h->put_ticket = 0;
        if (chance(w, 3)) return; // and was lost: it is sent again
        memmove(h->unsent, h->unsent + 1, --h->n_unsent * sizeof h->unsent[0]);
        return;
    }
    char path[64];
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    id.job = h->job;
    id.attempt = h->attempt;
    id.epoch = h->epoch;
    snprintf(path, sizeof path, "a%u/step-%u", h->attempt, h->unsent[0]);
    td_status s = td_core_shard_durable(w->core, now(w), &id, path, "m", 1,
                                        "00000000000000000000000000000000");
    after(w);
    bool gone = s != TD_OK; // fenced: it will learn of it
    td_status_free(s);
    if (!gone) h->put_ticket = w->ticket;
}

static void forward(struct world *w, struct sim_node *n, struct held *h) {
    for (uint32_t r = 0; r < h->n_ranks && n->session; r++) {
        send_metrics(w, n, h, r);
    }
    if (h->ended && h->tells_end) send_final(w, n, h);
    if (h->ended) h->tells_end = false;
    send_file(w, h);
    uint64_t from = chance(w, 5) ? h->acked : h->sent;
    if (!n->session || from >= h->events.len) return;
    size_t bytes = h->events.len - (size_t)from;
    if (chance(w, 3)) { // not all at once
        const char *end = memchr(h->events.data + from, '\n', bytes);
        bytes = (size_t)(end - (h->events.data + from)) + 1;
    }
    if (h->ended && from + bytes == h->events.len) send_final(w, n, h);
    if (from + bytes > h->sent) h->sent = from + bytes;
    send_segment(w, n, h, TRAIND__V1__SEGMENT__KIND__EVENTS, 0, from, h->events.data + from, bytes);
}

static void beat(struct world *w, struct sim_node *n) {
    Traind__V1__Heartbeat b = TRAIND__V1__HEARTBEAT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    b.slots_used = used_slots(n);
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_HEARTBEAT;
    m.heartbeat = &b;
    to_core(w, n, &m);
}

static void reboot(struct world *w, struct sim_node *n) {
    for (int i = 0; i < MAX_HELD; i++) {
        if (n->held[i].used && n->held[i].alive) lose_launcher(&n->held[i], "node_lost");
        if (n->held[i].used && chance(w, 4)) drop_held(&n->held[i]); // its disk, too
    }
    snprintf(n->boot, sizeof n->boot, "b%llx", (unsigned long long)(draw(w) & 0xffffff));
    lose_session(w, n, (int64_t)(draw(w) % 20000));
}

// A gang of which a part is over, but well, is ended on all its nodes that can be reached.
static void check_gang(struct world *w, struct sim_node *n, struct held *h) {
    const struct td_job *j = NULL;
    td_status_free(td_core_find_job(w->core, h->job, &j));
    const struct td_attempt *a = j ? td_job_attempt(j, h->attempt) : NULL;
    bool wanted = a && a->epoch == h->epoch && td_attempt_live(a) && !td_attempt_aborts(a);
    if (wanted || !n->registered) h->doomed_at = 0;
    if (wanted || !n->registered) return;
    if (!h->doomed_at) h->doomed_at = w->now_ns;
    assert_true(w->now_ns - h->doomed_at < gang_ends_ns);
}

static void step_node(struct world *w, struct sim_node *n) {
    for (int i = 0; i < MAX_HELD; i++) {
        if (n->held[i].used && n->held[i].alive) train(w, n, &n->held[i]);
        if (n->held[i].used && n->held[i].alive && is_gang(&n->held[i])) {
            check_gang(w, n, &n->held[i]);
        }
    }
    if (!n->session && w->now_ns >= n->dial_at) dial(w, n);
    for (int i = 0; i < MAX_HELD && n->session && n->registered; i++) {
        if (n->held[i].used && n->held[i].adopted) forward(w, n, &n->held[i]);
    }
    if (n->session && n->registered) reconcile_some(w, n);
    if (n->session && n->registered && chance(w, 10)) beat(w, n);
    if (w->calm) return;
    if (chance(w, 2000)) lose_session(w, n, (int64_t)(draw(w) % 5000));
    if (chance(w, 4000)) lose_session(w, n, 60000 + (int64_t)(draw(w) % 60000)); // partition
    if (chance(w, 4000)) reboot(w, n);
    const int64_t silence_ms = (int64_t)(draw(w) % 90000);
    if (chance(w, 4000)) fall_silent(w, n, silence_ms); // its ranks may step on
    if (!chance(w, 4000)) return;
    fall_silent(w, n, silence_ms); // or not: its host is cut off
    n->cut_until = n->dial_at;
}

#endif
