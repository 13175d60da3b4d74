#ifndef TRAIND_LIB_ATTEMPT_RANK_ENV_H
#define TRAIND_LIB_ATTEMPT_RANK_ENV_H

// Rank environment: how a program of somebody's own learns which rank of which group it is.
//
// traind-worker gets this as arguments. The arguments of a user's program are the user's, so it
// comes in one variable, TRAIND_RANK. That is words `name=value` with a space between them. The
// plan's path is the last, because it may hold spaces. Whoever starts ranks writes it: the launcher
// for kind: program, a parent that spawns (traind/spawn.h). Descriptors are inherited; -1 or an
// absent word: none. All that comes from outside is checked here. Pure functions, any thread.

#include "lib/base/buf.h"

#define TD_RANK_ENV "TRAIND_RANK"

struct td_rank_env {
    int32_t rank, world_size; // of the attempt
    int page_fd;              // the rank's page and ring (rank_page.h)
    int events_fd;            // socket for its events
    // Memory of the group, where there are several ranks: a memfd of TD_GROUP_HEADER_BYTES, which
    // the ranks grow once they know how much they need.
    int group_fd;
    // Socket of the launcher's rendezvous store, where there are several ranks (store_client.h).
    int store_fd;
    int results_fd;   // socket of a parent that takes results; a launcher takes none
    const char *plan; // path of the attempt's plan; NULL: there is none
};
enum { TD_GROUP_HEADER_BYTES = 4096, TD_RANK_ENV_BYTES = 4096 };

// Writes the variable's value. RESOURCE_EXHAUSTED: the path of the plan is too long.
TD_MUST_USE td_status td_rank_env_write(const struct td_rank_env *e, char out[TD_RANK_ENV_BYTES]);
// text is changed; the plan's path is within it.
// Errors: INVALID_ARGUMENT names the word that is missing, twice, unknown or out of range.
TD_MUST_USE td_status td_rank_env_parse(char *text, struct td_rank_env *out_env);

#endif
