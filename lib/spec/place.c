// See the header.

#include "lib/spec/place.h"

#include <string.h>

#include "lib/spec/check.h"

enum { PATH_MAX_BYTES = 4095 };

static bool is_home(const char *text) {
    return text[0] == '~' && (!text[1] || text[1] == '/');
}

// The part of dir that is left when the `..` and `.` at the beginning of *text are taken.
static size_t climb(const char *dir, const char **text) {
    size_t len = strlen(dir);
    for (const char *at = *text;; *text = at) {
        at += strspn(at, "/");
        const size_t n = strcspn(at, "/");
        const bool up = n == 2 && strncmp(at, "..", 2) == 0;
        if (!up && !(n == 1 && *at == '.') && n) {
            *text = at;
            return len;
        }
        while (up && len > 0 && dir[--len] != '/') {}
        at += n;
        if (!n) {
            *text = at;
            return len;
        }
    }
}

static const char *join(struct td_check *c, const char *dir, const char *text) {
    const size_t len = climb(dir, &text);
    const bool is_root = len == 0 || (len == 1 && dir[0] == '/');
    const char *made = td_arena_printf(c->arena, "%.*s%s%s", is_root ? 0 : (int)len, dir,
                                       *text || is_root ? "/" : "", text);
    return td_check_oom(c, made) ? NULL : made;
}

const char *td_place_base(const struct td_spec_place *p, const char **io_text) {
    const bool of_home = is_home(*io_text);
    if (of_home) *io_text += 1 + strspn(*io_text + 1, "/");
    return of_home ? p->home : p->directory;
}

static bool is_of_checkpoints(const struct td_knob *k) {
    return !k->section[0] && (!strcmp(k->key, "ckpt_path") || !strcmp(k->key, "init_from"));
}

bool td_place_is_checkpoint(const struct td_check *c, const char *text) {
    return c->place && text == c->place->name;
}

static bool remember(struct td_check *c, const struct td_knob *k, const char *where,
                     const char *given, const char *path) {
    struct td_spec_place *p = c->place;
    struct td_spec_resolved *r = td_arena_alloc(c->arena, sizeof *r);
    if (td_check_oom(c, r)) return false;
    *r = (struct td_spec_resolved){where, given, path, k->is_output, NULL};
    if (p->last) {
        p->last->next = r;
    } else {
        p->first = r;
    }
    p->last = r;
    p->n++;
    return true;
}

// A checkpoint of a job; NULL without a violation: it is none.
static const char *find_checkpoint(struct td_check *c, const struct td_knob *k, const char *where,
                                   int line, const char *text, bool *out_failed) {
    const char *name = NULL;
    *out_failed = false;
    if (!c->place->checkpoint || !is_of_checkpoints(k) || strchr(".~", text[0])) return NULL;
    td_status s = c->place->checkpoint(c->place->arg, c->arena, text, &name);
    if (s) td_check_violation(c, where, line, "%s", td_status_message(s));
    *out_failed = s != TD_OK;
    td_status_free(s);
    c->place->name = name;
    return name;
}

const char *td_place_path(struct td_check *c, const struct td_knob *k, const char *where, int line,
                          const char *text) {
    struct td_spec_place *p = c->place;
    if (!p || !text[0] || text[0] == '/') return text;
    bool failed;
    const char *path = find_checkpoint(c, k, where, line, text, &failed);
    if (path || failed) return path;
    const char *rest = text, *from = td_place_base(p, &rest),
               *shown = td_check_show(c->arena, text, strlen(text), 200);
    const bool of_home = rest != text;
    if (text[0] == '~' && !of_home) {
        td_check_violation(c, where, line,
                           "'%s' begins at the home of another user, which is not known here; give "
                           "its absolute path",
                           shown);
        return NULL;
    }
    if (p->refusal || !from || from[0] != '/') {
        td_check_violation(
            c, where, line, "'%s' is relative%s: %s", shown, of_home ? " to a home" : "",
            p->refusal ? p->refusal : "the client did not say where it is; give an absolute path");
        return NULL;
    }
    path = join(c, from, rest);
    if (path && strlen(path) > PATH_MAX_BYTES) {
        td_check_violation(c, where, line, "'%s' is longer than %d bytes as an absolute path",
                           shown, PATH_MAX_BYTES);
        return NULL;
    }
    return path && remember(c, k, where, text, path) ? path : NULL;
}

static bool add(struct td_check *c, struct td_json *list, const char *path) {
    if (!path || path[0] != '/') return false;
    struct td_json *v = td_json_new_string(c->arena, path);
    return !td_check_oom(c, v) && td_json_push(list, v);
}

void td_place_keep(struct td_check *c, struct td_json *list) {
    const struct td_spec_place *p = c->place;
    if (!p || p->refusal || !list || list->first) return;
    if (add(c, list, p->directory)) (void)add(c, list, p->home);
}

struct td_spec_place td_place_kept(const struct td_json *list) {
    const struct td_json *directory = list ? list->first : NULL;
    return (struct td_spec_place){.directory = td_json_string(directory, NULL),
                                  .home = td_json_string(directory ? directory->next : NULL, NULL)};
}
