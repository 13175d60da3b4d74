// See the header.

#include "daemon/coordinator/core/nodes/node_labels.h"

#include <string.h>

#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/nodes/node_admin.h"
#include "daemon/coordinator/core/plans/plans.h"
#include "lib/job/labels.h"

// *io_labels after all changes; the caller frees it, also after a failure.
static td_status apply(char **io_labels, char *const *changes, size_t n_changes) {
    for (size_t i = 0; i < n_changes; i++) {
        char *next = NULL;
        TD_TRY(td_labels_change(*io_labels, changes[i], &next));
        free(*io_labels);
        *io_labels = next;
    }
    return TD_OK;
}

td_status td_node_labels_change(struct td_core *core, struct td_host *n, char *const *changes,
                                size_t n_changes) {
    if (!n_changes || n_changes > TD_NODE_LABEL_CHANGES) {
        td_status s = td_fail(TD_INVALID_ARGUMENT, "%zu changes of labels, from 1 to %d are taken",
                              n_changes, TD_NODE_LABEL_CHANGES);
        return td_status_with_reason(s, "LABEL_INVALID");
    }
    TD_AUTO_FREE char *labels = n->labels ? td_core_dup(n->labels) : NULL;
    TD_TRY(apply(&labels, changes, n_changes));
    if (strcmp(labels ? labels : "", n->labels ? n->labels : "") == 0) return TD_OK;
    free(n->labels);
    n->labels = td_steal(labels);
    td_core_log(core, "node is labelled node=%s labels=%s", n->name, n->labels ? n->labels : "-");
    td_node_admin_save(core, n);
    td_plans_tick(core); // a question that no node could be asked
    core->queue_dirty = true;
    return TD_OK;
}
