// The file: a first line that says whose rates these are, a second with the digest of the rest,
// then a line each. Numbers are printed as %.9g, which is far more than they are worth.

#include "engine/train/plan/rates.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/files/files.h"

enum { FILE_MAX = 64 << 10, HEAD_MAX = 512 };
static const size_t LEAST = (size_t)4 << 20;
static const double FASTEST = 1e18; // no machine: more is damage

size_t td_rates_size_at(int i) {
    return LEAST << i;
}

size_t td_rates_size(size_t bytes) {
    int i = 0;
    while (i < TD_RATES_SIZES - 1 && td_rates_size_at(i) < bytes) {
        i++;
    }
    return td_rates_size_at(i);
}

const struct td_rates_line *td_rates_find(const struct td_rates *t, int32_t n_threads,
                                          size_t bytes) {
    for (size_t i = 0; i < t->n; i++) {
        const struct td_rates_line *l = &t->line[i];
        if (l->n_threads == n_threads && l->bytes == bytes) return l;
    }
    return NULL;
}

bool td_rates_near(const struct td_rates *t, int32_t n_threads, size_t bytes,
                   struct td_accel_rates *out) {
    const struct td_rates_line *best = NULL;
    double least = INFINITY;
    for (size_t i = 0; i < t->n; i++) {
        const struct td_rates_line *l = &t->line[i];
        // Another number of threads says less than another size.
        double threads = fabs(log2((double)l->n_threads / n_threads));
        double far = (int)TD_RATES_SIZES * threads + fabs(log2((double)l->bytes / (double)bytes));
        if (far >= least) continue;
        least = far;
        best = l;
    }
    if (!best) return false;
    double more = (double)n_threads / best->n_threads;
    *out = (struct td_accel_rates){best->rates.f32 * more, best->rates.bf16 * more,
                                   best->rates.bandwidth};
    return true;
}

void td_rates_machine(const char *accelerator, const struct td_accel_facts *facts,
                      char out[TD_RATES_MACHINE]) {
    snprintf(out, TD_RATES_MACHINE, "%s, %s", accelerator, facts->build);
}

// ---- the file -----------------------------------------------------------------------------------
static td_status path_of(const struct td_rates_home *h, char out[TD_FS_PATH_BYTES]) {
    char hex[TD_DIGEST_HEX];
    td_xxh3_128_hex(h->machine, strlen(h->machine), hex);
    return td_fs_path(out, "%s/rates-%.16s", h->dir, hex);
}

static td_status print_head(const struct td_rates_home *h, char out[HEAD_MAX]) {
    int n = snprintf(out, HEAD_MAX, "traind " TD_VERSION " rates of %s, boot %s\n", h->machine,
                     h->boot_id);
    if (n > 0 && n < HEAD_MAX && strchr(out, '\n') == out + n - 1) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "the machine's name is too long, or not one line");
}

static bool is_rate(double r) {
    return isfinite(r) && r >= 0 && r <= FASTEST;
}

static bool is_sound(const struct td_rates_line *l) {
    const struct td_accel_rates *r = &l->rates;
    return l->n_threads > 0 && l->moments > 0 && l->bytes == td_rates_size(l->bytes) &&
           is_rate(r->f32) && is_rate(r->bf16) && is_rate(r->bandwidth);
}

static bool read_lines(const char *text, struct td_rates *out) {
    out->n = 0;
    while (*text) {
        struct td_rates_line l = {0};
        int end = 0;
        int found = sscanf(text,
                           "threads=%" SCNd32 " bytes=%zu moments=%" SCNd32
                           " f32=%lf bf16=%lf bandwidth=%lf%n",
                           &l.n_threads, &l.bytes, &l.moments, &l.rates.f32, &l.rates.bf16,
                           &l.rates.bandwidth, &end);
        if (found != 6 || text[end] != '\n' || !is_sound(&l) || out->n == TD_RATES_MAX) {
            return false;
        }
        out->line[out->n++] = l;
        text += end + 1;
    }
    return true;
}

