#ifndef TRAIND_DAEMON_WORKER_REPORTS_REPORTS_H
#define TRAIND_DAEMON_WORKER_REPORTS_REPORTS_H

// Reports: `traind-worker reports`, which turns what a script says by itself into metrics and
// progress of its job.
//
//   traind-worker reports --reports-fd N --settings JSON
//
// In reading order, after lib/attempt/report_message.h, what it and its launcher say:
//
//   reports.h  the verb: sources, one loop, the launcher's socket, the end
//   sink.h     what a source says, on its way to the launcher
//   lines.h    the source of stdout
//   board.h    the source of TensorBoard's event files; board_tree.h which there are, board_file.h
//              one that grows, board_event.h what it holds, board_notes.h what is said of others
//   hf.h       the source of Hugging Face's Trainer; hf_report.h what it posts
//   http.h     the server to which it posts; http_head.h what that reads of a request
//
// A launcher starts it for a job that asks for one (daemon/launcher/reports), because what is done
// here may take time, wait, or fail on what strangers wrote: expressions, files, sockets. Then
// this process alone is held up. It dies with its launcher.
//
// Settings, built by the launcher. They can be seen in a list of processes, so they hold no secret:
//
//   {"stdout": {"pattern": "step=(?P<step>\\d+)", "rank": 0},
//    "tensorboard": {"dir": "/../runs", "rules": "", "since": 1700000000000000000},
//    "hf": {"fd": 4, "dir": "/../attempts/j-1/a1", "first_rank": 0, "n_ranks": 1}}
//
// A source is made of the member with its name. It watches its own descriptors on the loop, and
// says what it has found to the sink. When the launcher says that no more comes, or is gone,
// sources are destroyed in their order; they may still report.
//
// Thread: one. Exit codes: TD_EXIT_DONE; TD_EXIT_BAD_SPEC settings that cannot be used, after a
// note; TD_EXIT_BUG.

#include "lib/attempt/exit_codes.h"

int td_worker_reports(int reports_fd, const char *settings);

#endif
