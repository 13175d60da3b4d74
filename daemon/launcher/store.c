// See the header. The static buffer serves all ranks: there is one thread.

#include "daemon/launcher/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/files/files.h"

enum { MESSAGES_A_DRAIN = 64 };

// Marks of an item.
enum {
    OWN = 1 << 0,    // a rank of this node set it
    SURE = 1 << 1,   // no other value of it can be
    SAID = 1 << 2,   // to the daemon
    FLYING = 1 << 3, // and there is no answer yet
};

static uint8_t message[TD_STORE_MESSAGE_MAX + 1];

// ---- life ---------------------------------------------------------------------------------------
td_status td_launch_store_init(struct td_launch_store *s, int32_t n_ranks, bool alone) {
    *s = (struct td_launch_store){.alone = alone};
    TD_TRY(td_store_table_init(&s->table));
    s->calls = td_calloc((size_t)n_ranks, sizeof *s->calls);
    s->own = td_calloc(TD_STORE_KEYS_MAX, sizeof(*s->own));
    if (!s->calls || !s->own) return td_fail_oom();
    for (s->n_ranks = 0; s->n_ranks < n_ranks; s->n_ranks++) {
        s->calls[s->n_ranks].fd = -1;
    }
    return TD_OK;
}

void td_launch_store_finish(struct td_launch_store *s) {
    for (int32_t i = 0; i < s->n_ranks; i++) {
        td_auto_close(&s->calls[i].fd);
    }
    td_store_table_finish(&s->table);
    free(s->calls);
    free(s->own);
    *s = (struct td_launch_store){0};
}

td_status td_launch_store_connect(struct td_launch_store *s, int32_t idx, int *out_theirs) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a socket for the rendezvous store");
    }
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK); // our end only
    s->calls[idx].fd = fds[0];
    *out_theirs = fds[1];
    return TD_OK;
}

