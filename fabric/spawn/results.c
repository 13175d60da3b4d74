// See both headers. Metrics are few, so that a name is looked for from the front.

#include "fabric/spawn/results.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum { td_results_magic = 0x52534c54 };

struct item {
    char *data;
    size_t bytes;
};

struct metric {
    char name[TD_SPAWN_NAME_BYTES];
    bool is_int;
    double d;
    int64_t i;
};

struct td_results {
    uint32_t magic;
    struct item *items; // (n_items)
    size_t n_items, items_cap;
    struct metric *metrics; // (n_metrics)
    size_t n_metrics, metrics_cap;
    char *best_path;
    char *weights;
    size_t weights_bytes;
    uint64_t held_bytes;
};

td_status td_results_create(struct td_results **out_results) {
    struct td_results *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    r->magic = td_results_magic;
    *out_results = r;
    return TD_OK;
}

// All but the metrics.
static void drop_items(struct td_results *r) {
    for (size_t i = 0; i < r->n_items; i++) {
        free(r->items[i].data);
    }
    free(r->items);
    free(r->best_path);
    free(r->weights);
    r->items = NULL;
    r->best_path = r->weights = NULL;
    r->n_items = r->items_cap = r->weights_bytes = 0;
    r->held_bytes = 0;
}

void td_results_destroy(struct td_results *r) {
    if (!r) return;
    TD_CHECK(r->magic == td_results_magic);
    drop_items(r);
    free(r->metrics);
    r->magic = 0;
    free(r);
}

// Room for one more of a growing array.
static td_status make_room(void **array, size_t n, size_t *cap, size_t each, size_t max,
                           const char *what) {
    if (n < *cap) return TD_OK;
    if (n >= max) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "there are %zu %s, at most %zu can be", n, what, max);
    }
    size_t more = TD_MIN(TD_MAX(*cap * 2, (size_t)16), max);
    void *grown = td_realloc(*array, more * each);
    if (!grown) return td_fail_oom();
    *array = grown;
    *cap = more;
    return TD_OK;
}

// ---- readers ------------------------------------------------------------------------------------
size_t td_results_n(const struct td_results *r) {
    return r->n_items;
}

const void *td_results_at(const struct td_results *r, size_t i, size_t *out_bytes) {
    TD_CHECK(i < r->n_items);
    *out_bytes = r->items[i].bytes;
    return r->items[i].data;
}

const char *td_results_best_path(const struct td_results *r) {
    return r->best_path;
}

const void *td_results_weights(const struct td_results *r, size_t *out_bytes) {
    *out_bytes = r->weights_bytes;
    return r->weights;
}

uint64_t td_results_held(const struct td_results *r) {
    return r->held_bytes;
}

// ---- metrics ------------------------------------------------------------------------------------
static struct metric *find(const struct td_results *r, const char *name) {
    for (size_t i = 0; i < r->n_metrics; i++) {
        if (strcmp(r->metrics[i].name, name) == 0) return &r->metrics[i];
    }
    return NULL;
}

static const char *type_name(bool is_int) {
    return is_int ? "an integer" : "a double";
}

static td_status check_type(const struct metric *there, bool is_int) {
    if (!there || there->is_int == is_int) return TD_OK;
    return td_fail(TD_ALREADY_EXISTS,
                   "metric '%s' is %s in one place and %s in another: a name has one type",
                   there->name, type_name(there->is_int), type_name(is_int));
}

static td_status set(struct td_results *r, const struct metric *m) {
    struct metric *there = find(r, m->name);
    TD_TRY(check_type(there, m->is_int));
    if (!there) {
        void *array = r->metrics;
        td_status s = make_room(&array, r->n_metrics, &r->metrics_cap, sizeof *m,
                                TD_RESULT_METRICS_MAX, "metrics");
        r->metrics = array;
        TD_TRY(s);
        there = &r->metrics[r->n_metrics++];
    }
    *there = *m;
    return TD_OK;
}

