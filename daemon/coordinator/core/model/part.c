// See the header.

#include "daemon/coordinator/core/model/part.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {"assigned", "started", "ended", "fenced"};
_Static_assert(TD_COUNTOF(state_names) == TD_ATTEMPT_STATE_COUNT, "one name per state");

const char *td_attempt_state_name(enum td_attempt_state s) {
    TD_CHECK((unsigned)s < TD_ATTEMPT_STATE_COUNT);
    return state_names[s];
}

bool td_attempt_part_live(const struct td_attempt_part *p) {
    return p->state == TD_ATTEMPT_ASSIGNED || p->state == TD_ATTEMPT_STARTED;
}

bool td_attempt_part_over(const struct td_attempt_part *p) {
    return p->forgotten || p->state == TD_ATTEMPT_FENCED;
}

void td_attempt_part_finish(struct td_attempt_part *p) {
    free(p->devices);
    free(p->silent);
}

// ---- records ------------------------------------------------------------------------------------
td_status td_attempt_part_encode(const struct td_attempt_part *p, struct td_buf *out) {
    TD_TRY(td_buf_str(out, "{\"node\":"));
    TD_TRY(td_json_print_string(p->node, strlen(p->node), out));
    if (p->devices) {
        TD_TRY(td_buf_str(out, ",\"devices\":"));
        TD_TRY(td_json_print_string(p->devices, strlen(p->devices), out));
    }
    if (p->xid) {
        TD_TRY(td_buf_printf(out, ",\"xid\":%" PRIu32 ",\"xid_device\":\"%s\"", p->xid,
                             p->xid_device));
    }
    if (p->boundaries) TD_TRY(td_buf_printf(out, ",\"boundaries\":%d", p->boundaries));
    return td_buf_printf(
        out,
        ",\"state\":\"%s\",\"outcome\":%d,\"slots\":%u,\"events\":%" PRId64 ",\"forgotten\":%d}",
        td_attempt_state_name(p->state), p->outcome, p->slots, (int64_t)p->events, p->forgotten);
}

static td_status get_state(const struct td_json *v, struct td_attempt_part *p) {
    const char *name = td_json_string(td_json_get(v, "state"), "");
    const int64_t outcome = td_json_int(td_json_get(v, "outcome"), p->outcome);
    int s = 0;
    while (s < TD_ATTEMPT_STATE_COUNT && strcmp(state_names[s], name) != 0) {
        s++;
    }
    if ((name[0] && s == TD_ATTEMPT_STATE_COUNT) || outcome < 0 || outcome >= TD_OUTCOME_COUNT) {
        return td_fail(TD_DATA_LOSS,
                       "record of a part of an attempt: state '%.32s', outcome %" PRId64, name,
                       outcome);
    }
    if (name[0]) p->state = (enum td_attempt_state)s;
    p->outcome = (enum td_outcome)outcome;
    return TD_OK;
}

td_status td_attempt_part_decode(const struct td_json *v, struct td_attempt_part *p) {
    const char *devices = td_json_string(td_json_get(v, "devices"), "");
    const int64_t slots = td_json_int(td_json_get(v, "slots"), 0);
    TD_TRY(get_state(v, p));
    snprintf(p->node, sizeof p->node, "%s", td_json_string(td_json_get(v, "node"), ""));
    p->slots = slots < 0 ? 0 : slots > UINT32_MAX ? UINT32_MAX : (uint32_t)slots;
    const int64_t boundaries = td_json_int(td_json_get(v, "boundaries"), TD_BOUNDARIES_UNKNOWN);
    if (boundaries == TD_BOUNDARIES_NONE || boundaries == TD_BOUNDARIES_WRITTEN) {
        p->boundaries = (enum td_part_boundaries)boundaries;
    } else if (p->state != TD_ATTEMPT_ASSIGNED) {
        p->boundaries = TD_BOUNDARIES_NONE; // of an older build, whose first line was read
    }
    p->events = (uint64_t)td_json_int(td_json_get(v, "events"), 0);
    p->xid = (uint32_t)td_json_int(td_json_get(v, "xid"), 0);
    snprintf(p->xid_device, sizeof p->xid_device, "%s",
             td_json_string(td_json_get(v, "xid_device"), ""));
    if (!td_device_uuid_ok(p->xid_device)) p->xid = 0;
    p->forgotten = td_json_int(td_json_get(v, "forgotten"), 0) != 0;
    if (devices[0] && !(p->devices = td_strdup(devices))) return td_fail_oom();
    return TD_OK;
}
