// Fuzz entry of what the coordinator decodes of a node. Any bytes come as the event lines of a
// running attempt, as its metric records, as the plan of a spec, or as a message of the control
// stream. The first byte chooses. Whatever came, what has to hold of the core does. Every message
// that goes out (to the node, to clients) decodes where it arrives, and every record that was
// committed loads again. Nothing that a rank or a node says may keep a coordinator from starting.
// Run by tests/unit/fuzz/messages/test_fuzz_core.c.

#include "tests/fuzz/fuzz.h"

#include "tests/unit/coordinator/core/core_check.h"
#include "daemon/coordinator/core/view.h"
#include "lib/attempt/languages.h"
#include "lib/base/map.h"
#include "lib/base/utf8.h"
#include "lib/rpc/codec.h"
#include "lib/spec/language.h"

enum { INCARNATION = 7, ARENA_BYTES = 16 << 20, RECORDS_MAX = 4096, HELD_MAX = 64 };

static const char spec_text[] =
    "{name: n, model: {name: mlp, layers: [4, 2]}, data: {name: synthetic, batch_size: 8},"
    "optimizer: {name: sgd}, trainer: {devices: 2, max_epochs: 1}}";

struct rig {
    struct td_core *core;
    struct td_now now;
    uint64_t session;
    struct td_map *records[TD_RECORD_KIND_COUNT]; // key -> body, as state.db holds them
    char plan_request[64];
    char job[TD_JOB_ID_MAX];
    uint32_t attempt;
    uint64_t epoch;
    size_t n_adopted; // in the last Registered
};

// ---- out ----------------------------------------------------------------------------------------
static void expect_decodes(const ProtobufCMessage *m) {
    size_t bytes = protobuf_c_message_get_packed_size(m);
    TD_AUTO_FREE uint8_t *packed = malloc(bytes + 1);
    td_fuzz_expect(packed && protobuf_c_message_pack(m, packed) == bytes);
    TD_AUTO(td_rpc_message) *again = NULL;
    td_fuzz_expect(!td_rpc_message_decode(m->descriptor, packed, bytes, &again));
}

static void store(struct rig *r, const struct td_record *record) {
    struct td_map *table = r->records[record->kind];
    if (!record->body) {
        free(td_map_remove(table, record->key));
        return;
    }
    char *body = td_strdup(record->body);
    void *old = NULL;
    td_fuzz_expect(td_utf8_valid(body, strlen(body)));
    td_fuzz_expect(!td_map_put(table, record->key, body, &old));
    free(old);
}

static void act(struct rig *r, const struct td_action *a) {
    if (!a->message) return;
    expect_decodes(&a->message->base);
    if (a->message->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_PLAN_REQUEST) {
        snprintf(r->plan_request, sizeof r->plan_request, "%s", a->message->plan_request->request);
    } else if (a->message->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED) {
        r->n_adopted = a->message->registered->n_adopt;
    } else if (a->message->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_ASSIGN) {
        const Traind__V1__AttemptId *id = a->message->assign->id;
        snprintf(r->job, sizeof r->job, "%s", id->job);
        r->attempt = id->attempt;
        r->epoch = id->epoch;
    }
}

static void check_core(const struct td_core *core) {
    td_status s = td_core_check(core);
    if (s) fprintf(stderr, "%s\n", td_status_message(s));
    td_fuzz_expect(!s);
}

static void take_once(struct rig *r) {
    check_core(r->core);
    struct td_core_effects out = td_core_take(r->core);
    for (const struct td_record *x = out.records; x; x = x->next) {
        store(r, x);
    }
    for (const struct td_action *x = out.actions; x; x = x->next) {
        act(r, x);
    }
    td_core_effects_finish(&out);
}

// What is due at once happens at once: a pass of the queue.
static void take(struct rig *r) {
    take_once(r);
    if (td_core_wake(r->core).ns > r->now.mono.ns) return;
    td_core_tick(r->core, r->now);
    take_once(r);
}

// ---- in -----------------------------------------------------------------------------------------
static void say(struct rig *r, Traind__V1__NodeMessage *m) {
    m->incarnation = INCARNATION;
    td_core_session_message(r->core, r->now, r->session, m);
    take(r);
}

