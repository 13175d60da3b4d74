#ifndef TRAIND_CLIENT_FLAGS_H
#define TRAIND_CLIENT_FLAGS_H

// The flags of the verbs: rows of a table, each with the set of verbs that take it, so that help
// and refusals come from the same place. A verb's row names the sets that it is in.

#include "client/client.h"

enum td_flag_bit {
    F_SET = 1 << 0,
    F_FOLLOW = 1 << 1,
    F_DRY_RUN = 1 << 2,
    F_RANK = 1 << 3,
    F_ATTEMPT = 1 << 4,
    F_STREAM = 1 << 5, // --out-only, --err-only, --offset, --tail
    F_STEPS = 1 << 6,  // --from, --to, --points
    F_FILE = 1 << 7,   // -O
    F_STATE = 1 << 8,
    F_REQUEST_ID = 1 << 9,
    F_REASON = 1 << 10,
    F_DUMP = 1 << 11,
    F_RESUME = 1 << 12,
    F_KEEP = 1 << 13,
    F_TOKEN = 1 << 14, // --role, --expires, --csr
    F_NAME = 1 << 15,
    F_TRACE = 1 << 16,
    F_JOB = 1 << 17,     // the first argument is a job, which is only read
    F_JOBS = 1 << 18,    // arguments are jobs
    F_CHANGES = 1 << 19, // with F_JOBS: it is not what it was
    F_ALL = 1 << 20,
    F_RECONNECT = 1 << 21, // it stays while the daemon is away
    F_LOGS = 1 << 22,      // with F_FOLLOW
    F_PLOT = 1 << 23,
    F_CSV = 1 << 24, // -o csv
    F_FORCE = 1 << 25,
    F_ONCE = 1 << 26,
    F_IN_THE_WAY = 1 << 27, // --force of delete
    F_WAIT = 1 << 28,
    F_FOR = 1 << 29,
    F_COMMON = 1 << 30,
};

// The flags and arguments of a verb; argv[0] is any. Wrong usage exits TD_CTL_USAGE, --help 0.
void td_flags_parse(const struct td_verb *verb, int argc, char **argv, struct td_flags *out_flags);

#endif
