#ifndef TRAIND_DAEMON_LAUNCHER_RECORD_H
#define TRAIND_DAEMON_LAUNCHER_RECORD_H

// Record: who a launcher is, for its node and for a later search: record.json, and the line
// `launched` of events.log (lib/attempt/segments.h). Thread: the launcher's.

#include "daemon/launcher/state.h"

TD_MUST_USE td_status td_launcher_write_record(struct td_launcher *l);
void td_launcher_note_launched(struct td_launcher *l);

#endif
