#ifndef TRAIND_DAEMON_LAUNCHER_COMMAND_ORPHANS_H
#define TRAIND_DAEMON_LAUNCHER_COMMAND_ORPHANS_H

// Orphans: processes that ranks started and that outlive them, in groups and sessions of their own.
//
// A launcher is the child subreaper: whoever's parent ends becomes its child. When all ranks have
// exited, every child that is left is such a one. It is killed, its children come up in turn, and
// so on until there is none. A process that cannot die (a disk that hangs) is waited for a bounded
// time, then left, and the log names it.
//
// Thread: the launcher's, when no rank runs.

// signal_fd: readable when a child ends (SIGCHLD); it is read empty.
void td_orphans_end(int signal_fd);

#endif
