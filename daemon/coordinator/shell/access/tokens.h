#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_TOKENS_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_TOKENS_H

// The credentials that were given out. Most are bearer tokens. A token's text is
// "td_<id>_<secret>"; the secret is 32 random bytes and is shown once. What is kept is SHA-256 of
// the whole text, so that whoever reads state.db can present nothing. The others are certificates
// of people, which a handshake shows: what is kept is the serial number, and the key never left its
// owner.
//
// The last use is written when it is a minute older than what was written. Of TD_TOKENS_MAX that
// are valid one more is refused. The loop's thread.

#include "daemon/coordinator/shell/access/credentials.h"

enum { TD_TOKEN_TEXT = 81 }; // "td_", id, '_', 64 hex digits and a NUL

// Is there a place for it? name "": its id. expire_ns 0: never. INVALID_ARGUMENT names the field;
// RESOURCE_EXHAUSTED LIMIT_TOKENS.
TD_MUST_USE td_status td_tokens_may_add(const struct td_credential_table *t, struct td_real now,
                                        const char *name, enum td_access_role role,
                                        int64_t expire_ns);
// As may_add judges. out_text is the only copy.
TD_MUST_USE td_status td_tokens_add(struct td_credential_table *t, struct td_real now,
                                    const char *name, enum td_access_role role, int64_t expire_ns,
                                    const struct td_credential **out_token,
                                    char out_text[TD_TOKEN_TEXT]);
// After may_add, with a name: this certificate is of that person, until its end.
TD_MUST_USE td_status td_tokens_add_certificate(struct td_credential_table *t, struct td_real now,
                                                const char *name, enum td_access_role role,
                                                const struct td_certificate *certificate,
                                                const struct td_credential **out_token);
// Of one that has ended nothing changes, but that a join token is good for nothing more. NOT_FOUND
// TOKEN_NOT_FOUND.
TD_MUST_USE td_status td_tokens_revoke(struct td_credential_table *t, struct td_real now,
                                       const char *id, const struct td_credential **out_token);
// Whose text it is. UNAUTHENTICATED TOKEN_WRONG; TOKEN_EXPIRED, TOKEN_REVOKED, TOKEN_USED only for
// who knows the secret. to_join: the call joins. A join token that was used is good for that until
// its end, for whoever used it: td_tokens_is_of.
TD_MUST_USE td_status td_tokens_judge(struct td_credential_table *t, struct td_real now,
                                      struct td_str text, bool to_join,
                                      const struct td_credential **out_token);
// That one is of this user.
bool td_tokens_is_of(const struct td_credential *token, const uint8_t used_by[TD_TLS_DIGEST_BYTES]);
td_status td_tokens_used(void); // UNAUTHENTICATED TOKEN_USED
// The same of a certificate of this CA. *out_token NULL: it is none of those in the table.
// UNAUTHENTICATED CERTIFICATE_EXPIRED, CERTIFICATE_REVOKED.
TD_MUST_USE td_status td_tokens_judge_certificate(struct td_credential_table *t, struct td_real now,
                                                  const char *serial,
                                                  const struct td_credential **out_token);

// Of a token with the role join: it is used now, and good for nothing more (TOKEN_USED) but the
// same join again, whose answer may have been lost. used_by: a digest of who joined.
void td_tokens_spend(struct td_credential_table *t, struct td_real now,
                     const struct td_credential *token, const uint8_t used_by[TD_TLS_DIGEST_BYTES]);

// Is or was that the name of a node token? Nodes that registered with it belong to the name.
bool td_tokens_names_nodes(const struct td_credential_table *t, const char *name);

#endif
