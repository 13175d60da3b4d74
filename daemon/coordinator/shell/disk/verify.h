#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DISK_VERIFY_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DISK_VERIFY_H

// Verify: are the files of a streamed checkpoint here still what was committed?
//
// Asked when a rank somewhere passed over its copy: the copy may be bad, or the files here. They
// are hashed on the disk thread and compared with the catalog's lengths and digests; the first that
// differs is reported to the core, which calls the checkpoint DAMAGED. A file that cannot be read
// for another reason (the disk is away) proves nothing and is only logged. Loop thread.

struct td_coordinator;

void td_verify_checkpoint(struct td_coordinator *c, const char *job, const char *path);

#endif
