// What the core answers goes to the store and, past the gate, to the outside; and so do the answers
// to calls.

#include "daemon/coordinator/shell/shell.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/clip.h"

struct td_now td_shell_now(void) {
    return (struct td_now){.mono = td_mono_now(), .real = td_real_now()};
}

// ---- handing over -------------------------------------------------------------------------------
static void gather(struct td_coordinator *c, struct td_record *take_records) {
    if (!take_records) return;
    if (!c->records) {
        td_gate_issued(c->gate, ++c->ticket);
        c->records_tail = &c->records;
        c->records_due = td_mono_add(td_mono_now(), TD_SHELL_GATHER_NS);
    }
    *c->records_tail = take_records;
    while (*c->records_tail) {
        c->records_tail = &(*c->records_tail)->next;
    }
}

void td_shell_records(struct td_coordinator *c, struct td_record *take_records) {
    gather(c, take_records);
}

void td_shell_hand_over(struct td_coordinator *c) {
    if (c->records) td_databases_commit(c->store, td_steal(c->records), c->ticket);
}

void td_shell_after(struct td_coordinator *c) {
    struct td_core_effects out = td_core_take(c->core);
    gather(c, out.records);
    if (out.points) td_databases_points(c->store, out.points);
    while (out.actions) {
        struct td_action *a = out.actions;
        out.actions = a->next;
        a->next = NULL;
        c->roof->act(c, a);
    }
    if (c->closing) return;
    if (c->draining && !c->ending && !td_core_n_stopping(c->core)) c->roof->stopped(c);
}

// ---- answers ------------------------------------------------------------------------------------
enum reply_kind { REPLY_READ, REPLY_CHANGED, REPLY_HELD };
struct reply {
    struct td_coordinator *c;
    enum reply_kind kind;
    struct td_rpc_call *call;
    struct td_arena *arena;
    const ProtobufCMessage *message;
    td_status failure;
};

static td_status disk_fails(const struct td_coordinator *c, const char *and_so) {
    return td_status_with_reason(td_fail(TD_UNAVAILABLE,
                                         "the coordinator cannot write its disk (%s): %s",
                                         c->why[0] ? c->why : "state.db", and_so),
                                 "DISK_FAILING");
}

td_status td_shell_writable(const struct td_coordinator *c) {
    if (!td_databases_state_failing(c->store)) return TD_OK;
    return disk_fails(c, "this call changed nothing; mend that and ask again");
}

// What is shown may be newer than the disk; the message is the reply's own, in its arena.
static void mark_unsaved(const struct reply *r) {
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(r->message->descriptor, "unsaved");
    if (!f || !r->c->why[0]) return;
    char *text = td_arena_strdup(r->arena, r->c->why);
    if (text) memcpy((char *)td_unconst(r->message) + f->offset, &text, sizeof text);
}

static void send_reply(void *take_arg, enum td_gate_pass pass) {
    struct reply *r = take_arg;
    bool stuck = pass == TD_GATE_STUCK;
    if (pass && r->message && r->kind == REPLY_READ) mark_unsaved(r);
    if (stuck && r->kind == REPLY_CHANGED && !r->failure) {
        r->failure = disk_fails(r->c, "what was asked is done in memory alone and may be lost; ask "
                                      "again when there is room, for a new job with the same "
                                      "request id");
    }
    if (pass && r->failure) {
        td_rpc_call_finish(r->call, td_steal(r->failure));
    } else if (pass) {
        td_rpc_call_reply(r->call, r->message);
    }
    td_status_free(r->failure);
    td_rpc_call_unref(r->call);
    td_arena_destroy(r->arena);
    free(r);
}

td_status td_shell_arena(struct td_arena **out_arena) {
    return td_arena_create(TD_SHELL_ARENA_BYTES, out_arena);
}

static void put_reply(struct td_coordinator *c, struct td_rpc_call *call,
                      struct td_arena *take_arena, const ProtobufCMessage *message,
                      td_status take_failure, enum reply_kind kind) {
    struct reply *r = td_calloc(1, sizeof *r);
    TD_CHECK(r && "out of memory: start again from the disk");
    td_rpc_call_ref(call);
    *r = (struct reply){c, kind, call, take_arena, message, take_failure};
    if (kind == REPLY_HELD) {
        td_gate_put(c->gate, send_reply, r);
    } else {
        td_gate_put_impatient(c->gate, send_reply, r);
    }
}

void td_shell_reply(struct td_coordinator *c, struct td_rpc_call *call, struct td_arena *take_arena,
                    const ProtobufCMessage *message) {
    put_reply(c, call, take_arena, message, message ? TD_OK : td_fail_oom(), REPLY_READ);
}

void td_shell_reply_changed(struct td_coordinator *c, struct td_rpc_call *call,
                            struct td_arena *take_arena, const ProtobufCMessage *message) {
    if (message) c->roof->changed(c, call);
    put_reply(c, call, take_arena, message, message ? TD_OK : td_fail_oom(), REPLY_CHANGED);
}

void td_shell_reply_held(struct td_coordinator *c, struct td_rpc_call *call,
                         struct td_arena *take_arena, const ProtobufCMessage *message) {
    put_reply(c, call, take_arena, message, message ? TD_OK : td_fail_oom(), REPLY_HELD);
}

void td_shell_fail(struct td_coordinator *c, struct td_rpc_call *call, td_status take_status) {
    put_reply(c, call, NULL, NULL, take_status, REPLY_READ);
}

td_status td_shell_bad_field(const char *field, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    (void)td_clip_v(text, sizeof text, fmt, ap);
    va_end(ap);
    td_status s = td_fail(TD_INVALID_ARGUMENT, "%s: %s", field, text);
    return td_status_with_field(td_status_with_reason(s, "FIELD_INVALID"), field, "%s", text);
}

void td_shell_checkpoint_path(const struct td_coordinator *c, const char *job, const char *path,
                              const char *file, char out[TD_SHELL_PATH_MAX]) {
    snprintf(out, TD_SHELL_PATH_MAX, "%s/checkpoints/%s/%s%s%s", c->state_dir, job, path,
             file ? "/" : "", file ? file : "");
}
