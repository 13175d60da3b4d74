// Create: from options to what the process is: alone, a rank of its parent, or a rank of a job.
// Options are copied, so that a caller's structs may be gone. What a launcher handed down is taken
// here; plugins and data are opened by setup.

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "fabric/fabric.h"
#include "fabric/signals/signals.h"
#include "lib/base/files/files.h"

enum { ARENA_BYTES = 4 * TD_SPEC_ARENA_BYTES };

// ---- options ------------------------------------------------------------------------------------
static td_status keep_text(struct td_fabric *f, const char **text) {
    if (!*text) return TD_OK;
    *text = td_arena_strdup(f->arena, *text);
    return *text ? TD_OK : td_fail_oom();
}

// What is NULL stays NULL.
static td_status copy_list(struct td_fabric *f, const char *name, const void *list, size_t n,
                           size_t bytes, void **out_list) {
    *out_list = NULL;
    if (n == 0) return TD_OK;
    if (!list || n > TD_FABRIC_LISTS) {
        return td_bad_spec("%s: %zu of them are given%s, at most %d can be", name, n,
                           list ? "" : " and no list", TD_FABRIC_LISTS);
    }
    *out_list = td_arena_alloc(f->arena, n * bytes);
    if (!*out_list) return td_fail_oom();
    memcpy(*out_list, list, n * bytes);
    return TD_OK;
}

static td_status keep_lists(struct td_fabric *f) {
    struct td_fabric_options *o = &f->o;
    void *own, *paths, *callbacks, *loggers;
    TD_TRY(copy_list(f, "own_plugins", o->own_plugins, o->n_own_plugins, sizeof *o->own_plugins,
                     &own));
    TD_TRY(copy_list(f, "plugins", o->plugins, o->n_plugins, sizeof *o->plugins, &paths));
    TD_TRY(
        copy_list(f, "callbacks", o->callbacks, o->n_callbacks, sizeof *o->callbacks, &callbacks));
    TD_TRY(copy_list(f, "loggers", o->loggers, o->n_loggers, sizeof *o->loggers, &loggers));
    for (size_t i = 0; i < o->n_plugins; i++) {
        TD_TRY(keep_text(f, (const char **)paths + i));
    }
    o->own_plugins = own;
    o->plugins = paths;
    o->callbacks = callbacks;
    o->loggers = loggers;
    return TD_OK;
}

static td_status keep_options(struct td_fabric *f, const struct td_fabric_options *o) {
    if (o->struct_bytes < offsetof(struct td_fabric_options, accelerator) + sizeof(char *)) {
        return td_bad_spec("struct_bytes of the options is %u; it is sizeof(struct "
                           "td_fabric_options)",
                           o->struct_bytes);
    }
    memcpy(&f->o, o, TD_MIN(o->struct_bytes, sizeof f->o));
    const char **texts[] = {&f->o.accelerator,    &f->o.strategy,  &f->o.precision, &f->o.trainer,
                            &f->o.checkpoint_dir, &f->o.cache_dir, &f->o.comm_hook};
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        TD_TRY(keep_text(f, texts[i]));
    }
    return keep_lists(f);
}

// ---- the process --------------------------------------------------------------------------------
static td_status check_world(const struct td_fabric *f) {
    const int32_t n_nodes = td_fabric_n_nodes(f), asked = f->o.devices;
    const int32_t world = (f->env ? f->env->world_size : 1) / n_nodes;
    if (f->o.num_nodes && f->o.num_nodes != n_nodes) {
        return td_bad_spec("num_nodes is %d, but these ranks are on %d; leave it 0, and submit the "
                           "program as a job with trainer.num_nodes",
                           f->o.num_nodes, n_nodes);
    }
    if (asked < 0) return td_bad_spec("devices is %d; it is a number of ranks, 0 for any", asked);
    if (asked == 0 || asked == world) return TD_OK;
    if (f->env) {
        return td_bad_spec("devices is %d, but %d ranks were started%s; leave devices 0 to take as "
                           "many as there are",
                           asked, world, n_nodes > 1 ? " on each node" : "");
    }
    return td_bad_spec("devices is %d, but this process is alone; start ranks with td_spawn "
                       "(traind/spawn.h), or submit the program as a job",
                       asked);
}

