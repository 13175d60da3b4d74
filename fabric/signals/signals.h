#ifndef TRAIND_FABRIC_SIGNALS_SIGNALS_H
#define TRAIND_FABRIC_SIGNALS_SIGNALS_H

// What a rank does with signals, the worker and a program alike. A broken pipe and a file over its
// limit come back as errors of the call. A crash leaves its last words (fatal.h). A signal that
// asks for a stop becomes the stop word, and SIGUSR1 a request for a checkpoint (stop_signals.h).
//
// The room:
//
//   fatal.h         last words
//   symbol.h        the names in them
//   mapping.h       files that were lost under a mapping
//   stop_signals.h  who asks for a stop

#include "lib/attempt/rank_page.h"

// Once in a process, before any thread is made. With `has_launcher`, SIGQUIT makes the rank write
// its stack and go on; a rank that was started by hand ends of it.
TD_MUST_USE td_status td_rank_signals_take(struct td_rank_page *page, bool has_launcher);

#endif
