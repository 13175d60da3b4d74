#ifndef TRAIND_CLIENT_FIND_VERB_H
#define TRAIND_CLIENT_FIND_VERB_H

// Find verb: which row of the table of verbs the first words of a command line mean, and what is
// said when they mean none.

#include "client/client.h"

// The row whose words come first, or NULL; *out_words says how many words it has.
const struct td_verb *td_verb_find(const char *const *words, int n, int *out_words);
// What of the name of a verb comes after the words that begin it: "" where they have all of it.
// *out_words: how many they are.
const char *td_verb_rest(const char *name, const char *const *words, int n, int *out_words);
// Says what is wrong with the first word, which is there; the exit code.
int td_verb_refuse(const char *const *words, int n);

#endif
