#ifndef TRAIND_TESTS_UNIT_TRAIN_RANK_FIELDS_RIG_H
#define TRAIND_TESTS_UNIT_TRAIN_RANK_FIELDS_RIG_H

// Fields: a module of a test that knows the two fields of its samples, and nothing else. The test
// brings `record`.

#include "tests/unit/test.h"

#include "traind/module.h"

struct td_module {
    struct td_field x, y;
};

static inline td_status fields_open(const struct td_json *values, const struct td_field *fields,
                                    size_t n, struct td_module **out_module) {
    (void)values;
    assert_int_equal(n, 2);
    struct td_module *m = td_calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    m->x = fields[0];
    m->y = fields[1];
    *out_module = m;
    return TD_OK;
}

static inline void fields_close(struct td_module *m) {
    free(m);
}

#endif
