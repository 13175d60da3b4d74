#ifndef TRAIND_CLIENT_CHECKPOINTS_CHECKPOINTS_H
#define TRAIND_CLIENT_CHECKPOINTS_CHECKPOINTS_H

// Verbs of checkpoints.
//
//   cmd_checkpoint.c         checkpoint list, download
//   cmd_checkpoint_create.c  checkpoint create
//
// One thread. A verb gets its parsed flags (client/client.h).

#include "client/client.h"

TD_VERB(td_cmd_checkpoint_create);
TD_VERB(td_cmd_checkpoint_download);
TD_VERB(td_cmd_checkpoint_list);

#endif
