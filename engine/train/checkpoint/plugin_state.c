// Parts in memory and in a file. A list of some thousand parts is searched from its beginning: it
// happens once a resume.

#include "engine/train/checkpoint/plugin_state.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/checkpoint/safetensors.h"
#include "traind/strategy.h"

void td_plugin_state_init(struct td_plugin_state *s) {
    td_buf_init(&s->parts, TD_PLUGIN_STATE_PARTS * sizeof(struct td_plugin_part));
    td_buf_init(&s->bytes, TD_PLUGIN_STATE_MAX_BYTES);
}

void td_plugin_state_finish(struct td_plugin_state *s) {
    td_buf_finish(&s->parts);
    td_buf_finish(&s->bytes);
}

void td_plugin_state_clear(struct td_plugin_state *s) {
    td_buf_clear(&s->parts);
    td_buf_clear(&s->bytes);
}

size_t td_plugin_state_count(const struct td_plugin_state *s) {
    return s->parts.len / sizeof(struct td_plugin_part);
}

struct td_plugin_part td_plugin_state_at(const struct td_plugin_state *s, size_t i) {
    struct td_plugin_part part;
    memcpy(&part, s->parts.data + i * sizeof part, sizeof part);
    return part;
}

td_status td_plugin_state_add(struct td_plugin_state *s, const char *name, const void *data,
                              size_t bytes) {
    struct td_plugin_part part = {.bytes = bytes};
    if ((size_t)snprintf(part.name, sizeof part.name, "%s", name) >= sizeof part.name) {
        return td_fail(TD_INVALID_ARGUMENT, "'%s' is too long for the name of a plugin's state",
                       name);
    }
    TD_TRY_CTX(td_buf_reserve(&s->bytes, bytes), "state of '%s'", name);
    TD_TRY_CTX(td_buf_append(&s->parts, &part, sizeof part), "state of '%s'", name);
    return td_buf_append(&s->bytes, data, bytes);
}

bool td_plugin_state_find(const struct td_plugin_state *s, const char *name,
                          struct td_span *out_bytes) {
    size_t at = 0;
    for (size_t i = 0; i < td_plugin_state_count(s); i++) {
        struct td_plugin_part part = td_plugin_state_at(s, i);
        if (strcmp(part.name, name) == 0) {
            *out_bytes = (struct td_span){s->bytes.data + at, part.bytes};
            return true;
        }
        at += part.bytes;
    }
    return false;
}

// ---- the file -----------------------------------------------------------------------------------

td_status td_plugin_state_print(const struct td_plugin_state *s, struct td_buf *out) {
    size_t n = td_plugin_state_count(s);
    TD_AUTO_FREE struct td_tensor *tensors = td_calloc(n + 1, sizeof *tensors);
    TD_AUTO_FREE struct td_plugin_part *parts = td_calloc(n + 1, sizeof *parts);
    if (!tensors || !parts) return td_fail_oom();
    for (size_t i = 0; i < n; i++) {
        parts[i] = td_plugin_state_at(s, i);
        tensors[i] = (struct td_tensor){
            .name = parts[i].name,
            .dtype = TD_U8,
            .shape = {1, {(int64_t)parts[i].bytes}},
            .bytes = parts[i].bytes,
        };
    }
    TD_AUTO_BUF head;
    td_buf_init(&head, TD_SAFETENSORS_HEADER_MAX);
    TD_TRY(td_safetensors_head(tensors, n, &head));
    TD_TRY(td_buf_append(out, head.data, head.len));
    return td_buf_append(out, s->bytes.data, s->bytes.len);
}

td_status td_plugin_state_read(const char *path, struct td_plugin_state *s) {
    TD_AUTO(td_safetensors) *file = NULL;
    TD_TRY(td_safetensors_open(path, &file));
    for (size_t i = 0; i < td_safetensors_count(file); i++) {
        const struct td_tensor *t = td_safetensors_at(file, i);
        td_status bad = TD_OK;
        if (t->foreign || t->dtype != TD_U8) {
            bad = td_fail(TD_DATA_LOSS, "'%s' is not of bytes", t->name);
        }
        if (!bad) bad = td_plugin_state_add(s, t->name, t->data, t->bytes);
        if (!bad) continue;
        bad = td_status_context(bad, "plugins' state '%s'", path);
        return td_status_class(bad) == TD_CLASS_NONE ? td_status_with_class(bad, TD_CLASS_DATA)
                                                     : bad;
    }
    return TD_OK;
}
