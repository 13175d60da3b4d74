// Saves: checkpoints of a program. They are those of a job, written where its loop says, so either
// can go on from the other's. Between a backward and its optimizer step there is no state to save:
// gradients are not in a checkpoint. And weights alone, as a file: where the program says, or in
// the directory from which the parent of spawned ranks takes it.

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "traind/spawn.h"

#include "engine/train/checkpoint/weights_file.h"
#include "engine/train/loop/boundary.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/group/replicas.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/state/own_state.h"
#include "engine/train/rank/state/state.h"
#include "fabric/fabric.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/clock.h"

static td_status settle(struct td_fabric *f, const char *call) {
    TD_TRY(td_fabric_need_setup(f, call));
    if (td_manual_has_gradients(&f->manual)) {
        return td_fabric_misuse(
            "%s while there are gradients that no optimizer step has used; call "
            "it after the step, or td_fabric_zero_grad",
            call);
    }
    TD_TRY(td_fabric_failed(f, td_manual_drain(&f->manual)));
    td_rank_expect(f->rank, TD_RANK_SAVES);
    return TD_OK;
}

// A checkpoint is never written over. After a load one of the same step may be another run's.
static td_status check_place(struct td_fabric *f) {
    char path[TD_FS_PATH_BYTES];
    struct stat st;
    const int64_t step = f->loop.at.step;
    if (!f->branched || f->loop.saved_step == step) return TD_OK;
    TD_TRY(td_fs_path(path, "%s/%s", f->config->train.checkpoint.dir,
                      td_checkpoint_name_of(step).text));
    if (stat(path, &st) != 0) return TD_OK;
    return td_fabric_misuse("'%s' is there already, from before another state was loaded; a "
                            "checkpoint is not written over",
                            path);
}

// What was saved last is not the state that there is now.
static void branch(struct td_fabric *f) {
    f->rank->steady = false;
    f->branched = true;
    f->loop.saved_step = -1;
    td_checkpointer_restart(f->rank->checkpointer);
}

// The rest of an epoch may end in a batch of a length that no program was recorded for.
static td_status check_rest(struct td_fabric *f) {
    const struct td_train_config *c = f->rank->config;
    struct td_runnable p;
    if (!f->optimizer) return TD_OK;
    const int64_t left =
        td_data_left(f->rank->data, TD_SPLIT_TRAIN, 0, f->rank->start.epoch_offset);
    const int64_t n = c->drop_last ? 0 : left % c->batch_size;
    if (n == 0) return TD_OK;
    const struct td_program_key key = td_rank_manual_key(f->rank, 0, false, true, n);
    td_status missing = td_programs_find(f->rank->programs, &key, &p);
    if (!missing) return TD_OK;
    td_status_free(missing);
    return td_bad_spec("the checkpoint ends inside an epoch, whose rest has a last batch of %lld "
                       "samples here: load it with the batch size and world size that wrote it",
                       (long long)n);
}

td_status td_fabric_save(struct td_fabric *f) {
    TD_TRY(settle(f, "td_fabric_save"));
    if (!f->config->train.checkpoint.dir) {
        return td_fabric_misuse("td_fabric_save without a directory: set options.checkpoint_dir");
    }
    if (!f->optimizer) return td_fabric_misuse("td_fabric_save of a program that trains nothing");
    TD_TRY(check_place(f));
    return td_fabric_failed(f, td_boundary_save(&f->loop, TD_SAVE_FINAL));
}

// Then the loop is where the state is, and nothing of before is left.
static td_status begin_again(struct td_fabric *f) {
    struct td_manual was = f->manual;
    TD_TRY(td_rank_set_up_strategy(f->rank));
    TD_TRY(td_rank_load_own_state(f->rank));
    td_train_loop_init(&f->loop, f->rank);
    branch(f);
    td_manual_init(&f->manual, &f->loop);
    f->manual.syncs = was.syncs;
    for (int i = 0; i < TD_STEPS_MAX; i++) {
        f->manual.of[i].lr = was.of[i].lr;
    }
    if (!f->optimizer) return TD_OK;
    TD_TRY(td_train_loop_settle(&f->loop));
    return td_epoch_metrics_begin(&f->loop.played, f->rank);
}

// Of a path that the program names, what is wrong with the name is its own mistake. What is wrong
// with the files is not.
static td_status check_named(struct td_fabric *f, const char *path) {
    struct stat st;
    uint32_t reads;
    TD_TRY(td_rank_read_roles(f->rank, &reads));
    if (!reads) return TD_OK;
    if (stat(path, &st) == 0) {
        return S_ISDIR(st.st_mode) ? TD_OK : td_bad_spec("checkpoint '%s': not a directory", path);
    }
    if (errno != ENOENT && errno != ENOTDIR) return TD_OK; // restoring says what it is
    return td_bad_spec("checkpoint '%s': no such directory", path);
}

