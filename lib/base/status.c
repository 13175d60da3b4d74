// Status records: allocation, context trail, reason, class, metadata and field violations.
//
// A record owns all of its strings. Making or growing one may need memory that is gone. Then the
// static record `oom_record` takes its place (for a new one), or the addition is dropped (for an
// existing one), because an error about an error helps nobody. Everything is bounded: a message is
// cut at MESSAGE_MAX bytes, 16 metadata pairs, 64 field violations.
//
// Rejected: storing the context trail as a list, to be joined when read. Readers want one string,
// and failure paths are cold, so the text is joined as the status travels up.

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/base.h"
#include "lib/base/utf8.h"

enum { MESSAGE_MAX = 4096, META_MAX = 16, FIELDS_MAX = 64, REASON_MAX = 64 };

struct pair {
    char *key;
    char *text;
};

struct td_status_record {
    enum td_code code;
    enum td_class cls;
    char *message;
    char reason[REASON_MAX];
    struct pair *meta;
    size_t n_meta;
    struct pair *fields;
    size_t n_fields;
    size_t n_more_fields; // that came after the last one that fitted
    size_t last_text_len; // of the last field's text without the count of further ones
};

static char oom_message[] = "out of memory";
static struct td_status_record oom_record = {
    .code = TD_RESOURCE_EXHAUSTED,
    .cls = TD_CLASS_OUT_OF_MEMORY,
    .message = oom_message,
    .reason = "OUT_OF_MEMORY",
};

