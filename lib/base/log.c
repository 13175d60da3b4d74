// Log lines: formatted on the stack, escaped, written with one write(2).
//
// The context of the thread goes last and always fits: the message is what gets cut. No lock and
// no heap, so a line can be written from any thread at any time, out of memory included. A line
// that the descriptor does not take is dropped: a log must never block or fail its process.
// Rejected: stdio (its buffer splits lines of several processes, its lock survives no fork).

#include "lib/base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/printable.h"

enum { LINE_MAX_BYTES = 2048, CONTEXT_PAIRS = 8, KEY_BYTES = 32, VALUE_BYTES = 64 };

static const char *const level_names[] = {
    [TD_LOG_ERROR] = "error",
    [TD_LOG_WARN] = "warn",
    [TD_LOG_INFO] = "info",
    [TD_LOG_DEBUG] = "debug",
};

// syslog's numbers, as journald reads them.
static const char *const priorities[] = {
    [TD_LOG_ERROR] = "<3>",
    [TD_LOG_WARN] = "<4>",
    [TD_LOG_INFO] = "<6>",
    [TD_LOG_DEBUG] = "<7>",
};

static _Atomic int max_level = TD_LOG_INFO;
static _Atomic bool for_journal;

static _Thread_local struct {
    char key[KEY_BYTES]; // "": free
    char value[VALUE_BYTES];
} context[CONTEXT_PAIRS];

void td_log_set_level(enum td_log_level level) {
    atomic_store(&max_level, (int)level);
}

void td_log_for_journal(bool is_journal) {
    atomic_store(&for_journal, is_journal);
}

td_status td_log_level_parse(const char *text, enum td_log_level *out_level) {
    for (size_t i = 0; i < TD_COUNTOF(level_names); i++) {
        if (strcmp(level_names[i], text) == 0) {
            *out_level = (enum td_log_level)i;
            return TD_OK;
        }
    }
    return td_fail(TD_INVALID_ARGUMENT, "log level '%s' is none of error, warn, info, debug", text);
}

void td_log_context(const char *key, const char *value) {
    size_t slot = CONTEXT_PAIRS;
    for (size_t i = CONTEXT_PAIRS; i-- > 0;) {
        if (strncmp(context[i].key, key, KEY_BYTES - 1) == 0) {
            slot = i;
            break;
        }
        if (context[i].key[0] == '\0') slot = i;
    }
    if (slot == CONTEXT_PAIRS) return;
    if (!value) {
        if (context[slot].key[0] == '\0') return;
        size_t after = CONTEXT_PAIRS - slot - 1; // later pairs move up: the order is that of adding
        memmove(&context[slot], &context[slot + 1], after * sizeof context[0]);
        memset(&context[CONTEXT_PAIRS - 1], 0, sizeof context[0]);
        return;
    }
    snprintf(context[slot].key, KEY_BYTES, "%s", key);
    snprintf(context[slot].value, VALUE_BYTES, "%s", value);
}

// Appends text, control characters escaped, as far as it fits; returns the new length. An escape
// is never cut in half.
static size_t put_escaped(char *out, size_t len, size_t cap, const char *text, bool quoted) {
    size_t bytes = strlen(text), shown = 0;
    for (const char *p = text; *p; p += TD_MAX(shown, (size_t)1)) {
        unsigned char c = (unsigned char)*p;
        char piece[8];
        shown = td_printable_bytes(p, bytes - (size_t)(p - text));
        if (c == '\n') {
            snprintf(piece, sizeof piece, "\\n");
        } else if (shown == 0) {
            snprintf(piece, sizeof piece, "\\x%02x", c);
        } else if (quoted && (c == '"' || c == '\\')) {
            snprintf(piece, sizeof piece, "\\%c", c);
        } else {
            snprintf(piece, sizeof piece, "%.*s", (int)shown, p);
        }
        size_t n = strlen(piece);
        if (n > cap - len) break;
        memcpy(out + len, piece, n);
        len += n;
    }
    return len;
}

// " key=value ..." of this thread; values with blanks, quotes or '=' are quoted.
static size_t put_context(char *out, size_t cap) {
    size_t len = 0;
    for (size_t i = 0; i < CONTEXT_PAIRS && context[i].key[0]; i++) {
        const char *value = context[i].value;
        bool quoted = value[0] == '\0' || strpbrk(value, " \t\n\"=\\") != NULL;
        len = put_escaped(out, len, cap, " ", false);
        len = put_escaped(out, len, cap, context[i].key, false);
        len = put_escaped(out, len, cap, quoted ? "=\"" : "=", false);
        len = put_escaped(out, len, cap, value, quoted);
        len = put_escaped(out, len, cap, quoted ? "\"" : "", false);
    }
    return len;
}

void td_log_line(enum td_log_level level, const char *fmt, ...) {
    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed)) return;
    char message[LINE_MAX_BYTES], tail[LINE_MAX_BYTES / 2], line[LINE_MAX_BYTES], now[32];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(message, sizeof message, fmt, ap) < 0) message[0] = '\0';
    va_end(ap);
    td_real_format(td_real_now(), now, sizeof now);
    size_t n_tail = put_context(tail, sizeof tail);
    size_t cap = sizeof line - n_tail - 1;
    const char *priority = atomic_load(&for_journal) ? priorities[level] : "";
    size_t len = put_escaped(line, 0, cap, priority, false);
    len = put_escaped(line, len, cap, now, false);
    len = put_escaped(line, len, cap, " ", false);
    len = put_escaped(line, len, cap, level_names[level], false);
    len = put_escaped(line, len, cap, " ", false);
    len = put_escaped(line, len, cap, message, false);
    memcpy(line + len, tail, n_tail);
    len += n_tail;
    line[len++] = '\n';
    if (write(STDERR_FILENO, line, len) < 0) { /* dropped, as the header says */
    }
}

void td_status_log(enum td_log_level level, td_status s, const char *what) {
    if (!s) return;
    const char *reason = td_status_reason(s);
    enum td_class cls = td_status_class(s);
    td_log_line(level, "%s: %s code=%s%s%s%s%s", what, td_status_message(s),
                td_code_name(td_status_code(s)), reason[0] ? " reason=" : "", reason,
                cls ? " class=" : "", cls ? td_class_name(cls) : "");
    td_status_free(s);
}

void td_log_cpu_gap(const char *gap) {
    if (*gap) td_log_warn("%s, continuing", gap);
}
