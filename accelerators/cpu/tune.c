// Choices in one table, in the order of their coming; a few hundred, so looking one up is a scan.
//
// What is measured is the best of some runs after one to warm up: a choice is about the algorithm,
// not about what else was busy. A run during which another process took a core from this one is
// repeated, a few times at most. Rejected: averaging (one disturbed run would decide for the life
// of a job) and a cost model (the libraries' blocking rules are not ours to guess).

#include "accelerators/cpu/tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "lib/base/buf.h"
#include "lib/base/clock.h"
#include "lib/base/digest.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

enum { CACHE_MAX_BYTES = 1 << 20, MIN_RUNS = 3, MAX_RUNS = 20, MAX_TRIES = 4 };
static const int64_t RACE_NS = 20 * TD_NS_PER_MS; // for one way, unless MIN_RUNS take longer
static const double MARGIN = 0.97;
static const int64_t SLOW_START_NS = 20 * TD_NS_PER_MS, PAID_BACK_RUNS = 200;

enum origin { TAKEN, FROM_CACHE, MEASURED, FROZEN };

struct choice {
    char *key, *name;
    enum origin origin;
    bool asked, saved;
};

struct td_tune {
    struct choice list[TD_TUNE_MAX];
    int n;
    char *head;                  // first line of the cache: of which machine it is
    char path[TD_FS_PATH_BYTES]; // "": no cache
    bool times_thread;
    struct td_buf text;
    const struct td_tune *of; // a preview: of this one; then nothing above is used
    td_choice_fn *report;
    void *report_arg;
};

// Its place in the list; -1: it is not there.
static int index_of(const struct td_tune *t, const char *key) {
    int i = t->n - 1;
    while (i >= 0 && strcmp(t->list[i].key, key) != 0) {
        i--;
    }
    return i;
}

static const struct choice *find(const struct td_tune *t, const char *key) {
    int i = index_of(t, key);
    return i < 0 ? NULL : &t->list[i];
}

static td_status put(struct td_tune *t, const char *key, const char *name, enum origin origin) {
    int at = index_of(t, key);
    struct choice *c = at < 0 ? NULL : &t->list[at];
    char *own_name = td_strdup(name), *own_key = c ? c->key : td_strdup(key);
    if (!own_name || !own_key || (!c && t->n == TD_TUNE_MAX)) {
        free(own_name);
        if (!c) free(own_key);
        return own_name && own_key
                   ? td_fail(TD_RESOURCE_EXHAUSTED, "more than %d kernel choices", TD_TUNE_MAX)
                   : td_fail_oom();
    }
    if (!c) {
        c = &t->list[t->n++];
    } else {
        free(c->name);
    }
    *c = (struct choice){own_key, own_name, origin, c->asked && c->key == own_key, false};
    return TD_OK;
}

// Takes lines "key=name", where nothing better is known.
static td_status read_lines(struct td_tune *t, const char *text, enum origin origin) {
    char line[TD_TUNE_KEY_MAX * 2];
    while (*text) {
        size_t len = strcspn(text, "\n");
        if (len >= sizeof line) return td_fail(TD_INVALID_ARGUMENT, "a kernel choice is too long");
        memcpy(line, text, len);
        line[len] = '\0';
        text += len + (text[len] == '\n');
        char *equals = strrchr(line, '=');
        if (!equals || equals == line || !equals[1]) {
            return td_fail(TD_INVALID_ARGUMENT, "'%s' is no kernel choice: key=name", line);
        }
        *equals = '\0';
        const struct choice *known = find(t, line);
        if (!known || known->origin <= origin) TD_TRY(put(t, line, equals + 1, origin));
    }
    return TD_OK;
}

// ---- cache --------------------------------------------------------------------------------------
static td_status read_cache(struct td_tune *t) {
    TD_AUTO_BUF text;
    td_buf_init(&text, CACHE_MAX_BYTES);
    if (!td_fs_exists(t->path)) return TD_OK;
    TD_TRY(td_fs_read(t->path, CACHE_MAX_BYTES, &text));
    const char *all = td_buf_cstr(&text);
    size_t head = strlen(t->head);
    if (strncmp(all, t->head, head) != 0) return TD_OK;
    return read_lines(t, all + head, FROM_CACHE);
}

static td_status make_cache_dir(const struct td_tune *t) {
    char dir[TD_FS_PATH_BYTES];
    memcpy(dir, t->path, sizeof dir);
    *strrchr(dir, '/') = '\0';
    return td_fs_mkdirs(dir, 0777);
}

