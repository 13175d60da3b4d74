// What parts of traind of different builds say to each other, against tests/golden/languages.txt. A
// change shows up here as a line, with the number to raise (lib/attempt/languages.h).
// TD_GOLDEN_WRITE=1 writes the file again, once the number is another than in the file.

#include <stdlib.h>

#include "collectives/gloo/wire.h"
#include "lib/attempt/events.h"
#include "lib/attempt/languages.h"
#include "lib/attempt/rank_page.h"
#include "lib/attempt/segments.h"
#include "lib/attempt/store_message.h"
#include "lib/base/files/files.h"
#include "tests/unit/test.h"
#include "traind/v1/launcher.pb-c.h"
#include "traind/v1/node.pb-c.h"

enum { TEXT_BYTES = 1 << 20, SEEN_MAX = 256 };
#define GOLDEN "tests/golden/languages.txt"

// ---- messages -----------------------------------------------------------------------------------
static const char *const types[] = {
    [PROTOBUF_C_TYPE_INT32] = "int32",       [PROTOBUF_C_TYPE_SINT32] = "sint32",
    [PROTOBUF_C_TYPE_SFIXED32] = "sfixed32", [PROTOBUF_C_TYPE_INT64] = "int64",
    [PROTOBUF_C_TYPE_SINT64] = "sint64",     [PROTOBUF_C_TYPE_SFIXED64] = "sfixed64",
    [PROTOBUF_C_TYPE_UINT32] = "uint32",     [PROTOBUF_C_TYPE_FIXED32] = "fixed32",
    [PROTOBUF_C_TYPE_UINT64] = "uint64",     [PROTOBUF_C_TYPE_FIXED64] = "fixed64",
    [PROTOBUF_C_TYPE_FLOAT] = "float",       [PROTOBUF_C_TYPE_DOUBLE] = "double",
    [PROTOBUF_C_TYPE_BOOL] = "bool",         [PROTOBUF_C_TYPE_ENUM] = "enum",
    [PROTOBUF_C_TYPE_STRING] = "string",     [PROTOBUF_C_TYPE_BYTES] = "bytes",
    [PROTOBUF_C_TYPE_MESSAGE] = "message",
};

// Descriptors that are printed, each once, in the order in which they are met.
struct seen {
    const void *of[SEEN_MAX];
    size_t n;
};

static bool is_new(struct seen *seen, const void *descriptor) {
    for (size_t i = 0; i < seen->n; i++) {
        if (seen->of[i] == descriptor) return false;
    }
    assert_true(seen->n < SEEN_MAX);
    seen->of[seen->n++] = descriptor;
    return true;
}

static void print_enum(struct td_buf *out, struct seen *seen, const ProtobufCEnumDescriptor *d) {
    if (!is_new(seen, d)) return;
    assert_ok(td_buf_printf(out, "  enum %s\n", d->name));
    for (unsigned i = 0; i < d->n_values; i++) {
        assert_ok(td_buf_printf(out, "    %d %s\n", d->values[i].value, d->values[i].name));
    }
}

static void say_message(struct td_buf *out, struct seen *seen,
                        const ProtobufCMessageDescriptor *d) {
    if (!is_new(seen, d)) return;
    assert_ok(td_buf_printf(out, "  message %s\n", d->name));
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        const char *of = "", *list = f->label == PROTOBUF_C_LABEL_REPEATED ? "repeated " : "";
        if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
            of = ((const ProtobufCMessageDescriptor *)f->descriptor)->name;
        }
        if (f->type == PROTOBUF_C_TYPE_ENUM) {
            of = ((const ProtobufCEnumDescriptor *)f->descriptor)->name;
        }
        assert_ok(td_buf_printf(out, "    %u %s %s%s%s%s\n", f->id, f->name, list, types[f->type],
                                *of ? " " : "", of));
    }
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        if (f->type == PROTOBUF_C_TYPE_MESSAGE) say_message(out, seen, f->descriptor);
        if (f->type == PROTOBUF_C_TYPE_ENUM) print_enum(out, seen, f->descriptor);
    }
}

