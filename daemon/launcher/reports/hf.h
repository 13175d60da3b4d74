#ifndef TRAIND_DAEMON_LAUNCHER_REPORTS_HF_H
#define TRAIND_DAEMON_LAUNCHER_REPORTS_HF_H

// Hugging Face's Trainer, the launcher's part: what makes an unmodified script report by itself.
//
// transformers 5 reports to KUBEFLOW_TRAINER_SERVER_URL if that is set, with the token in the file
// that KUBEFLOW_TRAINER_SERVER_TOKEN names. Here are both: a socket that listens on loopback, and
// a random token of each rank, in a file of mode 0600 of the attempt's directory. The child serves
// the socket (daemon/worker/reports/hf.h). It is made here because a rank finds the address when it
// starts, which does not wait for the child. Who connects before the child is up waits in the
// socket's queue. A child that is replaced gets the same socket.
//
// NO_PROXY and no_proxy gain 127.0.0.1, after what is there: a token has no business at a proxy.
// Of the two Python takes the one in small letters alone, so each gets what the other has.
//
// The callback needs Python 3.11, and an older one would fail at its first report: there nothing is
// set, and a note says why where transformers is installed. Nothing is set either where it is not
// known which Python will run (python.h), where `env` has one of the variables or
// DISABLE_KUBEFLOW_INTEGRATION, and where `metrics_from.transformers` is never. `always` asks no
// Python.
// A failure costs the reports alone: a note says so.
// Thread: the launcher's.

#include "lib/base/base.h"

struct td_launcher;

struct td_launch_hf {
    int listen_fd; // -1: nothing comes
    int port;
};

// Before the ranks start, once the command is known. out_note: why nothing comes, for people; "".
void td_launch_hf_open(struct td_launcher *l, struct td_launch_hf *out_hf, char *out_note,
                       size_t note_bytes);
void td_launch_hf_close(struct td_launch_hf *hf);

#endif
