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

//   traind-launcher exec-command PARENT_PID CORES MEMORY_BYTES PROCESSES OPEN_FILES ANSWER_FD
//       PROGRAM ARG...
//
// The same for a rank of kind: command, with limits of processes and of open files where they are
// not 0. PROGRAM is looked for in PATH. Where it cannot be executed one byte is written to
// ANSWER_FD, the errno, and the exit code is a shell's: 127 there is none, 126 it cannot be run.
// ANSWER_FD closes when the program begins.
int td_trampoline_command(int argc, char **argv);

#endif
