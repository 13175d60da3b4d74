#ifndef TRAIND_DAEMON_LAUNCHER_HELD_H
#define TRAIND_DAEMON_LAUNCHER_HELD_H

// Held: `traind-launcher exec-held`, a program that runs code of plugins, and nothing of it
// outlives it.
//
//   traind-launcher exec-held PARENT_PID CORES MEMORY_BYTES CPU_SECONDS PROGRAM ARG...
//
// Takes what exec-rank takes (trampoline.h), but stays, as the parent of the program and the child
// subreaper. When the program has ended, or SIGTERM came, or PARENT_PID died, it kills all that the
// program has started, in groups and sessions of their own too. Then it ends as the program did: by
// the same exit code, or by the same signal. It is stopped by SIGTERM: SIGKILL would let go of
// them.
//
// Rejected: the session group of the program, which setsid(2) leaves.

int td_held_main(int argc, char **argv);

#endif
