#ifndef TRAIND_LIB_JOB_LABELS_H
#define TRAIND_LIB_JOB_LABELS_H

// Labels: words that people give to a job or to a node, and choose by.
//
// The rule is that of Kubernetes' labels without prefixes. As no key and no value has ',' or '=', a
// set of labels is one text, "run=a7,team=vision": by key in the order of their bytes, each key
// once. Equal sets are equal texts. "": no label.
//
// A *wish* chooses: "team=vision" is a label, "team" is a key with any value.
//
// Bounds: TD_LABELS_MAX labels, so TD_LABELS_BYTES of text. Pure functions, any thread.

#include "lib/base/json.h"

enum {
    TD_LABELS_MAX = 32,
    TD_LABEL_BYTES = 64, // of a key or a value, with its NUL
    TD_LABELS_BYTES = TD_LABELS_MAX * 2 * TD_LABEL_BYTES + 1,
};

#define TD_LABEL_RULE                                                                              \
    "a label's key and value have 1 to 63 letters, digits, '-', '_' and '.', and begin and end "   \
    "with a letter or digit"

bool td_label_key_ok(const char *text, size_t len);
bool td_label_value_ok(const char *text, size_t len); // "" is one

struct td_label {
    struct td_str key, value;
};
// The next label; *io_at begins as the text (NULL: no label). False: there is none.
bool td_labels_next(const char **io_at, struct td_label *out_label);
// Has the set what that wish names? NULL is the empty set.
bool td_labels_has(const char *labels, const char *wish);
// Has it all labels of another set?
bool td_labels_have(const char *labels, const char *wanted);

// Adds the next label, by key, to those of a text. What the bounds do not allow is cut.
void td_labels_put(char io_text[TD_LABELS_BYTES], const char *key, const char *value);

// INVALID_ARGUMENT LABEL_INVALID, with the rule; "what" is named: "--label", "labels".
TD_MUST_USE td_status td_label_check_wish(const char *what, const char *wish);
// A canonical map of a spec as a text, the caller's to free; NULL: it has no labels, or is absent.
TD_MUST_USE td_status td_labels_of_map(const struct td_json *map, char **out_labels);
// A set with one change, "k=v" (in place of k's other value) or "k-" (without k, which need not be
// in it), the caller's to free. INVALID_ARGUMENT LABEL_INVALID; RESOURCE_EXHAUSTED LIMIT_LABELS.
TD_MUST_USE td_status td_labels_change(const char *labels, const char *change, char **out_labels);

#endif