static td_status write_cache(struct td_tune *t) {
    TD_AUTO_BUF text;
    td_buf_init(&text, CACHE_MAX_BYTES);
    TD_TRY(make_cache_dir(t));
    td_status_free(read_cache(t)); // what others measured meanwhile
    TD_TRY(td_buf_str(&text, t->head));
    for (int i = 0; i < t->n; i++) {
        enum origin origin = t->list[i].origin;
        if (origin == FROZEN || origin == TAKEN) continue; // perhaps of another machine
        TD_TRY(td_buf_printf(&text, "%s=%s\n", t->list[i].key, t->list[i].name));
    }
    TD_TRY(td_fs_write(t->path, text.data, text.len, 0666, 0));
    for (int i = 0; i < t->n; i++) {
        t->list[i].saved = true;
    }
    return TD_OK;
}

void td_tune_save(struct td_tune *t) {
    bool news = false;
    for (int i = 0; i < t->n; i++) {
        news |= t->list[i].origin == MEASURED && !t->list[i].saved;
    }
    if (news) td_status_log(TD_LOG_DEBUG, write_cache(t), "kernel choices are not kept");
}

// ---- life ---------------------------------------------------------------------------------------
static td_status open_cache(struct td_tune *t, const char *dir) {
    char hex[TD_DIGEST_HEX];
    td_xxh3_128_hex(t->head, strlen(t->head), hex);
    TD_TRY(td_fs_path(t->path, "%s/cpu-tune-%.16s", dir, hex));
    return read_cache(t);
}

td_status td_tune_create(const char *cache_dir, const char *machine, struct td_tune **out_tune) {
    TD_AUTO(td_tune) *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    td_buf_init(&t->text, TD_TUNE_TEXT_MAX);
    TD_AUTO_BUF head;
    td_buf_init(&head, 4096);
    TD_TRY(td_buf_printf(&head, "traind " TD_VERSION " kernel choices of %s\n", machine));
    t->head = td_buf_take_cstr(&head);
    if (!t->head) return td_fail_oom();
    if (cache_dir) td_status_log(TD_LOG_DEBUG, open_cache(t, cache_dir), "no kernel choices kept");
    *out_tune = td_steal(t);
    return TD_OK;
}

void td_tune_time_thread(struct td_tune *t) {
    t->times_thread = true;
}

td_status td_tune_preview(const struct td_tune *t, td_choice_fn *report, void *arg,
                          struct td_tune **out_preview) {
    struct td_tune *p = td_calloc(1, sizeof *p);
    if (!p) return td_fail_oom();
    td_buf_init(&p->text, 0);
    p->of = t;
    p->report = report;
    p->report_arg = arg;
    *out_preview = p;
    return TD_OK;
}

void td_tune_destroy(struct td_tune *t) {
    if (!t) return;
    for (int i = 0; i < t->n; i++) {
        free(t->list[i].key);
        free(t->list[i].name);
    }
    free(t->head);
    td_buf_finish(&t->text);
    free(t);
}

td_status td_tune_adopt(struct td_tune *t, const char *text) {
    return read_lines(t, text, FROZEN);
}

td_status td_tune_text(struct td_tune *t, const char **out_text) {
    td_buf_clear(&t->text);
    for (int i = 0; i < t->n; i++) {
        const struct choice *c = &t->list[i];
        if (c->asked) TD_TRY(td_buf_printf(&t->text, "%s=%s\n", c->key, c->name));
    }
    *out_text = td_buf_cstr(&t->text);
    return *out_text ? TD_OK : td_fail_oom();
}

// ---- choosing -----------------------------------------------------------------------------------
static int place_of(const char *name, const char *const *names, int n) {
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) return i;
    }
    return -1;
}

// How often a thread of this process lost its core to another.
static long n_preempted(void) {
    struct rusage used;
    return getrusage(RUSAGE_SELF, &used) == 0 ? used.ru_nivcsw : 0;
}

static td_status time_once(const struct td_tune *t, td_tune_run *run, void *arg, int way,
                           int64_t *out_ns) {
    int64_t begin_ns = t->times_thread ? td_thread_cpu_ns() : td_mono_now().ns;
    TD_TRY(run(arg, way));
    *out_ns = (t->times_thread ? td_thread_cpu_ns() : td_mono_now().ns) - begin_ns;
    return TD_OK;
}

