// The rule by which a state directory is found. Daemon and client must agree to the letter, or a
// client says that no daemon runs while one does; hence one function and a test of its table.
// Relative paths stay as they are given: both sides run where the user typed, and the daemon makes
// its own absolute (daemon/config.c).
// Rejected: a search over several places; the first that exists depends on who ran what before.

#include "lib/base/files/state_dir.h"

#include <stdio.h>

static bool given(const char *s) {
    return s && *s;
}

td_status td_state_dir_default(const char *own, const char *xdg_state_home, const char *home,
                               bool is_root, char *out, size_t out_bytes) {
    int n;
    if (given(own)) {
        n = snprintf(out, out_bytes, "%s", own);
    } else if (given(xdg_state_home)) {
        n = snprintf(out, out_bytes, "%s/traind", xdg_state_home);
    } else if (is_root) {
        n = snprintf(out, out_bytes, "/var/lib/traind");
    } else if (given(home)) {
        n = snprintf(out, out_bytes, "%s/.local/state/traind", home);
    } else {
        return td_fail(TD_INVALID_ARGUMENT, "no state directory: give --state-dir, or set "
                                            "TRAIND_STATE_DIR, XDG_STATE_HOME or HOME");
    }
    if (n < 0 || (size_t)n >= out_bytes) {
        return td_fail(TD_INVALID_ARGUMENT, "the state directory's path is longer than %zu bytes",
                       out_bytes - 1);
    }
    return TD_OK;
}
