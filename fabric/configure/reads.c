// See the header.

#include "fabric/configure/reads.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/clock.h"
#include "lib/base/digest.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named.h"
#include "lib/spec/place.h"

enum { MAX_DEPTH = 8, CONTENT_FILES = 256, PIECES = 64, PIECE = 4096, END = 64 << 10 };
enum { WHOLE_MAX = 16 << 20 /* of what is digested whole */, LINE_MAX_BYTES = 128 };

// ---- files --------------------------------------------------------------------------------------
struct file {
    char *path;
    struct stat st;
    bool is_absent;
};

// What one value of a spec names.
struct files {
    struct file *file; // (n)
    size_t n, cap;
    bool too_many;
};

static void files_finish(struct files *f) {
    for (size_t i = 0; i < f->n; i++) {
        free(f->file[i].path);
    }
    free(f->file);
}
#define AUTO_FILES __attribute__((cleanup(files_finish))) struct files

static td_status add_file(struct files *f, const char *path, const struct stat *st) {
    if (f->n == TD_READS_FILES) {
        f->too_many = true;
        return TD_OK;
    }
    if (f->n == f->cap) {
        const size_t cap = f->cap ? 2 * f->cap : 8;
        struct file *grown = td_realloc(f->file, cap * sizeof *grown);
        if (!grown) return td_fail_oom();
        f->file = grown;
        f->cap = cap;
    }
    struct file one = {.path = td_strdup(path), .is_absent = st == NULL};
    if (!one.path) return td_fail_oom();
    if (st) one.st = *st;
    f->file[f->n++] = one;
    return TD_OK;
}

static td_status walk(struct files *f, const char *path, int depth) {
    char child[TD_FS_PATH_BYTES];
    struct stat st;
    DIR *dir = NULL;
    TD_AUTO_STATUS td_status absent = td_named_stat(path, &st);
    if (absent) return add_file(f, path, NULL);
    if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH) td_status_free(td_named_list(path, &dir));
    if (!dir) return add_file(f, path, &st);
    td_status s = TD_OK;
    for (struct dirent *e; !s && !f->too_many && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (snprintf(child, sizeof child, "%s/%s", path, e->d_name) >= (int)sizeof child) continue;
        s = walk(f, child, depth + 1);
    }
    closedir(dir);
    return s;
}

// The file or folder that is there; "/d/set.npz:images" is an array in a file.
static bool find_file(const char *path, char out_file[TD_FS_PATH_BYTES]) {
    struct stat st;
    const char *colon = strrchr(path, ':');
    if (snprintf(out_file, TD_FS_PATH_BYTES, "%s", path) >= TD_FS_PATH_BYTES) return false;
    if (stat(out_file, &st) == 0) return true;
    if (!colon || errno != ENOENT) return false;
    out_file[colon - path] = '\0';
    return stat(out_file, &st) == 0;
}

