#ifndef TRAIND_FABRIC_SIGNALS_FATAL_H
#define TRAIND_FABRIC_SIGNALS_FATAL_H

// Last words: what a rank writes when it crashes.
//
// The page is the launcher's memory, so it survives the rank. On SIGSEGV, SIGBUS, SIGFPE, SIGILL
// and SIGABRT a handler on its own stack writes signal, address, phase, step and the functions of a
// backtrace there (and to stderr). Of a SIGBUS it names the file that could not be read. Where code
// of a plugin of the user's own is on the stack, it names that plugin: the crash is its. Of a
// signal that another process sent it names that process, and no plugin. Then it lets the signal
// kill the process as it would have.

#include "lib/attempt/rank_page.h"

// Once, early. The page outlives the process's use of it.
TD_MUST_USE td_status td_fatal_install(struct td_rank_page *page);
// SIGQUIT makes the rank write its stack to stderr, and go on. For ranks of a launcher.
TD_MUST_USE td_status td_fatal_install_ask(void);
// For a planner, whose page nobody reads: a crash in a plugin ends it with TD_EXIT_USER_CODE, and
// not by the signal.
void td_fatal_exit_for_plugins(void);
// A plugin of the user's own, by the path that it was loaded by. what: "module 'narrow'". At most
// TD_FATAL_PLUGINS, further ones are not named. Thread: training.
enum { TD_FATAL_PLUGINS = 32 };
void td_fatal_note_plugin(const char *path, const char *what);
// The last words of a failure that was not a crash.
void td_fatal_last_words(struct td_rank_page *page, const char *text);

#endif
