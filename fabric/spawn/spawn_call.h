#ifndef TRAIND_FABRIC_SPAWN_SPAWN_CALL_H
#define TRAIND_FABRIC_SPAWN_SPAWN_CALL_H

// Spawn call: what all ranks of one td_spawn are to do, in a sealed memfd that they inherit.
//
//   struct td_spawn_call | zeros to TD_SPAWN_CALL_BYTES | arguments
//
// Arguments may have any size: the ranks map one copy. TRAIND_SPAWN has its descriptor.

#include <sys/types.h>

#include "lib/base/base.h"
#include "traind/spawn.h"

enum { TD_SPAWN_CALL_MAGIC = 0x5453434c, TD_SPAWN_CALL_VERSION = 1 };
enum { TD_SPAWN_CALL_BYTES = 65536 }; // a whole number of pages on every machine
enum { TD_SPAWN_DIR_BYTES = 1024 };

struct td_spawn_call {
    uint32_t magic, version;
    int32_t parent; // its process
    uint32_t reserved;
    uint64_t args_bytes;
    char function[TD_SPAWN_NAME_BYTES];
    char dir[TD_SPAWN_DIR_BYTES]; // private to the call
};

// args: (call->args_bytes). Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_spawn_call_make(const struct td_spawn_call *call, const void *args,
                                         int *out_fd);
// Mapped for as long as the process lives. Errors: FAILED_PRECONDITION (it is none, or not sealed).
TD_MUST_USE td_status td_spawn_call_read(int fd, const struct td_spawn_call **out_call,
                                         const void **out_args);

#endif
