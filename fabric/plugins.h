#ifndef TRAIND_FABRIC_PLUGINS_H
#define TRAIND_FABRIC_PLUGINS_H

// The static plugin table: what a worker can use without loading anything. Accelerators that need
// foreign libraries are shared objects in the plugin directory beside the binary.

#include "lib/plugin/registry.h"

// Fills the registry with the in-tree plugins.
TD_MUST_USE td_status td_built_in_plugins(struct td_registry *r);
// Those, one by one; NULL after the last.
const struct td_plugin_desc *td_built_in_plugin_at(size_t i);
// True: it is one of those.
bool td_has_built_in_plugin(enum td_plugin_kind kind, const char *name);
// The plugin directory of this installation: "traind", beside libtraind.so.
TD_MUST_USE td_status td_plugin_dir(char *out, size_t out_bytes);

#endif
