#ifndef TRAIND_WORKLOADS_MODULES_CONFIG_JSON_H
#define TRAIND_WORKLOADS_MODULES_CONFIG_JSON_H

// Does a network of Hugging Face's form compute what a module computes? Tensors show it by their
// shapes; the rest is in config.json, key by key. A key that is left out, or null, means
// `fallback`, the default that transformers takes then. Whatever file comes is judged, not trusted.
// Errors: INVALID_ARGUMENT, class bad_spec, with key, what was found and what the model has.

#include "lib/base/base.h"
#include "lib/base/json.h"
#include "traind/module.h"

// NULL: left out, or null.
const struct td_json *td_config_key(const struct td_json *config, const char *key);
TD_MUST_USE td_status td_config_number(const struct td_json *config, const char *key,
                                       double fallback, double wanted);
TD_MUST_USE td_status td_config_flag(const struct td_json *config, const char *key, bool fallback,
                                     bool wanted);
TD_MUST_USE td_status td_config_word(const struct td_json *config, const char *key,
                                     const char *fallback, const char *wanted);
// All that failed of n, in one message, so that nobody mends them one by one. Takes them.
TD_MUST_USE td_status td_config_all(td_status *take_all, size_t n);
// The message of them all. v: what is there, NULL if the key is left out.
TD_MUST_USE td_status td_config_differs(const struct td_json *v, const char *key, const char *found,
                                        const char *wanted);

#endif
