#ifndef TRAIND_CLIENT_SESSION_CONTEXTS_H
#define TRAIND_CLIENT_SESSION_CONTEXTS_H

// Contexts: coordinators that a person uses, by name: address, CA, and a token or a certificate.
// They are in one JSON file of mode 0600, because of the tokens; one that others can read is
// refused. It is replaced whole, under a lock. At most TD_CONTEXTS_MAX. Where the file is, config.h
// says.

#include "lib/base/base.h"

enum {
    TD_CONTEXTS_MAX = 100,
    TD_CONTEXT_NAME = 64,
    TD_CONTEXT_ADDRESS = 300,
    TD_CONTEXT_TEXT = 512
};

struct td_context {
    char name[TD_CONTEXT_NAME];
    char address[TD_CONTEXT_ADDRESS];
    char ca[TD_CONTEXT_TEXT]; // a file with the certificates that are trusted; "": none was named
    char token[TD_CONTEXT_TEXT]; // "": certificate and key are its credential
    char certificate[TD_CONTEXT_TEXT], key[TD_CONTEXT_TEXT]; // files
};

// The one in use. *out_any false: none is, or there is no file. FAILED_PRECONDITION: the file is
// not private, or no such file.
TD_MUST_USE td_status td_contexts_current(const char *path, struct td_context *out_context,
                                          bool *out_any);
// Adds it, or replaces the one of that name. Makes file and folder. INVALID_ARGUMENT: its name.
TD_MUST_USE td_status td_contexts_add(const char *path, const struct td_context *context);
// From now on it is the one in use; "-": none is. NOT_FOUND names those that there are.
TD_MUST_USE td_status td_contexts_use(const char *path, const char *name);
// Each in the order in which they were added; an error of fn ends it.
TD_MUST_USE td_status td_contexts_each(const char *path,
                                       td_status (*fn)(const struct td_context *context,
                                                       bool is_current, void *arg),
                                       void *arg);

#endif
