// What a job keeps of its spec: the values that the coordinator itself reads, over and over, while
// the job waits, runs and is looked at after its end. The strings are copied into one block of
// memory, so that the tree they come from can go. With 10,000 jobs that wait, trees took 135 MiB.
// A string that is added here is added to list_texts, too: nothing else knows how many there are.

#include <string.h>

#include "daemon/coordinator/core/model/host_devices.h"
#include "daemon/coordinator/core/model/job.h"
#include "lib/job/labels.h"

enum { N_TEXTS = 11 };

static void list_texts(struct td_job_knobs *k, const char **out[N_TEXTS]) {
    const char **all[N_TEXTS] = {
        &k->checkpoint.monitor, &k->checkpoint.mode, &k->checkpoint.store,    &k->checkpoint.dir,
        &k->cpu_level,          &k->precision,       &k->ckpt_path,           &k->init_from,
        &k->accelerator,        &k->node_labels,     &k->resources.gpu_model,
    };
    memcpy(out, all, sizeof all);
}

void td_job_knobs_init(struct td_job_knobs *k) {
    const char **texts[N_TEXTS];
    *k = (struct td_job_knobs){0};
    list_texts(k, texts);
    for (size_t i = 0; i < N_TEXTS; i++) {
        *texts[i] = "";
    }
}

void td_job_knobs_finish(struct td_job_knobs *k) {
    free(k->texts);
    td_job_knobs_init(k);
}

td_status td_job_knobs_set(struct td_job_knobs *k, const struct td_spec *spec) {
    char accelerator[TD_ACCEL_KEY];
    TD_AUTO_FREE char *node_labels = NULL;
    td_accel_key(spec, accelerator);
    TD_TRY(td_labels_of_map(spec->node_labels, &node_labels));
    struct td_job_knobs made = {
        .checkpoint = spec->checkpoint,
        .restart = spec->restart,
        .resources = spec->resources,
        .cpu_level = spec->trainer.cpu_level,
        .precision = spec->trainer.precision.name,
        .ckpt_path = spec->ckpt_path,
        .init_from = spec->init_from,
        .accelerator = accelerator,
        .node_labels = node_labels,
        .batch_size = spec->loader.batch_size,
        .num_nodes = (uint32_t)TD_MAX(spec->trainer.num_nodes, 1),
        .stages = spec->stages,
        .kind = spec->kind,
        .own_directory = spec->kind != TD_KIND_TRAIN &&
                         !td_json_string(td_json_get(spec->tree, "workdir"), NULL),
    };
    const char **texts[N_TEXTS];
    size_t bytes = 0;
    list_texts(&made, texts);
    for (size_t i = 0; i < N_TEXTS; i++) {
        if (!*texts[i]) *texts[i] = "";
        bytes += strlen(*texts[i]) + 1;
    }
    char *at = made.texts = malloc(bytes);
    if (!at) return td_fail_oom();
    for (size_t i = 0; i < N_TEXTS; i++) {
        size_t n = strlen(*texts[i]) + 1;
        *texts[i] = memcpy(at, *texts[i], n);
        at += n;
    }
    td_job_knobs_finish(k);
    *k = made;
    return TD_OK;
}
