// Names of a dataset's splits (traind/dataset.h), as they stand in messages and metric names.

#include "lib/base/base.h"
#include "traind/dataset.h"

const char *td_split_name(enum td_split s) {
    static const char *const names[] = {[TD_SPLIT_TRAIN] = "train",
                                        [TD_SPLIT_VAL] = "val",
                                        [TD_SPLIT_TEST] = "test",
                                        [TD_SPLIT_PREDICT] = "predict"};
    _Static_assert(TD_COUNTOF(names) == TD_SPLIT_COUNT, "one name per split");
    return (unsigned)s < TD_SPLIT_COUNT ? names[s] : "unknown";
}
