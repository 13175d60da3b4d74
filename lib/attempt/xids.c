// See the header.

#include "lib/attempt/xids.h"

#include "lib/base/base.h"

static const struct td_xid rows[] = {
#define TD_XID(number, effect, meaning) {number, TD_XID_##effect, meaning},
#include "lib/attempt/xids.def"
#undef TD_XID
};

struct td_xid td_xid_get(uint32_t number) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        if (rows[i].number == number) return rows[i];
    }
    return (struct td_xid){number, TD_XID_NOTED,
                           "this build of traind does not know what it means"};
}

const char *td_xid_effect_name(enum td_xid_effect e) {
    static const char *const names[] = {"noted", "user_code", "reset", "excluded"};
    _Static_assert(TD_COUNTOF(names) == TD_XID_EFFECT_COUNT, "a name for each");
    TD_CHECK((unsigned)e < TD_XID_EFFECT_COUNT);
    return names[e];
}

const char *td_xid_advice(enum td_xid_effect e) {
    static const char *const texts[] = {
        "nothing follows of it; if it comes again, look at the card",
        "look for the error in the program: its stderr, or a run with CUDA_LAUNCH_BLOCKING=1",
        "reset the card when nothing runs on it (nvidia-smi --gpu-reset)",
        "reset it (nvidia-smi --gpu-reset) or restart the machine; replace a card that fails again",
    };
    _Static_assert(TD_COUNTOF(texts) == TD_XID_EFFECT_COUNT, "a text for each");
    TD_CHECK((unsigned)e < TD_XID_EFFECT_COUNT);
    return texts[e];
}
