#ifndef TRAIND_LIB_ATTEMPT_STORE_MESSAGE_H
#define TRAIND_LIB_ATTEMPT_STORE_MESSAGE_H

// Store messages: what a rank and its launcher say to each other about the rendezvous store
// (traind/store.h), over a socket that keeps messages apart (SOCK_SEQPACKET).
//
//   request  u32 id | u8 call | u8 key bytes | u16 0    | key | value of a SET
//   answer   u32 id | u32 code                          | value, or the text of an error
//
// A rank has one request at a time. A further one takes the place of the one that waits, whose
// answer does not come any more or is skipped by its id. Numbers are in the machine's order: both
// sides are on one machine. All that is read is checked. Pure functions, any thread.

#include "lib/base/base.h"
#include "traind/store.h"

enum td_store_call { TD_STORE_SET = 1, TD_STORE_GET = 2 };
enum {
    TD_STORE_HEADER = 8,
    TD_STORE_MESSAGE_MAX = TD_STORE_HEADER + TD_STORE_KEY_MAX + TD_STORE_VALUE_MAX,
};

struct td_store_request {
    uint32_t id;
    enum td_store_call call;
    char key[TD_STORE_KEY_MAX + 1];
    const void *data; // (bytes) of a SET; borrowed
    size_t bytes;
};

// INVALID_ARGUMENT says what a key is.
TD_MUST_USE td_status td_store_check_key(const char *key);
// INVALID_ARGUMENT names the key and the bound.
TD_MUST_USE td_status td_store_check_value(const char *key, size_t bytes);

// The key was checked. Returns the bytes of the message; out has TD_STORE_MESSAGE_MAX.
size_t td_store_request_write(const struct td_store_request *r, void *out);
// INVALID_ARGUMENT; *out_id is set if the message has one, else 0. r->data is within the message.
TD_MUST_USE td_status td_store_request_read(const void *message, size_t bytes, uint32_t *out_id,
                                            struct td_store_request *out_request);

// An answer; code TD_CODE_OK has the value, any other the text of the error.
struct td_store_answer {
    uint32_t id;
    enum td_code code;
    const void *data; // (bytes); borrowed
    size_t bytes;     // at most TD_STORE_VALUE_MAX; more is cut
};
size_t td_store_answer_write(const struct td_store_answer *a, void *out);
// False: it is none.
bool td_store_answer_read(const void *message, size_t bytes, struct td_store_answer *out_answer);

#endif
