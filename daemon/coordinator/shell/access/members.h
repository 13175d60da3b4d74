#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_MEMBERS_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_MEMBERS_H

// The nodes that joined: which certificates of a node are good, and until when. A certificate of
// the CA is not enough: its serial must be the newest of its node, or the one by which that was
// asked for. That one stays good because an answer may be lost; a copy of an older one is worth
// nothing.
//
// A node is named by its id, and no two that are members have one name. One that was revoked may
// join again with another token. In memory; rows are in state.db (TD_RECORD_MEMBER).
//
// Bound: TD_MEMBERS_MAX; one more takes the place of the member that ended longest ago, or is
// refused. No clock, no file; the loop's thread.

#include "daemon/coordinator/core/model/exchange.h"
#include "lib/base/clock.h"
#include "lib/tls/tls.h"

enum {
    TD_MEMBERS_MAX = 2048,
    TD_MEMBER_ID = 64, // and a NUL, each
    TD_MEMBER_NAME = 72,
    TD_MEMBER_ADDRESS = 64,
};

struct td_member {
    char id[TD_MEMBER_ID], name[TD_MEMBER_NAME];
    char serial[TD_TLS_SERIAL_BYTES]; // of its newest certificate
    char before[TD_TLS_SERIAL_BYTES]; // by which it asked for that; "": by a token
    char address[TD_MEMBER_ADDRESS];  // it asked from there
    // Real times; 0: never. expire_ns: the end of the newest.
    int64_t join_ns, expire_ns, revoke_ns;
    uint64_t identity; // the number by which calls know it; above 2^49, of this start
    bool cut;          // it expired, and its calls were ended
};

struct td_member_table;
TD_MUST_USE td_status td_member_table_create(struct td_member_table **out_members);
void td_member_table_destroy(struct td_member_table *t);
TD_DEFINE_AUTO(td_member_table, td_member_table_destroy);
// A row. DATA_LOSS: it is none.
TD_MUST_USE td_status td_member_table_load(struct td_member_table *t, const char *key,
                                           const char *body);
// Rows that changed since the last take; the taker owns them. NULL: none.
struct td_record *td_member_table_take(struct td_member_table *t);

// May a machine join as this node? INVALID_ARGUMENT FIELD_INVALID; ALREADY_EXISTS NODE_EXISTS: a
// member that did not end (excuse_ns after its certificate's end) has that id or that name, which
// the message names; RESOURCE_EXHAUSTED LIMIT_MEMBERS.
TD_MUST_USE td_status td_member_table_may_join(const struct td_member_table *t, struct td_real now,
                                               int64_t excuse_ns, const char *id, const char *name);
// May the node of that id, a member or not, call itself so? ALREADY_EXISTS NODE_EXISTS: the name is
// that of another member that did not end, whether it speaks now or not.
TD_MUST_USE td_status td_member_table_may_name(const struct td_member_table *t, struct td_real now,
                                               int64_t excuse_ns, const char *id, const char *name);
// It has, after may_join: this is its certificate.
const struct td_member *td_member_table_join(struct td_member_table *t, struct td_real now,
                                             const char *id, const char *name, const char *address,
                                             const struct td_certificate *certificate);
// It has another certificate, which it asked for by the one of that serial.
void td_member_table_renew(struct td_member_table *t, const struct td_member *member,
                           const char *serial, const char *address,
                           const struct td_certificate *certificate);
// By id, or by a name that one alone has. Of one that was revoked nothing changes. NOT_FOUND
// NODE_NOT_FOUND.
TD_MUST_USE td_status td_member_table_revoke(struct td_member_table *t, struct td_real now,
                                             const char *node, const struct td_member **out_member);
// Whose certificate it is. UNAUTHENTICATED CERTIFICATE_UNKNOWN, CERTIFICATE_REVOKED.
TD_MUST_USE td_status td_member_table_judge(const struct td_member_table *t, const char *id,
                                            const char *serial,
                                            const struct td_member **out_member);

const struct td_member *td_member_table_by_id(const struct td_member_table *t, const char *id);
const struct td_member *td_member_table_find(const struct td_member_table *t, uint64_t identity);
// Oldest first: begin with *cursor 0. NULL: that was the last.
const struct td_member *td_member_table_next(const struct td_member_table *t, size_t *cursor);
// The next whose certificate is over and that was not given here before; NULL: none.
const struct td_member *td_member_table_expired(struct td_member_table *t, struct td_real now);
// When the next one is over, or was: one that td_member_table_expired has yet to give counts. 0:
// none.
int64_t td_member_table_next_expiry(const struct td_member_table *t);

#endif
