// See the header.

#include "client/jobs/job_gpus.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/screen/format.h"
#include "client/screen/print.h"
#include "lib/base/clip.h"

// False: the driver does not say it.
static bool find_measured(const Traind__V1__JobGpu *g, const char *name, double *out_value) {
    for (size_t i = 0; i < g->n_measured; i++) {
        if (strcmp(g->measured[i]->key, name) != 0) continue;
        *out_value = g->measured[i]->value;
        return true;
    }
    return false;
}

static void show_one(const Traind__V1__JobGpu *g) {
    char label[24], words[160], bytes[32];
    struct td_clip_list list;
    double value;
    snprintf(label, sizeof label, "gpu%" PRIu32, g->number);
    td_clip_list_init(&list, words, sizeof words, ", ");
    if (find_measured(g, "utilization", &value)) td_clip_list_add(&list, "%.0f %%", value);
    if (find_measured(g, "used_bytes", &value) && value >= 0 && value < 1e18) {
        td_clip_list_add(&list, "%s", td_format_bytes((uint64_t)value, bytes));
    }
    if (find_measured(g, "power_w", &value)) td_clip_list_add(&list, "%.0f W", value);
    if (find_measured(g, "temperature_c", &value)) td_clip_list_add(&list, "%.0f C", value);
    if (find_measured(g, "throttled", &value) && value > 0) td_clip_list_add(&list, "throttled");
    td_print(stdout, "%-14s %s; %s of node %s\n", label, words[0] ? words : "-", g->uuid, g->node);
}

void td_job_gpus_show(const Traind__V1__Job *job) {
    for (size_t i = 0; i < job->n_gpus; i++) {
        show_one(job->gpus[i]);
    }
}

const char *td_job_gpus_busy(const Traind__V1__Job *job, char out[TD_JOB_GPUS_BYTES]) {
    double sum = 0, value;
    size_t n = 0;
    for (size_t i = 0; i < job->n_gpus; i++) {
        if (!find_measured(job->gpus[i], "utilization", &value)) continue;
        sum += value;
        n++;
    }
    snprintf(out, TD_JOB_GPUS_BYTES, "-");
    if (n) snprintf(out, TD_JOB_GPUS_BYTES, "%.0f%% of %zu", sum / (double)n, n);
    return out;
}
