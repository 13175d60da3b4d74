// What no single row can say: defaults that depend on other knobs, and contradictions that compare
// numbers, take a third key to see, or search a list. Those within one optimizer or one schedule
// are here as well, because each of `optimizers` has them too. A value that is wrong alone, or
// beside a value of one other key, is a row of refused.def.
//
// Rules run on the canonical tree even when other things were wrong, so that one answer has all
// errors. A knob that was refused is simply absent there, and its rules stay quiet. A rule that
// resolves a knob leaves a value that the same rule would leave again.

#include <stdio.h>
#include <string.h>

#include "lib/spec/refused.h"

static const struct td_json *get(const struct td_json *root, const char *path) {
    return td_json_path(root, path);
}

static bool is_null(const struct td_json *v) {
    return v && v->kind == TD_JSON_NULL;
}

static bool text_is(const struct td_json *v, const char *text) {
    return strcmp(td_json_string(v, ""), text) == 0;
}

static void set_int(struct td_check *c, struct td_json *section, const char *key, int64_t value) {
    struct td_json *v = td_json_new_int(c->arena, value);
    td_check_oom(c, td_json_set(c->arena, section, key, v) ? section : NULL);
}

// max_epochs: 1000, as in Lightning, unless something else ends the job.
static void resolve_max_epochs(struct td_check *c, struct td_json *root) {
    struct td_json *trainer = td_json_get(root, "trainer");
    if (!is_null(td_json_get(trainer, "max_epochs"))) return;
    bool ends = td_json_int(td_json_get(trainer, "max_steps"), -1) != -1 ||
                td_json_int(td_json_get(trainer, "max_time"), 0) > 0;
    set_int(c, trainer, "max_epochs", ends ? -1 : 1000);
}

static void resolve_checkpoint_period(struct td_check *c, struct td_json *root) {
    struct td_json *section = td_json_get(root, "checkpoint");
    const struct td_json *epochs = td_json_get(section, "every_n_epochs");
    const struct td_json *steps = td_json_get(section, "every_n_train_steps");
    if (!epochs || !steps) return;
    bool by_time = td_json_int(td_json_get(section, "train_time_interval"), 0) > 0;
    bool none = is_null(epochs) && is_null(steps) && !by_time;
    if (is_null(epochs)) set_int(c, section, "every_n_epochs", none);
    if (is_null(steps)) set_int(c, section, "every_n_train_steps", 0);
}

static void check_val_interval(struct td_check *c, const struct td_json *root) {
    const struct td_json *v = get(root, "trainer.val_check_interval");
    if (!v || td_json_real(v, 0) > 0) return;
    td_check_violation(c, "trainer.val_check_interval", v->line,
                       "must be above 0; to leave validation out set limit_val_batches: 0");
}

// Only a job that trains has a best. What else best asks for, refused.def has.
static void check_evaluation(struct td_check *c, const struct td_json *root) {
    const struct td_json *from = get(root, "evaluate_from");
    const struct td_json *stages = get(root, "stages");
    if (!stages || !text_is(from, "best")) return;
    for (const struct td_json *stage = stages->first; stage; stage = stage->next) {
        if (text_is(stage, "fit")) return;
    }
    td_check_violation(c, "evaluate_from", from->line,
                       "best needs fit among the stages; a job that trains nothing has no best");
}

// torch.optim.SGD refuses it; its Muon does without momentum, where to look ahead changes nothing.
static void check_nesterov(struct td_check *c, const char *path, const struct td_json *sgd) {
    const struct td_json *v = td_json_get(sgd, "nesterov");
    if (!text_is(td_json_get(sgd, "name"), "sgd") || !td_json_bool(v, false)) return;
    if (td_json_real(td_json_get(sgd, "momentum"), 1) > 0 &&
        td_json_real(td_json_get(sgd, "dampening"), 0) <= 0) {
        return;
    }
    td_check_violation(c, td_check_path(c, path, "nesterov"), v->line,
                       "needs momentum above 0 and dampening 0");
}

