#ifndef TRAIND_LIB_PLUGIN_REGISTRY_H
#define TRAIND_LIB_PLUGIN_REGISTRY_H

// Plugin registry: name -> descriptor, for each kind of plugin.
//
// In-tree plugins without foreign libraries are in a static table; the others are shared objects
// "<kind>-<name>.so" in the plugin directory, loaded when first asked for (RTLD_NOW | RTLD_LOCAL)
// and never closed. Their op numbers and struct sizes must be ours (traind/layout.h); an op list
// that ends before ours will do, but not for an accelerator, which is handed every op. Either way
// the same checks run. The ABI's major must be equal, and its minor not newer than ours. Descriptor
// and ops table must be size-prefixed; they are copied by the smaller size. Required slots must be
// present, of some pairs both or none, and the plugin's table of knobs (traind/knobs.h) sound. The
// error names a slot that is missing. A loaded file stays open until its digest is asked for. So
// what find hands out is the registry's own copy, of this build's full size, unknown slots NULL; it
// dies with the registry. Names are case-insensitive; an unknown name lists the known. At most
// TD_REGISTRY_MAX plugins. One thread at a time. The only home of dlopen but for accelerators that
// open a vendor library late.
//
// lib/plugin knows plugins, and nothing of any one:
//
//   plugin_files.h      the shared objects of plugin directories, as one digest
//   knobs.c             readers of a plugin's knobs (traind/knobs.h)
//   collective_calls.c  calls that a collective may lack (traind/collective.h)

#include "lib/base/base.h"
#include "lib/base/buf.h"
#include "lib/base/digest.h"
#include "traind/descriptor.h"

struct td_layout; // traind/layout.h

enum { TD_REGISTRY_MAX = 256 };

struct td_registry;
TD_MUST_USE td_status td_registry_create(const char *plugin_dir, struct td_registry **out_registry);
void td_registry_destroy(struct td_registry *r);
TD_DEFINE_AUTO(td_registry, td_registry_destroy);
// Adds a descriptor of the static table; ALREADY_EXISTS on a duplicate name of that kind.
TD_MUST_USE td_status td_registry_add(struct td_registry *r, const struct td_plugin_desc *desc);
// NOT_FOUND lists the known names; FAILED_PRECONDITION says why a plugin does not load here. Both
// are class bad_spec: another attempt finds the same files. UNAVAILABLE: it was just replaced.
TD_MUST_USE td_status td_registry_find(struct td_registry *r, enum td_plugin_kind kind,
                                       const char *name, const struct td_plugin_desc **out_desc);
// True: one of that name was added or loaded.
bool td_registry_has(const struct td_registry *r, enum td_plugin_kind kind, const char *name);
// Adds "a, b, c" to `out`: what find could find. Fails when there is no room for all.
TD_MUST_USE td_status td_registry_list(const struct td_registry *r, enum td_plugin_kind kind,
                                       struct td_buf *out);
// The same of files in a directory, which need not be there; without what the registry has.
TD_MUST_USE td_status td_registry_list_files(const struct td_registry *r, enum td_plugin_kind kind,
                                             const char *path, struct td_buf *out);
// Loads a shared object by path (user plugins).
TD_MUST_USE td_status td_registry_load(struct td_registry *r, const char *path,
                                       const struct td_plugin_desc **out_desc);
struct td_plugin_file {
    char name[48]; // "accelerator-cpu"
    char digest[TD_DIGEST_HEX];
};
// The shared objects that were loaded so far, in that order. Each file is read here
// for the first time, which takes a millisecond or more: a rank that starts does not wait for it.
// UNAVAILABLE: a file cannot be read.
TD_MUST_USE td_status td_registry_files(struct td_registry *r,
                                        struct td_plugin_file out[TD_REGISTRY_MAX], size_t *out_n);
// Checks a descriptor; used by add and load, and by tests.
TD_MUST_USE td_status td_plugin_check(const struct td_plugin_desc *desc, const char *origin);
// Checks what a shared object was compiled against; load does. NULL: it does not say.
TD_MUST_USE td_status td_plugin_check_layout(enum td_plugin_kind kind,
                                             const struct td_layout *layout, const char *origin);

#endif
