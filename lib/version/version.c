// The version of this program, which the Makefile writes into a header when it has changed. A
// define of the command line would rebuild every object at each commit.

#include "lib/version/version.h"

#include <built_version.h>

const char td_version[] = TD_BUILT_VERSION;

_Static_assert(sizeof td_version <= TD_VERSION_BYTES, "places that keep a version have this room");
