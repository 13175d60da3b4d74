// traind: reads its settings, opens its state directory, starts the parts of its role, and runs the
// loop until a signal. SIGTERM or SIGINT stops gracefully, the second one at once; SIGUSR1 makes
// the ranks of this machine save; SIGHUP is ignored (a terminal that closes takes nothing down).
// Exit codes: 0 stopped as asked, 2 wrong usage, 3 a state directory that another start cannot help
// (a newer traind wrote it, or it is damaged), 1 anything else. The last line of the log says why.
// The units do not start it again after 2 and 3.
//
// The folder, in reading order; its rooms have stories of their own:
//
//   main.c        the program from start to end
//   config.h      its settings; params.def: one row each
//   allow.h       what of a submitter's own runs here, and ports for it
//   home.h        its state directory: lock, token, address
//   init.h        `traind init`: a CA and a certificate
//   join.h        how this machine becomes a node of a cluster
//   renewal.h     and keeps its certificate fresh
//   roles.h       coordinator and node, started and stopped as the role says
//   notify.h      readiness, reported to systemd, and its journal
//   coordinator/  jobs, catalog, metrics and the API (coordinator.h)
//   node/         the attempts of this machine (node.h)
//   launcher/     traind-launcher: the ranks of one attempt (launcher.h)
//   worker/       traind-worker: one rank, a plan or a probe (worker.h)

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/init.h"
#include "daemon/notify.h"
#include "daemon/roles.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"
#include "lib/base/machine/proc.h"
#include "lib/loop/loop.h"

struct daemon {
    struct td_loop *loop;
    struct td_parts *parts;
    bool stopping;
};

static void on_stopped(void *arg) {
    struct daemon *d = arg;
    td_loop_stop(d->loop);
}

static void on_signal(void *arg) {
    struct daemon *d = arg;
    if (d->stopping) {
        td_log_warn("second signal, ending at once");
        td_loop_stop(d->loop);
        return;
    }
    d->stopping = true;
    td_log_info("stopping");
    td_notify("STOPPING=1");
    td_parts_stop(d->parts, on_stopped, d);
}

static void on_save(void *arg) {
    struct daemon *d = arg;
    if (!d->stopping) td_parts_save(d->parts);
}

static td_status serve(struct daemon *d, const struct td_config *c, struct td_home *h) {
    TD_AUTO(td_parts) *parts = NULL;
    TD_AUTO(td_loop_signal) *term = NULL, *interrupt = NULL, *save = NULL;
    TD_TRY(td_parts_start(d->loop, c, h, &parts));
    d->parts = parts;
    TD_TRY(td_loop_signal_create(d->loop, SIGTERM, on_signal, d, &term));
    TD_TRY(td_loop_signal_create(d->loop, SIGINT, on_signal, d, &interrupt));
    TD_TRY(td_loop_signal_create(d->loop, SIGUSR1, on_save, d, &save));
    const char *address = td_parts_address(parts);
    if (address) TD_TRY(td_home_publish(h, address));
    td_log_info("ready role=%s address=%s state=%s", c->role, address ? address : "-",
                c->state_dir);
    td_notify("READY=1");
    return td_loop_run(d->loop);
}

static td_status run(const struct td_config *c) {
    struct td_home home = {.lock_fd = -1};
    TD_TRY(td_home_open(c, &home));
    struct daemon d = {0};
    td_status failed = td_loop_create(&d.loop);
    if (!failed) failed = serve(&d, c, &home);
    td_loop_destroy(d.loop);
    td_home_close(&home);
    return failed;
}

// Of this process, and thereby the bound of all that it starts.
static td_status hold_cpu_level(const struct td_config *c) {
    char gap[TD_CPU_GAP_BYTES];
    (void)td_cpu_level_of_machine(gap);
    td_log_cpu_gap(gap);
    return td_cpu_level_hold(c->level);
}

// A connection takes three descriptors, an attempt some more. Launchers and ranks take the hard
// limit by themselves, so it changes nothing for them.
static void raise_files(void) {
    td_status_log(TD_LOG_WARN, td_proc_raise_files(), "fewer connections fit, continuing");
}

// Under lower limits its libraries end it without a word, or wait for ever for memory.
static td_status check_limits(void) {
    enum { FILES = 64, MIB = 512 };
    struct rlimit files, memory;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || getrlimit(RLIMIT_AS, &memory) != 0) {
        return td_fail_errno(TD_FAILED_PRECONDITION, "read the limits of this process");
    }
    if (files.rlim_cur < FILES) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "this process may have %llu files open (`ulimit -n`), and traind needs %d "
                       "to start: raise the limit",
                       (unsigned long long)files.rlim_cur, FILES);
    }
    if (memory.rlim_cur < (rlim_t)MIB << 20) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "this process may use %llu MiB of addresses (`ulimit -v`), and traind needs "
                       "%d to start: raise the limit",
                       (unsigned long long)memory.rlim_cur >> 20, MIB);
    }
    return TD_OK;
}

// Pieces of files come and go in 256 KiB: without this each of them is mapped, or cut off the heap,
// and its pages are made again.
static void keep_heap(void) {
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 2 << 20);
}

static int refuse(td_status take_status, int exit_code) {
    if (!take_status) return 0;
    fprintf(stderr, "traind: %s\n", td_status_message(take_status));
    td_notify_end(td_status_message(take_status));
    td_status_free(take_status);
    return exit_code;
}

static bool is_for_a_person(td_status borrow_status) {
    const char *reason = td_status_reason(borrow_status);
    return strcmp(reason, "SCHEMA_NEWER") == 0 || strcmp(reason, "STATE_DAMAGED") == 0;
}

TD_HOLD_STDIO_FIRST;

int main(int argc, char **argv) {
    struct td_config config;
    enum td_log_level level;
    const int unheld = refuse(td_proc_hold_stdio(), 1);
    if (unheld) return unheld;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGUSR1, SIG_IGN); // until there are ranks to save
    if (argc > 1 && strcmp(argv[1], "init") == 0) return td_init_main(argc, argv);
    td_status failed = td_config_read(argc, argv, &config);
    if (!failed) failed = td_log_level_parse(config.log_level, &level);
    if (failed) return refuse(failed, 2);
    if (config.only_print) return refuse(td_fs_flush_stdout(), 1);
    td_log_set_level(level);
    td_log_for_journal(td_notify_is_journal(STDERR_FILENO));
    raise_files();
    keep_heap();
    failed = check_limits();
    if (!failed) failed = hold_cpu_level(&config);
    if (!failed) failed = run(&config);
    if (!failed) {
        td_log_info("stopped");
        return 0;
    }
    const int exit_code = is_for_a_person(failed) ? 3 : 1;
    td_notify_end(td_status_message(failed));
    td_status_log(TD_LOG_ERROR, failed, "traind ends");
    return exit_code;
}
