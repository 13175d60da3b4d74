#ifndef TRAIND_LIB_ATTEMPT_XIDS_H
#define TRAIND_LIB_ATTEMPT_XIDS_H

// Errors of GPUs that NVIDIA's driver reports by number (XIDs): what each means, and what follows
// of it. The rows are in xids.def. A number that has no row is noted. Pure, any thread.

#include <stdint.h>

enum td_xid_effect { // the later one counts where a device had several
    TD_XID_NOTED,
    TD_XID_USER,     // an attempt that ends with it has failed by its own code
    TD_XID_RESET,    // by the device, which may be used all the same
    TD_XID_EXCLUDES, // by the device, which is not used any more
    TD_XID_EFFECT_COUNT
};

struct td_xid {
    uint32_t number;
    enum td_xid_effect effect;
    const char *meaning;
};

struct td_xid td_xid_get(uint32_t number);
const char *td_xid_effect_name(enum td_xid_effect e); // "noted"
// What a person does about it, as the end of a sentence.
const char *td_xid_advice(enum td_xid_effect e);

#endif
