#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DISK_LOGS_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DISK_LOGS_H

// Logs of ranks at the coordinator: <state>/logs/<job>/a<attempt>/<rank>.out and .err.
//
// The length of a file is its cursor: bytes are appended where they belong, synced, and only then
// acknowledged, so nothing else needs to be stored. Bytes that are here already are skipped; a gap
// is refused by answering with the length. Writing is the disk thread's work; what was accepted
// and is not yet durable is bounded by td_disk and by the senders' own windows.
// Loop thread only.

#include "daemon/coordinator/core/core.h"

enum {
    TD_LOGS_MAX_STREAMS = 65536,
    TD_LOGS_MAX_BYTES = 80 << 20, // of one stream; launchers stop at 64 MiB
};

struct td_coordinator;
struct td_logs;

struct td_log_key {
    char job[TD_JOB_ID_MAX];
    uint32_t attempt;
    uint32_t rank;
    bool err;
};

TD_MUST_USE td_status td_logs_create(struct td_coordinator *c, struct td_logs **out_logs);
void td_logs_destroy(struct td_logs *l);
// Reports to the core how much is here of each attempt of which more may come.
void td_logs_load(struct td_logs *l, const struct td_job *j);

// Durable bytes.
uint64_t td_logs_size(struct td_logs *l, const struct td_log_key *key);
void td_logs_path(const struct td_logs *l, const struct td_log_key *key, char *out, size_t bytes);

// Appends; done comes once from the loop, or not at all when this fails. *out_pending false: there
// was nothing to write (all of it is here, or a gap), and done will not come.
// RESOURCE_EXHAUSTED: too much at once, or past the cap.
TD_MUST_USE td_status td_logs_append(struct td_logs *l, const struct td_log_key *key,
                                     uint64_t offset, const void *data, size_t bytes,
                                     void (*done)(td_status take_status, void *arg), void *arg,
                                     bool *out_pending);

#endif
