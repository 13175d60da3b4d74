// The file: {"current": NAME, "contexts": [{"name", "address", "ca", "token", "certificate",
// "key"}]}. Read and written as a tree, so that members which a newer build adds stay.

#include "client/session/contexts.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/clip.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named_output.h"
#include "lib/base/json.h"

static const int64_t lock_wait_ns = 2 * TD_NS_PER_S;

enum { FILE_MAX = 1 << 20 };

// ---- the file -----------------------------------------------------------------------------------
static td_status check_private(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return td_fs_fail("look at", path);
    if (st.st_uid == geteuid() && !(st.st_mode & 077)) return TD_OK;
    return td_fail(TD_FAILED_PRECONDITION,
                   "'%s' holds tokens and belongs to uid %u with mode %03o; it must be yours alone "
                   "(chown, chmod 600), and a token that others could read is best revoked",
                   path, st.st_uid, st.st_mode & 0777);
}

static td_status read_tree(const char *path, struct td_arena *arena, struct td_json **out_root) {
    TD_AUTO_BUF text;
    td_buf_init(&text, FILE_MAX);
    struct td_json *root = NULL;
    if (td_fs_exists(path)) {
        TD_TRY(check_private(path));
        TD_TRY(td_fs_read(path, FILE_MAX - 1, &text));
        td_status bad = td_json_parse(arena, text.data, text.len, &root);
        if (bad) return td_status_context(bad, "the contexts in '%s'", path);
    } else {
        root = td_json_new(arena, TD_JSON_OBJECT);
    }
    struct td_json *list = td_json_get(root, "contexts");
    if (!list) td_json_set(arena, root, "contexts", list = td_json_new(arena, TD_JSON_ARRAY));
    if (!root || root->kind != TD_JSON_OBJECT || !list || list->kind != TD_JSON_ARRAY) {
        return td_fail(TD_FAILED_PRECONDITION, "'%s' holds no contexts; move it away", path);
    }
    *out_root = root;
    return TD_OK;
}

static td_status write_tree(const char *path, const struct td_json *root) {
    TD_AUTO_BUF text;
    td_buf_init(&text, FILE_MAX);
    TD_TRY(td_json_print(root, true, &text));
    TD_TRY(td_buf_str(&text, "\n"));
    return td_named_output_write(path, text.data, text.len, 0600, TD_FS_WRITE_DURABLE);
}

static td_status lock(const char *path, int *out_fd) {
    char folder[TD_FS_PATH_BYTES], name[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(folder, "%s", path));
    char *slash = strrchr(folder, '/');
    if (slash && slash != folder) {
        *slash = '\0';
        TD_TRY(td_fs_mkdirs(folder, 0700));
    }
    TD_TRY(td_fs_path(name, "%s.lock", path));
    return td_fs_lock_within(name, "trainctl", lock_wait_ns, out_fd);
}

// ---- members ------------------------------------------------------------------------------------
static void copy(char *out, size_t bytes, const struct td_json *v, const char *key) {
    snprintf(out, bytes, "%s", td_json_string(td_json_get(v, key), ""));
}

static void read_context(const struct td_json *v, struct td_context *out) {
    copy(out->name, sizeof out->name, v, "name");
    copy(out->address, sizeof out->address, v, "address");
    copy(out->ca, sizeof out->ca, v, "ca");
    copy(out->token, sizeof out->token, v, "token");
    copy(out->certificate, sizeof out->certificate, v, "certificate");
    copy(out->key, sizeof out->key, v, "key");
}

static struct td_json *find(const struct td_json *root, const char *name) {
    struct td_json *v = td_json_get(root, "contexts")->first;
    while (v && strcmp(td_json_string(td_json_get(v, "name"), ""), name) != 0) {
        v = v->next;
    }
    return v;
}

