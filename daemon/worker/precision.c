// One rank records the programs of one precision after the other (td_rank_replan), because opening
// data and plugins takes longer than recording. The other precision comes first: what fails under
// it alone (a limit of memory) says nothing about the job.

#include "daemon/worker/precision.h"

#include <string.h>

#include "engine/train/build.h"
#include "engine/train/checkpoint/manifest.h"
#include "lib/base/fsio.h"

static const char *const plain = "32-true", *const mixed = "bf16-mixed", *const automatic = "auto";

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

// A name that auto may be; NULL: another one.
static const char *known(const char *name) {
    return is(name, plain) ? plain : is(name, mixed) ? mixed : NULL;
}

// Of the first checkpoint whose manifest can be read, as choices.c does; NULL: none, or another.
static const char *resumed(const struct td_worker_config *config) {
    const struct td_train_config *c = &config->train;
    for (size_t i = 0; i < c->n_resume_from; i++) {
        char path[TD_FS_PATH_BYTES];
        struct td_manifest m;
        td_status s = td_fs_path(path, "%s/manifest.json", c->resume_from[i]);
        if (!s) s = td_manifest_read(config->arena, path, &m);
        if (!s) return known(m.key.precision[0] ? m.key.precision : plain);
        td_status_free(s);
    }
    return NULL;
}

const char *td_worker_settled_precision(const struct td_worker_config *config) {
    const struct td_plan *p = &config->plan;
    const char *asked = p->spec.trainer.precision;
    if (!is(asked, automatic)) return asked;
    const char *name = known(td_json_string(td_json_get(p->run.frozen, "precision"), ""));
    if (!name) name = resumed(config);
    if (!name) name = known(p->run.precision);
    bool compares = (config->train.stages & TD_TRAIN_FIT) && !config->train.deterministic;
    return name ? name : compares ? automatic : plain;
}

// ---- sizes --------------------------------------------------------------------------------------
static bool is_half(const char *name) {
    return strncmp(name, "bf16-", 5) == 0 || strncmp(name, "16-", 3) == 0;
}

static td_status record(struct td_worker_config *config, struct td_worker_io *io,
                        struct td_events *events, const char *precision, struct td_rank **rank) {
    if (*rank) return td_rank_replan(*rank, precision);
    config->train.precision = precision;
    return td_rank_create_plan(&config->train, &io->train, events, rank);
}

// Without a dump: the text is that of the precision that is recorded last.
static td_status measure(struct td_worker_config *config, struct td_worker_io *io,
                         struct td_events *events, const char *precision, struct td_rank **rank,
                         struct td_sizes *out) {
    TD_TRY(record(config, io, events, precision, rank));
    return td_sizes_measure(*rank, out);
}

// False: it cannot be had here, which the precision that is wanted need not share.
static bool try_other(struct td_worker_config *config, struct td_worker_io *io,
                      struct td_events *events, const char *precision, struct td_rank **rank,
                      struct td_sizes *out) {
    td_status s = measure(config, io, events, precision, rank, out);
    if (!s) return true;
    td_status_free(s);
    td_rank_destroy(td_steal(*rank));
    return false;
}

td_status td_worker_size_up(struct td_worker_config *config, struct td_worker_io *io,
                            struct td_events *events, struct td_worker_sized *out) {
    const char *asked = config->train.precision;
    bool chooses = is(asked, automatic), trains = config->train.stages & TD_TRAIN_FIT;
    // Stochastic rounding is for weights in bf16 alone.
    bool compares = chooses || (is_half(asked) && trains && !config->train.optimizer.stochastic);
    struct td_worker_sized z = {.precision = chooses ? mixed : asked};
    struct td_sizes other = {0};
    if (compares && try_other(config, io, events, plain, &z.rank, &other)) {
        z.other = plain;
        z.beside = other.step;
    }
    td_status s = measure(config, io, events, z.precision, &z.rank, &z.sizes);
    bool fails = s != TD_OK, knows = z.sizes.step.seconds > 0 && z.beside.seconds > 0;
    bool shorter = !fails && knows && z.sizes.step.seconds < z.beside.seconds;
    if (chooses && z.other && !shorter) { // also where one of them cannot be had, or is unknown
        td_status_free(s);
        z.other = fails ? NULL : mixed;
        z.beside = fails ? (struct td_estimate){0} : z.sizes.step;
        z.precision = plain;
        z.sizes = other;
        s = record(config, io, events, plain, &z.rank);
    }
    if (s) {
        td_rank_destroy(z.rank);
        return s;
    }
    config->train.precision = z.precision;
    *out = z;
    return TD_OK;
}

td_status td_worker_settle(struct td_worker_config *config, struct td_worker_io *io,
                           struct td_events *events) {
    if (!is(config->train.precision, automatic)) return TD_OK;
    if (config->train.world_size > 1) // each rank would measure, and they might differ
        return td_status_with_class(
            td_fail(TD_INVALID_ARGUMENT, "trainer.precision is auto, which a plan settles for all "
                                         "ranks of a job: submit it, or name a precision"),
            TD_CLASS_BAD_SPEC);
    struct td_worker_sized z;
    TD_TRY(td_worker_size_up(config, io, events, &z));
    td_rank_destroy(z.rank);
    if (z.other && z.beside.seconds > 0) {
        td_events_note(events, "trainer.precision: auto is %s here: %.3g ms a step, %s %.3g ms",
                       z.precision, z.sizes.step.seconds * 1e3, z.other, z.beside.seconds * 1e3);
    } else {
        td_events_note(events, "trainer.precision: auto is %s here, nothing is known to be faster",
                       z.precision);
    }
    return TD_OK;
}
