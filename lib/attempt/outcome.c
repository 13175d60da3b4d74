// See the header. One table for writers and readers.

#include "lib/attempt/outcome.h"

#include <string.h>

#include "lib/base/base.h"

static const char *const names[] = {
    [TD_OUTCOME_NONE] = "",           [TD_OUTCOME_DONE] = "done",
    [TD_OUTCOME_STOPPED] = "stopped", [TD_OUTCOME_KILLED] = "killed",
    [TD_OUTCOME_FAILED] = "failed",
};
_Static_assert(TD_COUNTOF(names) == TD_OUTCOME_COUNT, "one name per outcome");

const char *td_outcome_name(enum td_outcome outcome) {
    return names[outcome];
}

enum td_outcome td_outcome_parse(const char *name) {
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        if (strcmp(names[i], name) == 0) return (enum td_outcome)i;
    }
    return TD_OUTCOME_NONE;
}
