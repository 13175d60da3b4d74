// See the header.

#include "engine/graph/options.h"

#include "lib/base/base.h"

static const char *const names[] = {"none", "selective", "full"};

const char *td_recompute_name(enum td_recompute r) {
    return (unsigned)r < TD_COUNTOF(names) ? names[r] : "unknown";
}