// ---- memory and lines ---------------------------------------------------------------------------
struct place {
    const char *name;
    size_t at, bytes;
};
#define PLACE(type, field)                                                                         \
    { #field, offsetof(struct type, field), sizeof((struct type *)0)->field }

static void print_places(struct td_buf *out, const char *what, size_t bytes, const struct place *p,
                         size_t n) {
    assert_ok(td_buf_printf(out, "  struct %s %zu bytes\n", what, bytes));
    for (size_t i = 0; i < n; i++) {
        assert_ok(td_buf_printf(out, "    %zu %s %zu\n", p[i].at, p[i].name, p[i].bytes));
    }
}
#define PRINT_PLACES(out, type, places)                                                            \
    print_places(out, #type, sizeof(struct type), places, TD_COUNTOF(places))

static void print_page(struct td_buf *out) {
    static const struct place page[] = {
        PLACE(td_rank_page, magic),          PLACE(td_rank_page, version),
        PLACE(td_rank_page, rank),           PLACE(td_rank_page, world_size),
        PLACE(td_rank_page, phase),          PLACE(td_rank_page, epoch),
        PLACE(td_rank_page, step),           PLACE(td_rank_page, total_steps),
        PLACE(td_rank_page, samples),        PLACE(td_rank_page, heartbeat_ns),
        PLACE(td_rank_page, collective_seq), PLACE(td_rank_page, last_loss_bits),
        PLACE(td_rank_page, drain_asked),    PLACE(td_rank_page, boundary),
        PLACE(td_rank_page, stop),           PLACE(td_rank_page, checkpoint_request),
        PLACE(td_rank_page, abort),          PLACE(td_rank_page, drain_done),
        PLACE(td_rank_page, fatal_signal),   PLACE(td_rank_page, last_words),
        PLACE(td_rank_page, lost_data),      PLACE(td_rank_page, lost_offset),
        PLACE(td_rank_page, plugin),
    };
    static const struct place record[] = {
        PLACE(td_metric_record, name),  PLACE(td_metric_record, step),
        PLACE(td_metric_record, epoch), PLACE(td_metric_record, sum),
        PLACE(td_metric_record, count), PLACE(td_metric_record, real_ns),
        PLACE(td_metric_record, flags), PLACE(td_metric_record, number),
    };
    assert_ok(td_buf_printf(out, "  page version %d, %d bytes, ring of %d\n", TD_RANK_PAGE_VERSION,
                            TD_RANK_PAGE_BYTES, TD_METRIC_RING_RECORDS));
    PRINT_PLACES(out, td_rank_page, page);
    PRINT_PLACES(out, td_metric_record, record);
    assert_ok(td_buf_printf(out, "  modes %d %d %d %d %d\n", TD_STOP_NONE, TD_STOP_CHECKPOINT,
                            TD_STOP_NOW, TD_STOP_KILL, TD_STOP_ABORT));
    for (int i = 0; strcmp(td_rank_phase_name(i), "unknown") != 0; i++) {
        assert_ok(td_buf_printf(out, "  phase %d %s %s\n", i, td_rank_phase_name(i),
                                td_rank_phase_detail(i)));
    }
}

static void print_events(struct td_buf *out) {
    static const char *const names[] = {
        [TD_EVENT_INT] = "int",       [TD_EVENT_BOOL] = "bool",   [TD_EVENT_TEXT] = "text",
        [TD_EVENT_OBJECT] = "object", [TD_EVENT_FILES] = "files", [TD_EVENT_METRICS] = "metrics"};
    for (int k = TD_EVENT_UNKNOWN + 1; k < TD_EVENT_COUNT; k++) {
        const struct td_event_row *row = &td_event_rows[k];
        assert_ok(td_buf_printf(out, "  event %s\n", row->name));
        for (int i = (int)row->first; i < (int)row->past; i++) {
            const struct td_event_field *f = &td_event_fields[i];
            assert_ok(td_buf_printf(out, "    %s %s%s\n", f->name, names[f->type],
                                    f->need == TD_EVENT_REQUIRED ? " required" : ""));
        }
    }
}

// ---- languages ----------------------------------------------------------------------------------
static void print_launchers(struct td_buf *out) {
    struct seen seen = {.n = 0};
    print_enum(out, &seen, &traind__v1__launcher_frame__descriptor);
    say_message(out, &seen, &traind__v1__launcher_hello__descriptor);
    say_message(out, &seen, &traind__v1__launcher_status__descriptor);
    say_message(out, &seen, &traind__v1__launcher_stop__descriptor);
    say_message(out, &seen, &traind__v1__launcher_store_set__descriptor);
    say_message(out, &seen, &traind__v1__launcher_store_want__descriptor);
    say_message(out, &seen, &traind__v1__launcher_store_done__descriptor);
    say_message(out, &seen, &traind__v1__launcher_store_value__descriptor);
    say_message(out, &seen, &traind__v1__launcher_store_again__descriptor);
    say_message(out, &seen, &traind__v1__launcher_gpus__descriptor);
    assert_ok(td_buf_printf(out, "  store set %d, get %d, header %d\n", TD_STORE_SET, TD_STORE_GET,
                            TD_STORE_HEADER));
    print_page(out);
    print_events(out);
}

static void print_ranks(struct td_buf *out) {
    static const struct place record[] = {
        PLACE(td_wire_record, magic),   PLACE(td_wire_record, family),
        PLACE(td_wire_record, port),    PLACE(td_wire_record, first_rank),
        PLACE(td_wire_record, n_ranks), PLACE(td_wire_record, address),
        PLACE(td_wire_record, token),
    };
    static const struct place greeting[] = {
        PLACE(td_wire_greeting, magic),
        PLACE(td_wire_greeting, from),
        PLACE(td_wire_greeting, to),
        PLACE(td_wire_greeting, token),
    };
    static const struct place frame[] = {
        PLACE(td_wire_frame, number),
        PLACE(td_wire_frame, call),
        PLACE(td_wire_frame, data),
    };
    static const struct place call[] = {
        PLACE(td_between_call, kind),   PLACE(td_between_call, dtype),  PLACE(td_between_call, op),
        PLACE(td_between_call, is_cut), PLACE(td_between_call, detail), PLACE(td_between_call, n),
        PLACE(td_between_call, tag),
    };
    char key[TD_WIRE_KEY_BYTES];
    td_wire_key(3, 0, 2, key);
    assert_ok(td_buf_printf(out, "  key %s\n", key));
    td_wire_key(3, 1, 2, key);
    assert_ok(td_buf_printf(out, "  key %s\n  magic %s %s\n", key, td_wire_record_magic,
                            td_wire_greeting_magic));
    PRINT_PLACES(out, td_wire_record, record);
    PRINT_PLACES(out, td_wire_greeting, greeting);
    PRINT_PLACES(out, td_wire_frame, frame);
    PRINT_PLACES(out, td_between_call, call);
    assert_ok(td_buf_printf(out, "  kinds %d %d %d %d %d %d %d %d %d %d %d of %d\n",
                            TD_BETWEEN_ALL_REDUCE, TD_BETWEEN_BUCKET, TD_BETWEEN_ALL_GATHER,
                            TD_BETWEEN_BROADCAST, TD_BETWEEN_BARRIER, TD_BETWEEN_REDUCE,
                            TD_BETWEEN_REDUCE_SCATTER, TD_BETWEEN_GATHER, TD_BETWEEN_SCATTER,
                            TD_BETWEEN_ALL_GATHER_UNEVEN, TD_BETWEEN_ALL_TO_ALL, TD_BETWEEN_KINDS));
}

static void print_nodes(struct td_buf *out) {
    struct seen seen = {.n = 0};
    say_message(out, &seen, &traind__v1__node_message__descriptor);
    say_message(out, &seen, &traind__v1__coordinator_message__descriptor);
    say_message(out, &seen, &traind__v1__shard_chunk__descriptor);
    say_message(out, &seen, &traind__v1__log_chunk__descriptor);
    say_message(out, &seen, &traind__v1__put_reply__descriptor);
    say_message(out, &seen, &traind__v1__join_request__descriptor);
    say_message(out, &seen, &traind__v1__renew_request__descriptor);
    say_message(out, &seen, &traind__v1__join_response__descriptor);
}

static const struct language {
    const char *name, *number; // number: what is raised, and where
    void (*print)(struct td_buf *out);
    int value, minor; // minor: -1: it has none
} languages[] = {
    {"launchers",
     "TD_LAUNCHER_MINOR (older readers go on) or TD_LAUNCHER_MAJOR (they do not) in "
     "lib/attempt/segments.h",
     print_launchers, TD_LAUNCHER_MAJOR, TD_LAUNCHER_MINOR},
    {"ranks", "TD_RANKS_LANGUAGE in lib/attempt/languages.h", print_ranks, TD_RANKS_LANGUAGE, -1},
    {"nodes", "TD_NODES_LANGUAGE in lib/attempt/languages.h", print_nodes, TD_NODES_LANGUAGE, -1},
};

// "== ranks 1\n"; its text ends where the next one begins.
static void print_head(const struct language *l, char out[64]) {
    if (l->minor < 0) snprintf(out, 64, "== %s %d\n", l->name, l->value);
    if (l->minor >= 0) snprintf(out, 64, "== %s %d.%d\n", l->name, l->value, l->minor);
}

static size_t section_bytes(const char *text) {
    const char *end = strstr(text, "\n== ");
    return end ? (size_t)(end + 1 - text) : strlen(text);
}

static void check_language(const struct language *l, const char *golden, struct td_buf *all) {
    char head[64], name[32];
    TD_AUTO_BUF now;
    td_buf_init(&now, TEXT_BYTES);
    print_head(l, head);
    snprintf(name, sizeof name, "== %s ", l->name);
    assert_ok(td_buf_str(&now, head));
    l->print(&now);
    const char *was = strstr(golden, name), *is = td_buf_cstr(&now);
    const size_t bytes = was ? section_bytes(was) : 0;
    const bool is_same = was && bytes == now.len && memcmp(was, is, bytes) == 0;
    if (!is_same && was && strncmp(was, head, strlen(head)) == 0) {
        size_t i = 0;
        while (i < bytes && was[i] == is[i]) {
            i++;
        }
        while (i > 0 && is[i - 1] != '\n') {
            i--;
        }
        fail_msg("what %s say to others has changed: raise %s, say there what the number means, "
                 "then write " GOLDEN " again (TD_GOLDEN_WRITE=1). It differs at: %.60s",
                 l->name, l->number, is + i);
    }
    assert_ok(td_buf_str(all, is));
}

static void test_number_is_another_when_something_else_is_said(void **state) {
    (void)state;
    TD_AUTO_BUF golden, now;
    td_buf_init(&golden, TEXT_BYTES);
    td_buf_init(&now, TEXT_BYTES);
    if (td_fs_exists(GOLDEN)) TD_CHECK(!td_fs_read(GOLDEN, TEXT_BYTES, &golden));
    for (size_t i = 0; i < TD_COUNTOF(languages); i++) {
        check_language(&languages[i], golden.len ? td_buf_cstr(&golden) : "", &now);
    }
    const bool is_same = golden.len == now.len && memcmp(golden.data, now.data, now.len) == 0;
    if (getenv("TD_GOLDEN_WRITE")) {
        assert_ok(td_fs_write(GOLDEN, now.data, now.len, 0644, 0));
    } else if (!is_same) {
        fail_msg("a number is another than in " GOLDEN ": write it again (TD_GOLDEN_WRITE=1)");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_number_is_another_when_something_else_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
