#ifndef TRAIND_LIB_BASE_FILES_TRACE_FILE_H
#define TRAIND_LIB_BASE_FILES_TRACE_FILE_H

// Trace file: events with their time, in the format of Chrome's trace viewer: an array of JSON
// objects. Times are those of the monotonic clock, so files of one machine lie over each other.
//
// Lines are gathered in a buffer of 64 KiB and written when it is full, when somebody flushes, and
// at the end. Whoever is killed loses the last of them; the file has no closing bracket then, which
// viewers do not mind. After max_events events are only counted. The last line says how many.
//
// Thread: any; a lock is held for each call. Errors: those of the file, with its path, after which
// nothing more is written and the same error class is the caller's to choose.

#include "lib/base/base.h"
#include "lib/base/clock.h"

struct td_trace_file;

struct td_trace_event {
    const char *category, *name; // text that needs no escapes
    struct td_mono start, end;   // of the event
    int32_t process, thread;     // rows of the viewer
};

// Replaces a file at path, but follows no link there.
TD_MUST_USE td_status td_trace_file_create(const char *path, int64_t max_events,
                                           struct td_trace_file **out_file);
// args: members of a JSON object, "\"bytes\":12", at most 300 bytes; NULL: none.
TD_MUST_USE td_status td_trace_file_add(struct td_trace_file *f, const struct td_trace_event *e,
                                        const char *args);
// What a row is called. Counts as an event.
TD_MUST_USE td_status td_trace_file_name_thread(struct td_trace_file *f, int32_t process,
                                                int32_t thread, const char *name);
TD_MUST_USE td_status td_trace_file_flush(struct td_trace_file *f);
// The end: what cannot be written then is lost. Accepts NULL.
void td_trace_file_destroy(struct td_trace_file *f);
TD_DEFINE_AUTO(td_trace_file, td_trace_file_destroy);

#endif
