// See the header. A verb has one to three words; what is none is answered with the nearest one.

#include "client/find_verb.h"

#include <string.h>

#include "client/screen/print.h"
#include "client/verbs.h"
#include "lib/base/buf.h"

const char *td_verb_rest(const char *name, const char *const *words, int n, int *out_words) {
    int at = 0;
    while (at < n && *name) {
        const size_t len = strcspn(name, " ");
        if (strlen(words[at]) != len || strncmp(words[at], name, len) != 0) break;
        name += len + (name[len] != '\0');
        at++;
    }
    *out_words = at;
    return name;
}

const struct td_verb *td_verb_find(const char *const *words, int n, int *out_words) {
    int taken;
    for (size_t i = 0; td_verb_at(i); i++) {
        if (*td_verb_rest(td_verb_at(i)->name, words, n, &taken)) continue;
        *out_words = taken;
        return td_verb_at(i);
    }
    return NULL;
}

static void say_words(const char *const *words, int n) {
    for (int i = 0; i < n; i++) {
        td_print(stderr, "%s%s", i ? " " : "", words[i]);
    }
}

// Words that begin verbs and are none: names the verbs that begin with most of them.
static bool refuse_part_of_a_verb(const char *const *words, int n) {
    int best = 0, taken;
    bool any = false;
    for (size_t i = 0; td_verb_at(i); i++) {
        (void)td_verb_rest(td_verb_at(i)->name, words, n, &taken);
        best = TD_MAX(best, taken);
    }
    for (size_t i = 0; best && td_verb_at(i); i++) {
        (void)td_verb_rest(td_verb_at(i)->name, words, n, &taken);
        if (taken < best) continue;
        const bool is_wrong = best < n && words[best][0] != '-';
        if (!any) {
            td_print(stderr, is_wrong ? "trainctl: there is no verb '" : "trainctl: the verb '");
            say_words(words, is_wrong ? best + 1 : best);
            td_print(stderr, is_wrong    ? "', but "
                             : best == 1 ? "' has a second word: "
                                         : "' has a third word: ");
        }
        td_print(stderr, "%s'%s'", any ? ", " : "", td_verb_at(i)->name);
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
    if (refuse_part_of_a_verb(words, n)) return TD_CTL_USAGE;
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
