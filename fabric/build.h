#ifndef TRAIND_FABRIC_BUILD_H
#define TRAIND_FABRIC_BUILD_H

// Which build of the engine this process runs, for the resume key. Any thread.

#include "lib/base/base.h"

enum { TD_BUILD_NAME = 64 };
// "0.1.0+<16 hex digits>": two builds that could differ in a bit have two names.
TD_MUST_USE td_status td_build_name(char out_name[TD_BUILD_NAME]);

#endif
