#ifndef TRAIND_LIB_SPEC_PLACE_H
#define TRAIND_LIB_SPEC_PLACE_H

// Where a spec was written: the directory and home that its relative paths and `~` begin at.
//
// Whoever hands a spec in sends both (`ClientPlace` of job.proto; traind-run has its own). The
// parser puts each such path together, so that the canonical spec has absolute ones only and later
// readers need no place. Links are not looked at: a `..` is taken where the path begins, at a
// directory that has a real path, and refused after a name. What was put together is listed, in the
// order of the spec, so that a client can look whether it is there before anything is submitted.
// Everything is in the arena of the parse; nothing is opened.

#include "lib/base/json.h"

struct td_knob;
struct td_check;

struct td_spec_resolved {
    const char *key; // "data.path", "plugins[1]"
    const char *given, *path;
    bool is_output; // written by the job: it need not be there
    struct td_spec_resolved *next;
};

struct td_spec_place {
    const char *directory; // absolute; NULL: unknown
    const char *home;      // absolute; NULL: unknown
    const char *refusal;   // why relative paths are not taken here; NULL: they are
    // What a text of ckpt_path or init_from names, if it is neither absolute nor begins with '.' or
    // '~': a checkpoint of a job, in the words of a canonical spec (checkpoint_name.h).
    // NULL with OK: no job is called so, and it is a path. An error is a violation of the key. May
    // be NULL.
    td_status (*checkpoint)(void *arg, struct td_arena *a, const char *text, const char **out_name);
    void *arg;
    const char *name;                      // out: the last that `checkpoint` gave
    struct td_spec_resolved *first, *last; // out
    size_t n;
};

// Is it the text that td_place_path has just given, and no path but the name of a checkpoint?
bool td_place_is_checkpoint(const struct td_check *c, const char *text);
// A path as a knob has it, at its place, or the name of a checkpoint: NULL after noting what is
// wrong. Absolute ones, and all where the check has no place, come back as they are.
const char *td_place_path(struct td_check *c, const struct td_knob *k, const char *where, int line,
                          const char *text);
// The directory that a relative text begins at, NULL if it is unknown; *io_text is what follows it.
const char *td_place_base(const struct td_spec_place *p, const char **io_text);

// Adds where the client is to a list that is empty, for what the node puts together. Nothing where
// relative paths are not taken.
void td_place_keep(struct td_check *c, struct td_json *list);
// The place that such a list has; NULL, or empty: none.
struct td_spec_place td_place_kept(const struct td_json *list);

#endif
