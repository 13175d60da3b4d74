#ifndef TRAIND_FABRIC_CONFIGURE_USER_PLUGINS_H
#define TRAIND_FABRIC_CONFIGURE_USER_PLUGINS_H

// User plugins: what a plan names as `name: plugin`, and the shared objects of its key `plugins`.
//
// Ranks and planners load them; a daemon never does. `permitted` says from where: directories with
// ':' between them, as the node's --plugin-dirs has them; TD_USER_PLUGINS_ANY in `trainctl run`,
// whose user permits all; or "", which permits none. A file counts as in a directory when it is
// directly in it, after symbolic links are followed: the node's digest is of those files
// (plugin_files.h).
//
// A file is loaded only if nobody but its owner may write it or replace it, and the owner is root
// or the user who runs this. The
// spec's own files come before installed ones of the same name; a name of traind's own is refused.
// Knobs are checked here against the table that the plugin declares.
//
// Errors, all of class bad_spec: PERMISSION_DENIED (PLUGIN_FORBIDDEN) a file that may not be
// loaded, and what to do; NOT_FOUND (PLUGIN_UNKNOWN); INVALID_ARGUMENT (SPEC_INVALID) knobs.
// Thread: training; reads the file system.

#include "lib/plugin/registry.h"
#include "lib/spec/spec.h"

#define TD_USER_PLUGINS_ANY "any"

// Where the loaded files are found by name afterwards: `registry`. The parts of `io_spec` that are
// plugins have checked knobs, with defaults, on success; they live in the arena.
TD_MUST_USE td_status td_user_plugins_take(struct td_arena *a, struct td_registry *registry,
                                           const char *permitted, struct td_spec *io_spec);

#endif
