#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_TOKENS_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_TOKENS_H

// The credentials that were given out: who holds one, with which role, until when, and when it was
// used last. Most are bearer tokens. A token's text is "td_<id>_<secret>"; the secret is 32 random
// bytes and is shown once. What is kept is SHA-256 of the whole text, so that whoever reads
// state.db can present nothing. The others are certificates of people, which a handshake shows:
// what is kept is the serial number, and the key never left its owner.
//
// The table is in memory, because every call asks it; its rows are in state.db (TD_RECORD_TOKEN).
// Each change makes records, which td_token_table_take gives to whoever stores them. The last use
// is written when it is a minute older than what was written.
//
// Bounds: TD_TOKENS_MAX that are valid, one more is refused; as many that ended, for people to see,
// of which the oldest goes first. No clock, no file; the loop's thread.

#include "daemon/coordinator/core/model/exchange.h"
#include "daemon/coordinator/shell/access/role.h"
#include "lib/tls/secret.h"
#include "lib/tls/tls.h"

enum {
    TD_TOKENS_MAX = 1000,
    TD_TOKEN_ID = 13,   // 12 hex digits and a NUL
    TD_TOKEN_NAME = 64, // and a NUL
    TD_TOKEN_TEXT = 81, // "td_", id, '_', 64 hex digits and a NUL
};

struct td_token {
    char id[TD_TOKEN_ID];
    char name[TD_TOKEN_NAME];
    enum td_access_role role;
    uint8_t digest[TD_TLS_DIGEST_BYTES]; // of the text
    char serial[TD_TLS_SERIAL_BYTES];    // of a certificate, which has no text; "": a bearer token
    // Real times; 0: never, not yet.
    int64_t create_ns, expire_ns, use_ns, revoke_ns;
    int64_t kept_use_ns;                       // as in its row
    char used_by[2 * TD_TLS_DIGEST_BYTES + 1]; // of a join token: who may use it again; "": nobody
    bool cut;                                  // it expired, and its calls were ended
};

struct td_token_table;
TD_MUST_USE td_status td_token_table_create(struct td_token_table **out_tokens);
void td_token_table_destroy(struct td_token_table *t);
TD_DEFINE_AUTO(td_token_table, td_token_table_destroy);
// A row. DATA_LOSS: it is none.
TD_MUST_USE td_status td_token_table_load(struct td_token_table *t, const char *key,
                                          const char *body);
// Rows that changed since the last take; the taker owns them. NULL: none.
struct td_record *td_token_table_take(struct td_token_table *t);

// Is there a place for it? name "": its id. expire_ns 0: never. INVALID_ARGUMENT names the field;
// RESOURCE_EXHAUSTED LIMIT_TOKENS.
TD_MUST_USE td_status td_token_table_may_add(const struct td_token_table *t, struct td_real now,
                                             const char *name, enum td_access_role role,
                                             int64_t expire_ns);
// As may_add judges. out_text is the only copy.
TD_MUST_USE td_status td_token_table_add(struct td_token_table *t, struct td_real now,
                                         const char *name, enum td_access_role role,
                                         int64_t expire_ns, const struct td_token **out_token,
                                         char out_text[TD_TOKEN_TEXT]);
// After may_add, with a name: this certificate is of that person, until its end.
TD_MUST_USE td_status td_token_table_add_certificate(struct td_token_table *t, struct td_real now,
                                                     const char *name, enum td_access_role role,
                                                     const struct td_certificate *certificate,
                                                     const struct td_token **out_token);
// Of one that has ended nothing changes, but that a join token is good for nothing more. NOT_FOUND
// TOKEN_NOT_FOUND.
TD_MUST_USE td_status td_token_table_revoke(struct td_token_table *t, struct td_real now,
                                            const char *id, const struct td_token **out_token);
// Whose text it is. UNAUTHENTICATED TOKEN_WRONG; TOKEN_EXPIRED, TOKEN_REVOKED, TOKEN_USED only for
// who knows the secret.
TD_MUST_USE td_status td_token_table_judge(struct td_token_table *t, struct td_real now,
                                           struct td_str text, const struct td_token **out_token);
// The same of a call that joins. A join token that was used is good until its end, for whoever used
// it: td_token_is_of.
TD_MUST_USE td_status td_token_table_judge_join(struct td_token_table *t, struct td_real now,
                                                struct td_str text,
                                                const struct td_token **out_token);
// That one is of this user.
bool td_token_is_of(const struct td_token *token, const uint8_t used_by[TD_TLS_DIGEST_BYTES]);
td_status td_token_used(void); // UNAUTHENTICATED TOKEN_USED
// The same of a certificate of this CA. *out_token NULL: it is none of those in the table.
// UNAUTHENTICATED CERTIFICATE_EXPIRED, CERTIFICATE_REVOKED.
TD_MUST_USE td_status td_token_table_judge_certificate(struct td_token_table *t, struct td_real now,
                                                       const char *serial,
                                                       const struct td_token **out_token);

// Of a token with the role join: it is used now, and good for nothing more (TOKEN_USED) but the
// same join again, whose answer may have been lost. used_by: a digest of who joined.
void td_token_table_spend(struct td_token_table *t, struct td_real now,
                          const struct td_token *token, const uint8_t used_by[TD_TLS_DIGEST_BYTES]);

bool td_token_valid(const struct td_token *token, struct td_real now);
// The number by which calls know it; above 2^48.
uint64_t td_token_identity(const struct td_token *token);
const struct td_token *td_token_table_find(const struct td_token_table *t,
                                           uint64_t identity); // NULL: none
// Is or was that the name of a node token? Nodes that registered with it belong to the name.
bool td_token_table_names_nodes(const struct td_token_table *t, const char *name);
// Oldest first: begin with *cursor 0. NULL: that was the last.
const struct td_token *td_token_table_next(const struct td_token_table *t, size_t *cursor);
// The next that is past its time and was not given here before; NULL: none.
const struct td_token *td_token_table_expired(struct td_token_table *t, struct td_real now);
// When the next one expires, or did: one that td_token_table_expired has yet to give counts. 0:
// none.
int64_t td_token_table_next_expiry(const struct td_token_table *t);

#endif
