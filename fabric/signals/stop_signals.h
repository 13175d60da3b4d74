#ifndef TRAIND_FABRIC_SIGNALS_STOP_SIGNALS_H
#define TRAIND_FABRIC_SIGNALS_STOP_SIGNALS_H

// Signals that ask a rank to stop become the stop word of its page, and SIGUSR1 its request for a
// checkpoint. One thread waits for them; every other thread, made before or after, has them
// blocked.
//
// Rejected: a handler. oneDNN's generated sgemm keeps its stack pointer in a buffer from malloc
// while it computes. A handler that interrupts it there has its frame written over the heap in
// front of the buffer, and the process dies of it a little later. SA_ONSTACK helps only the thread
// that has such a stack, and a process's signal may go to any thread.

#include "lib/attempt/rank_page.h"

// Call before any thread is made. Once in a process.
TD_MUST_USE td_status td_stop_signals_start(struct td_rank_page *page);
// The page is not touched afterwards; signals are taken and do nothing.
void td_stop_signals_finish(void);

#endif
