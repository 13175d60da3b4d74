// See the header. Order: what is ignored, then the crash handler, then the thread that waits for a
// stop, so that a crash of a later part has its last words.

#include "fabric/signals/signals.h"

#include <signal.h>

#include "fabric/signals/fatal.h"
#include "fabric/signals/stop_signals.h"

td_status td_rank_signals_take(struct td_rank_page *page, bool has_launcher) {
    static const int ignore[] = {SIGPIPE, SIGXFSZ}; // come back as EPIPE and EFBIG
    struct sigaction ign = {.sa_handler = SIG_IGN};
    for (size_t i = 0; i < TD_COUNTOF(ignore); i++) {
        if (sigaction(ignore[i], &ign, NULL) != 0) {
            return td_fail_errno(TD_INTERNAL, "ignore a signal");
        }
    }
    TD_TRY(td_fatal_install(page));
    if (has_launcher) TD_TRY(td_fatal_install_ask());
    return td_stop_signals_start(page);
}
