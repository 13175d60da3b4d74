// See the header. One table serves both directions, so that rank and launcher cannot disagree.

#include "lib/attempt/exit_codes.h"

// The first row of a class is the code that a rank uses for it.
static const struct {
    int code;
    enum td_class cls;
} rows[] = {
    {TD_EXIT_DONE, TD_CLASS_NONE},
    {TD_EXIT_STOPPED, TD_CLASS_PREEMPTED},
    {TD_EXIT_BAD_SPEC, TD_CLASS_BAD_SPEC},
    {TD_EXIT_ABI, TD_CLASS_BAD_SPEC},
    {TD_EXIT_RESOURCE, TD_CLASS_OUT_OF_MEMORY},
    {TD_EXIT_COLLECTIVE, TD_CLASS_COLLECTIVE},
    {TD_EXIT_DISK, TD_CLASS_DISK},
    {TD_EXIT_DATA, TD_CLASS_DATA},
    {TD_EXIT_NUMERIC, TD_CLASS_NUMERIC},
    {TD_EXIT_USER_CODE, TD_CLASS_USER_CODE},
    {TD_EXIT_BUG, TD_CLASS_INTERNAL},
};

enum td_class td_exit_code_class(int exit_code) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        if (rows[i].code == exit_code) return rows[i].cls;
    }
    return TD_CLASS_INTERNAL;
}

bool td_exit_code_is_failure(int exit_code) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        if (rows[i].code == exit_code) {
            return exit_code != TD_EXIT_DONE && exit_code != TD_EXIT_STOPPED;
        }
    }
    return false;
}

int td_exit_code_of(enum td_class cls) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        if (rows[i].cls == cls && cls != TD_CLASS_NONE) return rows[i].code;
    }
    return TD_EXIT_BUG; // device, node_lost, stuck, killed: the event carries the class
}
