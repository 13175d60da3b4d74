#ifndef TRAIND_CLIENT_YAML_H
#define TRAIND_CLIENT_YAML_H

// JSON text as YAML that reads back as the same values.

#include "lib/base/buf.h"

// Appends a line for each key, each begun by `indent` spaces. DATA_LOSS: json is no JSON.
TD_MUST_USE td_status td_yaml_of_json(const char *json, int indent, struct td_buf *out);

#endif
