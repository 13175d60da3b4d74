// traind-launcher: `run` is the parent of an attempt's ranks (launcher.h), `exec-rank` and
// `exec-command` the step between it and a rank (trampoline.h), `exec-held` the parent of a planner
// (held.h). Started by node daemons; people have no use for it, but --version. One program for
// both: a rank's parent is then surely of the same build.

#include <stdio.h>
#include <string.h>

#include "daemon/launcher/held.h"
#include "daemon/launcher/launcher.h"
#include "daemon/launcher/trampoline.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/log.h"
#include "lib/base/machine/proc.h"
#include "lib/version/version.h"

TD_HOLD_STDIO_FIRST;

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    td_status unheld = td_proc_hold_stdio();
    if (unheld) {
        td_status_log(TD_LOG_ERROR, unheld, "traind-launcher ends");
        return TD_EXIT_BUG;
    }
    if (strcmp(verb, "run") == 0) return td_launcher_main(argc - 1, argv + 1);
    if (strcmp(verb, "exec-rank") == 0) return td_trampoline(argc - 1, argv + 1);
    if (strcmp(verb, "exec-held") == 0) return td_held_main(argc - 1, argv + 1);
    if (strcmp(verb, "exec-command") == 0) return td_trampoline_command(argc - 1, argv + 1);
    if (strcmp(verb, "--version") == 0) {
        printf("traind-launcher %s\n", td_version);
        return 0;
    }
    fprintf(stderr, "traind-launcher is started by traind; it holds the ranks of one attempt.\n"
                    "usage: traind-launcher run OPTION... | exec-rank ... | --version\n");
    return 2;
}
