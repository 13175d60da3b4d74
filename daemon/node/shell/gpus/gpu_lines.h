#ifndef TRAIND_DAEMON_NODE_SHELL_GPUS_GPU_LINES_H
#define TRAIND_DAEMON_NODE_SHELL_GPUS_GPU_LINES_H

// Lines of `traind-worker devices` (daemon/worker/devices.c), one JSON object each, as messages. A
// line of another kind is none to read: a newer worker may write it. One whose values are not what
// they should be is refused whole, with the member. Bounds: TD_DEVICES_MAX devices,
// TD_GPU_PROCESSES processes of each. Pure.

#include "lib/base/arena.h"
#include "lib/base/base.h"
#include "traind/v1/gpu.pb-c.h"

enum {
    TD_GPU_LINE_BYTES = 512 << 10,
    TD_GPU_ARENA_BYTES = 16 << 20, // has room for any line
    TD_GPU_PROCESSES = 64,
    TD_GPU_WHY = 512
};

enum td_gpu_line_kind {
    TD_GPU_LINE_OTHER,
    TD_GPU_LINE_INVENTORY, // list: its why has the driver's notes
    TD_GPU_LINE_SAMPLES,   // list: uuid, measured and processes of each
    TD_GPU_LINE_XID,       // uuid "": of a device that is not listed
    TD_GPU_LINE_NONE       // why; final: there will be none
};
struct td_gpu_line { // all of it in the arena
    enum td_gpu_line_kind kind;
    Traind__V1__GpuList list;
    const char *uuid, *why;
    uint32_t xid;
    bool final;
};

// Whether a line is an inventory, also one that cannot be read or whose end is missing.
bool td_gpu_line_is_inventory(const char *text);
TD_MUST_USE td_status td_gpu_line_read(struct td_arena *arena, const char *text, size_t len,
                                       struct td_gpu_line *out_line);

#endif
