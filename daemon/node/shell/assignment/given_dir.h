#ifndef TRAIND_DAEMON_NODE_SHELL_ASSIGNMENT_GIVEN_DIR_H
#define TRAIND_DAEMON_NODE_SHELL_ASSIGNMENT_GIVEN_DIR_H

// Given directory: checkpoint.dir of a spec, before an attempt starts below it. Looking for it and
// making the attempt's directory may hang, so both are disk work. Where that takes too long, the
// attempt fails with class disk, and the node goes on.

#include <sys/types.h>

#include "daemon/node/shell/assignment/assignment.h"

struct td_loop;
struct td_given_dir;

enum { TD_GIVEN_DIR_SECONDS = 20 }; // as long as a launcher has

typedef void td_given_dir_fn(td_status take_status, void *arg);
// fn comes once, from the loop; the place stays the caller's to destroy. limit_ns:
// TD_GIVEN_DIR_SECONDS, but in tests.
TD_MUST_USE td_status td_given_dir_create(struct td_loop *loop,
                                          const struct td_assignment *assigned, mode_t mode,
                                          int64_t limit_ns, td_given_dir_fn *fn, void *arg,
                                          struct td_given_dir **out_dir);
void td_given_dir_destroy(struct td_given_dir *p); // fn is not called any more

#endif
