// See the header. A verb has one word or two; what is none is answered with the nearest one.

#include "client/find_verb.h"

#include <string.h>

#include "client/screen/print.h"
#include "client/verbs.h"
#include "lib/base/buf.h"

const struct td_verb *td_verb_find(const char *const *words, int n, int *out_words) {
    for (size_t i = 0; n > 0 && td_verb_at(i); i++) {
        const char *name = td_verb_at(i)->name, *space = strchr(name, ' ');
        const size_t first = strcspn(name, " ");
        if (strlen(words[0]) != first || strncmp(words[0], name, first) != 0) continue;
        if (space && (n < 2 || strcmp(words[1], space + 1) != 0)) continue;
        *out_words = space ? 2 : 1;
        return td_verb_at(i);
    }
    return NULL;
}

// The first of two words alone, or with another second one: names the verbs that begin so.
static bool refuse_half_a_verb(const char *const *words, int n) {
    size_t first = strlen(words[0]);
    bool any = false;
    for (size_t i = 0; td_verb_at(i); i++) {
        const char *name = td_verb_at(i)->name;
        if (strncmp(words[0], name, first) != 0 || name[first] != ' ') continue;
        if (!any && n > 1 && words[1][0] != '-') {
            td_print(stderr, "trainctl: there is no verb '%s %s', but ", words[0], words[1]);
        } else if (!any) {
            td_print(stderr, "trainctl: the verb '%s' has a second word: ", words[0]);
        }
        td_print(stderr, "%s'%s'", any ? ", " : "", name);
        any = true;
    }
    if (any) td_print(stderr, "; `trainctl --help` lists all verbs\n");
    return any;
}

int td_verb_refuse(const char *const *words, int n) {
    const char *nearest = NULL;
    int best = 3;
    if (words[0][0] == '-') {
        td_print(stderr,
                 "trainctl: the verb comes first, then flags such as '%s'; `trainctl --help` "
                 "lists the verbs\n",
                 words[0]);
        return TD_CTL_USAGE;
    }
    if (refuse_half_a_verb(words, n)) return TD_CTL_USAGE;
    for (size_t i = 0; td_verb_at(i); i++) {
        int distance = td_edit_distance(words[0], td_verb_at(i)->name, best);
        if (distance < best) {
            best = distance;
            nearest = td_verb_at(i)->name;
        }
    }
    td_print(stderr, "trainctl: there is no verb '%s'%s%s%s `trainctl --help` lists them\n",
             words[0], nearest ? ", did you mean '" : ";", nearest ? nearest : "",
             nearest ? "'?" : "");
    return TD_CTL_USAGE;
}
