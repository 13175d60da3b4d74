// The reference of the job spec, printed from the tables: what `traind --dump-spec` shows and what
// docs/job-spec.md is. A test holds the two together, so the document is never older than the
// tables.
//
// One table for each section, in the order of the canonical spec; the words for what a key takes
// are those of the error messages. Markdown, because both people and renderers read it; a man page
// can be made from it. Allocates in an arena of its own, which is gone on return.

#include <string.h>

#include "lib/spec/refused.h"
#include "lib/spec/spec.h"

static const char intro[] =
    "# The job spec\n"
    "\n"
    "<!-- Printed by `traind --dump-spec` from lib/spec/knobs.def. Change it there. -->\n"
    "\n"
    "A job spec is one YAML or JSON document of at most 1 MiB. It says what to train (`model`,\n"
    "`data`), how (`optimizer`, `lr_scheduler`, `trainer`) and what to do around it "
    "(`checkpoint`,\n"
    "`restart`, `resources`). [Recipes](recipes.md) has whole ones, for what is often wanted.\n"
    "\n"
    "- The examples below are parts: lines of the top level of a spec, which has the rest.\n"
    "- Only `model`, `data` and, to fit, `optimizer` are required; every other key has a default.\n"
    "- `name` picks a kind of model, data, optimizer or schedule; the keys beside it are its own.\n"
    "- `trainctl submit FILE --set trainer.devices=4` overrides a key; the value is YAML, so\n"
    "  `--set 'model.layers=[784, 64, 10]'` works, and a later `--set` wins.\n"
    "- An unknown key, a wrong type or a value out of range is an error that names path and line;\n"
    "  all errors of a document come at once. Anchors, aliases, tags, merge keys and a second\n"
    "  document are not taken. Scalars follow YAML 1.2: `no` and `on` are text, `1e-3` a number.\n"
    "- A key that wants text takes what is written: `env: {N: 007}` is `007`, `name: 1.50` is "
    "`1.50`.\n"
    "  `null` and `~` are nothing only where the key takes null. Knobs of a plugin are checked "
    "later,\n"
    "  on the node: a text among them that looks like a number is put in quotes.\n"
    "- A document that begins with `{\"` is JSON, strictly. There, an integer is a text by its "
    "digits,\n"
    "  and other numbers are put in quotes. The value of `--set` may be JSON, too.\n"
    "- A path is a path of the node that trains. Where all nodes are the machine of the client, "
    "it\n"
    "  may be relative to the directory in which `trainctl` was started, or begin with `~`; the "
    "spec\n"
    "  that is kept and shown has it from the root. A `..` is taken at its beginning alone. What "
    "such\n"
    "  a path is to be read from must be there, or nothing is submitted. Paths in `knobs` of "
    "plugins "
    "are\n"
    "  the same, but the node finds out which they are, so the spec is shown as it was written, "
    "with\n"
    "  `paths_from`.\n"
    "- `ckpt_path` and `init_from` also take a checkpoint of another job: `JOB` or `JOB/last` "
    "(its\n"
    "  newest), `JOB/best` (by its `checkpoint.monitor`), `JOB/a1/step-200`. JOB is an id, the\n"
    "  unique beginning of one, or a name: the newest job of that name that has such a "
    "checkpoint.\n"
    "  The kept spec has the id of that job. Which checkpoint `last` and `best` are is settled "
    "when\n"
    "  an attempt can start, and a note says it. It is kept until the job has ended; a job that\n"
    "  still runs may remove its own, by its `checkpoint.save_top_k`, and the next newest is "
    "taken\n"
    "  then. A name that no job has is a path; `./NAME` always is.\n"
    "- A plan (of `trainctl plan`, of `submit --dry-run`, and of each job) looks for paths on the\n"
    "  node that works it out, so every node needs them: `ckpt_path`, `init_from` and\n"
    "  `evaluate_from` are not copied between nodes. What is missing, does not fit the model or\n"
    "  cannot be written refuses the plan.\n"
    "- The daemon keeps the *canonical* spec: every key with its resolved value, as below.\n";

// A bar would end the cell.
static td_status print_cell(const char *prose, struct td_buf *out) {
    for (const char *p = prose; *p;) {
        size_t n = strcspn(p, "|");
        TD_TRY(td_buf_append(out, p, n));
        p += n;
        if (*p == '|') TD_TRY(td_buf_str(out, "\\|"));
        p += *p == '|';
    }
    return TD_OK;
}

