#ifndef TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_DUMP_H
#define TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_DUMP_H

// Dump: the text of a job's main program as one pass left it, for `--dump-graph PASS`.
//
// The main program is the first that updates the weights, else the first at all. A pass that has
// nothing to do in it shows what the pass before left. After the passes of the graph comes
// "autotune" (plan/autotune.h). Bound: the caller's buffer;
// a text that does not fit fails with RESOURCE_EXHAUSTED. Thread: the training thread.

#include "engine/graph/compile.h"
#include "lib/base/buf.h"

struct td_dump {
    const char *pass;    // one of td_compile_pass, or "autotune"
    struct td_buf *text; // the caller's
    const struct td_program *program;
};

// INVALID_ARGUMENT lists the passes when there is none of that name.
TD_MUST_USE td_status td_dump_init(struct td_dump *d, const char *pass, struct td_buf *text);
// Before programs are compiled once more; those taken from are gone.
void td_dump_restart(struct td_dump *d);
// As td_compile_options.dump, with a td_dump.
TD_MUST_USE td_status td_dump_take(void *dump, const char *pass, const struct td_program *p);
// "autotune" is wanted, and there is a program: the caller adds the choices to its text.
bool td_dump_wants_choices(const struct td_dump *d);

#endif
