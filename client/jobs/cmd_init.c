// init: writes a job of one's own into a directory. That is a spec, a module and a dataset in C,
// data, a Makefile, and a README that says what to do with them. It works as it is, so that a
// person changes something that runs. No daemon is asked.
//
// Nothing is written where one of the files is there already, unless --force is given. Two words of
// the templates are the machine's: the directory, because a spec names plugins by absolute paths,
// and the prefix of this trainctl. That is where it is installed, or the build folder of its tree:
// both have lib/pkgconfig/traind.pc, which says how plugins are built.

#include <stdio.h>
#include <string.h>

#include "client/jobs/jobs.h"
#include "client/jobs/templates.h"
#include "client/screen/print.h"
#include "client/session/session.h"
#include "lib/base/buf.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named_output.h"
#include "lib/base/json.h"
#include "lib/base/machine/proc.h"
#include "lib/base/utf8.h"

enum { TEMPLATE_BYTES = 1 << 20 };

struct place {
    char dir[TD_FS_PATH_BYTES];    // absolute
    char prefix[TD_FS_PATH_BYTES]; // of this trainctl
};

// ---- words of the machine -----------------------------------------------------------------------
// As a word of a shell, in quotes only where it needs them.
static td_status put_shell_word(const char *text, struct td_buf *out) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+";
    if (text[strspn(text, plain)] == '\0') return td_buf_str(out, text);
    TD_TRY(td_buf_str(out, "'"));
    for (const char *at = text; *at; at++) {
        TD_TRY(*at == '\'' ? td_buf_str(out, "'\\''") : td_buf_append(out, at, 1));
    }
    return td_buf_str(out, "'");
}

static td_status put_word(const struct place *p, const char *word, struct td_buf *out) {
    char csv[TD_FS_PATH_BYTES];
    if (strcmp(word, "DIR") == 0) return td_json_print_string(p->dir, strlen(p->dir), out);
    if (strcmp(word, "SHELL_DIR") == 0) return put_shell_word(p->dir, out);
    if (strcmp(word, "PREFIX") == 0) return td_buf_str(out, p->prefix);
    TD_CHECK(strcmp(word, "DIR_CSV") == 0 && "a word that no template has");
    TD_TRY(td_fs_path(csv, "%s/points.csv", p->dir));
    return td_json_print_string(csv, strlen(csv), out);
}

// A word is "@UPPER_CASE@"; any other '@' is itself.
static td_status fill_in(const struct place *p, struct td_str text, struct td_buf *out) {
    for (const char *at = text.data, *end = text.data + text.len; at < end;) {
        char word[16];
        int n = 0;
        if (*at == '@' && sscanf(at, "@%15[A-Z_]@%n", word, &n) == 1 && n > 0) {
            TD_TRY(put_word(p, word, out));
            at += n;
        } else {
            TD_TRY(td_buf_append(out, at++, 1));
        }
    }
    return TD_OK;
}

// ---- files --------------------------------------------------------------------------------------
static td_status find_place(const char *dir, struct place *p) {
    TD_TRY(td_fs_absolute(dir, p->dir, sizeof p->dir));
    if (!td_utf8_valid(p->dir, strlen(p->dir)) || strpbrk(p->dir, "\n\r\t:")) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "the directory '%s' has a ':', a line end or bytes that are no UTF-8 in its "
                       "path, so that no job could name it",
                       p->dir);
    }
    TD_TRY(td_proc_self_dir(p->prefix, sizeof p->prefix));
    char *last = strrchr(p->prefix, '/'); // of <prefix>/bin
    if (last && last != p->prefix) *last = '\0';
    return TD_OK;
}

static td_status refuse_to_overwrite(const struct place *p, const struct td_template *templates) {
    TD_AUTO_BUF found;
    td_buf_init(&found, 4096);
    for (int i = 0; i < TD_TEMPLATES; i++) {
        char path[TD_FS_PATH_BYTES];
        TD_TRY(td_fs_path(path, "%s/%s", p->dir, templates[i].name));
        if (!td_fs_exists(path)) continue;
        TD_TRY(td_buf_printf(&found, "%s%s", found.len ? ", " : "", templates[i].name));
    }
    if (!found.len) return TD_OK;
    return td_fail(TD_ALREADY_EXISTS,
                   "%s has %s already, and nothing was written; --force replaces them, or name "
                   "another directory",
                   p->dir, td_buf_cstr(&found));
}

static td_status write_one(const struct place *p, const struct td_template *t, char *out_path) {
    TD_AUTO_BUF text;
    td_buf_init(&text, TEMPLATE_BYTES);
    TD_TRY(td_fs_path(out_path, "%s/%s", p->dir, t->name));
    TD_TRY(fill_in(p, t->text, &text));
    return td_named_output_write(out_path, text.data, text.len, 0644, 0);
}

static td_status write_all(const struct td_flags *f, const struct place *p,
                           const struct td_template *templates) {
    if (!f->force) TD_TRY(refuse_to_overwrite(p, templates));
    TD_TRY(td_fs_mkdirs(p->dir, 0755));
    for (int i = 0; i < TD_TEMPLATES; i++) {
        char path[TD_FS_PATH_BYTES];
        TD_TRY(write_one(p, &templates[i], path));
        if (f->output == TD_OUTPUT_TABLE || f->output == TD_OUTPUT_NAME) {
            td_print(stdout, "%s\n", path);
        }
    }
    return TD_OK;
}

td_status td_cmd_init(struct td_session *s, const struct td_flags *f, int *out_exit) {
    struct td_template templates[TD_TEMPLATES];
    struct place place;
    (void)s, (void)out_exit;
    if (td_output_is_json(f->output)) {
        return td_fail(TD_INVALID_ARGUMENT, "init prints names of files: -o table or name");
    }
    td_templates_get(templates);
    TD_TRY(find_place(f->n_args ? f->args[0] : ".", &place));
    TD_TRY(write_all(f, &place, templates));
    if (f->output == TD_OUTPUT_TABLE) {
        td_print(stdout,
                 "next: `cd %s && make && trainctl run job.yaml`; README.md says the rest\n",
                 place.dir);
    }
    return TD_OK;
}
