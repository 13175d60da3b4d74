#ifndef TRAIND_DAEMON_INIT_H
#define TRAIND_DAEMON_INIT_H

// `traind init`: makes what a coordinator needs to listen beyond its own machine, under tls/ in the
// state directory: a CA (ca.pem, ca.key) and the coordinator's certificate (server.pem,
// server.key). Keys have mode 0600. A CA that is there is kept, because nodes and clients trust it.
// A running coordinator takes a new certificate without a restart.

#include "lib/base/base.h"

// The whole program; argv[1] is "init". The exit code: 0, 2 wrong usage, 1 anything else.
int td_init_main(int argc, char **argv);

#endif
