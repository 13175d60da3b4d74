#ifndef TRAIND_DAEMON_WORKER_CONFIG_H
#define TRAIND_DAEMON_WORKER_CONFIG_H

// What a worker takes from its environment: one variable, and only for runs by hand. A rank that a
// launcher starts has neither this variable nor any need of it: it receives --cpu-level, which
// wins.

#define TD_WORKER_CPU_LEVEL "TRAIND_CPU_ISA"

// Its value; "": not set.
const char *td_worker_config_cpu_level(void);

#endif
