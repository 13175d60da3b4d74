// Threads have the numbers that the system gives them, and a name from their first event.

#include "engine/train/events/timeline.h"

#include <inttypes.h>
#include <pthread.h>

#include "lib/base/files/files.h"

struct td_timeline {
    struct td_trace_file *file;
    int32_t rank;
    pthread_mutex_t lock; // of what follows
    pid_t named[TD_TIMELINE_THREADS];
    int n_named;
};

// A disk that is full or fails is no mistake of the spec.
static td_status in_trace_dir(td_status s) {
    s = td_status_context(s, "trainer.trace_dir");
    return td_status_class(s) == TD_CLASS_DISK ? s : td_status_with_class(s, TD_CLASS_BAD_SPEC);
}

td_status td_timeline_create(const char *dir, int32_t attempt, int32_t rank,
                             struct td_timeline **out_timeline) {
    char path[TD_FS_PATH_BYTES];
    struct td_timeline *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    t->rank = rank;
    pthread_mutex_init(&t->lock, NULL);
    td_status s =
        td_fs_path(path, "%s/timeline-a%" PRId32 "-rank%" PRId32 ".json", dir, attempt, rank);
    if (!s) s = td_trace_file_create(path, TD_TIMELINE_EVENTS, &t->file);
    if (!s) s = td_trace_file_name_thread(t->file, rank, gettid(), "training");
    if (s) {
        td_timeline_destroy(t);
        return in_trace_dir(s);
    }
    t->named[t->n_named++] = gettid();
    *out_timeline = t;
    return TD_OK;
}

void td_timeline_destroy(struct td_timeline *t) {
    if (!t) return;
    td_trace_file_destroy(t->file);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

// Is this the first event of a thread whose name there is room for?
static bool is_new(struct td_timeline *t, pid_t thread) {
    int i = 0;
    pthread_mutex_lock(&t->lock);
    while (i < t->n_named && t->named[i] != thread) {
        i++;
    }
    const bool adds = i == t->n_named && i < TD_TIMELINE_THREADS;
    if (adds) t->named[t->n_named++] = thread;
    pthread_mutex_unlock(&t->lock);
    return adds;
}

td_status td_timeline_add(struct td_timeline *t, const char *name, const char *thread,
                          struct td_mono start, const char *args) {
    if (!t) return TD_OK;
    const pid_t here = gettid();
    const struct td_trace_event e = {.category = "rank",
                                     .name = name,
                                     .start = start,
                                     .end = td_mono_now(),
                                     .process = t->rank,
                                     .thread = here};
    td_status s =
        is_new(t, here) ? td_trace_file_name_thread(t->file, t->rank, here, thread) : TD_OK;
    if (!s) s = td_trace_file_add(t->file, &e, args);
    return in_trace_dir(s);
}
