// See the header. Written out by hand: sscanf and strtoul would take blanks and signs as well.

#include "lib/attempt/checkpoint_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/files/whole_file.h"

static const char step_prefix[] = "step-";

// 1 to 9 digits. What follows them; NULL: there are none, or more.
static const char *number(const char *p, int64_t *out) {
    const char *begin = p;
    int64_t n = 0;
    while (*p >= '0' && *p <= '9' && p - begin < 10) {
        n = 10 * n + (*p++ - '0');
    }
    if (p == begin || p - begin > 9) return NULL;
    *out = n;
    return p;
}

struct td_checkpoint_name td_checkpoint_name_of(int64_t step) {
    struct td_checkpoint_name name;
    snprintf(name.text, sizeof name.text, "%s%" PRId64, step_prefix, step);
    return name;
}

struct td_checkpoint_name td_checkpoint_path_of(uint32_t attempt, int64_t step) {
    struct td_checkpoint_name path;
    snprintf(path.text, sizeof path.text, "a%" PRIu32 "/%s%" PRId64, attempt, step_prefix, step);
    return path;
}

int64_t td_checkpoint_name_step(const char *name, const char *end) {
    int64_t step;
    if (strncmp(name, step_prefix, strlen(step_prefix)) != 0) return -1;
    const char *rest = number(name + strlen(step_prefix), &step);
    return rest && strcmp(rest, end) == 0 ? step : -1;
}

bool td_checkpoint_path_parse(const char *path, uint32_t *out_attempt, int64_t *out_step) {
    int64_t attempt;
    const char *p = path && *path == 'a' ? number(path + 1, &attempt) : NULL;
    const int64_t step = p && *p == '/' ? td_checkpoint_name_step(p + 1, "") : -1;
    if (step < 0) return false;
    *out_attempt = (uint32_t)attempt;
    *out_step = step;
    return true;
}

bool td_checkpoint_path_ok(const char *path) {
    uint32_t attempt;
    int64_t step;
    return td_checkpoint_path_parse(path, &attempt, &step);
}

bool td_checkpoint_of_job_read(const char *text, struct td_checkpoint_of_job *out) {
    enum { DIGITS = 12 };
    if (!text || strncmp(text, "j-", 2) != 0) return false;
    if (strspn(text + 2, "0123456789abcdef") != DIGITS || text[2 + DIGITS] != '/') return false;
    const char *which = text + 2 + DIGITS + 1;
    if (strcmp(which, "last") && strcmp(which, "best") && !td_checkpoint_path_ok(which)) {
        return false;
    }
    snprintf(out->job, sizeof out->job, "%.*s", 2 + DIGITS, text);
    out->which = which;
    return true;
}

bool td_checkpoint_file_ok(const char *name) {
    if (!name || !name[0] || name[0] == '.' || strlen(name) >= TD_CHECKPOINT_FILE_BYTES) {
        return false;
    }
    for (const char *c = name; *c; c++) {
        bool ok = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                  (*c >= '0' && *c <= '9') || *c == '.' || *c == '-' || *c == '_';
        if (!ok) return false;
    }
    return true;
}

static bool is_one_of(const char *const *names, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

bool td_checkpoint_file_written(const char *name) {
    static const char *const names[] = {"manifest.json", "model.safetensors",
                                        "optimizer.safetensors", "plugins.safetensors",
                                        "config.json"};
    return is_one_of(names, sizeof names / sizeof names[0], name);
}

bool td_checkpoint_result_written(const char *name) {
    static const char *const names[] = {TD_RESULT_PREDICTIONS, TD_RESULT_SAMPLE, TD_RESULT_PROFILE,
                                        "confusion-val.json", "confusion-test.json"};
    return is_one_of(names, sizeof names / sizeof names[0], name) ||
           strncmp(name, TD_WHOLE_FILE_PREFIX, strlen(TD_WHOLE_FILE_PREFIX)) == 0;
}
