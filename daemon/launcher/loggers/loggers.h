#ifndef TRAIND_DAEMON_LAUNCHER_LOGGERS_LOGGERS_H
#define TRAIND_DAEMON_LAUNCHER_LOGGERS_LOGGERS_H

// Logging: the loop's side of loggers (logger.h): it starts and ends them, and what they note goes
// into events.log. Nothing that goes wrong with them is the job's end.
// Thread: the launcher's.

struct td_launcher;

void td_logging_start(struct td_launcher *l); // after the ranks: the thread is not theirs
void td_logging_look(struct td_launcher *l);
void td_logging_end(struct td_launcher *l); // all ranks have ended; takes 10 s at most

#endif
