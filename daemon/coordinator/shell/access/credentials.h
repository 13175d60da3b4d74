#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_CREDENTIALS_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_CREDENTIALS_H

// The credentials by which calls come: who holds one, with which role, and until when. They are of
// two kinds. Tokens are those that were given out, to people, to nodes and for a join (tokens.h).
// Members are the nodes that joined, each with its certificates (members.h).
//
// The table is in memory, because every call asks it. Its rows are in state.db, a kind a table
// (TD_RECORD_TOKEN, TD_RECORD_MEMBER). Each change makes records, which td_credential_table_take
// gives to whoever stores them.
//
// Bounds: TD_TOKENS_MAX and TD_MEMBERS_MAX; a token that ended stays for people to see, up to as
// many. In a kind that is full a new one takes the place of the one that ended longest ago. No
// clock, no file; the loop's thread.

#include "daemon/coordinator/core/model/exchange.h"
#include "daemon/coordinator/shell/access/role.h"
#include "lib/base/clock.h"
#include "lib/tls/secret.h"
#include "lib/tls/tls.h"

enum td_credential_kind { TD_CREDENTIAL_TOKEN, TD_CREDENTIAL_MEMBER, TD_CREDENTIAL_KINDS };

enum {
    TD_TOKENS_MAX = 1000,
    TD_MEMBERS_MAX = 2048,
    TD_CREDENTIAL_ID = 64, // with its NUL, each
    TD_CREDENTIAL_NAME = 72,
    TD_CREDENTIAL_ADDRESS = 64,
    TD_TOKEN_ID = 13, // 12 hex digits and a NUL
    TD_TOKEN_NAME = 64,
    TD_CREDENTIAL_HEX = 2 * TD_TLS_DIGEST_BYTES + 1,
};

struct td_credential {
    enum td_credential_kind kind;
    char id[TD_CREDENTIAL_ID]; // of a member: the node's
    char name[TD_CREDENTIAL_NAME];
    enum td_access_role role; // of a member: node
    uint64_t identity;        // the number by which calls know it; not the owner's, which is 1
    char serial[TD_TLS_SERIAL_BYTES]; // of its newest certificate; "": a bearer token
    // Real times; 0: never, not yet. create_ns: it was given out, or joined.
    int64_t create_ns, expire_ns, revoke_ns;
    bool cut; // it expired, and its calls were ended
    // Of a token.
    char sha256[TD_CREDENTIAL_HEX];  // of its text; of a certificate, which has none, zeros
    char used_by[TD_CREDENTIAL_HEX]; // of a join token: who may use it again; "": nobody
    int64_t use_ns, kept_use_ns;     // kept: as in its row
    // Of a member.
    char before[TD_TLS_SERIAL_BYTES];    // by which it asked for the newest; "": by a token
    char address[TD_CREDENTIAL_ADDRESS]; // it asked from there
};

struct td_credential_table;
TD_MUST_USE td_status td_credential_table_create(struct td_credential_table **out_table);
void td_credential_table_destroy(struct td_credential_table *t);
TD_DEFINE_AUTO(td_credential_table, td_credential_table_destroy);
// A row. DATA_LOSS: it is none.
TD_MUST_USE td_status td_credential_table_load(struct td_credential_table *t,
                                               enum td_credential_kind kind, const char *key,
                                               const char *body);
// Rows that changed since the last take; the taker owns them. NULL: none.
struct td_record *td_credential_table_take(struct td_credential_table *t);

// NULL: none, each.
struct td_credential *td_credential_table_get(const struct td_credential_table *t,
                                              enum td_credential_kind kind, const char *id);
const struct td_credential *td_credential_table_find(const struct td_credential_table *t,
                                                     uint64_t identity);
// A token that is a certificate of this serial.
struct td_credential *td_credential_table_certificate(const struct td_credential_table *t,
                                                      const char *serial);
// Oldest first: begin with *cursor 0. NULL: that was the last.
struct td_credential *td_credential_table_next(const struct td_credential_table *t,
                                               enum td_credential_kind kind, size_t *cursor);
// The next that is past its time and was not given here before; NULL: none.
const struct td_credential *td_credential_table_expired(struct td_credential_table *t,
                                                        struct td_real now);
// When the next one expires, or did: one that td_credential_table_expired has yet to give counts.
// 0: none.
int64_t td_credential_table_next_expiry(const struct td_credential_table *t);

// Was it revoked, or is it excuse_ns past its end? And what who comes with it is answered:
// UNAUTHENTICATED TOKEN_REVOKED, TOKEN_EXPIRED; of a certificate CERTIFICATE_REVOKED,
// CERTIFICATE_EXPIRED.
bool td_credential_has_ended(const struct td_credential *c, struct td_real now, int64_t excuse_ns);
td_status td_credential_ended(const struct td_credential *c);

// ---- for tokens.c and members.c -----------------------------------------------------------------
// Is there room for one more, or one that may go?
bool td_credential_table_has_room(const struct td_credential_table *t, enum td_credential_kind kind,
                                  struct td_real now);
// A copy, which has an identity. After has_room memory alone may be missing.
TD_MUST_USE td_status td_credential_table_add(struct td_credential_table *t, struct td_real now,
                                              const struct td_credential *made,
                                              struct td_credential **out);
// It changed: its row is written.
void td_credential_table_save(struct td_credential_table *t, struct td_credential *c);
// Printable, without blanks, quotes and slashes; fits. And the name of a token.
bool td_credential_word_ok(const char *s, size_t bytes);
bool td_credential_name_ok(const char *name);
void td_credential_hex(const uint8_t *bytes, size_t n, char *out);

#endif
