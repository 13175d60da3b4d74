// See the header.

#include "lib/rpc/front/front_tls.h"

#include <inttypes.h>

#include "lib/base/clock.h"
#include "lib/rpc/front/notices.h"
#include "lib/rpc/rpc.h"
#include "lib/tls/context.h"

enum {
    DAY_S = 86400,
    WARN_DAYS = TD_RPC_CERTIFICATE_WARN_S / DAY_S, // before the certificate ends
};

td_status td_front_tls_init(struct td_front_tls *t, const char *listen,
                            const struct td_tls_paths *paths, const struct td_tls_guests *guests) {
    if (paths) {
        TD_TRY(td_tls_context_create(TD_TLS_SERVER, paths, &t->context));
        if (guests) td_tls_context_set_guests(t->context, guests);
        return TD_OK;
    }
    return td_status_with_reason(
        td_fail(TD_FAILED_PRECONDITION,
                "address '%s' is not loopback: without TLS the token would "
                "cross the network in clear; give the server certificates, "
                "or listen on 127.0.0.1 or [::1]",
                listen),
        "ADDRESS_NOT_LOOPBACK");
}

void td_front_tls_finish(struct td_front_tls *t) {
    td_tls_context_destroy(t->context);
}

void td_front_tls_warn(struct td_front_tls *t, struct td_notices *notices) {
    int64_t left_s = t->context ? td_tls_context_left_s(t->context) : INT64_MAX;
    int64_t days = left_s < 0 ? -1 - -left_s / DAY_S : left_s / DAY_S;
    bool has_one = left_s != INT64_MAX;
    atomic_store(&t->until_s, has_one ? left_s + td_real_now().ns / TD_NS_PER_S : INT64_MAX);
    if (!has_one || days == t->told_days) return;
    t->told_days = days;
    if (days < 0) {
        td_notify_home(notices, TD_NOTICE_CERTIFICATE_ENDS,
                       "the certificate of this listener has ended, and nobody can connect: run "
                       "`traind init` again");
    } else if (days < WARN_DAYS) {
        td_notify_home(notices, TD_NOTICE_CERTIFICATE_ENDS,
                       "the certificate of this listener ends in %" PRId64
                       " days: run `traind init` again",
                       days);
    }
}

void td_front_tls_refresh(struct td_front_tls *t, struct td_notices *notices) {
    bool changed;
    td_status bad = td_tls_context_refresh(t->context, &changed);
    if (bad) {
        td_notify_home(notices, TD_NOTICE_CERTIFICATES,
                       "the new certificates cannot be used, the old ones stay in use: %s",
                       td_status_message(bad));
        td_status_free(bad);
    } else if (changed) {
        td_notify_home(notices, TD_NOTICE_CERTIFICATES,
                       "the certificates have changed, the new ones are in use");
    }
    td_front_tls_warn(t, notices);
}
