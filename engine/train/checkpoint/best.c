// One comparison, and where a checkpoint will be.

#include "engine/train/checkpoint/best.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/attempt/checkpoint_name.h"

// Where the last part of a path begins; slashes at its end are no part.
static size_t last_part(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    while (n > 0 && path[n - 1] != '/') {
        n--;
    }
    return n;
}

void td_best_parent(const char *dir, char out_path[TD_FS_PATH_BYTES]) {
    size_t n = last_part(dir);
    snprintf(out_path, TD_FS_PATH_BYTES, "%.*s", n ? (int)n : 2, n ? dir : "./");
}

bool td_best_is_of(const struct td_best *b, const struct td_checkpoint_config *config) {
    return b->known && config->monitor && strcmp(b->monitor, config->monitor) == 0 &&
           b->larger_is_better == config->monitor_max;
}

void td_best_offer(struct td_best *b, const struct td_checkpoint_config *config, int64_t step,
                   double value) {
    if (isnan(value) || !config->dir) return;
    bool better = config->monitor_max ? value > b->value : value < b->value;
    if (td_best_is_of(b, config) && !better) return;
    *b = (struct td_best){
        .known = true,
        .larger_is_better = config->monitor_max,
        .value = value,
        .step = step,
    };
    size_t first = last_part(config->dir);
    snprintf(b->monitor, sizeof b->monitor, "%s", config->monitor);
    snprintf(b->path, sizeof b->path, "%.*s/%s",
             (int)TD_MIN(strcspn(config->dir + first, "/"), 255), config->dir + first,
             td_checkpoint_name_of(step).text);
}
