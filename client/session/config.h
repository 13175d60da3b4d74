#ifndef TRAIND_CLIENT_SESSION_CONFIG_H
#define TRAIND_CLIENT_SESSION_CONFIG_H

// Where the daemon is: flags, then the environment, then the context in use (contexts.h), then the
// files of the default state directory.
//   address   --address, TRAIND_ADDRESS, the context, <state dir>/address
//   token     --token-file, TRAIND_TOKEN_FILE, the context, <state dir>/token
//   certificate  instead of a token: --cert and --key, TRAIND_CERT and TRAIND_KEY, the context
//   CA        --ca, TRAIND_CA, the context, <state dir>/tls/ca.pem if it is there and the address
//             needs it
// A state directory that is named (--state-dir, TRAIND_STATE_DIR) is used instead of the context.
// The token of a context goes to the address of that context alone. A flag is used before a
// variable, and a token before a certificate of the same rank.

#include "client/client.h"

enum { TD_CLIENT_PATH = 600 };

struct td_client_config {
    char state_dir[512];
    char address[300];
    char address_source[600];        // for messages: "TRAIND_ADDRESS", "/var/lib/traind/address"
    char token[512];                 // "": there is a certificate
    char ca[600];                    // certificates that are trusted; "": none were named
    char certificate[512], key[512]; // files; "": the token is the credential
    bool color, color_out;           // of stderr, of stdout
    bool dumb;                       // TERM says that a terminal obeys no control characters
};

// UNAVAILABLE NO_DAEMON says how to start one; FAILED_PRECONDITION when a file cannot be read.
TD_MUST_USE td_status td_client_config_read(const struct td_flags *f,
                                            struct td_client_config *out_config);

// What somebody types to have a daemon, for messages: the service where its unit is installed.
const char *td_client_start_hint(const struct td_client_config *c);

// Where contexts are: $XDG_CONFIG_HOME/traind/contexts.json, or below $HOME/.config.
// INVALID_ARGUMENT: neither is set, or the path is too long.
TD_MUST_USE td_status td_client_contexts_path(char out[TD_CLIENT_PATH]);
// Of the environment; NULL: unset.
const char *td_client_home(void);
// The text of a small file, without spaces and line ends after it.
TD_MUST_USE td_status td_client_read_line(const char *path, char *out, size_t out_bytes);

#endif
