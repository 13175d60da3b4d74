#ifndef TRAIND_CLIENT_JOBS_SPEC_FILE_H
#define TRAIND_CLIENT_JOBS_SPEC_FILE_H

// Reads the text of a job spec for submit and plan.

#include "lib/base/buf.h"

enum {
    TD_SPEC_FILE_MAX = 1 << 20, // what a coordinator takes
    TD_SPEC_FILE_CHUNK = 64 << 10,
    TD_SPEC_FILE_BUFFER = TD_SPEC_FILE_MAX + TD_SPEC_FILE_CHUNK, // maximum for out, at least
};

// path "-" is standard input. INVALID_ARGUMENT (exit 2) when it is absent, no file, too large or
// not text; nothing is sent then.
TD_MUST_USE td_status td_spec_file_read(const char *path, struct td_buf *out);

#endif
