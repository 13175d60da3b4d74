#ifndef TRAIND_DAEMON_LAUNCHER_WATCHDOG_LOST_H
#define TRAIND_DAEMON_LAUNCHER_WATCHDOG_LOST_H

// Lost files: is what the launcher writes still what others read?
//
// A segment is written through a descriptor and read by its path. If somebody removes, replaces or
// cuts the file, writing goes on without an error, and nobody reads it any more. So at each look
// the launcher compares what its paths name with what it opened, and with the bytes that it wrote.
// A file that is not the same is the end of the attempt: the ranks are killed, and the end names
// the file. Where events.log is the one that is lost, TD_SEGMENT_LOST says it to the node instead.
//
// Thread: the launcher's. A file system that cannot be asked (an error other than "does not exist")
// is taken as well.

#include <stdbool.h>

struct td_launcher;

// Looks at all files of the launcher. True once, when the first is found lost: l->lost says which.
bool td_launcher_find_lost(struct td_launcher *l);

#endif
