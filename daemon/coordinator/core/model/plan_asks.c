// See the header.

#include "daemon/coordinator/core/model/plan_asks.h"

#include <string.h>

#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/model.h"

void td_plan_ask_destroy(struct td_plan_ask *ask) {
    if (!ask) return;
    free(ask->labels);
    free(ask->spec_json);
    free(ask->late);
    free(ask->unread);
    free(ask);
}

void td_plan_asks_unused(struct td_core *core, const char *digest) {
    for (uint32_t i = 0; i < core->n_asks; i++) {
        if (strcmp(core->asks[i]->digest, digest) != 0) continue;
        core->asks[i]->maybe_unused = true;
        td_core_wake_at(core, core->now.mono);
    }
}
