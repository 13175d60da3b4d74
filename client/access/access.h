#ifndef TRAIND_CLIENT_ACCESS_ACCESS_H
#define TRAIND_CLIENT_ACCESS_ACCESS_H

// Verbs of who may do what, and where: tokens and contexts.
//
//   cmd_token.c    token create, request, list, revoke
//   cmd_context.c  context add, use, list
//
// One thread. A verb gets its parsed flags (client/client.h).

#include "client/client.h"

TD_VERB(td_cmd_context_add);
TD_VERB(td_cmd_context_list);
TD_VERB(td_cmd_context_use);
TD_VERB(td_cmd_token_create);
TD_VERB(td_cmd_token_list);
TD_VERB(td_cmd_token_request);
TD_VERB(td_cmd_token_revoke);

#endif
