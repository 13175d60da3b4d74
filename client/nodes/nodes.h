#ifndef TRAIND_CLIENT_NODES_NODES_H
#define TRAIND_CLIENT_NODES_NODES_H

// Verbs of nodes and of the cluster.
//
//   listing.h      all nodes, and one among them
//   node_state.h   the state of a node in words
//   cmd_cluster.c  node list, cluster info, version
//   cmd_cordon.c   node cordon, node uncordon, node drain
//   cmd_device.c   node device enable, node device disable
//   cmd_node.c     node token, node revoke, node label
//   cmd_node_show.c
//                  node show
//   gpus.h         GPUs, as node list and node show have them
//   cmd_plugins.c  plugins
//   cmd_top.c      top; top_page.c is what it shows
//
// One thread. A verb gets its parsed flags (client/client.h).

#include "client/client.h"
#include "traind/v1/admin.pb-c.h"

TD_VERB(td_cmd_cluster_info);
TD_VERB(td_cmd_node_cordon);
TD_VERB(td_cmd_node_device_disable);
TD_VERB(td_cmd_node_device_enable);
TD_VERB(td_cmd_node_drain);
TD_VERB(td_cmd_node_label);
TD_VERB(td_cmd_node_list);
TD_VERB(td_cmd_node_revoke);
TD_VERB(td_cmd_node_show);
TD_VERB(td_cmd_node_token);
TD_VERB(td_cmd_node_uncordon);
TD_VERB(td_cmd_plugins);
TD_VERB(td_cmd_top);
TD_VERB(td_cmd_version);

// "gpu=h100,room=b2"; "": it has none.
const char *td_node_labels_text(const Traind__V1__Node *n, char out[TD_LABELS_BYTES]);

#endif