static td_status set_named(struct td_results *r, const char *name, struct metric m) {
    size_t len = strlen(name);
    if (len == 0 || len >= sizeof m.name) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "the name of a metric, '%.32s', has %zu bytes; 1 to %zu can be", name, len,
                       sizeof m.name - 1);
    }
    memcpy(m.name, name, len + 1);
    return set(r, &m);
}

td_status td_results_set_double(struct td_results *r, const char *name, double value) {
    return set_named(r, name, (struct metric){.d = value});
}

td_status td_results_set_int(struct td_results *r, const char *name, int64_t value) {
    return set_named(r, name, (struct metric){.is_int = true, .i = value});
}

static td_status get(const struct td_results *r, const char *name, bool is_int,
                     const struct metric **out_metric) {
    const struct metric *m = find(r, name);
    if (!m) return td_fail(TD_NOT_FOUND, "there is no metric '%.64s'", name);
    if (m->is_int != is_int) {
        return td_fail(TD_FAILED_PRECONDITION, "metric '%s' is %s, not %s", name,
                       type_name(m->is_int), type_name(is_int));
    }
    *out_metric = m;
    return TD_OK;
}

td_status td_results_double(const struct td_results *r, const char *name, double *out_value) {
    const struct metric *m = NULL;
    TD_TRY(get(r, name, false, &m));
    *out_value = m->d;
    return TD_OK;
}

td_status td_results_int(const struct td_results *r, const char *name, int64_t *out_value) {
    const struct metric *m = NULL;
    TD_TRY(get(r, name, true, &m));
    *out_value = m->i;
    return TD_OK;
}

size_t td_results_n_metrics(const struct td_results *r) {
    return r->n_metrics;
}

const char *td_results_metric_name(const struct td_results *r, size_t i) {
    TD_CHECK(i < r->n_metrics);
    return r->metrics[i].name;
}

// ---- frames -------------------------------------------------------------------------------------
static td_status add_item(struct td_results *r, struct td_buf *body) {
    void *array = r->items;
    td_status s =
        make_room(&array, r->n_items, &r->items_cap, sizeof *r->items, TD_RESULTS_MAX, "results");
    r->items = array;
    TD_TRY(s);
    TD_TRY(td_buf_reserve(body, 0)); // one without bytes has a place, too
    size_t bytes = body->len;
    r->items[r->n_items++] = (struct item){td_buf_take_cstr(body), bytes};
    r->held_bytes += bytes;
    return TD_OK;
}

static td_status add_metric(struct td_results *r, const struct td_result_reader *f) {
    if (f->body.len != sizeof(double)) {
        return td_fail(TD_DATA_LOSS, "metric '%s' has %zu bytes, not 8", f->header.name,
                       f->body.len);
    }
    struct metric m = {.is_int = f->header.kind == TD_RESULT_INT};
    memcpy(m.is_int ? (void *)&m.i : (void *)&m.d, f->body.data, sizeof m.d);
    return set_named(r, f->header.name, m);
}

static td_status set_best_path(struct td_results *r, struct td_buf *body) {
    if (memchr(body->data ? body->data : "", '\0', body->len) || body->len == 0) {
        return td_fail(TD_DATA_LOSS, "the path of the best checkpoint is empty or has a NUL in it");
    }
    free(r->best_path);
    r->best_path = td_buf_take_cstr(body);
    return TD_OK;
}

static td_status read_weights(int fd, const char *name, char *data, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        ssize_t n = pread(fd, data + at, bytes - at, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return td_fail_errno(TD_UNAVAILABLE, "read its weights '%s'", name);
        if (n == 0) {
            return td_fail(TD_DATA_LOSS, "its weights '%s' became shorter while they were read",
                           name);
        }
        at += (size_t)n;
    }
    return TD_OK;
}

