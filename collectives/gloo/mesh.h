#ifndef TRAIND_COLLECTIVES_GLOO_MESH_H
#define TRAIND_COLLECTIVES_GLOO_MESH_H

// Mesh: one TCP connection between each two nodes of an attempt, and nobody else at its ends. Each
// group of an attempt has its own.
//
// A node listens on a port of its interface address. It leaves this address in the store, with a
// token of 32 random bytes and the ranks that it has. The node with the higher number connects. It
// sends the token of the one that listens, which answers with that of the one that connects. Both
// come from the store, so each end knows that the other is of this attempt. A stranger who has no
// token is dropped: after a wrong or half greeting, at the latest after GREETING_NS. At most
// GUESTS_MAX may be greeting at once; the oldest gives way, and a node that had to go tries again.
// When all nodes are connected nobody listens any more. Then a note says how many were dropped, if
// any were, and from where the first came. It is one line, however many they are.
//
// A connection has TCP's keepalive and user timeout: one whose other machine acknowledges nothing
// for link_timeout_ns ends with ETIMEDOUT, or with what the network said meanwhile. So a host
// without power, or one whose cable is cut, is noticed whether data is on its way or not. A
// rank that is stopped is not: its kernel answers. (But for one that stops in the middle of a
// slice: when its socket is full nothing more of it is taken, which TCP cannot tell from a loss.)
//
// Both ends of a connection are bound to interface addresses, so traffic leaves by no other way. It
// is not encrypted: the interface is one that the configuration trusts.
//
// Rejected: to let Gloo make connections. Each pair of its TCP transport listens on a port of its
// own. It takes the first who comes for the peer, and ends the process at a message that is none.
// Waiting: poll, in slices; the store, in slices. Both look at `aborted` in between.
// Thread: one at a time.

#include "lib/base/base.h"
#include "traind/store.h"

struct td_mesh;

#define TD_MESH_LINK_NS (8 * TD_NS_PER_S)
enum { TD_MESH_NODE_TEXT = 96 };

struct td_mesh_config {
    struct td_store *store;
    const char *address; // numeric, of this node
    int32_t attempt;
    int32_t group; // of the attempt (traind/collective.h)
    int32_t node, n_nodes;
    int32_t first_rank, n_ranks; // of this node
    const char *const *names;    // (n_nodes); NULL: numbers alone
    int64_t link_timeout_ns;     // 0: TD_MESH_LINK_NS
    bool (*aborted)(void *arg);  // NULL: nobody asks
    void *aborted_arg;
    void (*note)(void *arg, const char *text); // NULL: what strangers do is not said
    void *note_arg;
};

// The ranks of a node, as it gave them.
struct td_mesh_place {
    int32_t first_rank, n_ranks;
};

// Listens, and says where. Waits for nobody. config is borrowed until destroy.
// Errors: INVALID_ARGUMENT no numeric address; FAILED_PRECONDITION the node does not have it; those
// of the store.
TD_MUST_USE td_status td_mesh_create(const struct td_mesh_config *config, struct td_mesh **out_m);
// Connects to all nodes. out_fds (n_nodes): nonblocking sockets, the caller's to close; -1 for this
// node. out_places (n_nodes). Errors: DEADLINE_EXCEEDED, with the nodes that did not come; ABORTED.
TD_MUST_USE td_status td_mesh_connect(struct td_mesh *m, int64_t deadline_ns, int *out_fds,
                                      struct td_mesh_place *out_places);
void td_mesh_destroy(struct td_mesh *m); // accepts NULL
TD_DEFINE_AUTO(td_mesh, td_mesh_destroy);
// "1 (rack-b)", or "1" where it has no name; written into out, which is returned.
const char *td_mesh_node(const struct td_mesh_config *c, int32_t node, char out[TD_MESH_NODE_TEXT]);

#endif
