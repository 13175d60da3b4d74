// See the header.

#include "engine/train/rank/programs/pattern.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/base.h"

const char *td_pattern_next(const char *at, char out_pattern[TD_PATTERN_BYTES]) {
    if (!*at) return NULL;
    size_t len = strcspn(at, "|");
    snprintf(out_pattern, TD_PATTERN_BYTES, "%.*s", (int)TD_MIN(len, TD_PATTERN_BYTES - 1), at);
    return at[len] ? at + len + 1 : at + len;
}

bool td_pattern_matches(const char *list, const char *name) {
    char pattern[TD_PATTERN_BYTES];
    for (const char *at = list; (at = td_pattern_next(at, pattern));) {
        if (fnmatch(pattern, name, 0) == 0) return true;
    }
    return false;
}
