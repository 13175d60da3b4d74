// See the header.

#include "daemon/coordinator/core/requests.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/model.h"

static const int64_t request_keep_ns = INT64_C(24) * 3600 * TD_NS_PER_S;

td_status td_requests_find(struct td_core *core, const struct td_core_create_job *request,
                           const struct td_job **out_job) {
    *out_job = NULL;
    if (!request->request_id[0]) return TD_OK;
    struct td_request *r = td_map_get(core->requests, request->request_id);
    if (!r || core->now.real.ns - r->time_ns > request_keep_ns) return TD_OK;
    if (strcmp(r->digest, request->digest) != 0) {
        return td_status_with_reason(
            td_fail(TD_INVALID_ARGUMENT,
                    "request_id %s was used for another request; take a fresh one",
                    request->request_id),
            "REQUEST_ID_REUSED");
    }
    *out_job = td_core_job(core, r->job);
    return TD_OK;
}

void td_requests_forget(struct td_core *core) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->requests, &cursor, &key, &value)) { // oldest first
        struct td_request *r = value;
        if (core->now.real.ns - r->time_ns < request_keep_ns) return;
        td_core_record(core, TD_RECORD_REQUEST, key, NULL);
        td_map_remove(core->requests, key);
        free(r);
    }
}

// The oldest goes when the memory is full: 20000 in a day.
void td_requests_keep(struct td_core *core, const struct td_core_create_job *request) {
    if (!request->request_id[0]) return;
    size_t cursor = 0;
    const char *key;
    void *value, *old = NULL;
    if (td_map_count(core->requests) == TD_CORE_MAX_REQUESTS &&
        td_map_next(core->requests, &cursor, &key, &value)) {
        td_core_record(core, TD_RECORD_REQUEST, key, NULL);
        td_map_remove(core->requests, key);
        free(value);
    }
    struct td_request *r = td_core_must(td_calloc(1, sizeof *r));
    snprintf(r->job, sizeof r->job, "%s", request->id);
    snprintf(r->digest, sizeof r->digest, "%s", request->digest);
    r->time_ns = core->now.real.ns;
    TD_CHECK(!td_map_put(core->requests, request->request_id, r, &old));
    free(old);
    char body[160];
    snprintf(body, sizeof body, "{\"job\":\"%s\",\"digest\":\"%s\",\"time_ns\":%" PRId64 "}",
             r->job, r->digest, r->time_ns);
    td_core_record(core, TD_RECORD_REQUEST, request->request_id, body);
}