// True: text is a whole file of this home.
static bool read_text(const struct td_rates_home *h, const char *text, struct td_rates *out) {
    char head[HEAD_MAX], hex[TD_DIGEST_HEX], said[TD_DIGEST_HEX];
    td_status s = print_head(h, head);
    bool ours = !s && strncmp(text, head, strlen(head)) == 0;
    td_status_free(s);
    if (!ours) return false;
    text += strlen(head);
    int end = 0;
    if (sscanf(text, "digest %32[0-9a-f]%n", said, &end) != 1 || text[end] != '\n') return false;
    text += end + 1;
    td_xxh3_128_hex(text, strlen(text), hex);
    return strcmp(hex, said) == 0 && read_lines(text, out);
}

void td_rates_read(const struct td_rates_home *h, struct td_rates *out) {
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF text;
    td_buf_init(&text, FILE_MAX);
    td_status s = path_of(h, path);
    if (!s) s = td_fs_read(path, FILE_MAX, &text);
    if (s || !read_text(h, td_buf_cstr(&text), out)) out->n = 0;
    td_status_free(s);
}

static td_status write_file(const struct td_rates_home *h, const struct td_rates *t) {
    char path[TD_FS_PATH_BYTES], head[HEAD_MAX], hex[TD_DIGEST_HEX];
    TD_AUTO_BUF lines;
    TD_AUTO_BUF text;
    td_buf_init(&lines, FILE_MAX);
    td_buf_init(&text, FILE_MAX);
    for (size_t i = 0; i < t->n; i++) {
        const struct td_rates_line *l = &t->line[i];
        TD_TRY(td_buf_printf(
            &lines,
            "threads=%" PRId32 " bytes=%zu moments=%" PRId32 " f32=%.9g bf16=%.9g bandwidth=%.9g\n",
            l->n_threads, l->bytes, l->moments, l->rates.f32, l->rates.bf16, l->rates.bandwidth));
    }
    td_xxh3_128_hex(lines.data, lines.len, hex);
    TD_TRY(print_head(h, head));
    TD_TRY(td_buf_printf(&text, "%sdigest %s\n", head, hex));
    TD_TRY(td_buf_append(&text, lines.data, lines.len));
    TD_TRY(path_of(h, path));
    TD_TRY(td_fs_mkdirs(h->dir, 0777));
    return td_fs_write(path, text.data, text.len, 0666, 0);
}

static void take_best(struct td_accel_rates *to, const struct td_accel_rates *from) {
    to->f32 = TD_MAX(to->f32, from->f32);
    to->bf16 = TD_MAX(to->bf16, from->bf16);
    to->bandwidth = TD_MAX(to->bandwidth, from->bandwidth);
}

td_status td_rates_add(const struct td_rates_home *h, const struct td_rates_line *moments) {
    if (!is_sound(moments)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "rates that no machine has, of %d threads and %zu bytes", moments->n_threads,
                       moments->bytes);
    }
    TD_AUTO_FREE struct td_rates *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    td_rates_read(h, t);
    struct td_rates_line *l = NULL;
    for (size_t i = 0; i < t->n; i++) {
        struct td_rates_line *at = &t->line[i];
        if (at->n_threads == moments->n_threads && at->bytes == moments->bytes) l = at;
    }
    if (l) {
        take_best(&l->rates, &moments->rates);
        l->moments = TD_MIN(l->moments + moments->moments, TD_RATES_SETTLED);
    } else {
        if (t->n == TD_RATES_MAX) memmove(t->line, t->line + 1, --t->n * sizeof *t->line);
        t->line[t->n++] = *moments;
    }
    return write_file(h, t);
}

// ---- measuring ----------------------------------------------------------------------------------
td_status td_rates_measure(const struct td_accelerator_ops *ops, struct td_accelerator *accel,
                           int32_t n_moments, struct td_rates_line *line) {
    line->rates = (struct td_accel_rates){0};
    line->moments = n_moments;
    for (int32_t i = 0; i < n_moments; i++) {
        struct td_accel_rates best = {0}, usual = {0};
        TD_TRY(ops->measure_peak(accel, line->bytes, &best, &usual));
        take_best(&line->rates, &usual);
    }
    return TD_OK;
}
