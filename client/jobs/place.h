#ifndef TRAIND_CLIENT_JOBS_PLACE_H
#define TRAIND_CLIENT_JOBS_PLACE_H

// Where this program is: what relative paths of a job spec begin at. The coordinator resolves them
// and says what they became. Here it is looked whether what the job reads is there, while it can
// still be named as the person wrote it. traind-run does the same of the spec that it reads itself.

#include "lib/base/base.h"
#include "lib/base/files/files.h"

struct td_client_place {
    char directory[TD_FS_PATH_BYTES]; // "": it has no path any more
    char home[TD_FS_PATH_BYTES];      // "": unknown
    char boot_id[37];
};

// home: of the environment, NULL allowed.
TD_MUST_USE td_status td_client_place_find(const char *home, struct td_client_place *out_place);

// One path that was relative: INVALID_ARGUMENT naming key and both forms when nothing is there.
TD_MUST_USE td_status td_client_place_look(const char *key, const char *given, const char *path);

#endif