static td_status add_path(struct files *f, const char *path) {
    char file[TD_FS_PATH_BYTES];
    return walk(f, find_file(path, file) ? file : path, 0);
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

static bool is_path(const struct td_json *v) {
    return v && v->kind == TD_JSON_STRING && v->u.string.data[0] == '/';
}

static td_status list_files(const struct td_json *v, struct files *f) {
    const bool is_list = v->kind == TD_JSON_ARRAY;
    for (const struct td_json *p = is_list ? v->first : v; p; p = is_list ? p->next : NULL) {
        if (is_path(p)) TD_TRY(add_path(f, td_json_string(p, "")));
    }
    if (f->n) qsort(f->file, f->n, sizeof *f->file, by_path);
    return TD_OK;
}

// ---- their state --------------------------------------------------------------------------------
static int64_t ns_of(const struct timespec *t) {
    return t->tv_sec * TD_NS_PER_S + t->tv_nsec;
}

// A second change may bear the same time: clocks of file systems tick every 10 ms, or every two
// seconds where times have no fractions.
static bool changed_just_now(const struct stat *st) {
    const int64_t tick_ns = st->st_ctim.tv_nsec ? 10 * TD_NS_PER_MS : 2 * TD_NS_PER_S;
    return td_real_now().ns - ns_of(&st->st_ctim) < 2 * tick_ns;
}

static void update_text(struct td_digest *d, const char *text) {
    td_digest_update(d, text, strlen(text) + 1);
}

// out "": a change could leave it as it is.
static td_status digest_state(const struct files *f, char out[TD_DIGEST_HEX]) {
    TD_AUTO(td_digest) *d = NULL;
    TD_TRY(td_digest_create(&d));
    bool is_enough = !f->too_many;
    for (size_t i = 0; i < f->n; i++) {
        const struct file *file = &f->file[i];
        char line[LINE_MAX_BYTES];
        snprintf(line, sizeof line, "%d %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64,
                 file->is_absent, (uint64_t)file->st.st_ino, (int64_t)file->st.st_size,
                 ns_of(&file->st.st_mtim), ns_of(&file->st.st_ctim));
        update_text(d, file->path);
        update_text(d, line);
        is_enough &= file->is_absent || !changed_just_now(&file->st);
    }
    td_digest_hex(d, out);
    if (!is_enough) out[0] = '\0';
    return TD_OK;
}

// ---- their content ------------------------------------------------------------------------------
static bool ends_with(const char *path, const char *end) {
    const size_t len = strlen(path), n = strlen(end);
    return len >= n && strcmp(path + len - n, end) == 0;
}

static void update_range(struct td_digest *d, int fd, int64_t at, int64_t bytes) {
    char piece[PIECE];
    while (bytes > 0) {
        const ssize_t n = pread(fd, piece, (size_t)TD_MIN(bytes, (int64_t)PIECE), at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; // shorter by now, or not readable: the digest is another then
        td_digest_update(d, piece, (size_t)n);
        at += n;
        bytes -= n;
    }
}

// What of it is read from its start on: a header that sizes depend on, or all.
static int64_t head_of(int fd, const char *path, int64_t size) {
    uint8_t len[8];
    if (ends_with(path, ".json")) return TD_MIN(size, (int64_t)WHOLE_MAX);
    if (!ends_with(path, ".safetensors") || pread(fd, len, 8, 0) != 8) return END;
    uint64_t header = 8;
    for (int i = 0; i < 4; i++) {
        header += (uint64_t)len[i] << (8 * i);
    }
    return TD_MAX((int64_t)TD_MIN(header, (uint64_t)WHOLE_MAX), (int64_t)END);
}

static void update_content(struct td_digest *d, const struct file *file) {
    TD_AUTO_CLOSE int fd = -1;
    TD_AUTO_STATUS td_status absent = td_named_open(file->path, &fd, NULL);
    const int64_t size = file->st.st_size;
    if (absent) return;
    const int64_t head = TD_MIN(head_of(fd, file->path, size), size);
    update_range(d, fd, 0, head);
    const int64_t tail = TD_MIN((int64_t)END, size - head), between = size - head - tail;
    if (between <= PIECES * PIECE) {
        update_range(d, fd, head, between);
    } else {
        for (int64_t i = 0; i < PIECES; i++) {
            update_range(d, fd, head + (between - PIECE) / (PIECES - 1) * i, PIECE);
        }
    }
    update_range(d, fd, size - tail, tail);
}

static td_status digest_content(const struct files *f, char out[TD_DIGEST_HEX]) {
    TD_AUTO(td_digest) *d = NULL;
    TD_TRY(td_digest_create(&d));
    for (size_t i = 0; i < f->n; i++) {
        const struct file *file = &f->file[i];
        const bool has_content = !file->is_absent && S_ISREG(file->st.st_mode);
        char line[LINE_MAX_BYTES];
        snprintf(line, sizeof line, "%d %" PRId64, file->is_absent, (int64_t)file->st.st_size);
        update_text(d, file->path);
        update_text(d, line);
        if (has_content && f->n <= CONTENT_FILES) {
            update_content(d, file);
        } else if (has_content) {
            snprintf(line, sizeof line, "%" PRId64, ns_of(&file->st.st_mtim));
            update_text(d, line);
        }
    }
    td_digest_hex(d, out);
    if (f->too_many) out[0] = '\0';
    return TD_OK;
}

static int64_t bytes_of(const struct files *f) {
    int64_t bytes = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (S_ISREG(f->file[i].st.st_mode)) bytes += f->file[i].st.st_size;
    }
    return bytes;
}

// ---- what a spec names --------------------------------------------------------------------------
typedef td_status visit_fn(const char *of, const struct td_json *value, void *arg);

// Every path, or list of paths, in v.
static td_status visit(const struct td_json *v, const char *of, visit_fn *fn, void *arg) {
    char key[256];
    if (!v) return TD_OK;
    if (is_path(v) || (v->kind == TD_JSON_ARRAY && is_path(v->first))) return fn(of, v, arg);
    int64_t i = 0;
    for (const struct td_json *child = v->first; child; child = child->next, i++) {
        if (child->key) {
            snprintf(key, sizeof key, "%s.%s", of, child->key);
        } else {
            snprintf(key, sizeof key, "%s[%" PRId64 "]", of, i);
        }
        TD_TRY(visit(child, key, fn, arg));
    }
    return TD_OK;
}

// Which texts among a plugin's knobs are relative paths is known with the plugin alone: any that a
// file answers to may be one. It is visited as the absolute path.
static td_status visit_relative(const struct td_json *plan, const char *section, visit_fn *fn,
                                void *arg) {
    const struct td_spec_place place = td_place_kept(td_json_get(plan, "paths_from"));
    const struct td_json *knobs = td_json_get(td_json_get(plan, section), "knobs");
    for (const struct td_json *v = knobs ? knobs->first : NULL; v; v = v->next) {
        char key[256], path[TD_FS_PATH_BYTES], file[TD_FS_PATH_BYTES];
        const char *text = td_json_string(v, "");
        if (!text[0] || text[0] == '/') continue;
        const char *base = td_place_base(&place, &text);
        if (!base || snprintf(path, sizeof path, "%s/%s", base, text) >= (int)sizeof path) continue;
        if (!find_file(path, file)) continue;
        snprintf(key, sizeof key, "%s.knobs.%s", section, v->key);
        const struct td_json absolute = {.kind = TD_JSON_STRING, .u.string = {path, strlen(path)}};
        TD_TRY(fn(key, &absolute, arg));
    }
    return TD_OK;
}

static td_status visit_all(const struct td_json *plan, visit_fn *fn, void *arg) {
    static const char *const keys[] = {"plugins",   "model",         "data",
                                       "init_from", "evaluate_from", "ckpt_path"};
    for (size_t i = 0; i < TD_COUNTOF(keys); i++) {
        TD_TRY(visit(td_json_get(plan, keys[i]), keys[i], fn, arg));
    }
    TD_TRY(visit_relative(plan, "model", fn, arg));
    return visit_relative(plan, "data", fn, arg);
}

static const char *first_path(const struct td_json *v) {
    return td_json_string(v->kind == TD_JSON_ARRAY ? v->first : v, "");
}

// ---- a list -------------------------------------------------------------------------------------
static td_status print_one(const char *of, const struct td_json *value, void *arg) {
    struct td_buf *out = arg;
    AUTO_FILES f = {0};
    char state[TD_DIGEST_HEX], content[TD_DIGEST_HEX];
    const char *path = first_path(value);
    TD_TRY(list_files(value, &f));
    TD_TRY(digest_state(&f, state));
    TD_TRY(digest_content(&f, content));
    TD_TRY(td_buf_str(out, out->data[out->len - 1] == '[' ? "{\"of\":" : ",{\"of\":"));
    TD_TRY(td_json_print_string(of, strlen(of), out));
    TD_TRY(td_buf_str(out, ",\"path\":"));
    TD_TRY(td_json_print_string(path, strlen(path), out));
    return td_buf_printf(out,
                         ",\"files\":%zu,\"bytes\":%" PRId64 ",\"stat\":\"%s\",\"digest\":\"%s\"}",
                         f.n, bytes_of(&f), state, content);
}

td_status td_reads_print(const struct td_json *plan, struct td_buf *out) {
    TD_TRY(td_buf_str(out, "["));
    TD_TRY(visit_all(plan, print_one, out));
    return td_buf_str(out, "]");
}

struct comparison {
    const struct td_json *kept;
    size_t n;
    struct td_buf *change;
};

static const struct td_json *find_kept(const struct td_json *kept, const char *of) {
    for (const struct td_json *v = kept ? kept->first : NULL; v; v = v->next) {
        if (strcmp(td_json_string(td_json_get(v, "of"), ""), of) == 0) return v;
    }
    return NULL;
}

static bool is_text(const struct td_json *entry, const char *key, const char *text) {
    return text[0] && strcmp(td_json_string(td_json_get(entry, key), ""), text) == 0;
}

static td_status compare_one(const char *of, const struct td_json *value, void *arg) {
    struct comparison *c = arg;
    const struct td_json *entry = find_kept(c->kept, of);
    AUTO_FILES f = {0};
    char digest[TD_DIGEST_HEX];
    c->n++;
    if (c->change->len) return TD_OK; // one is enough
    TD_TRY(list_files(value, &f));
    TD_TRY(digest_state(&f, digest));
    const int64_t bytes = bytes_of(&f), had = td_json_int(td_json_get(entry, "bytes"), -1);
    const bool same_size =
        bytes == had && (int64_t)f.n == td_json_int(td_json_get(entry, "files"), -1);
    if (same_size && is_text(entry, "stat", digest)) return TD_OK;
    if (same_size) {
        TD_TRY(digest_content(&f, digest));
        if (is_text(entry, "digest", digest)) return TD_OK;
        return td_buf_printf(c->change, "%s: '%s' has other content", of, first_path(value));
    }
    return td_buf_printf(
        c->change, "%s: '%s' has %zu files of %" PRId64 " bytes, it had %" PRId64 " of %" PRId64,
        of, first_path(value), f.n, bytes, td_json_int(td_json_get(entry, "files"), 0),
        TD_MAX(had, (int64_t)0));
}

td_status td_reads_compare(const struct td_json *plan, const struct td_json *kept,
                           struct td_buf *out_change) {
    struct comparison c = {.kept = kept, .change = out_change};
    TD_TRY(visit_all(plan, compare_one, &c));
    if (out_change->len || (kept && kept->n_children == c.n)) return TD_OK;
    return td_buf_str(out_change, "the spec names other files");
}
