#ifndef TRAIND_DAEMON_COORDINATOR_ACTIONS_H
#define TRAIND_DAEMON_COORDINATOR_ACTIONS_H

// What the core's actions are, outside of it: a message leaves, a watcher sees a change, a line is
// logged, files are swept. Each passes the gate first. What nobody waits for is patient there: it
// hurries no commit, and a message that can wait goes with the next one to its node. So a job that
// nobody watches starts, runs and ends with one commit for its end and the start of the next.
//
// An event takes a picture of its job when it is put, because the job may have moved on when the
// gate opens.

struct td_action;
struct td_coordinator;

// Carries it out once the gate lets it pass.
void td_coordinator_act(struct td_coordinator *c, struct td_action *take_action);

#endif
