#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DISK_SWEEP_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DISK_SWEEP_H

// Sweep: files of streamed checkpoints that nobody will ask for any more.
//
// The catalog removes one checkpoint at a time (retention): its directory goes. An attempt that is
// over (forgotten, or given up) may have left files of which no checkpoint came: an upload that was
// broken off, shards whose event never arrived. Then everything under the attempt's directory goes
// that the catalog does not name, and the directories that are empty with it. What runs at the
// start of the daemon does the same for all attempts that were over before: a crash between the
// commit and the removal costs nothing.
//
// What was removed without a row is a line in the log.
//
// Uploads into what goes are ended first, and all files are changed by the disk thread alone, in
// the order in which that was asked: nothing comes back. A file that cannot be removed is a line in
// the log. Jobs that the catalog does not know are not touched. Loop thread.

#include <stdint.h>

struct td_coordinator;

void td_sweep_checkpoint(struct td_coordinator *c, const char *job, const char *path);
void td_sweep_attempt(struct td_coordinator *c, const char *job, uint32_t attempt);
// What a job owned here that is forgotten (forget.c): logs, then the attempts of which `parts`
// says that checkpoints were streamed, then its points. td_core_forgotten gets the end.
void td_sweep_job(struct td_coordinator *c, const char *job, const char *parts);
void td_sweep_all(struct td_coordinator *c);

#endif
