#ifndef TRAIND_CLIENT_FIND_VERB_H
#define TRAIND_CLIENT_FIND_VERB_H

// Find verb: which row of the table of verbs the first words of a command line mean, and what is
// said when they mean none.

#include "client/client.h"

struct td_verbs {
    const struct td_verb *verb; // (n), in alphabetical order
    size_t n;
};

// The row whose words are argv[1..], or NULL; *out_words says how many words it has.
const struct td_verb *td_verbs_find(const struct td_verbs *t, int argc, char **argv,
                                    int *out_words);
// Says what is wrong with argv[1], which is there; the exit code.
int td_verbs_refuse(const struct td_verbs *t, int argc, char **argv);

#endif
