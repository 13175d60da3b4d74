#ifndef TRAIND_ENGINE_TRAIN_CHECKPOINT_PLUGIN_STATE_H
#define TRAIND_ENGINE_TRAIN_CHECKPOINT_PLUGIN_STATE_H

// Plugin state: bytes that plugins keep of themselves, named parts of one file of a checkpoint,
// `plugins.safetensors`:
//
//   strategy.<name>.whole   strategy.<name>.rank-<i>   comm_hook.<name>.rank-<i>   precision.<name>
//
// Each is a tensor of U8, so that anybody can look at it; what the bytes mean is the plugin's
// alone. The file is listed in the manifest with its digest, and is absent where no plugin keeps
// anything. Bounds: TD_PLUGIN_STATE_MAX_BYTES of bytes, TD_PLUGIN_STATE_PARTS parts. Owns its
// memory. Pure but for file access; any thread, one at a time.

#include "lib/base/buf.h"

#define TD_PLUGIN_STATE_FILE "plugins.safetensors"
enum { TD_PLUGIN_STATE_PARTS = 4098, TD_PLUGIN_STATE_NAME = 64 };

struct td_plugin_part {
    char name[TD_PLUGIN_STATE_NAME];
    uint64_t bytes;
};

struct td_plugin_state {
    struct td_buf parts; // of struct td_plugin_part
    struct td_buf bytes; // of all parts, one after the other
};

void td_plugin_state_init(struct td_plugin_state *s);
void td_plugin_state_finish(struct td_plugin_state *s); // accepts one of zero bytes
void td_plugin_state_clear(struct td_plugin_state *s);  // keeps the memory
size_t td_plugin_state_count(const struct td_plugin_state *s);
// The last one is good until the next call.
struct td_plugin_part td_plugin_state_at(const struct td_plugin_state *s, size_t i);
// RESOURCE_EXHAUSTED past the bounds; nothing is added then.
TD_MUST_USE td_status td_plugin_state_add(struct td_plugin_state *s, const char *name,
                                          const void *data, size_t bytes);
// False: there is none of that name. The bytes are borrowed until s changes.
bool td_plugin_state_find(const struct td_plugin_state *s, const char *name,
                          struct td_span *out_bytes);

// The file's bytes, appended to out.
TD_MUST_USE td_status td_plugin_state_print(const struct td_plugin_state *s, struct td_buf *out);
// Adds the parts of a file. DATA_LOSS (class data) when it is damaged, or is of another form.
TD_MUST_USE td_status td_plugin_state_read(const char *path, struct td_plugin_state *s);

#endif