static td_status print_knobs(struct td_arena *a, const char *section, struct td_buf *out) {
    bool has_header = false;
    for (size_t i = 0; i < td_n_knobs; i++) {
        const struct td_knob *k = &td_knobs[i];
        if (strcmp(k->section, section) != 0) continue;
        const char *expects = td_knob_expects(a, k);
        if (!expects) return td_fail_oom();
        if (!has_header) {
            TD_TRY(td_buf_str(out, "\n| key | takes | default | unit | meaning |\n"
                                   "|---|---|---|---|---|\n"));
        }
        has_header = true;
        const char *tick = k->fallback ? "`" : "";
        TD_TRY(td_buf_printf(out, "| `%s` | %s | %s%s%s | %s | ", k->key, expects, tick,
                             k->fallback ? k->fallback : "required", tick, k->unit ? k->unit : ""));
        TD_TRY(print_cell(k->prose, out));
        TD_TRY(td_buf_str(out, k->is_plan_only ? " (plans only) |\n" : " |\n"));
    }
    return TD_OK;
}

// An ENTRY section: of the maps of a list, not of one map.
static bool is_of_list(const struct td_section *s) {
    for (size_t i = 0; i < td_n_knobs; i++) {
        const struct td_knob *k = &td_knobs[i];
        if (k->type == TD_KNOB_MAP && strcmp(k->values, s->path) == 0) return false;
    }
    return true;
}

static td_status print_section(struct td_arena *a, const struct td_section *s, struct td_buf *out) {
    const char *dot = strchr(s->path, '.');
    switch (s->kind) {
    case TD_SECTION_ROOT:
        TD_TRY(td_buf_str(out, "\n## Top level\n\n"));
        break;
    case TD_SECTION_VARIANT:
        TD_TRY(td_buf_printf(out, "\n### `%.*s: {name: %s}`\n\n", (int)(dot - s->path), s->path,
                             dot + 1));
        break;
    case TD_SECTION_ENTRY:
        TD_TRY(td_buf_printf(out, "\n### %s`%s`\n\n", is_of_list(s) ? "each of " : "", s->path));
        break;
    case TD_SECTION_PLAIN:
    case TD_SECTION_CHOICE:
    case TD_SECTION_PLAN:
    case TD_SECTION_ITEM:
        TD_TRY(td_buf_printf(out, "\n## `%s`\n\n", s->path));
        break;
    }
    TD_TRY(td_buf_str(out, s->prose));
    if (s->kind == TD_SECTION_CHOICE && s->fallback) {
        TD_TRY(td_buf_printf(out, " Default: `{name: %s}`.", s->fallback));
    }
    TD_TRY(td_buf_str(out, "\n"));
    if (s->example) TD_TRY(td_buf_printf(out, "\n```yaml\n%s```\n", s->example));
    return print_knobs(a, s->path, out);
}

// Sections of the document, with what can be named in each; the anchors are those of Markdown
// viewers: letters and '-' of the heading.
static td_status print_contents(struct td_buf *out) {
    const char *before = "";
    TD_TRY(td_buf_str(out, "\n## Contents\n\n"));
    for (size_t i = 0; i < td_n_sections; i++) {
        const struct td_section *s = &td_sections[i];
        const char *dot = strrchr(s->path, '.');
        if (s->kind == TD_SECTION_ROOT) {
            TD_TRY(td_buf_str(out, "- [Top level](#top-level)"));
        } else if (s->kind == TD_SECTION_VARIANT) {
            const int len = (int)(dot - s->path);
            TD_TRY(td_buf_printf(out, "%s[%s](#%.*s-name-%s)", before, dot + 1, len, s->path,
                                 dot + 1));
        } else if (s->kind != TD_SECTION_ENTRY || !is_of_list(s)) {
            TD_TRY(td_buf_printf(out, "\n- [`%s`](#%.*s%s)", s->path, (int)strcspn(s->path, "."),
                                 s->path, dot ? dot + 1 : ""));
        }
        before = s->kind == TD_SECTION_VARIANT ? ", " : ": ";
    }
    return td_buf_str(
        out, "\n- [Combinations that are refused](#combinations-that-are-refused)\n"
             "- [Keys of Lightning that are elsewhere](#keys-of-lightning-that-are-elsewhere)\n");
}

td_status td_spec_reference(struct td_buf *out) {
    TD_AUTO(td_arena) *a = NULL;
    TD_TRY(td_arena_create(1 << 20, &a));
    TD_TRY(td_buf_str(out, intro));
    TD_TRY(print_contents(out));
    for (size_t i = 0; i < td_n_sections; i++) {
        TD_TRY(print_section(a, &td_sections[i], out));
    }
    TD_TRY(td_refused_print(out));
    TD_TRY(td_buf_str(out, "\n## Keys of Lightning that are elsewhere\n\n"));
    for (size_t i = 0; i < td_n_laters; i++) {
        const struct td_later *l = &td_laters[i];
        TD_TRY(td_buf_printf(out, "- `%s%s%s`: %s\n", l->section, *l->section ? "." : "", l->key,
                             l->what));
    }
    return TD_OK;
}
