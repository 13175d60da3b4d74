#ifndef TRAIND_DAEMON_LAUNCHER_LOGGERS_LOGGERS_H
#define TRAIND_DAEMON_LAUNCHER_LOGGERS_LOGGERS_H

// Logging: the loop's side of loggers (logger.h): it starts and ends them, and what they note goes
// into events.log. Nothing that goes wrong with them is the job's end.
// Thread: the launcher's.
//
// The room, in reading order:
//
//   step_set.h     steps at which a metric has a value
//   logger_rows.h  points of ranks, put together by step
//   logger_sink.h  what writes them: logger_csv.c metrics.csv, logger_tensorboard.c TensorBoard's
//                  files (tfevents.h: their records)
//   logger.h       a thread of its own around that

struct td_launcher;

void td_logging_start(struct td_launcher *l); // after the ranks: the thread is not theirs
void td_logging_look(struct td_launcher *l);
void td_logging_end(struct td_launcher *l); // all ranks have ended; takes 10 s at most

#endif
