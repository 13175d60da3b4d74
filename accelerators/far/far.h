#ifndef TRAIND_ACCELERATORS_FAR_FAR_H
#define TRAIND_ACCELERATORS_FAR_FAR_H

// Far: a device for tests, as far from the host as a real one. It computes with the reference's
// loops. Its handles are numbers that are no addresses, a thread of its own runs the queue, and
// outputs appear at wait. So a pointer that somebody keeps is a crash, and a result that nobody
// waits for is a wrong number. A run of segments that an executable was not prepared for is
// refused, where others may compile then. No job trains with it: it is linked into tests, and
// tests/plugins/far.c makes a plugin of it, which is never installed.
//
// Its knobs make it slow (delay_us), make it fail (fail_at), or give each tensor a buffer of its
// own (by_tensor). It has 2 devices, far-0 and far-1; their number is no knob, because probe comes
// before knobs. Its runs are one after the other in the queue that any accelerator may have
// (accelerators/queue/queue.h). In reading order:
//
//   far.h      the accelerator: memory, compile and run
//   tensors.h  a state region as a list of buffers

#include "traind/descriptor.h"

extern const struct td_plugin_desc td_accelerator_far;

#endif
