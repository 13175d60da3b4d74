// run: trains one rank, under a launcher or by hand.
//
// By hand everything that a launcher would collect goes to stdout as JSON lines. A signal asks for
// a stop at the next optimizer step, with a checkpoint; a second Ctrl-C does without. SIGUSR1 asks
// for a checkpoint alone.

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/worker/precision.h"
#include "daemon/worker/worker.h"
#include "engine/train/rank/plugins.h"
#include "engine/train/rank/rank.h"
#include "engine/train/train.h"
#include "fabric/attach.h"
#include "fabric/configure/devices.h"
#include "fabric/signals/fatal.h"
#include "fabric/signals/signals.h"
#include "fabric/signals/stop_signals.h"
#include "lib/base/cpu_level.h"
#include "lib/base/log.h"
#include "lib/base/machine/machine.h"

static char rank_text[16];

// What the engine says of its doings (td_events_say).
static void say(const char *line) {
    td_log_context("rank", rank_text); // it may be the thread that writes checkpoints
    td_log_info("%s", line);
}

// The first lines of a rank's log: what it runs on.
static void introduce(const struct td_rank_args *args, const struct td_rank_config *config) {
    const struct td_train_config *t = &config->train;
    char gap[TD_CPU_GAP_BYTES], host[HOST_NAME_MAX + 1] = "unknown";
    (void)gethostname(host, sizeof host - 1);
    td_log_info("rank starts world_size=%d accelerator=%s cpu_level=%s threads=%d pid=%ld host=%s",
                t->world_size, td_rank_accelerator_name(t), td_cpu_level_name(td_cpu_level()),
                t->n_threads, (long)getpid(), host);
    if (args->device) td_log_info("rank has its own device uuid=%s", args->device);
    (void)td_cpu_level_of_machine(gap);
    td_log_cpu_gap(gap);
    int32_t asked = td_spec_ranks(&config->plan.spec);
    if (args->page_fd < 0 && t->world_size < asked) {
        td_log_warn("the plan asks for %d ranks, by hand there is %d: a step takes that much fewer "
                    "samples; a traind starts them all, continuing",
                    asked, t->world_size);
    }
}

// By hand nobody chose a place for checkpoints unless the plan did: what that costs is said first.
static void note_unsaved(const struct td_rank_args *args, const struct td_train_config *t,
                         struct td_events *events) {
    bool saves = (t->stages & TD_STAGE_FIT) && t->checkpoint.save_top_k != 0;
    if (args->page_fd < 0 && saves && !t->checkpoint.dir) {
        td_events_note(events, "no checkpoint will be written: the plan has no checkpoint.dir");
    }
}

static td_status train(const struct td_rank_args *args, struct td_rank_io *io,
                       struct td_events *events, struct td_train_result *out_result) {
    TD_AUTO(td_rank_config) *config = NULL;
    TD_TRY(td_rank_configure(args, &config));
    introduce(args, config);
    TD_TRY(td_devices_choose(&config->train, args->device, &config->train.device));
    TD_TRY(td_rank_attach_group(args, config->train.local_world_size, io));
    td_events_ready(events);
    note_unsaved(args, &config->train, events);
    td_denormals_flush(); // of the training thread; accelerators do the same in their own
    TD_TRY(td_worker_choose_precision(config, io, events));
    return td_train(&config->train, &io->train, events, out_result);
}

static int finish(td_status s, struct td_rank_io *io, struct td_events *events,
                  const struct td_train_result *result) {
    bool stopped = result->end == TD_LOOP_STOPPED;
    s = td_rank_classify(s);
    int code = s ? td_exit_code_of(td_status_class(s)) : stopped ? TD_EXIT_STOPPED : TD_EXIT_DONE;
    enum td_outcome outcome = s         ? TD_OUTCOME_FAILED
                              : stopped ? TD_OUTCOME_STOPPED
                                        : TD_OUTCOME_DONE;
    td_events_end(events, outcome, s, result->step);
    if (s) {
        td_fatal_last_words(io->train.page, td_status_message(s));
        td_status_log(TD_LOG_ERROR, s, "rank failed");
    }
    if (!s) {
        td_log_info("rank ends outcome=%s step=%lld", td_outcome_name(outcome),
                    (long long)result->step);
    }
    uint64_t lost = atomic_load(&events->drops);
    if (lost) td_log_warn("events were not taken count=%llu, continuing", (unsigned long long)lost);
    return code;
}

int td_worker_run(const struct td_rank_args *args) {
    struct td_rank_io io;
    struct td_events events;
    struct td_train_result result = {.end = TD_LOOP_DONE};
    snprintf(rank_text, sizeof rank_text, "%d", args->rank);
    td_log_context("rank", rank_text);
    td_events_init(&events, args->events_fd);
    events.say = say;
    td_status s = td_rank_attach(args, &io);
    if (s) {
        // The launcher and this worker do not fit together, so events may not arrive either.
        s = td_status_with_class(s, TD_CLASS_BAD_SPEC);
        td_events_end(&events, TD_OUTCOME_FAILED, s, 0);
        td_status_log(TD_LOG_ERROR, s, "rank does not start");
        td_events_finish(&events);
        return TD_EXIT_ABI;
    }
    s = td_rank_signals_take(io.train.page, args->page_fd >= 0);
    if (!s) s = train(args, &io, &events, &result);
    int code = finish(s, &io, &events, &result);
    td_events_finish(&events);
    td_stop_signals_finish();
    td_rank_detach(&io);
    return code;
}
