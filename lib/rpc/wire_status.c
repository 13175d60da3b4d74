// Packing and unpacking of google.rpc.Status.
//
// Encoding shrinks in steps until it fits. It packs everything, and as long as that is too much it
// leaves out the last violation and says how many are missing, then metadata. The failure class
// travels as metadata `class`, because ErrorInfo has no place for it. Decoding treats the server as
// a stranger too: bounded memory, UTF-8 checked, nonsense ignored.

#include "lib/rpc/wire_status.h"

#include <stdio.h>
#include <string.h>

#include "google/protobuf/any.pb-c.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "lib/rpc/codec.h"

enum { MAX_META = 18, MAX_FIELDS = 64, FULL_MESSAGE_BYTES = 2048 };

static const char info_url[] = "type.googleapis.com/google.rpc.ErrorInfo";
static const char fields_url[] = "type.googleapis.com/google.rpc.BadRequest";

typedef Google__Rpc__ErrorInfo__MetadataEntry meta_entry;
typedef Google__Rpc__BadRequest__FieldViolation violation;

// Cuts at a character boundary of UTF-8.
static void copy_cut(const char *text, char *out, size_t out_bytes) {
    size_t n = strnlen(text, out_bytes);
    if (n == out_bytes) {
        n = out_bytes - 1;
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80) {
            n--;
        }
    }
    memcpy(out, text, n);
    out[n] = 0;
}

struct info {
    Google__Rpc__ErrorInfo base;
    meta_entry entry[MAX_META];
    meta_entry *entries[MAX_META];
};

static void add_meta(struct info *info, const char *key, const char *value) {
    if (!value || info->base.n_metadata == MAX_META) return;
    size_t i = info->base.n_metadata++;
    info->entry[i] = (meta_entry)GOOGLE__RPC__ERROR_INFO__METADATA_ENTRY__INIT;
    info->entry[i].key = td_unconst(key);
    info->entry[i].value = td_unconst(value);
    info->entries[i] = &info->entry[i];
}

static void fill_info(td_status s, const char *request_id, struct info *info) {
    info->base = (Google__Rpc__ErrorInfo)GOOGLE__RPC__ERROR_INFO__INIT;
    info->base.metadata = info->entries;
    const char *reason = td_status_reason(s);
    info->base.reason = td_unconst(reason[0] ? reason : td_code_name(td_status_code(s)));
    info->base.domain = td_unconst("traind");
    add_meta(info, "request_id", request_id);
    if (td_status_class(s) != TD_CLASS_NONE) {
        add_meta(info, "class", td_class_name(td_status_class(s)));
    }
    for (size_t i = 0; i < td_status_n_meta(s); i++) {
        const char *key, *value;
        td_status_meta(s, i, &key, &value);
        add_meta(info, key, value);
    }
}

struct fields {
    Google__Rpc__BadRequest base;
    violation item[MAX_FIELDS + 1];
    violation *items[MAX_FIELDS + 1];
    char more[64];
};

// The first n_kept violations, and one that counts the rest.
static void fill_fields(td_status s, size_t n_kept, struct fields *f) {
    size_t n_all = TD_MIN(td_status_n_fields(s), (size_t)MAX_FIELDS);
    f->base = (Google__Rpc__BadRequest)GOOGLE__RPC__BAD_REQUEST__INIT;
    f->base.field_violations = f->items;
    for (size_t i = 0; i < n_kept + (n_kept < n_all); i++) {
        const char *path = "", *text = f->more;
        if (i < n_kept) td_status_field(s, i, &path, &text);
        f->item[i] = (violation)GOOGLE__RPC__BAD_REQUEST__FIELD_VIOLATION__INIT;
        f->item[i].field = td_unconst(path);
        f->item[i].description = td_unconst(text);
        f->items[i] = &f->item[i];
        f->base.n_field_violations++;
    }
    snprintf(f->more, sizeof f->more, "and %zu more", n_all - n_kept);
}

static bool pack_any(const char *url, const ProtobufCMessage *m, Google__Protobuf__Any *out_any) {
    *out_any = (Google__Protobuf__Any)GOOGLE__PROTOBUF__ANY__INIT;
    out_any->type_url = td_unconst(url);
    size_t bytes = protobuf_c_message_get_packed_size(m);
    uint8_t *data = td_calloc(1, bytes ? bytes : 1);
    if (!data) return false;
    protobuf_c_message_pack(m, data);
    out_any->value = (ProtobufCBinaryData){bytes, data};
    return true;
}

