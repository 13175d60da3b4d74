// What collectives may lack (traind/collective.h): names of the calls, and the one place that says
// whether a backend has them. Facts and slots are held against each other before a group is joined,
// so a caller that asked for a call never meets an absent slot. Pure; any thread.

#include "traind/collective.h"

#include "lib/base/base.h"

static const char *const names[] = {
    [TD_CALL_REDUCE] = "reduce",
    [TD_CALL_REDUCE_SCATTER] = "reduce_scatter",
    [TD_CALL_GATHER] = "gather",
    [TD_CALL_SCATTER] = "scatter",
    [TD_CALL_ALL_GATHER_UNEVEN] = "all_gather_uneven",
    [TD_CALL_ALL_TO_ALL] = "all_to_all",
    [TD_CALL_SEND_RECV] = "send and recv",
    [TD_CALL_GROUPS] = "group_create and group_destroy",
    [TD_CALL_ASYNC] = "asynchronous calls (start, wait and test)",
};
_Static_assert(TD_COUNTOF(names) == TD_CALL_COUNT, "one name per call");

static const char *const async_names[] = {
    [TD_ASYNC_ALL_REDUCE] = "all_reduce", [TD_ASYNC_REDUCE_SCATTER] = "reduce_scatter",
    [TD_ASYNC_ALL_GATHER] = "all_gather", [TD_ASYNC_BROADCAST] = "broadcast",
    [TD_ASYNC_BARRIER] = "barrier",
};
_Static_assert(TD_COUNTOF(async_names) == TD_ASYNC_COUNT, "one name per call");

const char *td_collective_call_name(enum td_collective_call call) {
    return (size_t)call < TD_COUNTOF(names) ? names[call] : "an unknown call";
}

const char *td_async_call_name(enum td_async_call call) {
    return (size_t)call < TD_COUNTOF(async_names) ? async_names[call] : "an unknown call";
}

static bool has_slots(const struct td_collective_ops *ops, enum td_collective_call call) {
    switch (call) {
    case TD_CALL_REDUCE:
        return ops->reduce;
    case TD_CALL_REDUCE_SCATTER:
        return ops->reduce_scatter;
    case TD_CALL_GATHER:
        return ops->gather;
    case TD_CALL_SCATTER:
        return ops->scatter;
    case TD_CALL_ALL_GATHER_UNEVEN:
        return ops->all_gather_uneven;
    case TD_CALL_ALL_TO_ALL:
        return ops->all_to_all;
    case TD_CALL_SEND_RECV:
        return ops->send && ops->recv;
    case TD_CALL_GROUPS:
        return ops->group_create && ops->group_destroy;
    case TD_CALL_ASYNC:
        return ops->start && ops->wait && ops->test;
    case TD_CALL_COUNT:
        break;
    }
    return false;
}

td_status td_collective_require(const struct td_collective_facts *facts, const char *name,
                                enum td_collective_call call) {
    if ((size_t)call < TD_CALL_COUNT && (facts->calls & 1u << call)) return TD_OK;
    return td_fail(TD_UNIMPLEMENTED, "collective '%s' does not serve %s; use one that does", name,
                   td_collective_call_name(call));
}

td_status td_collective_check_calls(const struct td_collective_facts *facts,
                                    const struct td_collective_ops *ops, const char *name) {
    for (int i = 0; i < TD_CALL_COUNT; i++) {
        const enum td_collective_call call = (enum td_collective_call)i;
        if (!(facts->calls & 1u << i) || has_slots(ops, call)) continue;
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION,
                    "collective '%s' says in its facts that it serves %s, but its table has no "
                    "such slot",
                    name, td_collective_call_name(call)),
            TD_CLASS_USER_CODE);
    }
    return TD_OK;
}
