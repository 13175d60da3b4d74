#ifndef TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_PATTERN_H
#define TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_PATTERN_H

// Patterns: names of parameters, as people and modules write them: shell patterns, '|' between
// them. They are the C library's (fnmatch); a dot is a letter like any other. Pure, any thread.

#include <stdbool.h>

enum { TD_PATTERN_BYTES = 256 }; // one of them; a longer one is cut

// Takes the next pattern of a list, and returns where the one after it begins; NULL: there is none.
const char *td_pattern_next(const char *at, char out_pattern[TD_PATTERN_BYTES]);
// Does any pattern of the list match the name?
bool td_pattern_matches(const char *list, const char *name);

#endif
