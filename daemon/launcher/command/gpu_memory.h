#ifndef TRAIND_DAEMON_LAUNCHER_COMMAND_GPU_MEMORY_H
#define TRAIND_DAEMON_LAUNCHER_COMMAND_GPU_MEMORY_H

// Whether a command ended because the memory of its GPU ran out. No exit code says so: PyTorch and
// others write it to stderr, and end as after any error. So the end of stderr is read: its last
// TD_GPU_MEMORY_LINES lines, as programs write a little after the cause. No text says that a device
// is broken: that is the driver's to say (lib/attempt/xids.h). A failed assert in a kernel and an
// illegal address are the program's own errors, whatever else it writes. Pure.

#include <stdbool.h>

enum { TD_GPU_MEMORY_LINES = 20 };

// Of the end of a rank's stderr.
bool td_gpu_memory_ran_out(const char *tail);

#endif
