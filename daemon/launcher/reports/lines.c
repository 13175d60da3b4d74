// See the header. A message is put together by the kernel: a byte, what was held, what came.

#include "daemon/launcher/reports/lines.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

static void hold(struct td_launch_lines *l, const char *data, size_t bytes) {
    const size_t fits = TD_MIN(bytes, sizeof l->held - l->n);
    memcpy(l->held + l->n, data, fits);
    l->n += fits;
}

static void give(struct td_launch_lines *l, const char *data, size_t bytes) {
    const struct iovec parts[] = {
        {&(char){TD_REPORT_LINES}, 1}, {l->held, l->n}, {td_unconst(data), bytes}};
    const struct msghdr m = {.msg_iov = td_unconst(parts), .msg_iovlen = TD_COUNTOF(parts)};
    const bool is_sent = l->fd >= 0 && sendmsg(l->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    if (!is_sent) l->dropped_bytes += l->n + bytes;
    l->n = 0;
}

// After the last end of a line; NULL: there is none.
static const char *find_last(const char *data, size_t bytes) {
    const char *line = memrchr(data, '\n', bytes);
    const char *from = line ? line + 1 : data;
    const char *version = memrchr(from, '\r', bytes - (size_t)(from - data));
    return version ? version + 1 : line ? line + 1 : NULL;
}

static const char *find_first(const char *data, size_t bytes) {
    const char *line = memchr(data, '\n', bytes);
    const char *version = memchr(data, '\r', line ? (size_t)(line - data) : bytes);
    return version ? version : line;
}

void td_launch_lines_take(struct td_launch_lines *l, const char *data, size_t bytes) {
    const char *last = find_last(data, bytes);
    if (!last) {
        hold(l, data, bytes);
        return;
    }
    // The rest of the line that is held, as far as it counts.
    const char *first = find_first(data, bytes);
    if (l->n) hold(l, data, (size_t)(first - data));
    const char *from = l->n ? first : data;
    give(l, from, (size_t)(last - from));
    hold(l, last, bytes - (size_t)(last - data));
}

void td_launch_lines_end(struct td_launch_lines *l) {
    if (l->n) give(l, "\n", 1);
}
