#ifndef TRAIND_ACCELERATORS_FAR_FAR_H
#define TRAIND_ACCELERATORS_FAR_FAR_H

// Far: a device for tests, as far from the host as a real one. It computes with the reference's
// loops. Its handles are numbers that are no addresses, a thread of its own runs the queue, and
// outputs appear at wait. So a pointer that somebody keeps is a crash, and a result that nobody
// waits for is a wrong number. Nobody trains with it. In reading order:
//
//   far.h    the accelerator: memory, compile and run
//   queue.h  runs one after the other, on their own thread

#include "traind/plugin.h"

extern const struct td_plugin_desc td_accelerator_far;

#endif
