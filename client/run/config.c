// The environment: planner and ranks use no newer instructions than TRAIND_CPU_ISA says, as under a
// daemon and by hand. A level that is not there ends the program before anything is made. The only
// getenv of this program.

#include <stdlib.h>
#include <string.h>

#include "client/run/run.h"
#include "lib/base/cpu_level.h"

const char *td_local_run_home(void) {
    return getenv("HOME");
}

bool td_local_run_is_dumb(void) {
    const char *term = getenv("TERM");
    return term && strcmp(term, "dumb") == 0;
}

td_status td_local_run_read_cpu_level(struct td_local_run *r) {
    static const char variable[] = "TRAIND_CPU_ISA";
    const char *name = getenv(variable);
    enum td_cpu_level level;
    TD_TRY(td_cpu_level_read(variable, name ? name : "", td_cpu_level_of_machine(NULL), &level));
    r->cpu_level = td_cpu_level_name(level);
    return TD_OK;
}
