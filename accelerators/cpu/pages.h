#ifndef TRAIND_ACCELERATORS_CPU_PAGES_H
#define TRAIND_ACCELERATORS_CPU_PAGES_H

// Large memory, straight from the system: zeroed, huge pages where the system has them, and cleared
// by all threads at once, so that no training step faults. Thread: the rank's training thread.

#include "lib/base/base.h"

// NULL, and errno: there is none. Bytes are rounded up to whole pages.
char *td_pages_map(size_t bytes);
// Accepts NULL. Takes the bytes that map was given.
void td_pages_unmap(void *p, size_t bytes);
// Has the system clear all of it now.
void td_pages_populate(char *p, size_t bytes, int32_t n_threads);

#endif
