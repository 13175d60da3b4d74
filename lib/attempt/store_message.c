// See the header.

#include "lib/attempt/store_message.h"

#include <string.h>

static bool is_key_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
           c == '_' || c == '.' || c == '-';
}

td_status td_store_check_key(const char *key) {
    const size_t bytes = strnlen(key, TD_STORE_KEY_MAX + 1);
    bool ok = bytes > 0 && bytes <= TD_STORE_KEY_MAX;
    for (size_t i = 0; ok && i < bytes; i++) {
        ok = is_key_byte(key[i]);
    }
    if (ok) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT,
                   "a key of the rendezvous store has 1 to %d bytes of [A-Za-z0-9/_.-]",
                   TD_STORE_KEY_MAX);
}

td_status td_store_check_value(const char *key, size_t bytes) {
    if (bytes <= TD_STORE_VALUE_MAX) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT,
                   "key '%s' of the rendezvous store: a value of %zu bytes, at most %d can be", key,
                   bytes, TD_STORE_VALUE_MAX);
}

// ---- requests -----------------------------------------------------------------------------------
size_t td_store_request_write(const struct td_store_request *r, void *out) {
    uint8_t *at = out;
    const size_t key_bytes = strlen(r->key), bytes = r->call == TD_STORE_SET ? r->bytes : 0;
    TD_CHECK(key_bytes <= TD_STORE_KEY_MAX && bytes <= TD_STORE_VALUE_MAX);
    memset(at, 0, TD_STORE_HEADER);
    memcpy(at, &r->id, sizeof r->id);
    at[4] = (uint8_t)r->call;
    at[5] = (uint8_t)key_bytes;
    memcpy(at + TD_STORE_HEADER, r->key, key_bytes);
    if (bytes) memcpy(at + TD_STORE_HEADER + key_bytes, r->data, bytes);
    return TD_STORE_HEADER + key_bytes + bytes;
}

static td_status malformed(const char *what) {
    return td_fail(TD_INVALID_ARGUMENT,
                   "a request to the rendezvous store %s; the rank and its launcher come from "
                   "different builds",
                   what);
}

td_status td_store_request_read(const void *message, size_t bytes, uint32_t *out_id,
                                struct td_store_request *out_request) {
    const uint8_t *at = message;
    struct td_store_request r = {0};
    *out_id = 0;
    if (bytes < TD_STORE_HEADER) return malformed("is too short");
    memcpy(&r.id, at, sizeof r.id);
    *out_id = r.id;
    if (bytes > TD_STORE_MESSAGE_MAX) return malformed("is too long");
    if (at[4] != TD_STORE_SET && at[4] != TD_STORE_GET) return malformed("names no call");
    r.call = (enum td_store_call)at[4];
    const size_t key_bytes = at[5];
    if (key_bytes > TD_STORE_KEY_MAX || key_bytes > bytes - TD_STORE_HEADER) {
        return malformed("has a key that is cut");
    }
    memcpy(r.key, at + TD_STORE_HEADER, key_bytes);
    if (strlen(r.key) != key_bytes) return malformed("has a key with a NUL");
    TD_TRY(td_store_check_key(r.key));
    r.data = at + TD_STORE_HEADER + key_bytes;
    r.bytes = bytes - TD_STORE_HEADER - key_bytes;
    if (r.call == TD_STORE_GET && r.bytes) return malformed("to get a key has a value");
    TD_TRY(td_store_check_value(r.key, r.bytes));
    *out_request = r;
    return TD_OK;
}

// ---- answers ------------------------------------------------------------------------------------
size_t td_store_answer_write(const struct td_store_answer *a, void *out) {
    uint8_t *at = out;
    const uint32_t code = (uint32_t)a->code;
    const size_t bytes = TD_MIN(a->bytes, (size_t)TD_STORE_VALUE_MAX);
    memcpy(at, &a->id, sizeof a->id);
    memcpy(at + 4, &code, sizeof code);
    if (bytes) memcpy(at + TD_STORE_HEADER, a->data, bytes);
    return TD_STORE_HEADER + bytes;
}

bool td_store_answer_read(const void *message, size_t bytes, struct td_store_answer *out_answer) {
    const uint8_t *at = message;
    uint32_t code;
    if (bytes < TD_STORE_HEADER || bytes > TD_STORE_HEADER + TD_STORE_VALUE_MAX) return false;
    memcpy(&code, at + 4, sizeof code);
    if (code > TD_UNAUTHENTICATED) return false;
    struct td_store_answer a = {
        .code = (enum td_code)code, .data = at + TD_STORE_HEADER, .bytes = bytes - TD_STORE_HEADER};
    memcpy(&a.id, at, sizeof a.id);
    *out_answer = a;
    return true;
}
