#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DISK_LOOK_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DISK_LOOK_H

// Look: are the files of streamed checkpoints still here, each of its length?
//
// Asked once, at the start, of all that the catalog calls committed. What somebody removed, or hid
// under another mount, is found before a job wants to resume from it. The disk thread looks, the
// core gets the answer: such a checkpoint is DAMAGED, and whole again when a later start finds its
// files. Contents are not read (verify.h does that when a loader has doubts). Loop thread.

struct td_coordinator;

void td_look_all(struct td_coordinator *c);

#endif
