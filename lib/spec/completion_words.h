#ifndef TRAIND_LIB_SPEC_COMPLETION_WORDS_H
#define TRAIND_LIB_SPEC_COMPLETION_WORDS_H

// The words of an override, PATH=VALUE, for completion: every key that a person may set, and the
// names that one takes. A key of a choice (optimizer.lr) is one that some of its names have. Pure
// functions.

// what: about a key, its prose; about a value, "".
typedef void td_spec_word_fn(void *arg, const char *word, const char *what);

void td_spec_keys(td_spec_word_fn *on_key, void *arg);
void td_spec_values(const char *key, td_spec_word_fn *on_value, void *arg);

#endif
