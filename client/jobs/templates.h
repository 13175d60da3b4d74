#ifndef TRAIND_CLIENT_JOBS_TEMPLATES_H
#define TRAIND_CLIENT_JOBS_TEMPLATES_H

// Templates: the files of examples/init, which `trainctl init` writes.

#include "lib/base/base.h"

struct td_template {
    const char *name; // "job.yaml"
    struct td_str text;
};

enum { TD_TEMPLATES = 6 };

// In the order in which a person meets them.
void td_templates_get(struct td_template out_templates[TD_TEMPLATES]);

#endif