static const char *const code_names[] = {
    [TD_CODE_OK] = "OK",
    [TD_CANCELLED] = "CANCELLED",
    [TD_UNKNOWN] = "UNKNOWN",
    [TD_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
    [TD_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [TD_NOT_FOUND] = "NOT_FOUND",
    [TD_ALREADY_EXISTS] = "ALREADY_EXISTS",
    [TD_PERMISSION_DENIED] = "PERMISSION_DENIED",
    [TD_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
    [TD_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
    [TD_ABORTED] = "ABORTED",
    [TD_OUT_OF_RANGE] = "OUT_OF_RANGE",
    [TD_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [TD_INTERNAL] = "INTERNAL",
    [TD_UNAVAILABLE] = "UNAVAILABLE",
    [TD_DATA_LOSS] = "DATA_LOSS",
    [TD_UNAUTHENTICATED] = "UNAUTHENTICATED",
};
_Static_assert(TD_COUNTOF(code_names) == TD_UNAUTHENTICATED + 1, "one name per code");

static const char *const class_names[] = {
    [TD_CLASS_NONE] = "none",
    [TD_CLASS_BAD_SPEC] = "bad_spec",
    [TD_CLASS_USER_CODE] = "user_code",
    [TD_CLASS_DATA] = "data",
    [TD_CLASS_NUMERIC] = "numeric",
    [TD_CLASS_DEVICE] = "device",
    [TD_CLASS_OUT_OF_MEMORY] = "out_of_memory",
    [TD_CLASS_NODE_LOST] = "node_lost",
    [TD_CLASS_COLLECTIVE] = "collective",
    [TD_CLASS_STUCK] = "stuck",
    [TD_CLASS_PREEMPTED] = "preempted",
    [TD_CLASS_DISK] = "disk",
    [TD_CLASS_INTERNAL] = "internal",
    [TD_CLASS_KILLED] = "killed",
};
_Static_assert(TD_COUNTOF(class_names) == TD_CLASS_COUNT, "one name per class");

const char *td_code_name(enum td_code code) {
    return (size_t)code < TD_COUNTOF(code_names) ? code_names[code] : "UNKNOWN";
}

const char *td_class_name(enum td_class cls) {
    return (size_t)cls < TD_COUNTOF(class_names) ? class_names[cls] : "none";
}

enum td_class td_class_parse(const char *name) {
    for (size_t i = 0; name && i < TD_COUNTOF(class_names); i++) {
        if (strcmp(class_names[i], name) == 0) return (enum td_class)i;
    }
    return TD_CLASS_NONE;
}

// "<formatted><suffix>", cut at MESSAGE_MAX bytes; NULL when out of memory. Always UTF-8, because
// it travels in proto3 strings: a precision may have cut a character, a file's name be any bytes.
static char *format(const char *fmt, va_list ap, const char *suffix) TD_PRINTF(1, 0);
static char *format(const char *fmt, va_list ap, const char *suffix) {
    va_list again;
    va_copy(again, ap);
    int wanted = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    size_t body = wanted < 0 ? 0 : (size_t)wanted;
    size_t len = TD_MIN(body + strlen(suffix), (size_t)MESSAGE_MAX);
    char *text = td_calloc(len + 1, 1);
    if (!text) return NULL;
    vsnprintf(text, len + 1, fmt, ap);
    size_t have = TD_MIN(body, len);
    memcpy(text + have, suffix, len - have);
    td_utf8_scrub(text);
    return text;
}

// Takes message, which is NULL when memory ran out before.
static td_status make(enum td_code code, char *message) {
    TD_CHECK(code != TD_CODE_OK);
    struct td_status_record *s = message ? td_calloc(1, sizeof *s) : NULL;
    if (!s) {
        free(message);
        return &oom_record;
    }
    s->code = code;
    s->message = message;
    return s;
}

td_status td_vfail(enum td_code code, const char *fmt, va_list ap) {
    return make(code, format(fmt, ap, ""));
}

td_status td_fail(enum td_code code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    td_status s = td_vfail(code, fmt, ap);
    va_end(ap);
    return s;
}

td_status td_fail_errno(enum td_code code, const char *fmt, ...) {
    int err = errno;
    char text[128], suffix[136];
    snprintf(suffix, sizeof suffix, ": %s", strerror_r(err, text, sizeof text));
    va_list ap;
    va_start(ap, fmt);
    td_status s = make(code, format(fmt, ap, suffix));
    va_end(ap);
    return s;
}

td_status td_fail_oom(void) {
    return &oom_record;
}

td_status td_bad_spec(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    td_status s = td_vfail(TD_INVALID_ARGUMENT, fmt, ap);
    va_end(ap);
    return td_status_with_class(s, TD_CLASS_BAD_SPEC);
}

td_status td_status_context(td_status s, const char *fmt, ...) {
    if (!s || s == &oom_record) return s;
    TD_AUTO_FREE char *suffix = td_calloc(strlen(s->message) + 3, 1);
    if (!suffix) return s;
    memcpy(suffix, ": ", 2);
    memcpy(suffix + 2, s->message, strlen(s->message));
    va_list ap;
    va_start(ap, fmt);
    char *message = format(fmt, ap, suffix);
    va_end(ap);
    if (!message) return s;
    free(s->message);
    s->message = message;
    return s;
}

enum td_code td_status_code(td_status s) {
    return s ? s->code : TD_CODE_OK;
}

const char *td_status_message(td_status s) {
    return s ? s->message : "OK";
}

const char *td_status_reason(td_status s) {
    return s ? s->reason : "";
}

enum td_class td_status_class(td_status s) {
    return s ? s->cls : TD_CLASS_NONE;
}

td_status td_status_with_reason(td_status s, const char *reason) {
    if (s && s != &oom_record) snprintf(s->reason, sizeof s->reason, "%s", reason);
    return s;
}

td_status td_status_with_class(td_status s, enum td_class cls) {
    if (s && s != &oom_record) s->cls = cls;
    return s;
}

// Appends (copy of key, text) to a list of at most max pairs; takes text, NULL included.
static void append_pair(struct pair **list, size_t *n, size_t max, const char *key, char *text) {
    char *own_key = text && *n < max ? td_strdup(key) : NULL;
    struct pair *grown = own_key ? td_realloc(*list, (*n + 1) * sizeof **list) : NULL;
    if (!grown) {
        free(own_key);
        free(text);
        return;
    }
    *list = grown;
    grown[(*n)++] = (struct pair){own_key, text};
}

td_status td_status_with_meta(td_status s, const char *key, const char *fmt, ...) {
    if (!s || s == &oom_record || s->n_meta == META_MAX) return s;
    va_list ap;
    va_start(ap, fmt);
    append_pair(&s->meta, &s->n_meta, META_MAX, key, format(fmt, ap, ""));
    va_end(ap);
    return s;
}

// The last field's text ends in how many came after it.
static void count_field(struct td_status_record *s) {
    char suffix[48];
    s->n_more_fields++;
    int n = snprintf(suffix, sizeof suffix, " (and %zu more)", s->n_more_fields);
    struct pair *last = &s->fields[s->n_fields - 1];
    char *text = td_realloc(last->text, s->last_text_len + (size_t)n + 1);
    if (!text) return;
    memcpy(text + s->last_text_len, suffix, (size_t)n + 1);
    last->text = text;
}

td_status td_status_with_field(td_status s, const char *path, const char *fmt, ...) {
    if (!s || s == &oom_record) return s;
    if (s->n_fields == FIELDS_MAX) {
        count_field(s);
        return s;
    }
    size_t before = s->n_fields;
    va_list ap;
    va_start(ap, fmt);
    append_pair(&s->fields, &s->n_fields, FIELDS_MAX, path, format(fmt, ap, ""));
    va_end(ap);
    if (s->n_fields > before) s->last_text_len = strlen(s->fields[before].text);
    return s;
}

size_t td_status_n_meta(td_status s) {
    return s ? s->n_meta : 0;
}

void td_status_meta(td_status s, size_t i, const char **out_key, const char **out_value) {
    TD_CHECK(i < td_status_n_meta(s));
    *out_key = s->meta[i].key;
    *out_value = s->meta[i].text;
}

size_t td_status_n_fields(td_status s) {
    return s ? s->n_fields : 0;
}

void td_status_field(td_status s, size_t i, const char **out_path, const char **out_text) {
    TD_CHECK(i < td_status_n_fields(s));
    *out_path = s->fields[i].key;
    *out_text = s->fields[i].text;
}

static void free_pairs(struct pair *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(list[i].key);
        free(list[i].text);
    }
    free(list);
}

void td_status_free(td_status s) {
    if (!s || s == &oom_record) return;
    free(s->message);
    free_pairs(s->meta, s->n_meta);
    free_pairs(s->fields, s->n_fields);
    free(s);
}