// Both rates follow one schedule, so that of the rest is a share of lr.
static void check_muon(struct td_check *c, const char *path, const struct td_json *o) {
    const struct td_json *rest = td_json_get(o, "adamw_lr");
    if (td_json_real(rest, 0) <= 0 || td_json_real(td_json_get(o, "lr"), 1) > 0) return;
    td_check_violation(c, td_check_path(c, path, "adamw_lr"), rest->line, "needs lr above 0");
}

// Knobs of schedules that may say where the schedule ends, and what goes before the end.
static const char *const end_keys[] = {"total_steps", "total_iters", "T_max", "num_training_steps"};
static const char *const part_keys[] = {"warmup_steps", "num_warmup_steps", "num_decay_steps"};

static void check_schedule_parts(struct td_check *c, const char *where,
                                 const struct td_json *schedule, const struct td_json *end) {
    int64_t sum = 0;
    for (size_t i = 0; i < TD_COUNTOF(part_keys); i++) {
        const struct td_json *part = td_json_get(schedule, part_keys[i]);
        if (!part) continue;
        sum += td_json_int(part, 0);
        if (sum <= td_json_int(end, 0)) continue;
        const char *path = td_check_path(c, where, part_keys[i]);
        td_check_violation(c, path, part->line, "%lld is above %s, %lld", (long long)sum, end->key,
                           (long long)td_json_int(end, 0));
        return;
    }
}

static void check_schedule(struct td_check *c, const struct td_json *root, const char *where,
                           const struct td_json *schedule) {
    const struct td_json *end = NULL;
    for (size_t i = 0; !end && i < TD_COUNTOF(end_keys); i++) {
        end = td_json_get(schedule, end_keys[i]);
    }
    if (!end) return;
    if (end->kind != TD_JSON_STRING) {
        check_schedule_parts(c, where, schedule, end);
        return;
    }
    bool is_endless = td_json_int(get(root, "trainer.max_epochs"), 0) == -1 &&
                      td_json_int(get(root, "trainer.max_steps"), 0) == -1;
    if (!is_endless) return;
    const char *path = td_check_path(c, where, end->key);
    td_check_violation(c, path, end->line,
                       "auto needs trainer.max_epochs or trainer.max_steps; set one, or a number "
                       "here");
}

// What no job can use; whether this one's validation gives the metric, its planner sees.
static void check_plateau(struct td_check *c, const struct td_json *root) {
    const struct td_json *schedule = get(root, "lr_scheduler");
    if (!text_is(td_json_get(schedule, "name"), "reduce_on_plateau")) return;
    const struct td_json *factor = td_json_get(schedule, "factor");
    if (td_json_real(factor, 0) >= 1) {
        td_check_violation(c, "lr_scheduler.factor", factor->line, "must be below 1");
    }
    const struct td_json *monitor = td_json_get(schedule, "monitor");
    const char *name = td_json_string(monitor, "val_");
    if (strncmp(name, "val_", 4) != 0) {
        td_check_violation(c, "lr_scheduler.monitor", monitor->line,
                           "'%s' is no metric of the validation, which is what this schedule "
                           "listens to; their names begin with val_",
                           td_check_show(c->arena, name, strlen(name), 64));
    }
}

// Each of several optimizers: its own sections are as those of a job that has one.
static void check_optimizers(struct td_check *c, const struct td_json *root) {
    const struct td_json *list = get(root, "optimizers");
    size_t i = 0;
    for (const struct td_json *v = list ? list->first : NULL; v; v = v->next, i++) {
        const struct td_json *schedule = td_json_get(v, "lr_scheduler");
        const char *name = td_json_string(td_json_get(v, "name"), "");
        char path[32], optimizer[64], where[64];
        snprintf(path, sizeof path, "optimizers[%zu]", i);
        snprintf(optimizer, sizeof optimizer, "%s.optimizer", path);
        snprintf(where, sizeof where, "%s.lr_scheduler", path);
        check_nesterov(c, optimizer, td_json_get(v, "optimizer"));
        check_muon(c, optimizer, td_json_get(v, "optimizer"));
        check_schedule(c, root, where, schedule);
        for (const struct td_json *before = list->first; before != v; before = before->next) {
            if (!text_is(td_json_get(before, "name"), name)) continue;
            td_check_violation(c, td_check_path(c, path, "name"), v->line, "'%s' is there twice",
                               name);
        }
    }
}

