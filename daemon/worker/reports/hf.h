#ifndef TRAIND_DAEMON_WORKER_REPORTS_HF_H
#define TRAIND_DAEMON_WORKER_REPORTS_HF_H

// Source of reports: Hugging Face's Trainer, which posts to where KUBEFLOW_TRAINER_SERVER_URL says.
//
// The launcher made the socket, a token for each rank and the variables that say so to a rank
// (daemon/launcher/reports/hf.h). Rank N posts to /N with its own token; a request with none, or
// with that of another rank, gets 401. It is compared in constant time. What is taken is answered
// with exactly 200, since the callback counts nothing else as success. Its user learns of no
// failure, so what is refused is noted here, once for each kind and rank.
//
// Its settings: {"fd": N, "dir": "..", "first_rank": R, "n_ranks": K}. The listening socket, the
// directory of the attempt, where the files of tokens are, and the ranks of this node.
// Thread: the loop's.

#include "lib/base/json.h"
#include "lib/loop/loop.h"

struct td_report_sink;
struct td_hf;
TD_MUST_USE td_status td_hf_create(const struct td_json *settings, struct td_loop *loop,
                                   struct td_report_sink *sink, struct td_hf **out_hf);
void td_hf_destroy(struct td_hf *hf);
TD_DEFINE_AUTO(td_hf, td_hf_destroy);

#endif
