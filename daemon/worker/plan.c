// plan: what a plan will need, without training: the graphs are recorded and the memory is planned,
// but nothing is allocated and no group is joined. A node runs it under limits and a deadline
// before any rank starts. Beside a 16-bit precision it says how long a step of 32-true takes, and
// it settles trainer.precision: auto (precision.h). With --dump-graph it prints the main program as
// a pass leaves it instead, or both in one object. It lists the devices of
// the accelerator, for who gives them to ranks, and the files that it read, for who keeps it
// (fabric/configure/reads.h). What the job would not find, or could not write,
// on this machine refuses the plan, too (engine/train/start.h).

#include <string.h>

#include "daemon/worker/precision.h"
#include "daemon/worker/worker.h"
#include "engine/train/plan/autotune.h"
#include "engine/train/start.h"
#include "fabric/configure/devices.h"
#include "fabric/configure/reads.h"
#include "fabric/signals/fatal.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named_output.h"
#include "lib/base/log.h"

enum { GRAPH_MAX_BYTES = 16 << 20, OUTPUT_MAX_BYTES = 40 << 20, DEVICES_MAX_BYTES = 256 << 10 };
enum { READ_MAX_BYTES = 1 << 20 };

static td_status append_step(const struct td_worker_sized *w, struct td_buf *b) {
    TD_TRY(td_buf_str(b, ",\"step_seconds\":"));
    TD_TRY(td_json_print_double(w->sizes.step.seconds, b));
    TD_TRY(td_buf_printf(b, ",\"rates\":\"%s\",\"precision\":\"%s\"",
                         td_rates_origin_name(w->sizes.step.rates), w->precision));
    int32_t wants = TD_MAX(w->sizes.step.wants_threads, w->beside.wants_threads);
    if (wants) TD_TRY(td_buf_printf(b, ",\"rates_wanted\":%d", wants));
    if (!w->other) return TD_OK;
    TD_TRY(td_buf_printf(b, ",\"other_precision\":\"%s\",\"other_step_seconds\":", w->other));
    return td_json_print_double(w->beside.seconds, b);
}

static td_status append_sizes(const struct td_worker_sized *w, struct td_buf *b) {
    const struct td_sizes *z = &w->sizes;
    TD_TRY(td_buf_printf(
        b,
        "{\"parameters\":%lld,\"state_bytes\":%zu,\"arena_bytes\":%zu,"
        "\"scratch_bytes\":%zu,\"recompute\":\"%s\","
        "\"snapshot_bytes\":%zu,\"batch_bytes\":%zu,\"order_bytes\":%zu,\"process_bytes\":%zu,"
        "\"shared_bytes\":%zu,\"staging_bytes\":%zu,\"hook_bytes\":%zu,"
        "\"memory_bytes\":%zu,\"device_bytes\":%zu,\"shadow_bytes\":%zu,"
        "\"flops_per_step\":",
        (long long)z->parameters, z->state_bytes, z->arena_bytes, z->scratch_bytes,
        td_recompute_name(z->recompute), z->snapshot_bytes, z->batch_bytes, z->order_bytes,
        z->process_bytes, z->shared_bytes, z->staging_bytes, z->hook_bytes, z->memory_bytes,
        z->device_bytes, z->shadow_bytes));
    TD_TRY(td_json_print_double(z->flops_per_step, b));
    TD_TRY(append_step(w, b));
    if (z->slow[0]) {
        TD_TRY(td_buf_str(b, ",\"slow\":"));
        TD_TRY(td_json_print_string(z->slow, strlen(z->slow), b));
    }
    return td_buf_printf(b,
                         ",\"batches_per_epoch\":%lld,\"steps_per_epoch\":%lld,"
                         "\"total_steps\":%lld,\"samples\":%lld",
                         (long long)z->batches_per_epoch, (long long)z->steps_per_epoch,
                         (long long)z->total_steps, (long long)z->samples);
}

// What is printed beside the sizes.
struct beside {
    struct td_buf graph, devices, read;
};

static td_status append(const struct td_rank_args *args, const struct td_worker_sized *w,
                        const struct beside *t, struct td_buf *b) {
    const struct td_buf *graph = &t->graph;
    if (args->dump_graph && !args->json) return td_buf_append(b, graph->data, graph->len);
    TD_TRY(append_sizes(w, b));
    TD_TRY(td_buf_append(b, t->devices.data, t->devices.len));
    TD_TRY(td_buf_append(b, t->read.data, t->read.len));
    if (args->dump_graph) {
        TD_TRY(td_buf_str(b, ",\"graph\":"));
        TD_TRY(td_json_print_string(graph->data, graph->len, b));
    }
    return td_buf_str(b, "}\n");
}