static void say_segment(struct rig *r, Traind__V1__Segment__Kind kind, const uint8_t *data,
                        size_t bytes, uint64_t offset) {
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    id.job = r->job;
    id.attempt = r->attempt;
    id.epoch = r->epoch;
    Traind__V1__Segment segment = TRAIND__V1__SEGMENT__INIT;
    segment.id = &id;
    segment.kind = kind;
    segment.offset = offset;
    segment.data = (ProtobufCBinaryData){.len = bytes, .data = td_unconst(data)};
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT;
    m.segment = &segment;
    say(r, &m);
}

static void say_plan(struct rig *r, const char *json) {
    Traind__V1__PlanResult result = TRAIND__V1__PLAN_RESULT__INIT;
    result.request = r->plan_request;
    result.result_json = td_unconst(json);
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PLAN_RESULT;
    m.plan_result = &result;
    say(r, &m);
}

// n_held: how often it names the attempt that it was given.
static void say_register(struct rig *r, size_t n_held) {
    char id[] = "n-1", name[] = "host", boot[] = "boot", version[] = "0";
    Traind__V1__Register reg = TRAIND__V1__REGISTER__INIT;
    reg.node_id = id;
    reg.name = name;
    reg.boot_id = boot;
    reg.version = version;
    char language[TD_DIGEST_HEX];
    td_spec_language(language);
    reg.plan_language = language;
    reg.ranks_language = TD_RANKS_LANGUAGE;
    reg.launcher_major = 1;
    reg.cores = reg.slots = 4;
    reg.memory_bytes = UINT64_C(8) << 30;
    Traind__V1__AttemptId attempt = TRAIND__V1__ATTEMPT_ID__INIT;
    attempt.job = r->job;
    attempt.attempt = r->attempt;
    attempt.epoch = r->epoch;
    Traind__V1__AttemptHeld held = TRAIND__V1__ATTEMPT_HELD__INIT, *list[HELD_MAX];
    held.id = &attempt;
    held.alive = true;
    held.launcher_major = 1;
    for (size_t i = 0; i < n_held; i++) {
        list[i] = &held;
    }
    reg.attempts = list;
    reg.n_attempts = n_held;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_REGISTER;
    m.register_ = &reg;
    say(r, &m);
}

static void tick(struct rig *r, int64_t ns) {
    r->now.mono.ns += ns;
    r->now.real.ns += ns;
    td_core_tick(r->core, r->now);
    take(r);
}

static struct td_core *make_core(void) {
    struct td_core_options options = {.incarnation = INCARNATION,
                                      .checkpoint_dir = "",
                                      .heartbeat_ns = TD_NS_PER_S,
                                      .lease_ns = 10 * TD_NS_PER_S,
                                      .lost_after_ns = 60 * TD_NS_PER_S,
                                      .stop_grace_ns = 30 * TD_NS_PER_S};
    struct td_core *core = NULL;
    td_fuzz_expect(!td_core_create(&options, &core));
    return core;
}

static void rig_init(struct rig *r) {
    *r = (struct rig){.core = make_core(), .now = {{TD_NS_PER_S}, {TD_NS_PER_S}}};
    for (int k = 0; k < TD_RECORD_KIND_COUNT; k++) {
        td_fuzz_expect(!td_map_create(RECORDS_MAX, &r->records[k]));
    }
    td_core_start(r->core, r->now);
    r->session = td_core_session_open(r->core, r->now, false);
    say_register(r, 0);
    TD_AUTO(td_arena) *a = NULL;
    struct td_json *tree = NULL;
    TD_AUTO_BUF spec;
    td_buf_init(&spec, TD_SPEC_MAX_BYTES);
    td_fuzz_expect(!td_arena_create(TD_SPEC_ARENA_BYTES, &a));
    td_fuzz_expect(!td_spec_parse(a, spec_text, sizeof spec_text - 1, NULL, 0, &tree));
    td_fuzz_expect(!td_json_print(tree, false, &spec));
    struct td_core_create_job request = {
        .id = "j-1", .spec_json = td_buf_cstr(&spec), .request_id = "r", .digest = "d"};
    const struct td_job *job = NULL;
    bool again;
    td_fuzz_expect(!td_core_create_job(r->core, r->now, &request, &job, &again));
    take(r);
}

