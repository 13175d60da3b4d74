// Through libyaml's emitter: maps in block form, lists of scalars in one line, text without quotes
// where it cannot be taken for anything else. Numbers have their JSON form, which is YAML. Lines
// are not folded, because people look for what they wrote. No part of reading: a program that only
// prints links this file alone.

#include "lib/spec/yaml_print.h"

#include <string.h>
#include <strings.h>

#include <yaml.h>

enum { NUMBER_BYTES = 64 };

struct printer {
    yaml_emitter_t emitter;
    struct td_buf *out;
    td_status failed; // of out
};

static int on_bytes(void *arg, unsigned char *data, size_t n) {
    struct printer *p = arg;
    p->failed = td_buf_append(p->out, data, n);
    return p->failed == NULL;
}

static td_status emit(struct printer *p, int is_made, yaml_event_t *event) {
    if (!is_made) return td_fail_oom();
    if (yaml_emitter_emit(&p->emitter, event)) return TD_OK;
    if (p->failed) return td_steal(p->failed);
    if (p->emitter.error == YAML_MEMORY_ERROR) return td_fail_oom();
    return td_fail(TD_INTERNAL, "YAML: %s", p->emitter.problem ? p->emitter.problem : "unknown");
}

static td_status scalar(struct printer *p, const char *text, size_t len,
                        yaml_scalar_style_t style) {
    yaml_event_t event;
    // libyaml reads it only
    yaml_char_t *bytes = td_unconst(text);
    return emit(
        p, yaml_scalar_event_initialize(&event, NULL, NULL, bytes, (int)len, true, true, style),
        &event);
}

// Could a reader take this for a number, null or a truth? Those of YAML 1.1 count, for other tools.
static bool looks_like_something(const struct td_str *s) {
    static const char *const words[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n"};
    for (size_t i = 0; i < TD_COUNTOF(words); i++) {
        if (strcasecmp(words[i], s->data) == 0) return true;
    }
    const char c = s->len ? s->data[0] : '0';
    return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '/' || c == '_');
}

static td_status print_string(struct printer *p, const struct td_str *s) {
    return scalar(p, s->data, s->len,
                  looks_like_something(s) ? YAML_SINGLE_QUOTED_SCALAR_STYLE
                                          : YAML_ANY_SCALAR_STYLE);
}

static td_status print_number(struct printer *p, const struct td_json *v) {
    TD_AUTO_BUF text;
    td_buf_init(&text, NUMBER_BYTES);
    TD_TRY(td_json_print(v, false, &text));
    return scalar(p, td_buf_cstr(&text), text.len, YAML_PLAIN_SCALAR_STYLE);
}

static td_status print_value(struct printer *p, const struct td_json *v);

static td_status print_list(struct printer *p, const struct td_json *v) {
    yaml_event_t event;
    bool is_flat = true;
    for (const struct td_json *c = v->first; c; c = c->next) {
        is_flat &= c->kind != TD_JSON_ARRAY && c->kind != TD_JSON_OBJECT;
    }
    const yaml_sequence_style_t style =
        is_flat ? YAML_FLOW_SEQUENCE_STYLE : YAML_BLOCK_SEQUENCE_STYLE;
    TD_TRY(emit(p, yaml_sequence_start_event_initialize(&event, NULL, NULL, true, style), &event));
    for (const struct td_json *c = v->first; c; c = c->next) {
        TD_TRY(print_value(p, c));
    }
    return emit(p, yaml_sequence_end_event_initialize(&event), &event);
}

static td_status print_map(struct printer *p, const struct td_json *v) {
    yaml_event_t event;
    const yaml_mapping_style_t style =
        v->first ? YAML_BLOCK_MAPPING_STYLE : YAML_FLOW_MAPPING_STYLE;
    TD_TRY(emit(p, yaml_mapping_start_event_initialize(&event, NULL, NULL, true, style), &event));
    for (const struct td_json *c = v->first; c; c = c->next) {
        TD_TRY(print_string(p, &(struct td_str){c->key, strlen(c->key)}));
        TD_TRY(print_value(p, c));
    }
    return emit(p, yaml_mapping_end_event_initialize(&event), &event);
}

static td_status print_value(struct printer *p, const struct td_json *v) {
    switch (v->kind) {
    case TD_JSON_STRING:
        return print_string(p, &v->u.string);
    case TD_JSON_ARRAY:
        return print_list(p, v);
    case TD_JSON_OBJECT:
        return print_map(p, v);
    case TD_JSON_NULL:
    case TD_JSON_BOOL:
    case TD_JSON_INT:
    case TD_JSON_REAL:
        break;
    }
    return print_number(p, v); // null and the truths are the same words
}

static td_status print_document(struct printer *p, const struct td_json *v) {
    yaml_event_t event;
    TD_TRY(emit(p, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING), &event));
    TD_TRY(emit(p, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, true), &event));
    TD_TRY(print_value(p, v));
    TD_TRY(emit(p, yaml_document_end_event_initialize(&event, true), &event));
    return emit(p, yaml_stream_end_event_initialize(&event), &event);
}

td_status td_yaml_print(const struct td_json *v, struct td_buf *out) {
    struct printer p = {.out = out};
    if (!yaml_emitter_initialize(&p.emitter)) return td_fail_oom();
    yaml_emitter_set_output(&p.emitter, on_bytes, &p);
    yaml_emitter_set_unicode(&p.emitter, true);
    yaml_emitter_set_width(&p.emitter, -1);
    td_status failed = print_document(&p, v);
    td_status_free(td_steal(p.failed));
    yaml_emitter_delete(&p.emitter);
    return failed;
}
