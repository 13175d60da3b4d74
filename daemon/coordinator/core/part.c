// See the header.

#include "daemon/coordinator/core/part.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return td_buf_printf(out, ",\"slots\":%u,\"events\":%" PRId64 ",\"forgotten\":%d}", p->slots,
                         (int64_t)p->events, p->forgotten);
}

td_status td_attempt_part_decode(const struct td_json *v, struct td_attempt_part *p) {
    const char *devices = td_json_string(td_json_get(v, "devices"), "");
    const int64_t slots = td_json_int(td_json_get(v, "slots"), 0);
    snprintf(p->node, sizeof p->node, "%s", td_json_string(td_json_get(v, "node"), ""));
    p->slots = slots < 0 ? 0 : slots > UINT32_MAX ? UINT32_MAX : (uint32_t)slots;
    p->events = (uint64_t)td_json_int(td_json_get(v, "events"), 0);
    p->forgotten = td_json_int(td_json_get(v, "forgotten"), 0) != 0;
    if (devices[0] && !(p->devices = td_strdup(devices))) return td_fail_oom();
    return TD_OK;
}
