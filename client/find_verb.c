// See the header. A verb has one word or two; what is none is answered with the nearest one.

#include "client/find_verb.h"

#include <string.h>

#include "client/print.h"
#include "lib/base/buf.h"

// The row whose words are argv[1..]; *out_words says how many words it has.
const struct td_verb *td_verbs_find(const struct td_verbs *t, int argc, char **argv,
                                    int *out_words) {
    for (size_t i = 0; argc > 1 && i < t->n; i++) {
        const char *space = strchr(t->verb[i].name, ' ');
        size_t first = space ? (size_t)(space - t->verb[i].name) : strlen(t->verb[i].name);
        if (strlen(argv[1]) != first || strncmp(argv[1], t->verb[i].name, first) != 0) continue;
        if (space && (argc < 3 || strcmp(argv[2], space + 1) != 0)) continue;
        *out_words = space ? 2 : 1;
        return &t->verb[i];
    }
    return NULL;
}

// The first of two words alone, or with another second one: names the verbs that begin so.
static bool refuse_half_a_verb(const struct td_verbs *t, int argc, char **argv) {
    size_t first = strlen(argv[1]);
    bool any = false;
    for (size_t i = 0; i < t->n; i++) {
        const char *name = t->verb[i].name;
        if (strncmp(argv[1], name, first) != 0 || name[first] != ' ') continue;
        if (!any && argc > 2 && argv[2][0] != '-') {
            td_print(stderr, "trainctl: there is no verb '%s %s', but ", argv[1], argv[2]);
        } else if (!any) {
            td_print(stderr, "trainctl: the verb '%s' has a second word: ", argv[1]);
        }
        td_print(stderr, "%s'%s'", any ? ", " : "", name);
        any = true;
    }
    if (any) td_print(stderr, "; `trainctl --help` lists all verbs\n");
    return any;
}

int td_verbs_refuse(const struct td_verbs *t, int argc, char **argv) {
    const char *nearest = NULL;
    int best = 3;
    if (argv[1][0] == '-') {
        td_print(stderr,
                 "trainctl: the verb comes first, then flags such as '%s'; `trainctl --help` "
                 "lists the verbs\n",
                 argv[1]);
        return TD_CTL_USAGE;
    }
    if (refuse_half_a_verb(t, argc, argv)) return TD_CTL_USAGE;
    for (size_t i = 0; i < t->n; i++) {
        int distance = td_edit_distance(argv[1], t->verb[i].name, best);
        if (distance < best) {
            best = distance;
            nearest = t->verb[i].name;
        }
    }
    td_print(stderr, "trainctl: there is no verb '%s'%s%s%s `trainctl --help` lists them\n",
             argv[1], nearest ? ", did you mean '" : ";", nearest ? nearest : "",
             nearest ? "'?" : "");
    return TD_CTL_USAGE;
}
