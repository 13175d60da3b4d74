#ifndef TRAIND_ENGINE_TRAIN_EVENTS_TIMELINE_H
#define TRAIND_ENGINE_TRAIN_EVENTS_TIMELINE_H

// Timeline: when a rank did what, for Chrome's trace viewer (trainer.trace_dir).
//
// There is one file a rank and attempt, timeline-a<attempt>-rank<rank>.json
// (lib/base/files/trace_file.h). It has a row for each thread. Batches, the segments of each
// training step, evaluations and saves are on the training thread. Buckets are where they are
// reduced, waits where the program waits. A rank that writes one runs the segments of a step one by
// one and nothing ahead, so that each has its time. The bits are those of a rank that writes none.
//
// Bounds: TD_TIMELINE_EVENTS events, later ones are counted; the names of TD_TIMELINE_THREADS
// threads. Thread: any. Errors: those of the file (class bad_spec); a timeline that cannot be
// written ends the attempt, because whoever asked for it would look at half of it.

#include "lib/base/files/trace_file.h"

enum { TD_TIMELINE_EVENTS = 100000, TD_TIMELINE_THREADS = 4 };

struct td_timeline;

// It is the training thread that calls.
TD_MUST_USE td_status td_timeline_create(const char *dir, int32_t attempt, int32_t rank,
                                         struct td_timeline **out_timeline);
void td_timeline_destroy(struct td_timeline *t); // accepts NULL

// What this thread did since `start`. name needs no escapes; args: as td_trace_file_add takes them.
// thread: what a thread other than the training thread is called. Without a timeline (NULL): OK.
TD_MUST_USE td_status td_timeline_add(struct td_timeline *t, const char *name, const char *thread,
                                      struct td_mono start, const char *args);

#endif
