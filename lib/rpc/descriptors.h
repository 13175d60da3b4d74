#ifndef TRAIND_LIB_RPC_DESCRIPTORS_H
#define TRAIND_LIB_RPC_DESCRIPTORS_H

// The descriptor set of every .proto in the tree, embedded in the binary when it is built.
// Constant; any thread.

#include "lib/base/base.h"

struct td_str td_rpc_descriptors(void);

#endif
