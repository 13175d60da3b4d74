// A ring under a lock. It is asked once a handshake, which costs a thousand times a search of it.

#include "lib/tls/revoked.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct td_tls_revoked {
    pthread_mutex_t *lock; // its own memory, so that asking may be const
    size_t n, next;        // the place of the next one
    char serials[TD_TLS_REVOKED_MAX][TD_TLS_SERIAL_BYTES];
};

td_status td_tls_revoked_create(struct td_tls_revoked **out_revoked) {
    TD_AUTO(td_tls_revoked) *self = td_calloc(1, sizeof *self);
    if (!self) return td_fail_oom();
    pthread_mutex_t *lock = td_calloc(1, sizeof *lock);
    if (!lock) return td_fail_oom();
    TD_CHECK(pthread_mutex_init(lock, NULL) == 0);
    self->lock = lock;
    *out_revoked = td_steal(self);
    return TD_OK;
}

void td_tls_revoked_destroy(struct td_tls_revoked *r) {
    if (!r) return;
    if (r->lock) pthread_mutex_destroy(r->lock);
    free(r->lock);
    free(r);
}

static bool has(const struct td_tls_revoked *r, const char *serial) {
    for (size_t i = 0; i < r->n; i++) {
        if (strcmp(r->serials[i], serial) == 0) return true;
    }
    return false;
}

void td_tls_revoked_add(struct td_tls_revoked *r, const char *serial) {
    if (!*serial) return;
    pthread_mutex_lock(r->lock);
    if (!has(r, serial)) {
        snprintf(r->serials[r->next], TD_TLS_SERIAL_BYTES, "%s", serial);
        r->next = (r->next + 1) % TD_TLS_REVOKED_MAX;
        if (r->n < TD_TLS_REVOKED_MAX) r->n++;
    }
    pthread_mutex_unlock(r->lock);
}

bool td_tls_revoked_has(const struct td_tls_revoked *r, const char *serial) {
    pthread_mutex_lock(r->lock);
    bool found = has(r, serial);
    pthread_mutex_unlock(r->lock);
    return found;
}
