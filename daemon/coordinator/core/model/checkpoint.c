// See the header.

#include "daemon/coordinator/core/model/checkpoint.h"

#include <stdlib.h>

void td_checkpoint_destroy(struct td_checkpoint *c) {
    if (!c) return;
    for (uint32_t i = 0; i < c->n_files; i++) {
        free(c->files[i].name);
    }
    free(c->files);
    free(c->directory);
    free(c->damage);
    free(c->metrics_json);
    free(c);
}

uint64_t td_checkpoint_bytes(const struct td_checkpoint *c) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_files; i++) {
        bytes += c->files[i].bytes;
    }
    return bytes;
}
