#ifndef TRAIND_DAEMON_LAUNCHER_LINK_H
#define TRAIND_DAEMON_LAUNCHER_LINK_H

// Link: the launcher's Unix socket and the one node daemon on it.
//
// The socket is in the owner's runtime directory (0700) and only processes of the same user are
// accepted (SO_PEERCRED). A new connection replaces the old one: the newer daemon holds the state
// directory's lock. A socket file that nobody answers on is left over from a crash and removed; one
// that answers is an error. A path too long for a socket address is replaced by a shorter one
// (<runtime>/l-<digest>.sock, else /tmp/traind-<uid>/...); record.json names the path in use.
//
// Output is bounded by the largest frame. A status waits until all before it is gone
// (td_link_can_send), frames of the rendezvous store share the room (td_link_has_room). The
// launcher never waits for a daemon.

#include <stdbool.h>
#include <sys/un.h>

#include "lib/base/frame.h"

struct td_link {
    int listen_fd;
    int node_fd; // -1: no daemon
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    struct td_frame_reader in;
    struct td_buf out;
};

TD_MUST_USE td_status td_link_init(struct td_link *l, const char *wanted_path);
void td_link_finish(struct td_link *l); // removes the socket file

// listen_fd is readable: true if a daemon is connected now (node_fd is new).
bool td_link_accept(struct td_link *l);
void td_link_drop(struct td_link *l);
// node_fd is readable: reads what is there. False: the daemon is gone, or spoke nonsense.
bool td_link_read(struct td_link *l);
// Next whole frame; false when there is none.
bool td_link_next(struct td_link *l, struct td_frame *out_frame);

bool td_link_can_send(const struct td_link *l);
// A frame of so many bytes, with its header, fits beside what waits.
bool td_link_has_room(const struct td_link *l, size_t frame_bytes);
void td_link_send(struct td_link *l, uint16_t type, const void *body, size_t bytes);
// Sends what waits; false: the daemon is gone. *out_waits: more is waiting for room.
bool td_link_flush(struct td_link *l, bool *out_waits);

#endif