// Rows that overlap would have tokens in both parts.
static void check_val_split(struct td_check *c, const struct td_json *root) {
    const struct td_json *data = get(root, "data"), *part = td_json_get(data, "val_split");
    const int64_t block = td_json_int(td_json_get(data, "block_size"), 0);
    const int64_t stride = td_json_int(td_json_get(data, "stride"), block);
    if (td_json_real(part, 0) <= 0 || stride >= block) return;
    td_check_violation(c, "data.val_split", part->line,
                       "rows overlap (stride %lld, block_size %lld), so both parts would have the "
                       "same tokens; leave stride out, or validate on data of its own",
                       (long long)stride, (long long)block);
}

// resources.nodes says it for trainer.num_nodes, which alone keeps it: however it was said, the
// canonical spec is one.
static void resolve_nodes(struct td_check *c, struct td_json *root) {
    struct td_json *trainer = td_json_get(root, "trainer"),
                   *nodes = td_json_path(root, "resources.nodes");
    const int64_t n = td_json_int(nodes, 0),
                  said = td_json_int(td_json_get(trainer, "num_nodes"), n);
    if (!n || !trainer) return;
    if (said > 1 && said != n) {
        td_check_violation(c, "resources.nodes", nodes->line,
                           "is %lld, and trainer.num_nodes %lld; both mean the same, give one",
                           (long long)n, (long long)said);
        return;
    }
    if (said != n) set_int(c, trainer, "num_nodes", n);
    nodes->kind = TD_JSON_NULL;
}

// What no job may be larger than: an attempt's row with more ranks cannot be read back.
static void check_ranks(struct td_check *c, const struct td_json *root) {
    const struct td_json *nodes = get(root, "trainer.num_nodes");
    const int64_t n_nodes = td_json_int(nodes, 1),
                  devices = td_json_int(get(root, "trainer.devices"), 1);
    if (n_nodes * TD_MAX(devices, (int64_t)1) > TD_SPEC_MAX_RANKS) {
        td_check_violation(c, "trainer.num_nodes", nodes->line,
                           "%lld nodes of %lld devices are more than %d ranks; ask for fewer",
                           (long long)n_nodes, (long long)devices, TD_SPEC_MAX_RANKS);
    }
    const struct td_json *gpus = get(root, "resources.gpus_per_rank");
    const int64_t per_rank = td_json_int(gpus, 0);
    if (per_rank * devices > TD_SPEC_MAX_GPUS) {
        td_check_violation(c, "resources.gpus_per_rank", gpus->line,
                           "%lld ranks of %lld GPUs each are more than the %d that a node has at "
                           "most; ask for fewer, or for more nodes",
                           (long long)devices, (long long)per_rank, TD_SPEC_MAX_GPUS);
    }
}

// What no single node can hold for the others.
static void check_store(struct td_check *c, const struct td_json *root) {
    const struct td_json *store = get(root, "checkpoint.store");
    const int64_t n_nodes = td_json_int(get(root, "trainer.num_nodes"), 1);
    if (n_nodes > 1 && text_is(store, "fs") && is_null(get(root, "checkpoint.dir"))) {
        td_check_violation(c, "checkpoint.store", store->line,
                           "fs keeps checkpoints on one node, and the others of this job could not "
                           "go on from them; set checkpoint.dir to a directory that all nodes "
                           "share, or leave store out");
    }
}

void td_check_rules(struct td_check *c, struct td_json *canonical) {
    resolve_nodes(c, canonical);
    check_ranks(c, canonical);
    td_check_refused(c, canonical);
    if (c->kind != TD_KIND_TRAIN) {
        td_check_command(c, canonical);
        return;
    }
    check_store(c, canonical);
    resolve_max_epochs(c, canonical);
    resolve_checkpoint_period(c, canonical);
    check_val_interval(c, canonical);
    check_evaluation(c, canonical);
    check_nesterov(c, "optimizer", td_json_get(canonical, "optimizer"));
    check_muon(c, "optimizer", td_json_get(canonical, "optimizer"));
    check_schedule(c, canonical, "lr_scheduler", td_json_get(canonical, "lr_scheduler"));
    check_plateau(c, canonical);
    check_optimizers(c, canonical);
    check_val_split(c, canonical);
}
