#ifndef TRAIND_STATUS_H
#define TRAIND_STATUS_H

// Status: how every function of traind that can fail says so.
//
// A td_status is one word. NULL is success, so the happy path is one compare. Anything else is an
// owned record with a code, a message, and a trail of context added on the way up. Codes have
// gRPC's numbers, so the wire mapping is the identity.
//
// A record also carries what the control plane needs to act: an UPPER_SNAKE reason, a failure class
// (which decides about restarts), and metadata pairs. With its list of field violations all errors
// of a job spec travel in one answer.
//
// A status is consumed exactly once: returned, freed, logged, or encoded at a boundary. Functions
// here never fail: when memory is gone they fall back to one static RESOURCE_EXHAUSTED record.
// Threads: a record belongs to one thread at a time; it may be handed over, never shared.
// Rejected: errno-style integers (no context) and long jumps (no ownership).

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TD_MUST_USE     __attribute__((warn_unused_result))
#define TD_PRINTF(f, a) __attribute__((format(printf, f, a)))

typedef struct td_status_record *td_status;
#define TD_OK ((td_status)0)

// gRPC's canonical codes; the numbers are the wire's.
enum td_code {
    TD_CODE_OK = 0,
    TD_CANCELLED = 1,
    TD_UNKNOWN = 2,
    TD_INVALID_ARGUMENT = 3,
    TD_DEADLINE_EXCEEDED = 4,
    TD_NOT_FOUND = 5,
    TD_ALREADY_EXISTS = 6,
    TD_PERMISSION_DENIED = 7,
    TD_RESOURCE_EXHAUSTED = 8,
    TD_FAILED_PRECONDITION = 9,
    TD_ABORTED = 10,
    TD_OUT_OF_RANGE = 11,
    TD_UNIMPLEMENTED = 12,
    TD_INTERNAL = 13,
    TD_UNAVAILABLE = 14,
    TD_DATA_LOSS = 15,
    TD_UNAUTHENTICATED = 16,
};

// Failure classes: what kind of thing went wrong with a job. They decide about restarts.
enum td_class {
    TD_CLASS_NONE = 0,
    TD_CLASS_BAD_SPEC,
    TD_CLASS_USER_CODE,
    TD_CLASS_DATA,
    TD_CLASS_NUMERIC,
    TD_CLASS_DEVICE,
    TD_CLASS_OUT_OF_MEMORY,
    TD_CLASS_NODE_LOST,
    TD_CLASS_COLLECTIVE,
    TD_CLASS_STUCK,
    TD_CLASS_PREEMPTED,
    TD_CLASS_DISK,
    TD_CLASS_INTERNAL,
    TD_CLASS_KILLED, // a process was, by somebody who is not traind
    TD_CLASS_COUNT,
};

// "INVALID_ARGUMENT" for TD_INVALID_ARGUMENT; "UNKNOWN" for a number outside the enum.
const char *td_code_name(enum td_code code);
// "data" for TD_CLASS_DATA; "none" for TD_CLASS_NONE. parse: TD_CLASS_NONE when unknown.
const char *td_class_name(enum td_class cls);
enum td_class td_class_parse(const char *name);

// Makes a new record. The message says what happened, where, and what to do.
TD_MUST_USE td_status td_fail(enum td_code code, const char *fmt, ...) TD_PRINTF(2, 3);
TD_MUST_USE td_status td_vfail(enum td_code code, const char *fmt, va_list ap) TD_PRINTF(2, 0);
// The same with ": <errno text>" appended; reads errno first thing.
TD_MUST_USE td_status td_fail_errno(enum td_code code, const char *fmt, ...) TD_PRINTF(2, 3);
// The static out-of-memory record (RESOURCE_EXHAUSTED, class out_of_memory). Freeing it is
// harmless.
TD_MUST_USE td_status td_fail_oom(void);

// INVALID_ARGUMENT of class bad_spec: a mistake of the job that a person can mend, never retried.
TD_MUST_USE td_status td_bad_spec(const char *fmt, ...) TD_PRINTF(1, 2);

// Adds an outer context: the message becomes "<context>: <message>". TD_OK stays TD_OK.
TD_MUST_USE td_status td_status_context(td_status s, const char *fmt, ...) TD_PRINTF(2, 3);

// Readers. All accept TD_OK (code 0, message "OK", reason "", class none).
// The strings die with the record.
enum td_code td_status_code(td_status s);
const char *td_status_message(td_status s);
const char *td_status_reason(td_status s);
enum td_class td_status_class(td_status s);

// Writers; each takes and returns the same record, so that they chain in a return statement.
// On the static out-of-memory record they do nothing.
TD_MUST_USE td_status td_status_with_reason(td_status s, const char *reason);
TD_MUST_USE td_status td_status_with_class(td_status s, enum td_class cls);
// Metadata: at most 16 pairs, later ones are dropped. Values are copied.
TD_MUST_USE td_status td_status_with_meta(td_status s, const char *key, const char *fmt, ...)
    TD_PRINTF(3, 4);
// Field violations: at most 64, later ones are counted in the last one's text.
TD_MUST_USE td_status td_status_with_field(td_status s, const char *path, const char *fmt, ...)
    TD_PRINTF(3, 4);

// Metadata and field violations; i is from 0 and below the count. The strings die with the record.
size_t td_status_n_meta(td_status s);
void td_status_meta(td_status s, size_t i, const char **out_key, const char **out_value);
size_t td_status_n_fields(td_status s);
void td_status_field(td_status s, size_t i, const char **out_path, const char **out_text);

// Frees the record; TD_OK is accepted. The log variants write one line first.
void td_status_free(td_status s);

#define TD_TRY(expr)                                                                               \
    do {                                                                                           \
        td_status td_try_status_ = (expr);                                                         \
        if (td_try_status_) return td_try_status_;                                                 \
    } while (0)

#define TD_TRY_CTX(expr, ...)                                                                      \
    do {                                                                                           \
        td_status td_try_status_ = (expr);                                                         \
        if (td_try_status_) return td_status_context(td_try_status_, __VA_ARGS__);                 \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
