#ifndef TRAIND_DAEMON_NODE_SHELL_LAUNCHER_LINK_H
#define TRAIND_DAEMON_NODE_SHELL_LAUNCHER_LINK_H

// The node's end of a launcher's socket: frames of proto/traind/v1/launcher.proto.
//
// While its owner wants it, the link connects again by itself, once a second: a launcher that lives
// listens. Commands are sent at once, small and rare; one that finds no connection is refused and
// the owner gives it again when on_hello comes. A launcher of another major is connected to, but
// only on_hello is called; it is stopped by signal.

#include "lib/base/base.h"
#include "traind/v1/launcher.pb-c.h"

struct td_launcher_link;
struct td_loop;

struct td_launcher_link_events {
    void (*on_hello)(const Traind__V1__LauncherHello *hello, void *arg);
    void (*on_status)(const Traind__V1__LauncherStatus *status, void *arg);
};

// Connects in the next turn of the loop.
TD_MUST_USE td_status td_launcher_link_create(struct td_loop *loop, const char *socket_path,
                                              const struct td_launcher_link_events *events,
                                              void *arg, struct td_launcher_link **out_link);
void td_launcher_link_destroy(struct td_launcher_link *l);
// False: not connected, or the launcher speaks another major.
bool td_launcher_link_stop(struct td_launcher_link *l, int mode, uint32_t grace_ms);
bool td_launcher_link_save(struct td_launcher_link *l);

#endif
