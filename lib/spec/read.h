#ifndef TRAIND_LIB_SPEC_READ_H
#define TRAIND_LIB_SPEC_READ_H

// Reads knobs out of a section of a canonical tree, one by one, by key.
//
// A canonical tree has every knob of its sections (spec.h), with the default of the tables where
// nobody wrote one. So a reader has no defaults of its own: a key that is missing, or a value of
// another kind, is an error that names the key. It means that a reader and the tables differ, which
// is a bug of ours (INTERNAL). What a row leaves open is null or "auto"; the functions with _or
// take what that stands for.
//
// The first error is kept, and all that is read after it is 0, "" or NULL: read everything, then
// ask td_read_end. Texts and lists are borrowed from the tree. Any thread, one reader each.

#include "lib/base/json.h"

struct td_read {
    const struct td_json *section;
    const char *path; // of the section: "optimizer"
    td_status status; // the first error; NULL: none
};

struct td_read td_read_begin(const struct td_json *section, const char *path);
TD_MUST_USE td_status td_read_end(struct td_read *r);

double td_read_real(struct td_read *r, const char *key);
int64_t td_read_int(struct td_read *r, const char *key);
bool td_read_bool(struct td_read *r, const char *key);
const char *td_read_text(struct td_read *r, const char *key);
const struct td_json *td_read_list(struct td_read *r, const char *key);
// Exactly n numbers.
void td_read_reals(struct td_read *r, const char *key, double *out, size_t n);
// The index of the text among names.
int td_read_choice(struct td_read *r, const char *key, const char *const *names, int n);

// With what null, or "auto" of an integer, stands for.
double td_read_real_or(struct td_read *r, const char *key, double open);
int64_t td_read_int_or(struct td_read *r, const char *key, int64_t open);
const char *td_read_text_or(struct td_read *r, const char *key, const char *open);

#endif
