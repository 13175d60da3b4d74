// See the header.

#include "daemon/coordinator/core/model/specs.h"

#include <malloc.h>

#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/model.h"

enum { TRIM_BYTES = 16 << 20 };

static const char *owner_of(const struct td_job *j) {
    return j->owner ? j->owner : "";
}

static struct td_spec_share *share_of(struct td_core *core, const char *owner) {
    struct td_spec_share *share = td_map_get(core->spec_shares, owner);
    if (share) return share;
    share = td_core_must(td_calloc(1, sizeof *share));
    TD_CHECK(!td_map_put(core->spec_shares, owner, share, NULL));
    return share;
}

static void count(struct td_core *core, const struct td_job *j) {
    struct td_spec_share *share = share_of(core, owner_of(j));
    share->n_jobs++;
    share->bytes += td_spec_text_kept(&j->spec);
    core->spec_bytes += td_spec_text_kept(&j->spec);
}

static void uncount(struct td_core *core, const struct td_job *j) {
    struct td_spec_share *share = share_of(core, owner_of(j));
    share->n_jobs--;
    share->bytes -= td_spec_text_kept(&j->spec);
    core->spec_bytes -= td_spec_text_kept(&j->spec);
    if (!share->n_jobs) free(td_map_remove(core->spec_shares, owner_of(j)));
}

static void pack(struct td_core *core, struct td_job *j) {
    const size_t before = td_spec_text_kept(&j->spec);
    td_spec_text_pack(&j->spec);
    free(td_steal(j->plan_spec)); // nothing plans it again
    const size_t freed_bytes = before - td_spec_text_kept(&j->spec);
    if (freed_bytes) share_of(core, owner_of(j))->bytes -= freed_bytes;
    core->spec_bytes -= freed_bytes;
    core->spec_bytes_freed += freed_bytes;
}

// The heap keeps what is freed between other blocks: it is given back now and then.
static void trim(struct td_core *core) {
    if (core->spec_bytes_freed < TRIM_BYTES) return;
    core->spec_bytes_freed = 0;
    (void)malloc_trim(0);
}

static double mib(uint64_t bytes) {
    return (double)bytes / (1 << 20);
}

td_status td_specs_check(const struct td_core *core, const struct td_core_create_job *request) {
    const struct td_spec_share *share =
        request->shares ? td_map_get(core->spec_shares, request->owner) : NULL;
    const uint64_t bytes = strlen(request->spec_json);
    if (share && share->bytes + bytes > TD_SPECS_SHARE_BYTES) {
        return td_status_with_reason(
            td_fail(TD_RESOURCE_EXHAUSTED,
                    "the specs of jobs of '%s' take %.1f MiB, and one submitter has %.0f MiB; "
                    "delete some of the jobs",
                    request->owner, mib(share->bytes), mib(TD_SPECS_SHARE_BYTES)),
            "LIMIT_SPECS");
    }
    if (core->spec_bytes + bytes <= TD_SPECS_MAX_BYTES) return TD_OK;
    return td_status_with_reason(
        td_fail(TD_RESOURCE_EXHAUSTED,
                "the specs of all jobs take %.1f MiB, and there are %.0f MiB; delete some of the "
                "jobs",
                mib(core->spec_bytes), mib(TD_SPECS_MAX_BYTES)),
        "LIMIT_SPECS");
}

void td_specs_add(struct td_core *core, struct td_job *j) {
    count(core, j);
    if (td_job_state_ended(j->state)) pack(core, j);
}

void td_specs_start(struct td_core *core) {
    trim(core);
}

void td_specs_ended(struct td_core *core, struct td_job *j) {
    pack(core, j);
    trim(core);
}

void td_specs_remove(struct td_core *core, const struct td_job *j) {
    if (td_spec_text_is_set(&j->spec)) uncount(core, j);
}

void td_specs_finish(struct td_core *core) {
    void *value;
    for (size_t cursor = 0;
         core->spec_shares && (value = td_map_each(core->spec_shares, &cursor));) {
        free(value);
    }
    td_map_destroy(core->spec_shares);
}
