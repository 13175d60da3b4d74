#ifndef TRAIND_LIB_SPEC_YAML_PRINT_H
#define TRAIND_LIB_SPEC_YAML_PRINT_H

// Tree -> YAML text that yaml.h reads back as the same tree, and that people read.

#include "lib/base/buf.h"
#include "lib/base/json.h"

TD_MUST_USE td_status td_yaml_print(const struct td_json *v, struct td_buf *out);

#endif
