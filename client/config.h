#ifndef TRAIND_CLIENT_CONFIG_H
#define TRAIND_CLIENT_CONFIG_H

// Where the daemon is: flags, then the environment, then the state directory's files.
//   address   --address, TRAIND_ADDRESS, <state dir>/address
//   token     --token-file, TRAIND_TOKEN_FILE, <state dir>/token
//   CA        --ca, TRAIND_CA, <state dir>/tls/ca.pem if it is there and the address needs it

#include "client/client.h"

struct td_client_config {
    char state_dir[512];
    char address[300];
    char address_source[600]; // for messages: "TRAIND_ADDRESS", "/var/lib/traind/address"
    char token[512];
    char ca[600]; // "": none
    bool color;
};

// UNAVAILABLE NO_DAEMON says how to start one; FAILED_PRECONDITION when a file cannot be read.
TD_MUST_USE td_status td_client_config_read(const struct td_flags *f,
                                            struct td_client_config *out_config);

#endif
