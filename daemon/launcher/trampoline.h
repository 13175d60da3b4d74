#ifndef TRAIND_DAEMON_LAUNCHER_TRAMPOLINE_H
#define TRAIND_DAEMON_LAUNCHER_TRAMPOLINE_H

// Trampoline: `traind-launcher exec-rank`, what posix_spawn cannot do for a child.
//
//   traind-launcher exec-rank PARENT_PID CORES MEMORY_BYTES CPU_SECONDS PROGRAM ARG...
//
// In the new process, before the worker exists: SIGKILL when the parent dies, then a look whether
// it died already. Then resource limits (no core files, memory and processor time where they are
// not 0), cores, exec. Returns only on failure; the exit code then is TD_EXIT_RESOURCE or
// TD_EXIT_BUG and stderr says why. Rejected: doing this between fork and exec in the launcher (bare
// fork), or in the worker (it could forget).

int td_trampoline(int argc, char **argv);

#endif
