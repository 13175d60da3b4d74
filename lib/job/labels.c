// See the header. A set is read from its text wherever it is asked: 32 labels are at most 4 KiB,
// and most jobs have none.

#include "lib/job/labels.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool is_plain(char c) {
    return isascii((unsigned char)c) && isalnum((unsigned char)c);
}

bool td_label_value_ok(const char *text, size_t len) {
    if (!len) return true;
    if (len >= TD_LABEL_BYTES || !is_plain(text[0]) || !is_plain(text[len - 1])) return false;
    for (size_t i = 0; i < len; i++) {
        if (!is_plain(text[i]) && (!text[i] || !strchr("-_.", text[i]))) return false;
    }
    return true;
}

bool td_label_key_ok(const char *text, size_t len) {
    return len && td_label_value_ok(text, len);
}

bool td_labels_next(const char **io_at, struct td_label *out_label) {
    const char *at = *io_at;
    if (!at || !*at) return false;
    const size_t key = strcspn(at, "=,");
    const char *value = at + key + (at[key] == '=');
    const size_t len = strcspn(value, ",");
    *out_label = (struct td_label){{at, key}, {value, len}};
    *io_at = value + len + (value[len] == ',');
    return true;
}

static bool is_same(struct td_str a, struct td_str b) {
    return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

static bool has(const char *labels, const struct td_label *wanted, bool any_value) {
    struct td_label l;
    while (td_labels_next(&labels, &l)) {
        if (is_same(l.key, wanted->key)) return any_value || is_same(l.value, wanted->value);
    }
    return false;
}

bool td_labels_has(const char *labels, const char *wish) {
    struct td_label wanted;
    const bool any_value = !strchr(wish, '=');
    return td_labels_next(&wish, &wanted) && has(labels, &wanted, any_value);
}

bool td_labels_have(const char *labels, const char *wanted) {
    struct td_label l;
    while (td_labels_next(&wanted, &l)) {
        if (!has(labels, &l, false)) return false;
    }
    return true;
}

// ---- what people write --------------------------------------------------------------------------
static td_status refuse(const char *what, const char *text, const char *forms) {
    td_status s = td_fail(TD_INVALID_ARGUMENT, "%s takes %s, not '%.140s': " TD_LABEL_RULE, what,
                          forms, text);
    return td_status_with_reason(s, "LABEL_INVALID");
}

// "k=v", else false.
static bool split(const char *text, struct td_label *out_label) {
    const char *equals = strchr(text, '=');
    if (!equals) return false;
    const size_t key = (size_t)(equals - text), value = strlen(equals + 1);
    *out_label = (struct td_label){{text, key}, {equals + 1, value}};
    return td_label_key_ok(text, key) && td_label_value_ok(equals + 1, value);
}

td_status td_label_check_wish(const char *what, const char *wish) {
    struct td_label l;
    const bool is_key = td_label_key_ok(wish, strlen(wish));
    return is_key || split(wish, &l) ? TD_OK : refuse(what, wish, "KEY=VALUE or KEY");
}

// ---- texts --------------------------------------------------------------------------------------
void td_labels_put(char io_text[TD_LABELS_BYTES], const char *key, const char *value) {
    const size_t len = strlen(io_text);
    snprintf(io_text + len, TD_LABELS_BYTES - len, "%s%s=%s", len ? "," : "", key, value);
}

static td_status append(struct td_buf *out, const struct td_label *l) {
    if (out->len) TD_TRY(td_buf_str(out, ","));
    TD_TRY(td_buf_append(out, l->key.data, l->key.len));
    TD_TRY(td_buf_str(out, "="));
    return td_buf_append(out, l->value.data, l->value.len);
}

static td_status take(struct td_buf *text, char **out_labels) {
    if (!text->len) {
        *out_labels = NULL;
        return TD_OK;
    }
    *out_labels = td_buf_take_cstr(text);
    return *out_labels ? TD_OK : td_fail_oom();
}

td_status td_labels_of_map(const struct td_json *map, char **out_labels) {
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_LABELS_BYTES);
    for (const struct td_json *v = map ? map->first : NULL; v; v = v->next) {
        const char *value = td_json_string(v, "");
        const struct td_label l = {{v->key, strlen(v->key)}, {value, strlen(value)}};
        TD_TRY(append(&text, &l));
    }
    return take(&text, out_labels);
}

static int compare_keys(struct td_str a, struct td_str b) {
    const int by_bytes = memcmp(a.data, b.data, TD_MIN(a.len, b.len));
    return by_bytes ? by_bytes : (a.len > b.len) - (a.len < b.len);
}

td_status td_labels_change(const char *labels, const char *change, char **out_labels) {
    TD_AUTO_BUF text;
    struct td_label made = {0}, l;
    td_buf_init(&text, 2 * TD_LABELS_BYTES);
    size_t n = 0, len = strlen(change);
    const bool removes = len > 1 && change[len - 1] == '-' && td_label_key_ok(change, len - 1);
    if (removes) made.key = (struct td_str){change, len - 1};
    if (!removes && !split(change, &made)) return refuse("a change", change, "KEY=VALUE or KEY-");
    bool is_due = !removes;
    while (td_labels_next(&labels, &l)) {
        const int order = compare_keys(made.key, l.key);
        if (is_due && order <= 0) {
            TD_TRY(append(&text, &made));
            is_due = false;
            n++;
        }
        if (order == 0) continue;
        TD_TRY(append(&text, &l));
        n++;
    }
    if (is_due) TD_TRY(append(&text, &made));
    if (n + is_due > TD_LABELS_MAX) {
        td_status s =
            td_fail(TD_RESOURCE_EXHAUSTED, "'%s' would be label %zu, at most %d are taken", change,
                    n + is_due, TD_LABELS_MAX);
        return td_status_with_reason(s, "LIMIT_LABELS");
    }
    return take(&text, out_labels);
}
