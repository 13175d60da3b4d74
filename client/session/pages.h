#ifndef TRAIND_CLIENT_SESSION_PAGES_H
#define TRAIND_CLIENT_SESSION_PAGES_H

// A listing from its first page to its last, so that what is printed is one table or one JSON
// value, however many pages it took.

#include "client/session/session.h"

enum { TD_PAGE_ITEMS = 1000, TD_MAX_PAGES = 100 };

struct td_pages {
    struct td_rpc_message *page[TD_MAX_PAGES];
    size_t n;
    void **item; // the pages' messages, in order; they own them
    size_t n_items;
    size_t limit;       // no more items than these, if more than 0
    bool quiet;         // what is left out is not said
    int64_t timeout_ns; // of each page; 0: the session's
    char next[256];     // "" unless the limit or TD_MAX_PAGES left something out
};

// request has page_size and page_token (both are set here), its answer next_page_token and the
// repeated messages `items`. *p is zero, but for limit, quiet and timeout_ns; finish it in any
// case. What is left out is said on stderr.
TD_MUST_USE td_status td_pages_read(struct td_session *s, const char *method,
                                    ProtobufCMessage *request,
                                    const ProtobufCMessageDescriptor *response_type,
                                    const char *items, struct td_pages *p);
// Everything but a table. all: an empty answer, which json prints with all items in it; name: the
// text in each item that `-o name` prints.
TD_MUST_USE td_status td_pages_print(struct td_session *s, const struct td_pages *p,
                                     enum td_output output, ProtobufCMessage *all,
                                     const char *items, const char *name);
// The items and the next token, in an empty answer.
void td_pages_fill(const struct td_pages *p, ProtobufCMessage *all, const char *items);
void td_pages_finish(struct td_pages *p);

#endif