static td_status read_job(struct td_fabric *f) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 2 * TD_SPEC_MAX_BYTES);
    TD_TRY(td_fs_read(f->env->plan, TD_SPEC_MAX_BYTES, &text));
    struct td_plan *plan = td_arena_alloc(f->arena, sizeof *plan);
    if (!plan) return td_fail_oom();
    TD_TRY_CTX(td_plan_parse(f->arena, text.data, text.len, plan), "the job's plan '%s'",
               f->env->plan);
    f->job = plan;
    return TD_OK;
}

// The metrics of ranks that their own parent started are the program's business: its ring is not
// read by anybody else.
static td_status attach(struct td_fabric *f) {
    const struct td_rank_env *e = f->env;
    struct td_rank_args args = {.page_fd = -1, .events_fd = -1, .group_fd = -1, .store_fd = -1};
    if (e) {
        args.rank = e->rank;
        args.world_size = e->world_size;
        args.page_fd = e->page_fd;
        args.store_fd = e->store_fd;
    }
    TD_TRY(td_rank_attach(&args, &f->io));
    f->in_job = e && e->results_fd < 0;
    f->prints = !f->in_job && !f->o.quiet && (!e || e->rank == 0);
    f->io.train.print_metrics = !f->in_job;
    td_events_init(&f->events, f->in_job ? e->events_fd : -1);
    f->events.lines_fd = f->prints ? STDERR_FILENO : -1;
    return f->in_job ? td_rank_signals_take(f->io.train.page, true) : TD_OK;
}

td_status td_fabric_create(const struct td_fabric_options *options, struct td_fabric **out_fabric) {
    struct td_fabric *f = td_calloc(1, sizeof *f);
    if (!f) return td_fail_oom();
    f->magic = TD_FABRIC_MAGIC;
    f->divisor = 1;
    f->events.fd = f->events.lines_fd = -1;
    td_status s = td_arena_create(ARENA_BYTES, &f->arena);
    if (!s) s = keep_options(f, options);
    if (!s) s = td_fabric_env(&f->env);
    if (!s && !f->env) s = td_fabric_check_launcher();
    if (!s && f->env && f->env->plan) s = read_job(f);
    if (!s) s = check_world(f);
    if (!s) s = attach(f);
    if (s) {
        f->ended = true;
        td_fabric_destroy(f);
        return s;
    }
    *out_fabric = f;
    return TD_OK;
}

// ---- what is trained ----------------------------------------------------------------------------
static td_status take_section(struct td_fabric *f, const char **to, const char *text,
                              const char *call) {
    if (f->config || f->ended) return td_fabric_misuse("%s comes before td_fabric_setup", call);
    if (*to) return td_fabric_misuse("%s was called already", call);
    if (!text) return td_bad_spec("%s has no text", call);
    *to = td_arena_strdup(f->arena, text);
    return *to ? TD_OK : td_fail_oom();
}

td_status td_fabric_setup_module(struct td_fabric *f, const char *model) {
    return take_section(f, &f->model, model, "td_fabric_setup_module");
}

td_status td_fabric_setup_optimizers(struct td_fabric *f, const char *optimizer,
                                     const char *lr_scheduler) {
    TD_TRY(take_section(f, &f->optimizer, optimizer, "td_fabric_setup_optimizers"));
    if (!lr_scheduler) return TD_OK;
    return take_section(f, &f->schedule, lr_scheduler, "td_fabric_setup_optimizers");
}

td_status td_fabric_setup_dataloaders(struct td_fabric *f, const char *data) {
    return take_section(f, &f->data, data, "td_fabric_setup_dataloaders");
}

td_status td_fabric_seed_everything(struct td_fabric *f, uint64_t seed) {
    if (f->config || f->ended) {
        return td_fabric_misuse("td_fabric_seed_everything comes before td_fabric_setup");
    }
    if (seed > UINT32_MAX) return td_bad_spec("a seed is 0 to %u", UINT32_MAX);
    f->seed = seed;
    f->seeded = true;
    return TD_OK;
}
