#ifndef TRAIND_CLIENT_HELP_H
#define TRAIND_CLIENT_HELP_H

// What `trainctl --help` and `trainctl VERB --help` say beside the flags.

#include <stdbool.h>
#include <stdio.h>

struct td_verb;

// The list of verbs, the flags of all, exit codes and variables of the environment.
void td_help_print(FILE *to);
// "summary\vEXAMPLES ...", for argp; static, of one verb at a time.
const char *td_help_of(const struct td_verb *v);
// The verb's summary or examples speak of that flag.
bool td_help_names(const struct td_verb *v, const char *flag);

#endif
