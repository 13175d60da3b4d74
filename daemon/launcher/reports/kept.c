// See the header.

#include "daemon/launcher/reports/kept.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/buf.h"

void td_launch_kept_finish(struct td_launch_kept *k) {
    free(k->one);
    *k = (struct td_launch_kept){0};
}

// NULL: there are too many, or there is no memory.
static struct td_launch_kept_one *find(struct td_launch_kept *k, const char *name) {
    for (size_t i = k->n; i-- > 0;) {
        if (strcmp(k->one[i].name, name) == 0) return &k->one[i];
    }
    if (k->n == TD_REPORT_KEPT_MAX) return NULL;
    if (k->n == k->cap) {
        const size_t cap = k->cap ? 2 * k->cap : 16;
        void *grown = td_realloc(k->one, cap * sizeof *k->one);
        if (!grown) return NULL;
        k->one = grown;
        k->cap = cap;
    }
    struct td_launch_kept_one *one = &k->one[k->n++];
    *one = (struct td_launch_kept_one){0};
    memcpy(one->name, name, strlen(name));
    return one;
}

static bool fits(const char *text, size_t bytes) {
    return *text && strlen(text) < bytes && !strpbrk(text, " \n");
}

void td_launch_kept_take(struct td_launch_kept *k, const struct td_json *pair) {
    const struct td_json *first = pair && pair->kind == TD_JSON_ARRAY ? pair->first : NULL;
    const char *name = td_json_string(first, "");
    const char *text = td_json_string(first ? first->next : NULL, "");
    if (!fits(name, TD_REPORT_KEPT_NAME) || !fits(text, TD_REPORT_KEPT)) return;
    struct td_launch_kept_one *one = find(k, name);
    if (one) snprintf(one->text, sizeof one->text, "%s", text);
}

void td_launch_kept_give(const struct td_launch_kept *k, int fd) {
    TD_AUTO_BUF message;
    td_buf_init(&message, TD_REPORT_BLOCK);
    td_status s = td_buf_append(&message, &(char){TD_REPORT_KEPT_LINES}, 1);
    for (size_t i = 0; !s && i < k->n; i++) {
        s = td_buf_printf(&message, "%s %s\n", k->one[i].name, k->one[i].text);
    }
    td_status_free(s); // what does not fit is read again
    (void)send(fd, message.data, message.len, MSG_DONTWAIT | MSG_NOSIGNAL);
}
