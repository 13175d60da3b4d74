// See the header.

#include "client/session/states.h"

#include <string.h>
#include <strings.h>

static const ProtobufCEnumValue *state_of(const char *word, size_t len) {
    const ProtobufCEnumDescriptor *d = &traind__v1__job__state__descriptor;
    for (unsigned i = 0; i < d->n_values; i++) {
        const char *name = d->values[i].name;
        if (d->values[i].value && strlen(name) == len && strncasecmp(name, word, len) == 0) {
            return &d->values[i];
        }
    }
    return NULL;
}

td_status td_states_parse(const char *flag, const char *text,
                          Traind__V1__Job__State out_states[TD_STATES_MAX], size_t *out_n) {
    *out_n = 0;
    for (const char *word = text;; word++) {
        const size_t len = strcspn(word, ",");
        const ProtobufCEnumValue *v = state_of(word, len);
        if (!v || *out_n == TD_STATES_MAX) {
            return td_fail(TD_INVALID_ARGUMENT,
                           "--%s '%.*s' is no job state; there are queued starting running "
                           "recovering pausing paused stopping cancelled succeeded failed expired, "
                           "several with ',' between",
                           flag, (int)len, word);
        }
        out_states[(*out_n)++] = (Traind__V1__Job__State)v->value;
        word += len;
        if (!*word) return TD_OK;
    }
}

bool td_states_have(const Traind__V1__Job__State *states, size_t n, Traind__V1__Job__State state) {
    for (size_t i = 0; i < n; i++) {
        if (states[i] == state) return true;
    }
    return false;
}
