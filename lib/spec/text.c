// See the header.

#include "lib/spec/text.h"

#include <string.h>

#include "lib/spec/yaml.h"

static size_t blanks(const char *text, size_t len) {
    size_t n = 0;
    while (n < len && memchr(" \t\r\n", text[n], 4)) {
        n++;
    }
    return n;
}

static bool begins_as_json(const char *text, size_t len, bool is_override) {
    size_t at = blanks(text, len);
    if (at == len) return false;
    if (is_override) return memchr("{[\"", text[at], 3);
    if (text[at++] != '{') return false;
    at += blanks(text + at, len - at);
    return at < len && memchr("\"}", text[at], 2);
}

// NULL after noting what is wrong; of an override that is no JSON nothing is.
static struct td_json *read_json(struct td_check *c, const char *text, size_t len, int override_idx,
                                 size_t *io_nodes) {
    struct td_json_source source = {.max_depth = TD_SPEC_MAX_DEPTH,
                                    .max_values = TD_SPEC_MAX_NODES,
                                    .max_members = TD_SPEC_MAX_KEYS,
                                    .max_bytes = TD_SPEC_MAX_SCALAR,
                                    .n_values = *io_nodes};
    struct td_json *root = NULL;
    td_status s = td_json_read(c->arena, text, len, &source, &root);
    if (!s) {
        *io_nodes = source.n_values;
    } else if (!source.fault[0]) {
        c->is_oom = true; // nothing was wrong with the text
    } else if (override_idx < 0) {
        td_check_violation(
            c, "", source.line, "%s",
            td_check_show(c->arena, source.fault, strlen(source.fault), sizeof source.fault));
    }
    td_status_free(s);
    return root;
}

static void set_line(struct td_json *v, int line) {
    v->line = line;
    for (struct td_json *child = v->first; child; child = child->next) {
        set_line(child, line);
    }
}

struct td_json *td_text_read(struct td_check *c, const char *text, size_t len, int override_idx,
                             size_t *io_nodes) {
    static const char bom[] = "\xef\xbb\xbf";
    const bool is_override = override_idx >= 0;
    if (len >= 3 && memcmp(text, bom, 3) == 0) {
        text += 3;
        len -= 3;
    }
    if (begins_as_json(text, len, is_override)) {
        struct td_json *root = read_json(c, text, len, override_idx, io_nodes);
        if (root && is_override) set_line(root, -(override_idx + 1));
        if (root || c->is_oom || !is_override) return root;
    }
    return td_yaml_read(c, text, len, override_idx, io_nodes);
}
