// sd_notify without libsystemd: a supervisor gives the path of a datagram socket ('@' means the
// abstract name space) in NOTIFY_SOCKET, and reads "KEY=VALUE" texts from it.
// A stream to journald is known by "DEVICE:INODE" in JOURNAL_STREAM. Whoever redirects a program of
// a unit leaves the variable in its environment, so it says nothing without the comparison.
// Variables are read by config.c's rule: nothing else in the daemon looks at the environment.

#include "daemon/notify.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "daemon/config.h"

void td_notify(const char *state) {
    const char *path = td_config_notify_socket();
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof to.sun_path) return;
    memcpy(to.sun_path, path, strlen(path));
    if (path[0] == '@') to.sun_path[0] = '\0';
    TD_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (fd < 0) return;
    // A supervisor that does not read waits for its own time limit.
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, bytes);
}

void td_notify_end(const char *why) {
    char state[1024];
    snprintf(state, sizeof state, "STATUS=ended: %s", why);
    for (char *c = state; *c; c++) { // a line is a variable of its own
        if (*c == '\n') *c = ' ';
    }
    td_notify(state);
}

bool td_notify_is_journal(int fd) {
    const char *stream = td_config_journal_stream();
    char own[64];
    struct stat st;
    if (!stream || fstat(fd, &st) != 0) return false;
    snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(stream, own) == 0;
}