static td_status take_weights(struct td_results *r, const char *name, int dir_fd,
                              uint64_t max_bytes) {
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "its weights '%s' are not in the temporary directory: name the file alone",
                       name);
    }
    TD_AUTO_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return td_fail_errno(TD_NOT_FOUND, "open its weights '%s'", name);
    struct stat st;
    if (fstat(fd, &st) != 0) return td_fail_errno(TD_UNAVAILABLE, "look at its weights '%s'", name);
    if (!S_ISREG(st.st_mode)) {
        return td_fail(TD_INVALID_ARGUMENT, "its weights '%s' are no regular file", name);
    }
    uint64_t bytes = (uint64_t)st.st_size, left = max_bytes - (r->held_bytes - r->weights_bytes);
    if (bytes > left) {
        return td_fail(TD_RESOURCE_EXHAUSTED,
                       "its weights '%s' of %" PRIu64 " bytes are more than the %" PRIu64
                       " that max_bytes leaves: raise it",
                       name, bytes, left);
    }
    TD_AUTO_FREE char *data = td_calloc(1, bytes + 1);
    if (!data) return td_fail_oom();
    TD_TRY(read_weights(fd, name, data, bytes));
    if (unlinkat(dir_fd, name, 0) != 0) {
        return td_fail_errno(TD_UNAVAILABLE, "delete its weights '%s'", name);
    }
    free(r->weights);
    r->weights = td_steal(data);
    r->held_bytes = r->held_bytes - r->weights_bytes + bytes;
    r->weights_bytes = bytes;
    return TD_OK;
}

td_status td_results_collect(struct td_results *r, struct td_result_reader *frame, int dir_fd,
                             uint64_t max_bytes) {
    switch ((enum td_result_kind)frame->header.kind) {
    case TD_RESULT_BYTES:
        return add_item(r, &frame->body);
    case TD_RESULT_DOUBLE:
    case TD_RESULT_INT:
        return add_metric(r, frame);
    case TD_RESULT_BEST_PATH:
        return set_best_path(r, &frame->body);
    case TD_RESULT_WEIGHTS:
        return take_weights(r, frame->header.name, dir_fd, max_bytes);
    case TD_RESULT_FAILED:
    case TD_RESULT_DONE:
    case TD_RESULT_KIND_END:
        break;
    }
    return td_fail(TD_INTERNAL, "a %s is no result", td_result_kind_name(frame->header.kind));
}

// ---- merging ------------------------------------------------------------------------------------
// Checks, and makes room: setting them cannot fail afterwards.
static td_status prepare_metrics(struct td_results *r, const struct td_results *call) {
    size_t n_new = 0;
    for (size_t i = 0; i < call->n_metrics; i++) {
        const struct metric *there = find(r, call->metrics[i].name);
        TD_TRY_CTX(check_type(there, call->metrics[i].is_int), "merge metrics");
        n_new += !there;
    }
    if (r->n_metrics + n_new > TD_RESULT_METRICS_MAX) {
        return td_fail(TD_RESOURCE_EXHAUSTED,
                       "merge metrics: %zu are there and %zu are new, at most %d can be",
                       r->n_metrics, n_new, TD_RESULT_METRICS_MAX);
    }
    if (r->n_metrics + n_new <= r->metrics_cap) return TD_OK;
    struct metric *grown = td_realloc(r->metrics, (r->n_metrics + n_new) * sizeof *grown);
    if (!grown) return td_fail_oom();
    r->metrics = grown;
    r->metrics_cap = r->n_metrics + n_new;
    return TD_OK;
}

td_status td_results_merge(struct td_results *r, struct td_results *call) {
    if (!r) return TD_OK;
    TD_TRY(prepare_metrics(r, call));
    for (size_t i = 0; i < call->n_metrics; i++) {
        TD_TRY(set(r, &call->metrics[i]));
    }
    drop_items(r);
    r->items = td_steal(call->items);
    r->n_items = call->n_items;
    r->items_cap = call->items_cap;
    r->best_path = td_steal(call->best_path);
    r->weights = td_steal(call->weights);
    r->weights_bytes = call->weights_bytes;
    r->held_bytes = call->held_bytes;
    call->n_items = call->items_cap = call->weights_bytes = 0;
    call->held_bytes = 0;
    return TD_OK;
}
