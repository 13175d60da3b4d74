// See the header. Written out by hand: sscanf and strtoul would take blanks and signs as well.

#include "lib/attempt/checkpoint_name.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/files/whole_file.h"

static const char *digits(const char *p) {
    const char *begin = p;
    while (*p >= '0' && *p <= '9') {
        p++;
    }
    return p == begin || p - begin > 9 ? NULL : p;
}

bool td_checkpoint_path_ok(const char *path) {
    if (!path || *path != 'a') return false;
    const char *p = digits(path + 1);
    if (!p || strncmp(p, "/step-", 6) != 0) return false;
    p = digits(p + 6);
    return p && *p == '\0';
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