// The best of up to n_tries runs; the first that nothing disturbed is the last.
static td_status time_way(const struct td_tune *t, td_tune_run *run, void *arg, int way,
                          int n_tries, int64_t *out_ns) {
    int64_t best_ns = INT64_MAX;
    bool disturbed = true;
    for (int i = 0; i < n_tries && disturbed; i++) {
        int64_t ns;
        long before = n_preempted();
        TD_TRY(time_once(t, run, arg, way, &ns));
        disturbed = n_preempted() != before;
        best_ns = TD_MIN(best_ns, ns);
    }
    *out_ns = best_ns;
    return TD_OK;
}

// The best time of each way, INT64_MAX where it cannot run. Ways take turns: a busy machine
// disturbs all of them alike.
static td_status race(const struct td_tune *t, td_tune_run *run, void *arg, int n,
                      int64_t best_ns[TD_TUNE_WAYS]) {
    bool is_out[TD_TUNE_WAYS] = {false};
    int64_t spent_ns = 0;
    for (int i = 0; i <= MAX_RUNS && (i <= MIN_RUNS || spent_ns < n * RACE_NS); i++) {
        for (int way = 0; way < n; way++) {
            int64_t ns = 0;
            if (i == 0) best_ns[way] = INT64_MAX;
            if (is_out[way]) continue;
            td_status s = time_way(t, run, arg, way, i == 0 ? 1 : MAX_TRIES, &ns);
            is_out[way] = s && td_status_code(s) == TD_UNIMPLEMENTED;
            if (s && !is_out[way]) return s;
            td_status_free(s);
            if (i == 0 || is_out[way]) continue; // to warm up
            best_ns[way] = TD_MIN(best_ns[way], ns);
            spent_ns += ns;
        }
    }
    return TD_OK;
}

// Among ways that start equally the first one is preferred; those that start slowly come last.
static td_status measure(const struct td_tune *t, const char *key, int n, const bool *starts_slowly,
                         td_tune_run *run, void *arg, int *out_way) {
    int64_t ns[TD_TUNE_WAYS], best = INT64_MAX;
    int winner = -1;
    TD_TRY_CTX(race(t, run, arg, n, ns), "time %s", key);
    for (int i = 0; i < 2 * n; i++) {
        const int way = i % n;
        const bool slow = starts_slowly && starts_slowly[way];
        if (slow != (i >= n) || ns[way] == INT64_MAX) continue;
        if (slow) ns[way] += SLOW_START_NS / PAID_BACK_RUNS;
        if (winner >= 0 && (double)ns[way] > MARGIN * (double)best) continue;
        best = ns[way];
        winner = way;
    }
    if (winner < 0) return td_fail(TD_UNIMPLEMENTED, "there is no way to compute %s", key);
    *out_way = winner;
    return TD_OK;
}

bool td_tune_measures(const struct td_tune *t, const char *key, const char *const *names, int n) {
    const struct choice *c = find(t, key);
    return t->path[0] && n > 1 && (!c || place_of(c->name, names, n) < 0);
}

static td_status preview_pick(const struct td_tune *preview, const char *key,
                              const char *const *names, int n, int *out_way) {
    const struct td_tune *t = preview->of;
    const struct choice *known = find(t, key);
    int way = known ? place_of(known->name, names, n) : -1;
    struct td_choice_info c = {
        .struct_bytes = sizeof c, .key = key, .ways = names, .n_ways = n, .way = TD_MAX(way, 0)};
    c.state = td_tune_measures(t, key, names, n)  ? TD_CHOICE_OPEN
              : way < 0 || known->origin == TAKEN ? TD_CHOICE_FIRST
              : known->origin == FROZEN           ? TD_CHOICE_ADOPTED
                                                  : TD_CHOICE_MEASURED;
    *out_way = c.way;
    return preview->report(preview->report_arg, &c);
}

td_status td_tune_pick(struct td_tune *t, const char *key, const char *const *names, int n,
                       const bool *starts_slowly, td_tune_run *run, void *arg, int *out_way) {
    TD_CHECK(n > 0 && n <= TD_TUNE_WAYS && strlen(key) < TD_TUNE_KEY_MAX);
    if (t->of) return preview_pick(t, key, names, n, out_way);
    bool measures = td_tune_measures(t, key, names, n);
    const struct choice *known = find(t, key);
    int way = known ? place_of(known->name, names, n) : -1;
    if (way < 0) way = 0;
    if (measures) TD_TRY(measure(t, key, n, starts_slowly, run, arg, &way));
    // What was not measured is frozen by the job all the same, but no cache keeps it.
    if (!known || strcmp(known->name, names[way]) != 0) {
        TD_TRY(put(t, key, names[way], measures ? MEASURED : TAKEN));
    }
    t->list[index_of(t, key)].asked = true;
    *out_way = way;
    return TD_OK;
}