// False: no memory. *out_fits: it was small enough to keep.
static bool try_pack(td_status s, const struct info *info, const struct fields *fields,
                     struct td_wire_status *w, bool *out_fits) {
    char message[FULL_MESSAGE_BYTES + 1];
    copy_cut(td_status_message(s), message, sizeof message);
    Google__Protobuf__Any any[2];
    Google__Protobuf__Any *anys[2] = {&any[0], &any[1]};
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    status.code = (int32_t)td_status_code(s);
    status.message = message;
    status.details = anys;
    if (!pack_any(info_url, &info->base.base, &any[0])) return false;
    status.n_details = 1;
    bool ok = true;
    if (fields->base.n_field_violations) {
        ok = pack_any(fields_url, &fields->base.base, &any[1]);
        status.n_details += ok;
    }
    w->details_bytes = protobuf_c_message_get_packed_size(&status.base);
    *out_fits = w->details_bytes <= TD_WIRE_DETAILS_BYTES;
    if (ok && *out_fits) {
        w->details = td_calloc(1, w->details_bytes);
        ok = w->details;
        if (ok) protobuf_c_message_pack(&status.base, w->details);
    }
    for (size_t i = 0; i < status.n_details; i++) {
        free(any[i].value.data);
    }
    return ok;
}

static void pack_details(td_status s, const char *request_id, struct td_wire_status *w) {
    struct info info;
    struct fields fields;
    fill_info(s, request_id, &info);
    size_t n_kept = TD_MIN(td_status_n_fields(s), (size_t)MAX_FIELDS);
    for (;;) {
        bool fits;
        fill_fields(s, n_kept, &fields);
        if (!try_pack(s, &info, &fields, w, &fits) || fits) return;
        if (n_kept) {
            n_kept--;
        } else if (info.base.n_metadata > 1) {
            info.base.n_metadata--;
        } else {
            return;
        }
    }
}

void td_wire_status_encode(td_status take_status, const char *request_id,
                           struct td_wire_status *out_wire) {
    struct td_wire_status w = {.code = td_status_code(take_status)};
    if (take_status) {
        copy_cut(td_status_message(take_status), w.message, sizeof w.message);
        pack_details(take_status, request_id, &w);
        if (!w.details) w.details_bytes = 0;
    }
    td_status_free(take_status);
    *out_wire = w;
}

void td_wire_status_finish(struct td_wire_status *w) {
    free(w->details);
    w->details = NULL;
}

// ---- back -------------------------------------------------------------------------------------

static td_status add_info(td_status s, const Google__Protobuf__Any *any) {
    TD_AUTO(td_rpc_message) *m = NULL;
    td_status bad = td_rpc_message_decode(&google__rpc__error_info__descriptor, any->value.data,
                                          any->value.len, &m);
    if (bad) {
        td_status_free(bad);
        return s;
    }
    const Google__Rpc__ErrorInfo *info = (const void *)td_rpc_message_get(m);
    s = td_status_with_reason(s, info->reason);
    for (size_t i = 0; i < info->n_metadata; i++) {
        const meta_entry *e = info->metadata[i];
        if (strcmp(e->key, "class") == 0) {
            s = td_status_with_class(s, td_class_parse(e->value));
        } else {
            s = td_status_with_meta(s, e->key, "%s", e->value);
        }
    }
    return s;
}

static td_status add_fields(td_status s, const Google__Protobuf__Any *any) {
    TD_AUTO(td_rpc_message) *m = NULL;
    td_status bad = td_rpc_message_decode(&google__rpc__bad_request__descriptor, any->value.data,
                                          any->value.len, &m);
    if (bad) {
        td_status_free(bad);
        return s;
    }
    const Google__Rpc__BadRequest *fields = (const void *)td_rpc_message_get(m);
    for (size_t i = 0; i < fields->n_field_violations; i++) {
        const violation *v = fields->field_violations[i];
        s = td_status_with_field(s, v->field, "%s", v->description);
    }
    return s;
}

td_status td_wire_status_decode(int code, struct td_str message, struct td_str details) {
    if (code == TD_CODE_OK) return TD_OK;
    if (code < 0 || code > TD_UNAUTHENTICATED) code = TD_UNKNOWN;
    TD_AUTO(td_rpc_message) *m = NULL;
    td_status bad = details.len ? td_rpc_message_decode(&google__rpc__status__descriptor,
                                                        details.data, details.len, &m)
                                : TD_OK;
    if (bad || !m) {
        td_status_free(bad);
        return td_fail((enum td_code)code, "%.*s", (int)TD_MIN(message.len, 4096u), message.data);
    }
    const Google__Rpc__Status *status = (const void *)td_rpc_message_get(m);
    td_status s = td_fail((enum td_code)code, "%s", status->message);
    for (size_t i = 0; i < status->n_details; i++) {
        const Google__Protobuf__Any *any = status->details[i];
        if (strcmp(any->type_url, info_url) == 0) s = add_info(s, any);
        if (strcmp(any->type_url, fields_url) == 0) s = add_fields(s, any);
    }
    return s;
}
