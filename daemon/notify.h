#ifndef TRAIND_DAEMON_NOTIFY_H
#define TRAIND_DAEMON_NOTIFY_H

// Readiness as systemd and its kin understand it: one datagram to $NOTIFY_SOCKET, if it is set.

// "READY=1", "STOPPING=1", "STATUS=...". A daemon that nobody supervises says nothing; a failure to
// say it changes nothing.
void td_notify(const char *state);

#endif