// ---- answers ------------------------------------------------------------------------------------
static void answer(struct td_launch_store_call *c, uint32_t id, enum td_code code, const void *data,
                   size_t bytes) {
    static uint8_t out[TD_STORE_HEADER + TD_STORE_VALUE_MAX];
    const struct td_store_answer a = {.id = id, .code = code, .data = data, .bytes = bytes};
    if (c->fd < 0) return;
    (void)send(c->fd, out, td_store_answer_write(&a, out), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void refuse(struct td_launch_store_call *c, uint32_t id, enum td_code code,
                   const char *why) {
    answer(c, id, code, why, strlen(why));
}

static void refuse_status(struct td_launch_store_call *c, uint32_t id, td_status take_why) {
    refuse(c, id, td_status_code(take_why), td_status_message(take_why));
    td_status_free(take_why);
}

static void answer_sure(struct td_launch_store_call *c, const struct td_store_item *item) {
    const bool get = c->call == TD_STORE_GET;
    c->waits = false;
    answer(c, c->id, TD_CODE_OK, item->data, get ? item->bytes : 0);
}

// item cannot change any more: whoever waits for it has waited long enough.
static void settle(struct td_launch_store *s, struct td_store_item *item) {
    item->marks |= SURE;
    for (int32_t i = 0; i < s->n_ranks; i++) {
        struct td_launch_store_call *c = &s->calls[i];
        if (c->waits && strcmp(c->key, item->key) == 0) answer_sure(c, item);
    }
}

static void fail_calls(struct td_launch_store *s, const char *key, enum td_code code,
                       const char *why) {
    for (int32_t i = 0; i < s->n_ranks; i++) {
        struct td_launch_store_call *c = &s->calls[i];
        if (!c->waits || (key && strcmp(c->key, key) != 0)) continue;
        c->waits = false;
        refuse(c, c->id, code, why);
    }
}

static const char over_text[] = "the rendezvous store is closed: the attempt is over";

void td_launch_store_end(struct td_launch_store *s) {
    s->over = true;
    fail_calls(s, NULL, TD_ABORTED, over_text);
}

// ---- calls --------------------------------------------------------------------------------------
static void start_set(struct td_launch_store *s, struct td_launch_store_call *c,
                      const struct td_store_request *r) {
    struct td_store_item *item;
    td_status failed = td_store_table_set(&s->table, r->key, r->data, r->bytes, &item);
    if (failed) {
        c->waits = false;
        refuse_status(c, c->id, failed);
        return;
    }
    if (!item->marks) { // new
        item->marks = OWN;
        s->own[s->n_own++] = item;
    }
    if (s->alone) {
        settle(s, item);
    } else if (item->marks & SURE) {
        answer_sure(c, item);
    }
}

static void start_get(struct td_launch_store *s, struct td_launch_store_call *c) {
    const struct td_store_item *item = td_store_table_get(&s->table, c->key);
    if (item && (item->marks & SURE)) answer_sure(c, item);
}

static void take_request(struct td_launch_store *s, struct td_launch_store_call *c, size_t bytes) {
    uint32_t id;
    struct td_store_request r;
    td_status bad = td_store_request_read(message, bytes, &id, &r);
    c->waits = false;
    if (bad) {
        refuse_status(c, id, bad);
        return;
    }
    if (s->over) {
        refuse(c, id, TD_ABORTED, over_text);
        return;
    }
    c->waits = true;
    c->said = false;
    c->id = id;
    c->call = r.call;
    memcpy(c->key, r.key, sizeof c->key);
    if (r.call == TD_STORE_SET) {
        start_set(s, c, &r);
    } else {
        start_get(s, c);
    }
}

bool td_launch_store_drain(struct td_launch_store *s, int32_t idx) {
    struct td_launch_store_call *c = &s->calls[idx];
    for (int i = 0; i < MESSAGES_A_DRAIN && c->fd >= 0; i++) {
        const ssize_t n = recv(c->fd, message, sizeof message, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (n == 0 && !td_fd_has_ended(c->fd)) continue;
        if (n > 0) {
            take_request(s, c, (size_t)n);
            continue;
        }
        close(c->fd); // it closed it, or is gone
        c->fd = -1;
        c->waits = false;
    }
    return c->fd >= 0;
}

// ---- the daemon ---------------------------------------------------------------------------------
static bool next_set(struct td_launch_store *s, struct td_launch_store_news *out_news) {
    while (s->unsaid < s->n_own && (s->own[s->unsaid]->marks & SAID)) {
        s->unsaid++;
    }
    if (s->unsaid == s->n_own || s->n_flying >= TD_STORE_FLYING) return false;
    struct td_store_item *item = s->own[s->unsaid++];
    item->marks |= SAID | FLYING;
    s->n_flying++;
    *out_news = (struct td_launch_store_news){.key = item->key, .item = item};
    return true;
}

static bool next_get(struct td_launch_store *s, struct td_launch_store_news *out_news) {
    for (int32_t i = 0; i < s->n_ranks; i++) {
        struct td_launch_store_call *c = &s->calls[i];
        if (!c->waits || c->said || c->call != TD_STORE_GET) continue;
        if (td_store_table_get(&s->table, c->key)) continue; // its own answer comes
        c->said = true;
        *out_news = (struct td_launch_store_news){.key = c->key};
        return true;
    }
    return false;
}

bool td_launch_store_next(struct td_launch_store *s, struct td_launch_store_news *out_news) {
    if (s->alone || s->over) return false;
    return next_set(s, out_news) || next_get(s, out_news);
}

void td_launch_store_again(struct td_launch_store *s, bool all) {
    for (size_t i = 0; i < s->n_own; i++) {
        struct td_store_item *item = s->own[i];
        if (all || (item->marks & FLYING)) item->marks &= ~(unsigned)(SAID | FLYING);
    }
    for (int32_t i = 0; i < s->n_ranks; i++) {
        s->calls[i].said = false;
    }
    s->n_flying = s->unsaid = 0;
}

static void disown(struct td_launch_store *s, const struct td_store_item *item) {
    for (size_t i = 0; i < s->n_own; i++) {
        if (s->own[i] != item) continue;
        memmove(&s->own[i], &s->own[i + 1], (--s->n_own - i) * sizeof(*s->own));
        s->unsaid = TD_MIN(s->unsaid, i);
        return;
    }
}

void td_launch_store_done(struct td_launch_store *s, const char *key, enum td_code code,
                          const char *why) {
    struct td_store_item *item = td_store_table_get(&s->table, key);
    if (item && (item->marks & FLYING)) {
        item->marks &= ~(unsigned)FLYING;
        s->n_flying--;
    }
    if (code == TD_CODE_OK) {
        if (item && (item->marks & OWN)) settle(s, item);
        return;
    }
    if (item && (item->marks & OWN)) {
        disown(s, item);
        td_store_table_remove(&s->table, key);
    }
    fail_calls(s, key, code, why);
}

void td_launch_store_value(struct td_launch_store *s, const char *key, const void *data,
                           size_t bytes) {
    struct td_store_item *item = td_store_table_get(&s->table, key);
    if (item || s->over) return; // seen before, or its own answer comes
    td_status failed = td_store_check_key(key);
    if (!failed) failed = td_store_table_set(&s->table, key, data, bytes, &item);
    if (failed) {
        fail_calls(s, key, td_status_code(failed), td_status_message(failed));
        td_status_free(failed);
        return;
    }
    settle(s, item);
}
