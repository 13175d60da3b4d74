#ifndef TRAIND_LIB_BASE_MACHINE_MACHINE_H
#define TRAIND_LIB_BASE_MACHINE_MACHINE_H

// What differs from machine to machine besides instructions (cpu_level.h): pages, cache lines, how
// denormals are switched off.
//
// Nothing else in the tree knows a number of these. Formats of files keep alignments of their own,
// the same everywhere. Any thread.
//
// The room:
//
//   proc.h       child processes
//   ports.h      a range of TCP ports, as an option gives it
//   interface.h  a network interface by name or network, and its address

#include "lib/base/base.h"

// Bytes of a page of memory: 4, 16 or 64 KiB.
size_t td_page_bytes(void);

// The distance between what two threads write, so that no cache line has two writers. The layout of
// a structure cannot ask the machine; this is the longest line of those it may run on. A machine
// that has longer ones is slower, not wrong.
#if defined(__x86_64__)
enum { TD_LINE_BYTES = 64 };
#else
enum { TD_LINE_BYTES = 128 }; // some aarch64 processors
#endif

// The calling thread takes denormal numbers of fp32 and fp64 for zero from now on, operands and
// results alike: they cost hundreds of cycles each and mean nothing in training. Nothing happens on
// a machine that has no such mode.
void td_denormals_flush(void);

#endif