static td_status load(struct td_fabric *f, const char *path) {
    struct td_train_config *t = &f->config->train;
    TD_TRY(check_named(f, path));
    const char **one = td_arena_array(f->rank->arena, 1, sizeof *one);
    if (!one || !(one[0] = td_arena_strdup(f->rank->arena, path))) return td_fail_oom();
    t->resume_from = one;
    t->n_resume_from = 1;
    td_plugin_state_clear(&f->rank->own);
    TD_TRY(td_rank_choose_start(f->rank));
    TD_TRY(check_rest(f));
    TD_TRY(td_rank_restore_state(f->rank));
    return begin_again(f);
}

td_status td_fabric_load(struct td_fabric *f, const char *path) {
    TD_TRY(settle(f, "td_fabric_load"));
    return td_fabric_failed(f, load(f, path));
}

static td_status load_weights(struct td_fabric *f, const char *path, bool strict,
                              td_fabric_filter filter, void *arg) {
    struct td_train_config *t = &f->config->train;
    uint32_t roles;
    t->init_from = path;
    t->init_loosely = !strict;
    t->init_filter = filter;
    t->init_filter_arg = arg;
    td_status s = td_rank_read_roles(f->rank, &roles);
    if (!s && roles) s = td_rank_load_weights(f->rank, TD_RANK_WEIGHTS_INITIAL);
    t->init_from = NULL;
    t->init_filter = NULL;
    TD_TRY(s);
    branch(f);
    return td_rank_set_up_strategy(f->rank);
}

td_status td_fabric_load_weights(struct td_fabric *f, const char *path, bool strict) {
    TD_TRY(settle(f, "td_fabric_load_weights"));
    return td_fabric_failed(f, load_weights(f, path, strict, NULL, NULL));
}

td_status td_fabric_load_some_weights(struct td_fabric *f, const char *path, bool strict,
                                      td_fabric_filter filter, void *arg) {
    TD_TRY(settle(f, "td_fabric_load_some_weights"));
    return td_fabric_failed(f, load_weights(f, path, strict, filter, arg));
}

static td_status load_bytes(struct td_fabric *f, const void *weights, size_t bytes, bool strict) {
    struct td_train_config *t = &f->config->train;
    uint32_t reads;
    TD_TRY(td_rank_read_roles(f->rank, &reads));
    if (reads && !weights) {
        return td_bad_spec("td_fabric_load_weights_from without weights: spawned ranks give theirs "
                           "back with td_fabric_put_weights");
    }
    t->init_data = weights;
    t->init_data_bytes = bytes;
    td_status s = load_weights(f, "weights in memory", strict, NULL, NULL);
    t->init_data = NULL;
    return s;
}

td_status td_fabric_load_weights_from(struct td_fabric *f, const void *weights, size_t bytes,
                                      bool strict) {
    TD_TRY(settle(f, "td_fabric_load_weights_from"));
    return td_fabric_failed(f, load_bytes(f, weights, bytes, strict));
}

// ---- weights alone ------------------------------------------------------------------------------
static td_status write_weights(struct td_fabric *f, const struct td_weights_file_options *o) {
    const struct td_restore_target from = td_rank_restore_target(f->rank);
    td_control_phase(&f->rank->control, TD_PHASE_SAVING);
    TD_TRY(td_weights_file_write(o, &from));
    td_control_phase(&f->rank->control, TD_PHASE_TRAINING);
    return TD_OK;
}

static td_status save_weights(struct td_fabric *f, const struct td_weights_file_options *o) {
    if (f->rank->facts.is_global_zero) TD_TRY(write_weights(f, o));
    return td_rank_barrier(f->rank, "save_weights"); // then every rank can read it
}

td_status td_fabric_save_weights(struct td_fabric *f, const char *path, td_fabric_filter filter,
                                 void *arg) {
    TD_TRY(settle(f, "td_fabric_save_weights"));
    const struct td_weights_file_options o = {
        .path = path, .filter = filter, .filter_arg = arg, .durable = true};
    return td_fabric_failed(f, save_weights(f, &o));
}

// The parent may still have to take what was put before, so each has a name of its own.
static td_status put_weights(struct td_fabric *f, struct td_spawned *self) {
    char path[TD_FS_PATH_BYTES], name[TD_SPAWN_NAME_BYTES];
    snprintf(name, sizeof name, "weights-%lld.safetensors", (long long)td_mono_now().ns);
    TD_TRY(td_fs_path(path, "%s/%s", td_spawned_temp_dir(self), name));
    TD_TRY(write_weights(f, &(struct td_weights_file_options){.path = path}));
    return td_spawned_put_weights(self, name);
}

td_status td_fabric_put_weights(struct td_fabric *f, struct td_spawned *self) {
    TD_TRY(settle(f, "td_fabric_put_weights"));
    if (!self) {
        return td_fabric_misuse("td_fabric_put_weights in a process that td_spawn did not start: "
                                "nobody waits for them; call td_fabric_save_weights");
    }
    if (!f->rank->facts.is_global_zero) return TD_OK;
    return td_fabric_failed(f, put_weights(f, self));
}
