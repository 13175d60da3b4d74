#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_MEMBERS_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_ACCESS_MEMBERS_H

// The nodes that joined: which certificates of a node are good. A certificate of the CA is not
// enough: its serial must be the newest of its node, or the one by which that was asked for. That
// one stays good because an answer may be lost; a copy of an older one is worth nothing.
//
// A node is named by its id, and no two that are members have one name. One that was revoked may
// join again with another token. One more than TD_MEMBERS_MAX that have not ended is refused. The
// loop's thread.

#include "daemon/coordinator/shell/access/credentials.h"

// May a machine join as this node? INVALID_ARGUMENT FIELD_INVALID; ALREADY_EXISTS NODE_EXISTS: a
// member that did not end (excuse_ns after its certificate's end) has that id or that name, which
// the message names; RESOURCE_EXHAUSTED LIMIT_MEMBERS.
TD_MUST_USE td_status td_members_may_join(const struct td_credential_table *t, struct td_real now,
                                          int64_t excuse_ns, const char *id, const char *name);
// May the node of that id, a member or not, call itself so? ALREADY_EXISTS NODE_EXISTS: the name is
// that of another member that did not end, whether it speaks now or not.
TD_MUST_USE td_status td_members_may_name(const struct td_credential_table *t, struct td_real now,
                                          int64_t excuse_ns, const char *id, const char *name);
// It has, after may_join: this is its certificate.
const struct td_credential *td_members_join(struct td_credential_table *t, struct td_real now,
                                            const char *id, const char *name, const char *address,
                                            const struct td_certificate *certificate);
// It has another certificate, which it asked for by the one of that serial.
void td_members_renew(struct td_credential_table *t, const struct td_credential *member,
                      const char *serial, const char *address,
                      const struct td_certificate *certificate);
// By id, or by a name that one alone has. Of one that was revoked nothing changes. NOT_FOUND
// NODE_NOT_FOUND.
TD_MUST_USE td_status td_members_revoke(struct td_credential_table *t, struct td_real now,
                                        const char *node, const struct td_credential **out_member);
// Whose certificate it is. UNAUTHENTICATED CERTIFICATE_UNKNOWN, CERTIFICATE_REVOKED.
TD_MUST_USE td_status td_members_judge(const struct td_credential_table *t, const char *id,
                                       const char *serial, const struct td_credential **out_member);

#endif