static td_status check_name(const char *name) {
    size_t n = strlen(name);
    bool ok =
        n > 0 && n < TD_CONTEXT_NAME && name[0] != '-' &&
        strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-@") == n;
    if (ok) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT,
                   "a context's name has 1 to %d characters of A-Z a-z 0-9 . _ - @ and does not "
                   "begin with -",
                   TD_CONTEXT_NAME - 1);
}

td_status td_contexts_current(const char *path, struct td_context *out_context, bool *out_any) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *root = NULL;
    *out_any = false;
    if (!td_fs_exists(path)) return TD_OK;
    TD_TRY(td_arena_create((size_t)8 << 20, &arena));
    TD_TRY(read_tree(path, arena, &root));
    const char *name = td_json_string(td_json_get(root, "current"), "");
    const struct td_json *v = find(root, name);
    if (!v) return TD_OK;
    read_context(v, out_context);
    *out_any = true;
    return TD_OK;
}

static bool put(struct td_arena *a, struct td_json *v, const struct td_context *c) {
    bool ok = td_json_set(a, v, "name", td_json_new_string(a, c->name));
    ok &= td_json_set(a, v, "address", td_json_new_string(a, c->address));
    ok &= td_json_set(a, v, "ca", td_json_new_string(a, c->ca));
    ok &= td_json_set(a, v, "token", td_json_new_string(a, c->token));
    ok &= td_json_set(a, v, "certificate", td_json_new_string(a, c->certificate));
    return ok & td_json_set(a, v, "key", td_json_new_string(a, c->key));
}

td_status td_contexts_add(const char *path, const struct td_context *context) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *root = NULL;
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(check_name(context->name));
    TD_TRY(lock(path, &fd));
    TD_TRY(td_arena_create((size_t)8 << 20, &arena));
    TD_TRY(read_tree(path, arena, &root));
    struct td_json *list = td_json_get(root, "contexts"), *v = find(root, context->name);
    if (!v && list->n_children >= TD_CONTEXTS_MAX) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "'%s' holds %d contexts already; remove some", path,
                       TD_CONTEXTS_MAX);
    }
    if (!v && !td_json_push(list, v = td_json_new(arena, TD_JSON_OBJECT))) return td_fail_oom();
    if (!put(arena, v, context)) return td_fail_oom();
    return write_tree(path, root);
}

static td_status no_context(const struct td_json *root, const char *name) {
    char names[256];
    struct td_clip_list l;
    td_clip_list_init(&l, names, sizeof names, ", ");
    const struct td_json *list = td_json_get(root, "contexts");
    for (const struct td_json *v = list->first; v; v = v->next) {
        td_clip_list_add(&l, "%s", td_json_string(td_json_get(v, "name"), ""));
    }
    return td_fail(TD_NOT_FOUND, "there is no context '%s', %s%s", name,
                   list->first ? "but: " : "nor any other; `trainctl context add` makes one",
                   list->first ? names : "");
}

td_status td_contexts_use(const char *path, const char *name) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *root = NULL;
    TD_AUTO_CLOSE int fd = -1;
    TD_TRY(lock(path, &fd));
    TD_TRY(td_arena_create((size_t)8 << 20, &arena));
    TD_TRY(read_tree(path, arena, &root));
    bool none = strcmp(name, "-") == 0;
    if (!none && !find(root, name)) return no_context(root, name);
    if (!td_json_set(arena, root, "current", td_json_new_string(arena, none ? "" : name))) {
        return td_fail_oom();
    }
    return write_tree(path, root);
}

td_status td_contexts_each(const char *path,
                           td_status (*fn)(const struct td_context *context, bool is_current,
                                           void *arg),
                           void *arg) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *root = NULL;
    TD_TRY(td_arena_create((size_t)8 << 20, &arena));
    TD_TRY(read_tree(path, arena, &root));
    const char *current = td_json_string(td_json_get(root, "current"), "");
    for (const struct td_json *v = td_json_get(root, "contexts")->first; v; v = v->next) {
        struct td_context c;
        read_context(v, &c);
        TD_TRY(fn(&c, strcmp(c.name, current) == 0, arg));
    }
    return TD_OK;
}
