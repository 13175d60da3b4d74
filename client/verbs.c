// See the header.

#include "client/verbs.h"

#include "client/access/access.h"
#include "client/checkpoints/checkpoints.h"
#include "client/flags.h"
#include "client/jobs/jobs.h"
#include "client/logs/logs.h"
#include "client/metrics/metrics.h"
#include "client/nodes/nodes.h"

static const struct td_verb verb_table[] = {
    {"cancel", "JOB...", "stop a job for good", 1, TD_MAX_ARGS,
     F_REASON | F_JOBS | F_CHANGES | F_ALL, td_cmd_cancel},
    {"checkpoint create", "JOB...", "the ranks save now, and train on", 1, TD_MAX_ARGS,
     F_WAIT | F_RECONNECT | F_JOBS | F_CHANGES | F_ALL, td_cmd_checkpoint_create},
    {"checkpoint download", "JOB [CHECKPOINT]",
     "copy a checkpoint's files here, digests checked: last (default), best or a1/step-N", 1, 2,
     F_FILE | F_FORCE | F_JOB, td_cmd_checkpoint_download},
    {"checkpoint list", "JOB", "the checkpoints of a job, newest first", 1, 1, F_JOB,
     td_cmd_checkpoint_list},
    {"clone", "JOB", "submit the spec of a job with changes (--set)", 1, 1,
     F_SET | F_FOLLOW | F_LOGS | F_RECONNECT | F_REQUEST_ID | F_TRACE | F_JOB, td_cmd_clone},
    {"cluster info", "", "the coordinator and its numbers", 0, 0, 0, td_cmd_cluster_info},
    {"compare", "JOB JOB... [NAME...]", "jobs: what differs in their specs, and their metrics", 2,
     TD_MAX_ARGS, F_PLOT, td_cmd_compare},
    {"completion", "bash|zsh|fish", "a script that completes words for a shell", 1, TD_MAX_ARGS, 0,
     td_cmd_completion},
    {"context add", "NAME",
     "name a coordinator, with --address, and --token-file or --cert and --key", 1, 1, 0,
     td_cmd_context_add},
    {"context list", "", "coordinators that have a name; * is in use", 0, 0, 0,
     td_cmd_context_list},
    {"context use", "NAME", "from now on where no flag says otherwise; - is none", 1, 1, 0,
     td_cmd_context_use},
    {"delete", "JOB...", "remove a job that does not run, with all it has on disks", 1, TD_MAX_ARGS,
     F_KEEP | F_JOBS | F_CHANGES | F_ALL | F_IN_THE_WAY, td_cmd_delete},
    {"describe", "JOB", "everything about a job", 1, 1, F_JOB, td_cmd_describe},
    {"init", "[DIR]", "write a spec, a module, a dataset and data to begin with", 0, 1, F_FORCE,
     td_cmd_init},
    {"list", "", "jobs, newest first", 0, 0, F_STATE, td_cmd_list},
    {"logs", "JOB", "what the ranks printed", 1, 1,
     F_FOLLOW | F_RECONNECT | F_RANK | F_ATTEMPT | F_STREAM | F_JOB, td_cmd_logs},
    {"metrics", "JOB [NAME...]",
     "points by step; without names the last value of each; -o csv, too", 1, TD_MAX_ARGS,
     F_STEPS | F_FOLLOW | F_RECONNECT | F_PLOT | F_CSV | F_JOB, td_cmd_metrics},
    {"node cordon", "NODE", "give a node no new jobs; those that run go on", 1, 1, F_REASON,
     td_cmd_node_cordon},
    {"node drain", "NODE", "cordon it, and move what runs there to other nodes", 1, 1,
     F_REASON | F_WAIT | F_RECONNECT, td_cmd_node_drain},
    {"node list", "", "nodes and their slots", 0, 0, 0, td_cmd_node_list},
    {"node revoke", "NODE", "take back a node's certificate, and end its calls", 1, 1, 0,
     td_cmd_node_revoke},
    {"node show", "NODE", "everything about a node, its GPUs too", 1, 1, 0, td_cmd_node_show},
    {"node token", "", "let one machine join as a node; the text is shown once", 0, 0, F_NAME,
     td_cmd_node_token},
    {"node uncordon", "NODE", "give a node jobs again, and end its drain", 1, 1, 0,
     td_cmd_node_uncordon},
    {"pause", "JOB...", "stop with a checkpoint and free the slots", 1, TD_MAX_ARGS,
     F_JOBS | F_CHANGES | F_ALL | F_WAIT | F_RECONNECT, td_cmd_pause},
    {"plan", "FILE", "memory, FLOPs and steps of a spec; -O writes the plan", 1, 1,
     F_SET | F_FILE | F_DUMP, td_cmd_plan},
    {"plugins", "[NAME]", "what specs can name on the nodes; with NAME: the knobs that it declares",
     0, 1, 0, td_cmd_plugins},
    {"resume", "JOB...", "queue a paused job again", 1, TD_MAX_ARGS, F_JOBS | F_CHANGES | F_ALL,
     td_cmd_resume},
    {"retry", "JOB", "submit the spec of a job again", 1, 1,
     F_RESUME | F_FOLLOW | F_LOGS | F_RECONNECT | F_REQUEST_ID | F_JOB, td_cmd_retry},
    {"run", "FILE", "train here without a daemon; ./<name>/ gets what comes of it", 1, 1,
     F_SET | F_FILE | F_RESUME | F_TRACE, td_cmd_run},
    {"spec", "JOB", "a job's spec as YAML that submit takes; -o wide has every key", 1, 1, F_JOB,
     td_cmd_spec},
    {"submit", "FILE", "submit a job spec (- reads standard input)", 1, 1,
     F_SET | F_FOLLOW | F_LOGS | F_RECONNECT | F_DRY_RUN | F_REQUEST_ID | F_TRACE, td_cmd_submit},
    {"token create", "", "give out a credential; its text is shown once", 0, 0, F_TOKEN | F_NAME,
     td_cmd_token_create},
    {"token list", "", "credentials that were given out", 0, 0, 0, td_cmd_token_list},
    {"token request", "", "make the key of --key, and print the request for its certificate", 0, 0,
     F_NAME, td_cmd_token_request},
    {"token revoke", "ID", "end a credential, and its calls", 1, 1, 0, td_cmd_token_revoke},
    {"top", "", "nodes, slots and running jobs, drawn again each second; q ends it", 0, 0,
     F_ONCE | F_RECONNECT, td_cmd_top},
    {"version", "", "of this program", 0, 0, 0, td_cmd_version},
    {"wait", "JOB...", "until the job has ended; exit 1 if it did not succeed", 1, TD_MAX_ARGS,
     F_FOLLOW | F_LOGS | F_RECONNECT | F_JOBS | F_FOR, td_cmd_wait},
    {"watch", "JOB", "each change of a job, until it has ended; exit 1 as of wait", 1, 1,
     F_RECONNECT | F_JOB, td_cmd_watch},
};

const struct td_verb *td_verb_at(size_t i) {
    return i < TD_COUNTOF(verb_table) ? &verb_table[i] : NULL;
}
