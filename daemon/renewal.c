// One timer, one call at a time. A failure is tried again after a tenth of the life, between a
// second and a minute: a coordinator that was away for long finds a node that still asks.

#include "daemon/renewal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"
#include "lib/rpc/client.h"
#include "lib/tls/certificate.h"
#include "traind/v1/node.pb-c.h"

enum { td_renewal_magic = 0x5444524e, EARLY_S = 3600 }; // "TDRN"
static const int64_t patience_ns = 15 * TD_NS_PER_S;

struct td_renewal {
    uint32_t magic;
    struct td_rpc_channel *channel;
    struct td_join_files files;
    char node_id[64];
    int64_t life_ns; // of the certificate in use
    struct td_loop_timer *timer;
    struct td_rpc_stream *call; // NULL: none is open
    bool closing;
    bool complained;
};

static void free_self(struct td_renewal *r) {
    td_loop_timer_destroy(r->timer);
    r->magic = 0;
    free(r);
}

static td_status read_certificate(const struct td_renewal *r, struct td_certificate *out) {
    TD_AUTO_BUF pem;
    td_buf_init(&pem, TD_TLS_PEM_MAX);
    TD_TRY_CTX(td_fs_read(r->files.certificate, TD_TLS_PEM_MAX, &pem), "the node's certificate");
    return td_certificate_read(td_buf_cstr(&pem), out);
}

static td_status take(struct td_renewal *r, const Traind__V1__JoinResponse *m) {
    struct td_certificate c;
    TD_TRY(td_certificate_read(m->certificate, &c));
    TD_TRY(td_fs_write(r->files.certificate, m->certificate, strlen(m->certificate), 0600,
                       TD_FS_WRITE_DURABLE));
    TD_TRY(td_rpc_channel_reload(r->channel));
    r->life_ns = (int64_t)TD_MIN(m->lifetime_s, (uint64_t)INT32_MAX) * TD_NS_PER_S;
    td_loop_timer_arm(r->timer, TD_MAX(r->life_ns / 3 * 2, TD_NS_PER_S));
    td_log_info("certificate renewed serial=%s lifetime_s=%" PRIu64, c.serial, m->lifetime_s);
    return TD_OK;
}

static void later(struct td_renewal *r, td_status take_why) {
    int64_t pause_ns = TD_MIN(TD_MAX(r->life_ns / 10, TD_NS_PER_S), 60 * TD_NS_PER_S);
    if (r->complained) {
        td_status_log(TD_LOG_DEBUG, take_why, "certificate not renewed, trying again");
    } else {
        td_status_log(TD_LOG_WARN, take_why, "certificate not renewed, trying again");
    }
    r->complained = true;
    td_loop_timer_arm(r->timer, pause_ns);
}

static void on_answer(td_status take_status, const ProtobufCMessage *response, void *arg) {
    struct td_renewal *r = TD_CAST(td_renewal, arg);
    r->call = NULL;
    if (r->closing) {
        td_status_free(take_status);
        free_self(r);
        return;
    }
    if (!take_status) take_status = take(r, (const Traind__V1__JoinResponse *)response);
    if (take_status) {
        later(r, take_status);
    } else {
        r->complained = false;
    }
}

static td_status ask(struct td_renewal *r) {
    TD_AUTO_BUF csr;
    td_buf_init(&csr, TD_TLS_PEM_MAX);
    TD_TRY(td_join_request(&r->files, r->node_id, &csr));
    Traind__V1__RenewRequest request = TRAIND__V1__RENEW_REQUEST__INIT;
    request.request = td_unconst(td_buf_cstr(&csr));
    return td_rpc_unary(r->channel, "/traind.v1.NodeService/Renew", &request.base,
                        &traind__v1__join_response__descriptor, patience_ns, on_answer, r,
                        &r->call);
}

static void on_timer(void *arg) {
    struct td_renewal *r = TD_CAST(td_renewal, arg);
    td_status failed = ask(r);
    if (failed) later(r, failed);
}

td_status td_renewal_create(struct td_loop *loop, struct td_rpc_channel *channel,
                            const struct td_join_files *files, const char *node_id,
                            struct td_renewal **out_renewal) {
    TD_AUTO(td_renewal) *self = td_calloc(1, sizeof *self);
    struct td_certificate c;
    if (!self) return td_fail_oom();
    self->magic = td_renewal_magic;
    self->channel = channel;
    self->files = *files;
    snprintf(self->node_id, sizeof self->node_id, "%s", node_id);
    TD_TRY(read_certificate(self, &c));
    TD_TRY(td_loop_timer_create(loop, on_timer, self, &self->timer));
    // It begins an hour before it was given (authority.h).
    int64_t life_s = TD_MAX(c.valid_until_s - c.valid_from_s - EARLY_S, 1);
    self->life_ns = life_s * TD_NS_PER_S;
    int64_t left_s = c.left_s - life_s / 3;
    td_loop_timer_arm(self->timer, left_s > 0 ? TD_MIN(left_s, life_s) * TD_NS_PER_S : 0);
    *out_renewal = td_steal(self);
    return TD_OK;
}

void td_renewal_destroy(struct td_renewal *r) {
    if (!r) return;
    if (!r->call) {
        free_self(r);
        return;
    }
    r->closing = true;
    td_loop_timer_destroy(td_steal(r->timer));
    td_rpc_stream_cancel(r->call); // on_answer frees, at the latest when the channel goes
}
