#ifndef TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_FORWARD_H
#define TRAIND_DAEMON_NODE_SHELL_ATTEMPTS_FORWARD_H

// Forward: what an attempt wrote, to the coordinator, from where its commits end.
//
// One forwarder an attempt. It reads the segment files and sends whole records: lines of events,
// 64-byte metric points, any bytes of logs. Per stream at most TD_FORWARD_WINDOW bytes are unacked;
// what is acked is committed and never sent again. After a new session it goes on from the cursors
// of Registered. Nothing is kept in memory but offsets; files are opened for each read.
//
// Logs travel as Segments in process, and by PutLog over gRPC (one call at a time).
// The line that ends the log (launcher_end, launcher_lost) is held back until the launcher is gone
// and every rank's final LogState was sent, as node.proto asks.

#include "lib/base/base.h"
#include "traind/v1/launcher.pb-c.h"
#include "traind/v1/node.pb-c.h"

struct td_forward;
struct td_loop;
struct td_rpc_channel;

enum { TD_FORWARD_WINDOW = 1 << 20 };

struct td_forward_options {
    struct td_loop *loop;
    struct td_rpc_channel *channel; // for PutLog; NULL: logs in the session
    const char *dir;                // of the attempt; copied
    const char *job;                // copied
    const char *checkpoints;        // of the job; borrowed
    uint32_t attempt;
    uint64_t epoch;
    uint32_t first_rank, n_ranks;
    const char *key; // of the session, for PutLog; borrowed, it changes with each session
    // Sends a message in the session, as td_transport's send does; fills the incarnation.
    bool (*send)(Traind__V1__NodeMessage *m, void *arg); // false: no room, a poke follows
    void *arg;
};
TD_MUST_USE td_status td_forward_create(const struct td_forward_options *o,
                                        struct td_forward **out_forward);
void td_forward_destroy(struct td_forward *f);
TD_DEFINE_AUTO(td_forward, td_forward_destroy);

// A session wants it, from these offsets; NULL: from the start.
void td_forward_adopt(struct td_forward *f, const Traind__V1__AttemptCursor *cursor);
// How much of events.log a cursor says is committed.
uint64_t td_forward_events_of(const Traind__V1__AttemptCursor *cursor);
void td_forward_down(struct td_forward *f); // the session is gone
// Is there a session that wants it? out_events: how much of events.log was sent in it.
bool td_forward_is_active(const struct td_forward *f, uint64_t *out_events);
void td_forward_ack(struct td_forward *f, const Traind__V1__SegmentAck *ack);
// New lengths; also sends progress, and dropped bytes when they changed.
void td_forward_status(struct td_forward *f, const Traind__V1__LauncherStatus *status);
// Looks at the files by itself and sends what it may.
void td_forward_poke(struct td_forward *f);
// The launcher is gone, the files are final: says so once a session. A segment that is missing or
// shorter than its launcher wrote it, and of which not all was taken, is reported by name.
void td_forward_final(struct td_forward *f);

#endif
