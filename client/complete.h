#ifndef TRAIND_CLIENT_COMPLETE_H
#define TRAIND_CLIENT_COMPLETE_H

// What can be at a shell's cursor, one candidate a line: its text, a tab, what it means.
//
// words[0..n) is the line after `trainctl`; the last one is what was typed of the word to complete,
// perhaps "". Verbs and flags come from the tables, jobs and checkpoints from the coordinator that
// the line names. It has two seconds; without it there are no such candidates, and no message,
// since a shell would show it in the middle of a line. Nothing is printed where a file is wanted.

#include "client/session/session.h"

TD_MUST_USE td_status td_complete(struct td_session *s, const char *const *words, int n);

#endif
