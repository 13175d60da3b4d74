#ifndef TRAIND_DAEMON_NODE_SHELL_PLANNER_PLUGIN_LIST_H
#define TRAIND_DAEMON_NODE_SHELL_PLANNER_PLUGIN_LIST_H

// The plugin list: what a job spec can name on this node, from module to accelerator, as
// `traind-worker probe --plugins` prints them, one JSON object a line. The probe is a child under
// limits and a deadline, because it loads shared objects: no plugin's code runs in a daemon. It
// runs when it is asked for, and once more if it is asked for meanwhile. A probe that fails is
// logged, and what was known stays, and fn comes, too. Bounds: TD_PLUGIN_LIST_MAX bytes; what goes
// beyond is cut. Loop thread.

#include "lib/base/base.h"

struct td_loop;
struct td_plugin_list;

enum { TD_PLUGIN_LIST_MAX = 512 << 10 };

// fn comes from the loop when a probe has ended.
TD_MUST_USE td_status td_plugin_list_create(struct td_loop *loop, const char *bin_dir,
                                            void (*fn)(void *arg), void *arg,
                                            struct td_plugin_list **out_list);
// Kills what runs. Accepts NULL.
void td_plugin_list_destroy(struct td_plugin_list *p);
TD_DEFINE_AUTO(td_plugin_list, td_plugin_list_destroy);

void td_plugin_list_look(struct td_plugin_list *p);
bool td_plugin_list_runs(const struct td_plugin_list *p); // fn follows
// Lines; "": not known yet. Dies with the next call of fn.
const char *td_plugin_list_text(struct td_plugin_list *p);

#endif
