#ifndef TRAIND_LIB_BASE_FILES_STATE_DIR_H
#define TRAIND_LIB_BASE_FILES_STATE_DIR_H

// Where daemon and client find each other: the state directory, by one rule for both.
// The callers read the environment (their config.c); here is only the rule. Pure, any thread.

#include "lib/base/base.h"

// own (a flag, or TRAIND_STATE_DIR) > xdg/traind > /var/lib/traind for root > home/.local/state/
// traind. NULL and "" are absent. INVALID_ARGUMENT when nothing is given or the path is too long.
TD_MUST_USE td_status td_state_dir_default(const char *own, const char *xdg_state_home,
                                           const char *home, bool is_root, char *out,
                                           size_t out_bytes);

#endif
