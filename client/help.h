#ifndef TRAIND_CLIENT_HELP_H
#define TRAIND_CLIENT_HELP_H

// What `trainctl VERB --help` says beside the flags.

#include <stdbool.h>

struct td_verb;

// "summary\vEXAMPLES ...", for argp; static, of one verb at a time.
const char *td_help_of(const struct td_verb *v);
// The verb's summary or examples speak of that flag.
bool td_help_names(const struct td_verb *v, const char *flag);

#endif
