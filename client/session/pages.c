// Members are found by name in the messages' descriptors, as json.c does, so that every listing
// shares this. Bound: TD_MAX_PAGES pages; what is left over has a token, and is reported on stderr.

#include "client/session/pages.h"

#include <stdio.h>
#include <string.h>

#include "client/screen/print.h"

static void *member(const ProtobufCMessage *m, const char *name, bool count) {
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, name);
    TD_CHECK(f != NULL);
    return (char *)td_unconst(m) + (count ? f->quantifier_offset : f->offset);
}

static td_status take_page(struct td_pages *p, const ProtobufCMessage *answer, const char *items) {
    size_t n = *(const size_t *)member(answer, items, true);
    void *const *item = *(void *const *const *)member(answer, items, false);
    void **more = td_realloc(p->item, (p->n_items + n + 1) * sizeof *more);
    if (!more) return td_fail_oom();
    p->item = more;
    if (n) memcpy(p->item + p->n_items, item, n * sizeof *item);
    p->n_items += n;
    const char *next = *(const char *const *)member(answer, "next_page_token", false);
    snprintf(p->next, sizeof p->next, "%s", next);
    return TD_OK;
}

static td_status ask(struct td_session *s, const char *method, const ProtobufCMessage *request,
                     const ProtobufCMessageDescriptor *response_type, int64_t timeout_ns,
                     struct td_rpc_message **out_page) {
    if (!timeout_ns) return td_session_call(s, method, request, response_type, out_page);
    TD_TRY(td_session_open(s));
    return td_rpc_unary_wait(s->channel, method, request, response_type, timeout_ns, out_page);
}

td_status td_pages_read(struct td_session *s, const char *method, ProtobufCMessage *request,
                        const ProtobufCMessageDescriptor *response_type, const char *items,
                        struct td_pages *p) {
    uint32_t *const page_size = member(request, "page_size", false);
    *(char **)member(request, "page_token", false) = p->next;
    do {
        const size_t left = p->limit ? p->limit - p->n_items : TD_PAGE_ITEMS;
        *page_size = (uint32_t)TD_MIN(left, (size_t)TD_PAGE_ITEMS);
        TD_TRY(ask(s, method, request, response_type, p->timeout_ns, &p->page[p->n]));
        TD_TRY(take_page(p, td_rpc_message_get(p->page[p->n++]), items));
    } while (p->next[0] && p->n < TD_MAX_PAGES && (!p->limit || p->n_items < p->limit));
    if (p->next[0] && !p->quiet) {
        td_print(stderr, "trainctl: only the first %zu are shown%s\n", p->n_items,
                 p->limit ? "; --limit 0 shows all" : "");
    }
    return TD_OK;
}

void td_pages_fill(const struct td_pages *p, ProtobufCMessage *all, const char *items) {
    *(void ***)member(all, items, false) = p->item;
    *(size_t *)member(all, items, true) = p->n_items;
    *(const char **)member(all, "next_page_token", false) = p->next;
}

td_status td_pages_print(struct td_session *s, const struct td_pages *p, enum td_output output,
                         ProtobufCMessage *all, const char *items, const char *name) {
    if (output == TD_OUTPUT_JSON) {
        td_pages_fill(p, all, items);
        return td_session_print_json(s, all);
    }
    for (size_t i = 0; i < p->n_items; i++) {
        if (output == TD_OUTPUT_NAME) {
            td_print(stdout, "%s\n", *(char **)member(p->item[i], name, false));
        } else {
            TD_TRY(td_session_print_json(s, p->item[i]));
        }
    }
    return TD_OK;
}

void td_pages_finish(struct td_pages *p) {
    for (size_t i = 0; i < p->n; i++) {
        td_rpc_message_destroy(p->page[i]);
    }
    free(p->item);
}
