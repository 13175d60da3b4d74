#ifndef TRAIND_FABRIC_CONFIGURE_CONFIGURE_H
#define TRAIND_FABRIC_CONFIGURE_CONFIGURE_H

// Configure: from a plan file and what the launcher said to the engine's plain configuration. The
// only place where the job spec's types and the engine's meet.
//
// The room:
//
//   reads.h            the files that a plan was made from
//   brought.h          sizes that come with the weights
//   method.h           how the weights move
//   user_plugins.h     what a plan names of plugins, and which of its own files are loaded
//   known_precision.h  what trainer.precision: auto was
//   devices.h          which device of an accelerator is the rank's

#include "engine/train/config/config.h"
#include "lib/plugin/registry.h"
#include "lib/spec/plan.h"

// What the command line said.
struct td_rank_args {
    const char *plan_file;
    const char *plan_text;                           // instead of a file; NULL: there is a file
    const struct td_plugin_desc *const *own_plugins; // (n_own_plugins) of the program itself
    size_t n_own_plugins;
    const char *dump_graph;      // a pass; NULL: no text
    const char *choices_dir;     // as td_train_config's
    const char *checkpoints_dir; // plan: where a job has them, if its spec names no place
    const char *cpu_level;       // the highest that it may use; "": the machine's
    const char *cpu_level_from;  // who says so: "--cpu-level"
    const char *device;          // of this rank; NULL: the first
    const char *plugin_dirs;     // where the plan's `plugins` may be (user_plugins.h)
    bool plugins;                // probe: what a spec can name
    bool busy;                   // ranks run on this machine
    bool profile;                // a table of where the time went, at the end
    const char *accelerator;     // rates: of which; NULL: cpu
    int32_t n_threads;           // rates: of how many; 0: one
    bool json;                   // the text as member `graph` of the sizes
    int32_t rank, world_size;    // world 0: not said
    int32_t n_sharing;           // ranks that have the same cores; 0: this one alone
    int page_fd, events_fd, group_fd, store_fd; // -1: none
    bool whole_job; // nobody said which ranks there are: as many as the spec asks for
};

struct td_rank_config {
    struct td_arena *arena; // owns everything below
    struct td_plan plan;
    struct td_registry *registry;
    struct td_train_config train;
};

// The CPU level that the arguments and the plan leave is held from then on.
TD_MUST_USE td_status td_rank_configure(const struct td_rank_args *args,
                                        struct td_rank_config **out_config);
void td_rank_config_destroy(struct td_rank_config *c); // accepts NULL
TD_DEFINE_AUTO(td_rank_config, td_rank_config_destroy);

#endif
