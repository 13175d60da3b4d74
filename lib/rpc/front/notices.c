// A text is exchanged for the one that nobody has taken yet, so that neither thread waits.

#include "lib/rpc/front/notices.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "lib/base/clock.h"
#include "lib/loop/loop.h"

enum { td_notices_magic = 0x74646e6f };
static const int64_t notice_every_ns = 5 * TD_NS_PER_S;

struct waiting_notice {
    _Atomic(char *) text;
    _Atomic uint32_t n; // since the last one that was given
    _Atomic uint32_t total;
    int64_t given_ns; // the front's
};

struct td_notices {
    uint32_t magic;
    struct td_loop_wakeup *wake;
    void (*on_notice)(const char *text, void *ctx);
    void *ctx;
    struct waiting_notice kinds[TD_N_NOTICES];
};

void td_notify_home(struct td_notices *n, enum td_notice kind, const char *fmt, ...) {
    struct waiting_notice *w = &n->kinds[kind];
    atomic_fetch_add_explicit(&w->n, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->total, 1, memory_order_relaxed);
    int64_t now = td_mono_now().ns;
    // A change each, so none is left out because another was just given.
    bool rare = kind == TD_NOTICE_CERTIFICATES || kind == TD_NOTICE_CERTIFICATE_ENDS;
    if (!rare && w->given_ns && now - w->given_ns < notice_every_ns) return;
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    w->given_ns = now;
    free(atomic_exchange_explicit(&w->text, td_strdup(text), memory_order_acq_rel));
    td_loop_wakeup_send(n->wake);
}

static void on_wake(void *arg) {
    struct td_notices *n = TD_CAST(td_notices, arg);
    for (int kind = 0; kind < TD_N_NOTICES; kind++) {
        struct waiting_notice *w = &n->kinds[kind];
        char *text = atomic_exchange_explicit(&w->text, NULL, memory_order_acq_rel);
        if (!text) continue;
        uint32_t count = atomic_exchange_explicit(&w->n, 0, memory_order_relaxed);
        char line[480];
        snprintf(line, sizeof line, count > 1 ? "%s (%" PRIu32 " of these)" : "%s", text, count);
        free(text);
        n->on_notice(line, n->ctx);
    }
}

td_status td_notices_create(struct td_loop *home, void (*on_notice)(const char *text, void *ctx),
                            void *ctx, struct td_notices **out_notices) {
    TD_AUTO(td_notices) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    self->magic = td_notices_magic;
    self->on_notice = on_notice;
    self->ctx = ctx;
    TD_TRY(td_loop_wakeup_create(home, on_wake, self, &self->wake));
    *out_notices = td_steal(self);
    return TD_OK;
}

void td_notices_destroy(struct td_notices *n) {
    if (!n) return;
    td_loop_wakeup_destroy(n->wake);
    for (int kind = 0; kind < TD_N_NOTICES; kind++) {
        free(atomic_load(&n->kinds[kind].text));
    }
    n->magic = 0;
    free(n);
}

uint32_t td_notices_total(const struct td_notices *n, enum td_notice kind) {
    return atomic_load_explicit(&n->kinds[kind].total, memory_order_relaxed);
}
