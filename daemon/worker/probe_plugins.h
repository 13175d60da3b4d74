#ifndef TRAIND_DAEMON_WORKER_PROBE_PLUGINS_H
#define TRAIND_DAEMON_WORKER_PROBE_PLUGINS_H

// What a spec can name here: modules, datasets, accelerators, strategies, precisions, comm hooks
// and collectives. Traind's own and those of the plugin directory, each as one JSON object a line
// on stdout. It has kind, name, summary, file and knobs, or why it does not load. An accelerator
// has devices as well (fabric/configure/devices.h). Texts are cut to TD_PROBE_TEXT bytes. Loads
// each shared object, so it runs in a process of its own. Thread: the only one.

#include "lib/plugin/registry.h"

enum { TD_PROBE_TEXT = 512 };

TD_MUST_USE td_status td_probe_plugins(struct td_registry *r, const char *plugin_dir);

#endif
