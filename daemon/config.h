#ifndef TRAIND_DAEMON_CONFIG_H
#define TRAIND_DAEMON_CONFIG_H

// traind's settings: flag > environment > default, one row of params.def each.

#include "daemon/allow.h"
#include "lib/base/cpu_level.h"

enum { TD_CONFIG_TEXT = 512 };

enum td_daemon_role { TD_DAEMON_ALL, TD_DAEMON_COORDINATOR, TD_DAEMON_NODE };

struct td_config {
#define TD_PARAM_STR(field, ...) char field[TD_CONFIG_TEXT];
#define TD_PARAM_INT(field, ...) int64_t field;
#include "daemon/params.def"
#undef TD_PARAM_STR
#undef TD_PARAM_INT
    enum td_daemon_role daemon_role; // of role
    enum td_cpu_level level;         // of cpu_level, which is its name
    unsigned allowed;                // of allow: bit set of enum td_allow
    struct td_ports ports;           // of port_range
    bool has_joined;                 // a node: its credential is a certificate, there is no token
    bool salvage;                    // start with what is readable of state.db
    const char *visible_gpus;        // CUDA_VISIBLE_DEVICES of this process; NULL: not set
    bool only_print;                 // what was asked for is printed, nothing is to be run
};

// Parses argv; --help prints and ends the program with 0, wrong flags with 2 (argp does). Errors:
// INVALID_ARGUMENT naming the setting, where it came from and what it takes.
TD_MUST_USE td_status td_config_read(int argc, char **argv, struct td_config *out_config);

// The state directory, from the root: what is given, or NULL; then the environment, then the
// default. INVALID_ARGUMENT: there is none, or its path is too long.
TD_MUST_USE td_status td_config_state_dir(const char *given, char out[TD_CONFIG_TEXT]);

// $NOTIFY_SOCKET and $JOURNAL_STREAM, or NULL.
const char *td_config_notify_socket(void);
const char *td_config_journal_stream(void);

#endif