static void rig_finish(struct rig *r) {
    td_core_destroy(r->core);
    for (int k = 0; k < TD_RECORD_KIND_COUNT; k++) {
        size_t cursor = 0;
        const char *key;
        void *body;
        while (td_map_next(r->records[k], &cursor, &key, &body)) {
            free(body);
        }
        td_map_destroy(r->records[k]);
    }
}

// ---- what must be true --------------------------------------------------------------------------
static void check_views(const struct rig *r, const struct td_core *core) {
    TD_AUTO(td_arena) *a = NULL;
    td_fuzz_expect(!td_arena_create(ARENA_BYTES, &a));
    for (const struct td_job *j = td_core_job_before(core, UINT64_MAX); j;
         j = td_core_job_before(core, j->seq)) {
        expect_decodes(&td_view_job(a, core, j, r->now, TD_VIEW_SPEC)->base);
        for (uint32_t i = 0; i < j->n_checkpoints; i++) {
            expect_decodes(&td_view_checkpoint(a, core, j, j->checkpoints[i])->base);
        }
    }
    expect_decodes(&td_view_nodes(a, core, r->now, td_page_of(0), "")->base);
}

static void check_loads_again(const struct rig *r) {
    TD_AUTO(td_core) *core = make_core();
    for (int k = 0; k < TD_RECORD_KIND_COUNT; k++) {
        size_t cursor = 0;
        const char *key;
        void *body;
        while (td_map_next(r->records[k], &cursor, &key, &body)) {
            td_status s = td_core_load(core, (enum td_record_kind)k, key, body);
            if (s) fprintf(stderr, "%s: %s\n%s\n", key, td_status_message(s), (char *)body);
            td_fuzz_expect(!s);
        }
    }
    td_core_start(core, r->now);
    check_core(core);
    struct td_core_effects out = td_core_take(core);
    td_core_effects_finish(&out);
    check_views(r, core);
}

// ---- the entry ----------------------------------------------------------------------------------
static const char good_plan[] =
    "{\"state_bytes\":100,\"arena_bytes\":10,\"snapshot_bytes\":1,\"shared_bytes\":4096,"
    "\"total_steps\":10}";

static void feed(struct rig *r, uint8_t kind, const uint8_t *data, size_t size) {
    TD_AUTO_FREE char *text = strndup((const char *)data, size);
    td_fuzz_expect(text != NULL);
    if (kind % 4 == 2) {
        if (td_utf8_valid(text, strlen(text))) say_plan(r, text);
        return;
    }
    say_plan(r, good_plan);
    td_fuzz_expect(r->job[0]);
    if (kind % 4 == 0) {
        size_t half = size / 2;
        say_segment(r, TRAIND__V1__SEGMENT__KIND__EVENTS, data, half, 0);
        say_segment(r, TRAIND__V1__SEGMENT__KIND__EVENTS, data, size, 0);
    } else if (kind % 4 == 1) {
        say_segment(r, TRAIND__V1__SEGMENT__KIND__METRICS, data, size, 0);
    } else {
        TD_AUTO(td_rpc_message) *m = NULL;
        td_status s = td_rpc_message_decode(&traind__v1__node_message__descriptor, data, size, &m);
        td_status_free(s);
        if (m) {
            td_core_session_message(r->core, r->now, r->session,
                                    (const void *)td_rpc_message_get(m));
        }
        take(r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct rig r;
    rig_init(&r);
    td_fuzz_expect(r.plan_request[0]);
    feed(&r, data[0], data + 1, size - 1);
    check_views(&r, r.core);
    check_loads_again(&r);
    for (int i = 0; i < 4; i++) {
        tick(&r, 30 * TD_NS_PER_S);
    }
    check_views(&r, r.core);
    check_loads_again(&r);
    rig_finish(&r);
    return 0;
}
