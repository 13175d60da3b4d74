#ifndef TRAIND_DAEMON_WORKER_REPORTS_HF_REPORT_H
#define TRAIND_DAEMON_WORKER_REPORTS_HF_REPORT_H

// A report of Hugging Face's Trainer: the body that the KubeflowCallback of transformers posts.
//
//   {"trainerStatus": {"lastUpdatedTime": "..", "progressPercentage": 40,
//     "estimatedRemainingSeconds": 90, "metrics": [{"name": "loss", "value": "0.25"}, ...]}}
//
// Values are texts, as Python's str() writes numbers. current_step, total_steps and current_epoch
// are progress, the others metrics. The callback sends all that it ever had, at most once in 5 s.
// So a text that is the same as in the last report is no new value. It sends the first report
// when training begins (total_steps alone), and the last one at the end: 100 %, all metrics, no
// step, which is then total_steps.
//
// Which step a value is of: the callback sends when a step ends, before the Trainer logs what
// belongs to that step. So what is new in a report of step N was logged after step N - 1 or before,
// and N - 1 is its step. The last report has the values of the last step. If they were N's, the
// last step's loss would be a second value of a step that has one.
//
// Bounds: TD_HF_NAMES names of a rank are remembered. One more is new in each report, and goes on
// to those who count what is dropped.
// Pure: the bytes come from a rank; any thread.

#include "lib/base/arena.h"

enum { TD_HF_NAMES = 4096, TD_HF_BODY_MAX = 64 << 10, TD_HF_ARENA_BYTES = 16 << 20 };

// What one rank's callback has said so far. All zero: nothing.
struct td_hf_said {
    struct td_hf_said_name {
        uint64_t name, text; // digests
    } * name;                // (n)
    size_t n, cap;
    size_t last; // that was found: they come in the same order in each report
    int64_t step, total_steps;
};
void td_hf_said_finish(struct td_hf_said *said);

struct td_hf_value {
    const char *name;
    double value;
};
// The texts are the arena's.
struct td_hf_report {
    int64_t step, total_steps; // -1: it does not say
    double epoch;              // with its fraction; -1: it does not say
    int64_t value_step;        // of the values
    struct td_hf_value *value; // (n_values), those that are new
    size_t n_values;
    size_t n_odd;                    // entries that are no number by a name: not taken
    const char *odd_name, *odd_text; // of the first of them; NULL: there is none
};
// Errors: INVALID_ARGUMENT for what is no report, RESOURCE_EXHAUSTED for one that is too large for
// the arena; `said` is then as it was.
TD_MUST_USE td_status td_hf_report_read(struct td_hf_said *said, struct td_arena *arena,
                                        const char *body, size_t bytes,
                                        struct td_hf_report *out_report);

#endif
