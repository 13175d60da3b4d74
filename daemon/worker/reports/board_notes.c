// See the header.

#include "daemon/worker/reports/board_notes.h"

#include <stdarg.h>

#include "daemon/worker/reports/sink.h"
#include "lib/base/clip.h"

static const char *const counted[] = {
    [TD_BOARD_LINK] = "links and special files that are not followed",
    [TD_BOARD_UNREAD] = "errors of the file system",
    [TD_BOARD_REWRITTEN] = "rewritten files",
    [TD_BOARD_DAMAGED] = "damaged records, where a file is not followed any further",
    [TD_BOARD_LARGE] = "large records that are passed over",
    [TD_BOARD_NO_EVENT] = "records that are no events, or have a step that no metric can have",
    [TD_BOARD_MANY] = "files and directories past the bounds",
    [TD_BOARD_TORN] = "files that end within a record",
};
_Static_assert(TD_COUNTOF(counted) == TD_BOARD_ODDS, "one text of a kind");

void td_board_note(struct td_board_notes *notes, enum td_board_odd odd, const char *path,
                   const char *fmt, ...) {
    char text[256];
    va_list ap;
    if (notes->n[odd]++ > 0) return;
    va_start(ap, fmt);
    (void)td_clip_v(text, sizeof text, fmt, ap);
    va_end(ap);
    td_report_note(notes->sink, "loggers_in.tensorboard: '%.160s' %s", path, text);
}

void td_board_notes_end(struct td_board_notes *notes) {
    char text[400];
    struct td_clip_list list;
    bool twice = false;
    td_clip_list_init(&list, text, sizeof text, "; ");
    for (int i = 0; i < TD_BOARD_ODDS; i++) {
        const unsigned long long n = notes->n[i];
        twice |= n > 1;
        if (n > 0) td_clip_list_add(&list, "%llu %s", n, counted[i]);
    }
    if (twice) td_report_note(notes->sink, "loggers_in.tensorboard: in all %s", text);
}
