#ifndef TRAIND_CLIENT_JOBS_EPOCHS_H
#define TRAIND_CLIENT_JOBS_EPOCHS_H

// The lines that stay of a followed job, one an epoch, made of its points:
//   epoch 2: train_loss_epoch 0.3238, val_loss 0.3786, val_accuracy 0.8649

#include "client/screen/progress.h"
#include "client/session/session.h"

struct td_epochs {
    struct td_session *session;
    struct td_progress_line *progress; // whose bar makes room for a line
    bool known;                        // where to begin
    bool over;                         // the last epoch has ended, too
    bool idle;                         // no question is out
    uint32_t next;                     // the epoch of the next line, from 0
    uint32_t from_step;                // points before it were shown
    uint32_t n_ranks;
    struct td_mono not_before;
};

// from_start: every epoch; else those that end from now on.
void td_epochs_init(struct td_epochs *e, struct td_session *session,
                    struct td_progress_line *progress, bool from_start);
// For each change of the job until it has ended. Never waits.
void td_epochs_see(struct td_epochs *e, const Traind__V1__Job *job);
// Waits for the question that is out, if any, with a deadline; e may go afterwards.
void td_epochs_wait(struct td_epochs *e);
// After td_epochs_wait, when the job has ended: prints the rest, if the daemon answers within 2 s.
// With success the last epoch counts as ended.
void td_epochs_finish(struct td_epochs *e, const Traind__V1__Job *job);

#endif
