// run: trains a spec here and now, without a daemon. This process becomes traind-run (client/run),
// which parses the spec, because trainctl parses none. Signals and exit code are then that
// program's; only a program that cannot be started comes back here.

#include <stdio.h>
#include <unistd.h>

#include "client/jobs/jobs.h"
#include "client/session/session.h"
#include "lib/base/files/files.h"
#include "lib/base/machine/proc.h"

td_status td_cmd_run(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)s, (void)out_exit;
    char dir[TD_FS_PATH_BYTES], program[TD_FS_PATH_BYTES];
    const char *argv[2 * TD_MAX_SETS + 10];
    size_t n = 0;
    TD_TRY(td_proc_self_dir(dir, sizeof dir));
    TD_TRY(td_fs_path(program, "%s/traind-run", dir));
    argv[n++] = program;
    if (f->resume) argv[n++] = "--resume";
    if (f->out_path) {
        argv[n++] = "--output-path";
        argv[n++] = f->out_path;
    }
    char timeout[32];
    if (f->timeout_ns) {
        snprintf(timeout, sizeof timeout, "%.9g", (double)f->timeout_ns / TD_NS_PER_S);
        argv[n++] = "--timeout";
        argv[n++] = timeout;
    }
    for (size_t i = 0; i < f->n_sets; i++) {
        argv[n++] = "--set";
        argv[n++] = f->sets[i];
    }
    argv[n++] = "--";
    argv[n++] = f->args[0];
    argv[n] = NULL;
    execv(program, td_unconst(argv));
    return td_fs_fail("start", program);
}
