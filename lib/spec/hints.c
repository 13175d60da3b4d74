// See the header.

#include "lib/spec/hints.h"

#include <ctype.h>
#include <string.h>

#define TD_HINT_KEY(path_, typed_)          {.meant = path_, .typed = typed_},
#define TD_HINT_NAME(where_, name_, typed_) {.where = where_, .meant = name_, .typed = typed_},
const struct td_hint td_hints[] = {
#include "lib/spec/hints.def"
};
const size_t td_n_hints = TD_COUNTOF(td_hints);

const char *td_hint_bare(const char *text) {
    const char *dot = strrchr(text, '.');
    return dot && isalpha((unsigned char)dot[1]) ? dot + 1 : text;
}

static bool has(const char *typed, const char *text) {
    for (const char *at = typed; *at; at += *at == '|') {
        const size_t len = strcspn(at, "|");
        if (td_alike(text, strlen(text), at, len)) return true;
        at += len;
    }
    return false;
}

const char *td_hint_key(const char *text, size_t *io_at) {
    while (*io_at < td_n_hints) {
        const struct td_hint *h = &td_hints[(*io_at)++];
        if (!h->where && has(h->typed, text)) return h->meant;
    }
    return NULL;
}

const char *td_hint_name(const char *where, const char *text) {
    for (size_t i = 0; i < td_n_hints; i++) {
        const struct td_hint *h = &td_hints[i];
        const bool is_here = h->where && strcmp(h->where, where) == 0;
        if (is_here && has(h->typed, td_hint_bare(text))) return h->meant;
    }
    return NULL;
}