static td_status list_devices(const struct td_rank *r, struct td_buf *out) {
    TD_TRY(td_buf_printf(out, ",\"accelerator\":\"%s\",\"devices\":", r->accel_name));
    return td_devices_print(r->accel_name, r->accel_ops, &r->accel_facts, out);
}

// Before anything is read: a file that changes meanwhile is another one then.
static td_status list_files(const struct td_rank_config *config, struct td_buf *out) {
    TD_TRY(td_buf_str(out, ",\"read\":"));
    return td_reads_print(config->plan.tree, out);
}

static td_status check_directory(const char *key, const char *dir) {
    return dir ? td_status_context(td_named_output_allowed(dir), "%s", key) : TD_OK;
}

// Those that are opened late, or by the launcher, whose failure is no more than a note.
static td_status check_directories(const struct td_json *plan) {
    static const char *const keys[] = {"trainer.trace_dir", "trainer.collective.dir"};
    for (size_t i = 0; i < TD_COUNTOF(keys); i++) {
        TD_TRY(check_directory(keys[i], td_json_string(td_json_path(plan, keys[i]), NULL)));
    }
    const struct td_json *loggers = td_json_get(plan, "loggers");
    for (const struct td_json *e = loggers ? loggers->first : NULL; e; e = e->next) {
        TD_TRY(check_directory("loggers: dir", td_json_string(td_json_get(e, "dir"), NULL)));
    }
    return TD_OK;
}

// What it names is static or lives as long as the config.
static td_status measure(const struct td_rank_args *args, struct td_rank_config *config,
                         struct td_worker_sized *out_sized, struct beside *out) {
    struct td_dump dump;
    struct td_rank_io io;
    if (args->dump_graph) {
        TD_TRY(td_dump_init(&dump, args->dump_graph, &out->graph));
        config->train.dump = &dump;
    }
    TD_TRY(td_rank_attach(args, &io));
    struct td_events events;
    td_events_init(&events, -1);
    struct td_worker_sized sized = {0};
    td_status s = td_worker_size_up(config, &io, &events, &sized);
    bool alone = args->dump_graph && !args->json; // the text, which says nothing of a start
    struct td_progress start = {0};
    if (!s && !alone) s = td_start_check(sized.rank, &start);
    if (!s) td_sizes_start_at(sized.rank, &start, &sized.sizes);
    if (!s && args->dump_graph) s = td_autotune_text(&dump, sized.rank);
    if (!s) s = list_devices(sized.rank, &out->devices);
    td_rank_destroy(td_steal(sized.rank));
    if (!s) *out_sized = sized;
    td_events_finish(&events);
    td_rank_detach(&io);
    return s;
}

int td_worker_plan(const struct td_rank_args *args) {
    struct td_worker_sized sized = {0};
    TD_AUTO(td_rank_config) *config = NULL;
    TD_AUTO_BUF text;
    struct beside beside;
    td_buf_init(&text, OUTPUT_MAX_BYTES);
    td_buf_init(&beside.graph, GRAPH_MAX_BYTES);
    td_buf_init(&beside.devices, DEVICES_MAX_BYTES);
    td_buf_init(&beside.read, READ_MAX_BYTES);
    static struct td_rank_page page; // no rank, but a crash of a plugin has its last words
    td_status s = td_fatal_install(&page);
    td_fatal_exit_for_plugins();
    if (!s) s = td_rank_configure(args, &config);
    if (!s) s = list_files(config, &beside.read);
    if (!s) s = check_directories(config->plan.tree);
    if (!s) s = measure(args, config, &sized, &beside);
    if (!s) s = append(args, &sized, &beside, &text);
    if (!s) s = td_fs_write_stdout(text.data, text.len);
    s = td_rank_classify(s);
    int code = s ? td_exit_code_of(td_status_class(s)) : TD_EXIT_DONE;
    if (s) {
        // The caller reads one JSON object from stdout either way.
        struct td_events events;
        td_events_init(&events, -1);
        td_events_end(&events, TD_OUTCOME_FAILED, s, 0);
        td_events_finish(&events);
        td_status_log(TD_LOG_ERROR, s, "the plan cannot be made");
    }
    td_buf_finish(&beside.graph);
    td_buf_finish(&beside.devices);
    td_buf_finish(&beside.read);
    return code;
}
