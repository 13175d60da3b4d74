#ifndef TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_SOURCE_H
#define TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_SOURCE_H

// What a job begins with, where its spec names a checkpoint of another job: ckpt_path or init_from
// of the words "<id>/last", "<id>/best" or "<id>/a1/step-N". (Whoever submits may name the job
// otherwise; api/job_place.h makes an id of it.)
//
// The spec keeps the name, because that job may still run, and its rank removes what save_top_k
// does not keep. Which checkpoint it is, is settled when the job has a place, before its plan is
// worked out. One that is planned ahead is settled before, and again then. From then on that
// checkpoint is held as if the spec named its path (retain.h), over restarts, until
// the job has ended. The plan is made and cached of the spec with the place in place of the name.
//
// A live rank of the other job removes its own files all the same. What was settled and is gone is
// settled again; a job that names that one checkpoint fails with the reason. An attempt that
// finds its checkpoint gone while it reads it is not the job's fault, and another one starts. Of
// streamed ones the next may still be on its way then: the job waits for that.
//
// Part of the core: pure.

#include "daemon/coordinator/core/model/job.h"

struct td_core;
struct td_checkpoint;

// which: "last" or "", "best", "a1/step-N". Errors: NOT_FOUND, FAILED_PRECONDITION, for people.
TD_MUST_USE td_status td_source_pick(struct td_job *of, const char *which,
                                     const struct td_checkpoint **out_checkpoint);
// A spec with the place of today in place of a name. NULL: it names none.
TD_MUST_USE td_status td_source_join(struct td_core *core, const char *spec_json, char **out_json);
// The job looks for a place. starts: it has one now. False: it has failed, as there is no such
// checkpoint, or it waits for the next one (td_job.source_waits).
bool td_source_settle(struct td_core *core, struct td_job *j, bool starts);
// Its first attempt starts: which checkpoint that is, as a note.
void td_source_note(const struct td_core *core, struct td_job *j);
// A rank of that job removed it: those that name it learn of it.
void td_source_removed(struct td_core *core, struct td_job *of, const char *path);
// An attempt failed on its data. True: the failure names the checkpoint that it began from, which
// was "last" or "best" of a job where that is another one by now. The next attempt begins from
// that.
bool td_source_moved(struct td_core *core, struct td_job *j);
// After a restart: the spec with its place, again.
TD_MUST_USE td_status td_source_restore(struct td_job *j);

#endif
