// See the header.

#include "daemon/launcher/reports/python.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/files/files.h"

enum { FIRST_LINE = 512, MINOR_MOST = 999, SCRIPTS_DEEP = 2 };

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// "python3.11", "python3.13t": its minor version; 0: it is no such name.
static int minor_of(const char *name) {
    static const char start[] = "python3.";
    const char *at = name + sizeof start - 1;
    if (strncmp(name, start, sizeof start - 1) != 0 || *at < '0' || *at > '9') return 0;
    char *end;
    const long minor = strtol(at, &end, 10);
    if (*end == 't' || *end == 'd') end++;
    return *end || minor > MINOR_MOST ? 0 : (int)minor;
}

static bool is_program(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool join(char out[TD_PYTHON_PATH], const char *dir, size_t dir_bytes, const char *name) {
    const int n = snprintf(out, TD_PYTHON_PATH, "%.*s/%s", (int)dir_bytes, dir, name);
    return n > 0 && n < TD_PYTHON_PATH;
}

// As execvp looks for it.
static bool find_program(const struct td_python_of *of, const char *name,
                         char out[TD_PYTHON_PATH]) {
    if (strchr(name, '/')) {
        const size_t base = *name == '/' ? 0 : strlen(of->workdir);
        return (base ? join(out, of->workdir, base, name)
                     : snprintf(out, TD_PYTHON_PATH, "%s", name) < TD_PYTHON_PATH) &&
               is_program(out);
    }
    for (const char *at = of->path; *name && at && *at;) {
        const size_t n = strcspn(at, ":");
        const bool fits = *at == '/' && join(out, at, n, name); // others are of the workdir
        if (fits && is_program(out)) return true;
        at += n + (at[n] == ':');
    }
    return false;
}

static int version_of(const char *file) {
    char real[PATH_MAX];
    return realpath(file, real) ? minor_of(base_of(real)) : 0;
}

// "#!/usr/bin/env python3 -u": writes "python3". False: it is no script.
static bool read_interpreter(const char *file, char out[FIRST_LINE]) {
    static const char blanks[] = " \t";
    char line[FIRST_LINE];
    TD_AUTO_CLOSE int fd = -1;
    td_status_free(td_fs_open(file, &fd, NULL)); // that it cannot be run is said when it is tried
    const ssize_t n = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
    if (n < 3 || line[0] != '#' || line[1] != '!') return false;
    line[n] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    char *word = line + 2 + strspn(line + 2, blanks), *end = word + strcspn(word, blanks);
    const bool is_env = end - word >= 4 && memcmp(end - 4, "/env", 4) == 0;
    if (is_env) {
        word = end + strspn(end, blanks);
        if (strncmp(word, "-S", 2) == 0) word += 2 + strspn(word + 2, blanks);
        end = word + strcspn(word, blanks);
    }
    snprintf(out, FIRST_LINE, "%.*s", (int)(end - word), word);
    return end > word;
}

// It may well run Python: that of PATH.
static bool runs_others(const char *name) {
    static const char *const names[] = {"sh",      "bash",    "dash", "zsh",     "ksh",
                                        "fish",    "env",     "nice", "timeout", "stdbuf",
                                        "taskset", "numactl", "time", "nohup"};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        if (strcmp(base_of(name), names[i]) == 0) return true;
    }
    return false;
}

static void find_in_path(const struct td_python_of *of, struct td_python *out) {
    static const char *const names[] = {"python3", "python"};
    struct td_python found = {0};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        struct td_python one = {0};
        if (!find_program(of, names[i], one.file)) continue;
        one.minor = version_of(one.file);
        if (!one.minor) return; // which one that is cannot be seen
        if (!found.minor || one.minor < found.minor) found = one;
    }
    if (found.minor) *out = found;
}

void td_python_find(const struct td_python_of *of, struct td_python *out_python) {
    char name[TD_PYTHON_PATH], line[FIRST_LINE];
    *out_python = (struct td_python){0};
    if (snprintf(name, sizeof name, "%s", of->program) >= (int)sizeof name) return;
    for (int depth = 0; depth < SCRIPTS_DEEP; depth++) {
        struct td_python one = {0};
        if (!find_program(of, name, one.file)) return;
        one.minor = version_of(one.file);
        if (one.minor) {
            *out_python = one;
            return;
        }
        if (runs_others(name)) {
            find_in_path(of, out_python);
            return;
        }
        if (!read_interpreter(one.file, line)) return;
        snprintf(name, sizeof name, "%s", line);
    }
}

bool td_python_has(const struct td_python *p, const char *package, const char *home) {
    static const char *const places[][2] = {
        {"lib", "site-packages"}, {"lib", "dist-packages"}, {"local/lib", "dist-packages"}};
    char path[TD_PYTHON_PATH];
    const char *bin = strrchr(p->file, '/');
    if (!p->minor || !bin) return false;
    size_t above = (size_t)(bin - p->file); // of "/opt/venv/bin/python": "/opt/venv/"
    while (above > 0 && p->file[above - 1] != '/') {
        above--;
    }
    for (size_t i = 0; i < TD_COUNTOF(places); i++) {
        const int n = snprintf(path, sizeof path, "%.*s%s/python3.%d/%s/%s", (int)above, p->file,
                               places[i][0], p->minor, places[i][1], package);
        if (n < (int)sizeof path && access(path, F_OK) == 0) return true;
    }
    const int n = snprintf(path, sizeof path, "%s/.local/lib/python3.%d/site-packages/%s", home,
                           p->minor, package);
    return *home && n < (int)sizeof path && access(path, F_OK) == 0;
}
