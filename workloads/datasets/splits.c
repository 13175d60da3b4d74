// Names of a dataset's splits (traind/dataset.h).
//
// They are in messages and in the names of metrics ("val_loss"), so they are part of what users
// see and do not change. Pure; any thread; a number outside the enum is "unknown", because a
// split may come from a plugin.

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
