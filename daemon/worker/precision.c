// One rank records the programs of one precision after the other (td_rank_replan), because opening
// data and plugins takes longer than recording. The other precision comes first: what fails under
// it alone (a limit of memory) says nothing about the job.

#include "daemon/worker/precision.h"

#include <string.h>

#include "fabric/configure/known_precision.h"
#include "engine/train/build.h"

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

// ---- sizes --------------------------------------------------------------------------------------
static bool is_half(const char *name) {
    return strncmp(name, "bf16-", 5) == 0 || strncmp(name, "16-", 3) == 0;
}

static td_status record(struct td_rank_config *config, struct td_rank_io *io,
                        struct td_events *events, const char *precision, struct td_rank **rank) {
    if (*rank) return td_rank_replan(*rank, precision);
    config->train.precision = precision;
    return td_rank_create_plan(&config->train, &io->train, events, rank);
}

// Without a dump: the text is that of the precision that is recorded last.
static td_status measure(struct td_rank_config *config, struct td_rank_io *io,
                         struct td_events *events, const char *precision, struct td_rank **rank,
                         struct td_sizes *out) {
    TD_TRY(record(config, io, events, precision, rank));
    return td_sizes_measure(*rank, out);
}

// False: it cannot be had here, which the precision that is wanted need not share.
static bool try_other(struct td_rank_config *config, struct td_rank_io *io,
                      struct td_events *events, const char *precision, struct td_rank **rank,
                      struct td_sizes *out) {
    td_status s = measure(config, io, events, precision, rank, out);
    if (!s) return true;
    td_status_free(s);
    td_rank_destroy(td_steal(*rank));
    return false;
}

td_status td_worker_size_up(struct td_rank_config *config, struct td_rank_io *io,
                            struct td_events *events, struct td_worker_sized *out) {
    const char *asked = config->train.precision;
    bool chooses = is(asked, TD_PRECISION_AUTO), trains = config->train.stages & TD_STAGE_FIT;
    // Stochastic rounding is for weights in bf16 alone.
    bool compares = chooses || (is_half(asked) && trains && !config->train.optimizer.stochastic);
    struct td_worker_sized z = {.precision = chooses ? TD_PRECISION_MIXED : asked};
    struct td_sizes other = {0};
    if (compares && try_other(config, io, events, TD_PRECISION_PLAIN, &z.rank, &other)) {
        z.other = TD_PRECISION_PLAIN;
        z.beside = other.step;
    }
    td_status s = measure(config, io, events, z.precision, &z.rank, &z.sizes);
    bool fails = s != TD_OK, knows = z.sizes.step.seconds > 0 && z.beside.seconds > 0;
    bool shorter = !fails && knows && z.sizes.step.seconds < z.beside.seconds;
    if (chooses && z.other && !shorter) { // also where one of them cannot be had, or is unknown
        td_status_free(s);
        z.other = fails ? NULL : TD_PRECISION_MIXED;
        z.beside = fails ? (struct td_estimate){0} : z.sizes.step;
        z.precision = TD_PRECISION_PLAIN;
        z.sizes = other;
        s = record(config, io, events, TD_PRECISION_PLAIN, &z.rank);
    }
    if (s) {
        td_rank_destroy(z.rank);
        return s;
    }
    config->train.precision = z.precision;
    *out = z;
    return TD_OK;
}

td_status td_worker_choose_precision(struct td_rank_config *config, struct td_rank_io *io,
                                     struct td_events *events) {
    if (!is(config->train.precision, TD_PRECISION_AUTO)) return TD_OK;
    if (config->train.world_size > 1) { // each rank would measure, and they might differ
        return td_status_with_class(
            td_fail(TD_INVALID_ARGUMENT, "trainer.precision is auto, which a plan settles for all "
                                         "ranks of a job: submit it, or name a precision"),
            TD_CLASS_BAD_SPEC);
    }
    struct td_worker_sized z;
    TD_TRY(td_worker_size_up(config, io, events, &z));
    td_rank_destroy(z.rank);
    char text[TD_PLAN_PRECISION_BYTES];
    td_plan_say_precision(z.precision, z.sizes.step.seconds, z.other ? z.other : "",
                          z.beside.seconds, text);
    td_events_note(events, "%s", text);
    return TD_OK;
}
