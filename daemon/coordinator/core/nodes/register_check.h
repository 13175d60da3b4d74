#ifndef TRAIND_DAEMON_COORDINATOR_CORE_NODES_REGISTER_CHECK_H
#define TRAIND_DAEMON_COORDINATOR_CORE_NODES_REGISTER_CHECK_H

// Is whoever registers a node of its own, and of a build that we understand? A build whose
// launchers we do not understand is refused. One whose ranks read other plans has a session, in
// which what runs there goes on, and gets no plan and no attempt. Either is shown in lists of nodes
// with the reason. A node that comes back is never refused: only another machine is, while the
// first speaks. Where the two look alike, the second gets the session, because it may be the
// first's daemon, started again. When the first then asks for it, both live: it gets the session
// back, and the second is refused from then on.

#include "lib/base/base.h"
#include "traind/v1/node.pb-c.h"

struct td_core;
struct td_host;
struct td_node_session;

// known: the node of that id; NULL: there is none. FAILED_PRECONDITION ABI_MISMATCH, with both
// versions; ALREADY_EXISTS NODE_EXISTS: another machine that speaks has that name or that id, which
// the message names.
TD_MUST_USE td_status td_register_check(const struct td_core *core, const struct td_host *known,
                                        const struct td_node_session *s,
                                        const Traind__V1__Register *m);
bool td_register_is_mismatch(td_status borrow_status); // it is that ABI_MISMATCH
// What is wrong with the message itself; NULL: nothing.
const char *td_register_bad(const Traind__V1__Register *m);
// Takes what the message says of the node.
void td_register_fill(struct td_host *n, const struct td_node_session *s,
                      const Traind__V1__Register *m);
// After the check: sets n->unfit, or clears it.
void td_register_judge(struct td_host *n, const Traind__V1__Register *m);
// After the check, of a node that is known: this daemon speaks for it from now on. True: the one
// that did so before is another machine.
bool td_register_take(struct td_host *known, const Traind__V1__Register *m);
// ALREADY_EXISTS NODE_EXISTS for such a one.
td_status td_register_refuse_copy(const struct td_host *known);

#endif
