#ifndef TRAIND_ENGINE_TRAIN_RANK_SCORES_SCORES_H
#define TRAIND_ENGINE_TRAIN_RANK_SCORES_SCORES_H

// Scores: metrics of an evaluation that are no mean over its samples: perplexity, F1, R2, and the
// confusion matrix. The spec's `metrics` names them.
//
// They are made of what all samples of a split come to: counts of classes, or sums over targets. So
// they are exact over the whole split, however it was cut into batches and ranks. Counts are whole
// numbers in doubles; sums over targets are kept as means and squares about them, and ranks' are
// merged in their order. Perplexity is that of the loss, and needs nothing else. For the others
// each batch is predicted, too, which is a second forward pass.
//
// F1 is scikit-learn's. Of classes: macro is the mean over those that are among labels or
// predictions, micro is the share that is right. Of loss bce: each label by itself, a logit above 0
// says yes; macro is the mean over labels, 0 where one is neither there nor predicted. R2 is the
// mean over targets; a target that is constant has 1 where it is met exactly, else 0.
//
// Bounds: TD_SCORE_CLASSES of a matrix. Memory is the caller's to free. Thread: the training
// thread.
//
// The room, in reading order:
//
//   validated.h  what an evaluation measured
//   result.h     files of results

#include "engine/train/config/config.h"
#include "engine/train/rank/scores/validated.h"

struct td_rank;
struct td_buf;
struct td_buffer;

enum { TD_SCORE_CLASSES = 1024 };

// "f1_macro" of a score that is one number; NULL: it is none.
const char *td_score_name(enum td_score score);
// Once programs are recorded. INVALID_ARGUMENT, class bad_spec: what is asked for does not go with
// the model's loss, with what it predicts, or with the data.
TD_MUST_USE td_status td_scores_check(const struct td_rank *r);

struct td_scores;
// Parts: loaders of the split, 1 at least. After td_scores_check.
TD_MUST_USE td_status td_scores_create(const struct td_rank *r, int n_parts,
                                       struct td_scores **out_scores);
void td_scores_destroy(struct td_scores *s); // accepts NULL
TD_DEFINE_AUTO(td_scores, td_scores_destroy);
// The n samples of a batch that the rank has just predicted; inputs: host memory, as td_data_batch
// gave it.
TD_MUST_USE td_status td_scores_add(struct td_scores *s, struct td_rank *r, int part,
                                    const struct td_buffer *inputs, int64_t n);
// Collective, once. After it each part is that of all ranks.
TD_MUST_USE td_status td_scores_sum(struct td_scores *s, struct td_rank *r);
// Adds a tally for each score that is a number: to that of all, and of each loader.
void td_scores_tally(const struct td_scores *s, struct td_validated *io_validated);
// The confusion matrix of all parts as JSON; what: its first fields. False: nobody asked for it.
TD_MUST_USE td_status td_scores_matrix(const struct td_scores *s, const char *what,
                                       struct td_buf *out, bool *out_has);

#endif
