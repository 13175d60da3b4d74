// See the header. A word that is not known is refused: it came from another build.

#include "lib/attempt/rank_env.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANK = 1 << 20, MAX_FD = 1 << 20 };

static const struct {
    const char *name;
    size_t offset;
    long min, max;
    bool required;
} words[] = {
    {"rank", offsetof(struct td_rank_env, rank), 0, MAX_RANK, true},
    {"world_size", offsetof(struct td_rank_env, world_size), 1, MAX_RANK, true},
    {"page_fd", offsetof(struct td_rank_env, page_fd), -1, MAX_FD, true},
    {"events_fd", offsetof(struct td_rank_env, events_fd), -1, MAX_FD, true},
    {"group_fd", offsetof(struct td_rank_env, group_fd), -1, MAX_FD, false},
    {"store_fd", offsetof(struct td_rank_env, store_fd), -1, MAX_FD, false},
    {"results_fd", offsetof(struct td_rank_env, results_fd), -1, MAX_FD, false},
};
_Static_assert(sizeof(int32_t) == sizeof(int), "one kind of member");

static int *member(struct td_rank_env *e, size_t i) {
    return (int *)((char *)e + words[i].offset);
}

td_status td_rank_env_write(const struct td_rank_env *e, char out[TD_RANK_ENV_BYTES]) {
    int n = snprintf(out, TD_RANK_ENV_BYTES,
                     "rank=%d world_size=%d page_fd=%d events_fd=%d group_fd=%d store_fd=%d "
                     "results_fd=%d%s%s",
                     e->rank, e->world_size, e->page_fd, e->events_fd, e->group_fd, e->store_fd,
                     e->results_fd, e->plan ? " plan=" : "", e->plan ? e->plan : "");
    if (n < TD_RANK_ENV_BYTES) return TD_OK;
    return td_fail(TD_RESOURCE_EXHAUSTED, "the path of the plan, '%.64s...', is too long", e->plan);
}

static td_status bad(const char *what, const char *word) {
    return td_fail(TD_INVALID_ARGUMENT,
                   TD_RANK_ENV " %s '%s'; it is set by the traind that starts a rank, of the same "
                               "version as libtraind.so",
                   what, word);
}

static td_status parse_word(char *word, struct td_rank_env *e, unsigned *seen) {
    char *value = strchr(word, '=');
    if (!value) return bad("has the word", word);
    *value++ = '\0';
    for (size_t i = 0; i < TD_COUNTOF(words); i++) {
        if (strcmp(word, words[i].name) != 0) continue;
        char *end;
        errno = 0;
        long v = strtol(value, &end, 10);
        bool ok = !errno && end != value && !*end && v >= words[i].min && v <= words[i].max;
        if (!ok) return bad("has a number that cannot be for", word);
        if (*seen & 1u << i) return bad("says twice", word);
        *seen |= 1u << i;
        *member(e, i) = (int)v;
        return TD_OK;
    }
    return bad("has the unknown word", word);
}

td_status td_rank_env_parse(char *text, struct td_rank_env *out_env) {
    struct td_rank_env e = {
        .page_fd = -1, .events_fd = -1, .group_fd = -1, .store_fd = -1, .results_fd = -1};
    unsigned seen = 0;
    while (*text) {
        if (strncmp(text, "plan=", 5) == 0) {
            e.plan = text + 5;
            break;
        }
        char *end = text + strcspn(text, " ");
        bool last = !*end;
        *end = '\0';
        TD_TRY(parse_word(text, &e, &seen));
        text = last ? end : end + 1;
    }
    for (size_t i = 0; i < TD_COUNTOF(words); i++) {
        if (words[i].required && !(seen & 1u << i)) return bad("lacks", words[i].name);
    }
    if (e.rank >= e.world_size) return bad("has a rank past its world:", "rank");
    *out_env = e;
    return TD_OK;
}
