#ifndef TRAIND_DAEMON_LAUNCHER_LOGGERS_LOGGER_H
#define TRAIND_DAEMON_LAUNCHER_LOGGERS_LOGGER_H

// Logger: the spec's `loggers`, files of metrics that others read: metrics.csv, TensorBoard's.
//
// They are written from the attempt's metric segments, by a thread of the launcher that shares
// nothing with its loop but how far it is. So a slow or hanging directory holds up no rank, and a
// checkpoint for a second at most (boundary.h). After a failure the
// files are opened every 5 s and once more at the end, and rows that are missing are read from the
// segments again. A failure is a note of the job, with the path,
// and never the end of it.
//
// The launcher of rank 0 writes them, from the points of its own ranks: of a job over several nodes
// these are not all. When an attempt logs its first step, rows of later steps go, which an earlier
// attempt wrote past its checkpoint. What that attempt had not written yet is read from its
// segments, where they are on this node.
//
// What devices do is in the files from the first step of the attempt on.
//
// Files are in `<dir>/<name>-<job>`; without the knob dir in `logs` beside the job's checkpoints.
// Thread: the launcher's; below it one of its own. Bounds: 10 s for the thread to end.

#include "daemon/launcher/options.h"

struct td_logger;

enum { TD_LOGGER_NOTE = 512 };

// *out_logger NULL: the plan names no logger, or they are another launcher's to write. The ranks'
// segments are there. Errors: the plan cannot be read; no memory; no thread.
TD_MUST_USE td_status td_logger_start(const struct td_launch_options *o,
                                      struct td_logger **out_logger);
// What people should know of it; false: nothing is new. Accepts NULL.
bool td_logger_take_note(struct td_logger *g, char out_text[TD_LOGGER_NOTE]);
// Are the points in all files, up to these offsets of the ranks' segments? If not, the thread looks
// at once. Also true where files cannot be written, which is a note, and of NULL.
bool td_logger_has(struct td_logger *g, const uint64_t *bytes);
// All segments are complete: writes the rest, and waits for it. False: it did not end in time, and
// keeps its memory until the process ends. Accepts NULL.
bool td_logger_finish(struct td_logger *g);
void td_logger_destroy(struct td_logger *g); // of one that has finished; accepts NULL

#endif
