// See the header.

#include "client/nodes/node_state.h"

#include <stdio.h>

#include "client/screen/format.h"

// "": nothing.
static const char *decided(const Traind__V1__Node *n) {
    const Traind__V1__Cordon *c = n->cordon;
    if (!c) return "";
    if (!c->drains) return "cordoned";
    return c->empty ? "drained" : "draining";
}

static const char *seen(const Traind__V1__Node *n) {
    return td_format_enum(&traind__v1__node__state__descriptor, (int)n->state);
}

const char *td_node_state_words(const Traind__V1__Node *n, char out[TD_NODE_STATE_BYTES]) {
    const char *word = decided(n);
    snprintf(out, TD_NODE_STATE_BYTES, "%s%s%s", seen(n), *word ? ", " : "", word);
    return out;
}

const char *td_node_state_word(const Traind__V1__Node *n) {
    const bool is_ready = n->state == TRAIND__V1__NODE__STATE__READY;
    return is_ready && n->cordon ? decided(n) : seen(n);
}
