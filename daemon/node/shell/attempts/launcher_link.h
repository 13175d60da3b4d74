#ifndef TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_LAUNCHER_LINK_H
#define TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_LAUNCHER_LINK_H

// The node's end of a launcher's socket: frames of proto/traind/v1/launcher.proto.
//
// While its owner wants it, the link connects again by itself, once a second: a launcher that lives
// listens. Commands are small and rare; one that finds no connection is refused and the owner gives
// it again when on_hello comes. Values of the rendezvous store are as many as the coordinator has
// on its way; a launcher for which more waits than TD_LAUNCHER_LINK_MAX is connected to again. A
// launcher of another major is connected to, but only on_hello is called; it is stopped by signal.

#include "lib/base/base.h"
#include "traind/v1/launcher.pb-c.h"
#include "traind/v1/node.pb-c.h"

enum { TD_LAUNCHER_LINK_MAX = 1 << 20 };

struct td_launcher_link;
struct td_loop;

struct td_launcher_link_events {
    void (*on_hello)(const Traind__V1__LauncherHello *hello, void *arg);
    void (*on_status)(const Traind__V1__LauncherStatus *status, void *arg);
    void (*on_store_set)(const Traind__V1__LauncherStoreSet *set, void *arg);
    void (*on_store_want)(const Traind__V1__LauncherStoreWant *want, void *arg);
    // So many values have left, or are lost with the connection.
    void (*on_store_taken)(uint32_t n_values, void *arg);
};

// Connects in the next turn of the loop.
TD_MUST_USE td_status td_launcher_link_create(struct td_loop *loop, const char *socket_path,
                                              const struct td_launcher_link_events *events,
                                              void *arg, struct td_launcher_link **out_link);
void td_launcher_link_destroy(struct td_launcher_link *l);
// False: not connected, or the launcher speaks another major.
bool td_launcher_link_stop(struct td_launcher_link *l, int mode, uint32_t grace_ms);
bool td_launcher_link_save(struct td_launcher_link *l);
// False as above; of a value on_store_taken follows, unless it is false.
bool td_launcher_link_store_value(struct td_launcher_link *l, const Traind__V1__StoreValue *value);
// Dropped where there is no connection, and while something waits for the launcher to read.
void td_launcher_link_gpus(struct td_launcher_link *l, const Traind__V1__LauncherGpus *gpus);
void td_launcher_link_store_done(struct td_launcher_link *l, const Traind__V1__StoreDone *done);
void td_launcher_link_store_again(struct td_launcher_link *l, bool all);

#endif
