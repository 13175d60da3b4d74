#ifndef TRAIND_DAEMON_NOTIFY_H
#define TRAIND_DAEMON_NOTIFY_H

// Readiness as systemd and its kin understand it: one datagram to $NOTIFY_SOCKET, if it is set. And
// whether its journal reads what is written.

#include "lib/base/base.h"

// "READY=1", "STOPPING=1", "STATUS=...". A daemon that nobody supervises says nothing; a failure to
// say it changes nothing.
void td_notify(const char *state);

// Why this daemon ends: what `systemctl status` shows of it from then on.
void td_notify_end(const char *why);

// Whether a descriptor is the stream to journald that $JOURNAL_STREAM names.
bool td_notify_is_journal(int fd);

#endif
