// See the header.

#include "daemon/launcher/loggers/loggers.h"

#include "daemon/launcher/loggers/logger.h"
#include "daemon/launcher/state.h"
#include "lib/base/clip.h"
#include "lib/base/log.h"

static void note(struct td_launcher *l, const char *text) {
    struct td_event_writer line;
    td_journal_begin(&l->journal, TD_EVENT_NOTE, &line);
    td_event_note_text(&line, text);
    td_journal_append(&l->journal, &line);
    l->news = true;
}

void td_logging_start(struct td_launcher *l) {
    char text[TD_LOGGER_NOTE];
    td_status failed = td_logger_start(&l->o, &l->logger);
    if (!failed) return;
    (void)td_clip(text, sizeof text, "loggers are not written: %s", td_status_message(failed));
    td_status_log(TD_LOG_WARN, failed, "loggers are not written, continuing");
    note(l, text);
}

void td_logging_look(struct td_launcher *l) {
    char text[TD_LOGGER_NOTE];
    while (td_logger_take_note(l->logger, text)) {
        note(l, text);
    }
}

void td_logging_end(struct td_launcher *l) {
    if (!td_logger_finish(l->logger)) td_log_warn("the loggers hang, continuing");
    td_logging_look(l);
}
