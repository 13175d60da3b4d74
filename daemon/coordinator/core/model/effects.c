// Output of the core: lists of records, points and actions, filled while an event is handled and
// taken by the shell afterwards. Everything put here is owned by the list; see model.h for
// what happens when memory is gone.

#include "daemon/coordinator/core/model/effects.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/coordinator/core/model/model.h"
#include "lib/base/clip.h"
#include "lib/base/utf8.h"

void *td_core_must(void *p) {
    TD_CHECK(p && "out of memory: state in memory cannot be trusted, start again from the disk");
    return p;
}

char *td_core_dup(const char *s) {
    return td_core_must(td_strdup(s ? s : ""));
}

void td_core_record(struct td_core *core, enum td_record_kind kind, const char *key,
                    const char *body) {
    struct td_record *r = td_core_must(td_calloc(1, sizeof *r));
    r->kind = kind;
    r->key = td_core_dup(key);
    r->body = body ? td_core_dup(body) : NULL;
    *core->records_tail = r;
    core->records_tail = &r->next;
}

void td_core_points(struct td_core *core, struct td_points *take_points) {
    *core->points_tail = take_points;
    core->points_tail = &take_points->next;
}

struct td_action *td_core_act(struct td_core *core, enum td_action_kind kind) {
    struct td_action *a = td_core_must(td_calloc(1, sizeof *a));
    a->kind = kind;
    *core->actions_tail = a;
    core->actions_tail = &a->next;
    return a;
}

void td_core_close_session(struct td_core *core, uint64_t session, const char *why) {
    struct td_action *a = td_core_act(core, TD_ACTION_CLOSE);
    a->session = session;
    a->text = td_core_dup(why);
}

void td_core_deny_session(struct td_core *core, uint64_t session, const char *why) {
    struct td_action *a = td_core_act(core, TD_ACTION_CLOSE);
    a->session = session;
    a->token = 1;
    a->text = td_core_dup(why);
}

void td_core_refuse_session(struct td_core *core, uint64_t session, td_status take_why) {
    struct td_action *a = td_core_act(core, TD_ACTION_CLOSE);
    a->session = session;
    a->text = td_core_dup(td_status_message(take_why));
    a->failure = take_why;
}

void td_core_log(struct td_core *core, const char *fmt, ...) {
    char text[640];
    va_list ap;
    va_start(ap, fmt);
    (void)td_clip_v(text, sizeof text, fmt, ap);
    va_end(ap);
    td_utf8_scrub(text);
    td_core_act(core, TD_ACTION_SAY)->text = td_core_dup(text);
}

// A deep copy by way of its bytes: the message may wait for a commit, its parts are borrowed.
void td_core_send(struct td_core *core, const struct td_host *node,
                  Traind__V1__CoordinatorMessage *m) {
    if (!node || !node->session) return;
    m->incarnation = core->options.incarnation;
    size_t bytes = traind__v1__coordinator_message__get_packed_size(m);
    uint8_t *packed = td_core_must(malloc(bytes ? bytes : 1));
    traind__v1__coordinator_message__pack(m, packed);
    struct td_action *a = td_core_act(core, TD_ACTION_SEND);
    a->session = node->session;
    a->message = td_core_must(traind__v1__coordinator_message__unpack(NULL, bytes, packed));
    free(packed);
}

void td_core_meta(struct td_core *core, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    td_core_record(core, TD_RECORD_META, key, text);
}

// Ids of messages are borrowed from the job; const is dropped because protobuf-c has none.
void td_core_attempt_id(const struct td_job *j, const struct td_attempt *a,
                        Traind__V1__AttemptId *out_id) {
    traind__v1__attempt_id__init(out_id);
    out_id->job = td_unconst(j->id);
    out_id->attempt = a->number;
    out_id->epoch = a->epoch;
}
