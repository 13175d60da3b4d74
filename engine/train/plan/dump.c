// Each pass up to the wanted one replaces the text of the one before, so that what is left is the
// newest; which passes a program goes through is compile.c's business alone. Rejected: keeping the
// text of all programs, which is the same graph a dozen times with other batch sizes.

#include "engine/train/plan/dump.h"

#include <string.h>

#include "engine/graph/graph_text.h"
#include "engine/train/plan/choices.h"
#include "engine/train/rank/rank.h"

static const char autotune[] = "autotune"; // no pass of the graph: kernels are the accelerator's

static const char *pass_at(size_t i) {
    if (td_compile_pass(i)) return td_compile_pass(i);
    return i && td_compile_pass(i - 1) ? autotune : NULL;
}

static size_t place_of(const char *pass) {
    size_t i = 0;
    while (pass_at(i) && strcmp(pass_at(i), pass) != 0) {
        i++;
    }
    return i;
}

td_status td_dump_init(struct td_dump *d, const char *pass, struct td_buf *text) {
    *d = (struct td_dump){.pass = pass, .text = text};
    if (pass_at(place_of(pass))) return TD_OK;
    TD_AUTO_BUF names;
    td_buf_init(&names, 1024);
    for (size_t i = 0; pass_at(i); i++) {
        TD_TRY(td_buf_printf(&names, "%s%s", i ? ", " : "", pass_at(i)));
    }
    return td_fail(TD_INVALID_ARGUMENT, "there is no pass '%s': take one of %s", pass,
                   td_buf_cstr(&names));
}

void td_dump_restart(struct td_dump *d) {
    d->program = NULL;
}

td_status td_dump_take(void *dump, const char *pass, const struct td_program *p) {
    struct td_dump *d = dump;
    bool better = !d->program || (p->key.apply && !d->program->key.apply);
    if (d->program != p && !better) return TD_OK;
    if (place_of(pass) > place_of(d->pass)) return TD_OK;
    d->program = p;
    td_buf_clear(d->text);
    return td_program_text(p, d->text);
}

// ---- autotune -----------------------------------------------------------------------------------
struct line {
    struct line *next;
    td_node node;
    const char *text;
};

struct choices {
    struct td_arena *arena;
    struct line *first, **end;
    uint32_t n, n_of[TD_CHOICE_FIRST + 1];
};

static td_status write_choice(const struct td_choice_info *c, struct td_buf *out) {
    static const char *const known[] = {
        [TD_CHOICE_OPEN] = "not measured yet, the first start measures it",
        [TD_CHOICE_MEASURED] = "measured on this machine",
        [TD_CHOICE_ADOPTED] = "frozen",
        [TD_CHOICE_FIRST] = "the first way, nothing is measured",
    };
    bool open = c->state == TD_CHOICE_OPEN;
    TD_TRY(td_buf_printf(out, "    kernel %s = ", c->key));
    for (int32_t i = 0; i < c->n_ways; i++) {
        if (!open && i != c->way) continue;
        TD_TRY(td_buf_printf(out, "%s%s", open && i ? " or " : "", c->ways[i]));
    }
    return td_buf_printf(out, ": %s\n", known[c->state]);
}

static td_status take_choice(void *arg, const struct td_choice_info *c) {
    struct choices *all = arg;
    TD_AUTO_BUF text;
    td_buf_init(&text, 4096);
    TD_TRY(write_choice(c, &text));
    struct line *l = td_arena_alloc(all->arena, sizeof *l);
    char *copy = td_arena_strndup(all->arena, text.data, text.len);
    if (!l || !copy) return td_fail_oom();
    *l = (struct line){.node = c->node, .text = copy};
    *all->end = l;
    all->end = &l->next;
    all->n++;
    all->n_of[c->state]++;
    return TD_OK;
}

static td_status note_choices(void *arg, td_node n, struct td_buf *out) {
    const struct choices *all = arg;
    for (const struct line *l = all->first; l; l = l->next) {
        if (l->node == n) TD_TRY(td_buf_str(out, l->text));
    }
    return TD_OK;
}

static td_status sum_up(const struct choices *all, const struct td_rank *r,
                        const struct td_choices_origin *origin, struct td_buf *out) {
    const char *frozen = origin->frozen;
    const char *never = r->config->deterministic ? "not measured, trainer.deterministic"
                                                 : "not measured without a cache directory";
    const char *const known[] = {
        [TD_CHOICE_OPEN] = "not measured yet",
        [TD_CHOICE_MEASURED] = "measured on this machine",
        [TD_CHOICE_ADOPTED] = "frozen in",
        [TD_CHOICE_FIRST] = never,
    };
    if (!all->n) {
        return td_buf_printf(out, "no choices: accelerator '%s' has one way for each node\n",
                             r->accel_name);
    }
    TD_TRY(td_buf_printf(out, "choices by timing: %u", all->n));
    for (int i = 0; i <= TD_CHOICE_FIRST; i++) {
        if (!all->n_of[i]) continue;
        TD_TRY(td_buf_printf(out, "; %s", known[i]));
        if (i == TD_CHOICE_ADOPTED) TD_TRY(td_buf_printf(out, " %s", frozen));
        TD_TRY(td_buf_printf(out, ": %u", all->n_of[i]));
    }
    if (origin->is_foreign)
        TD_TRY(td_buf_printf(out, "; those frozen in %s are of other hardware or another CPU level",
                             frozen));
    if (!frozen && r->config->n_resume_from)
        TD_TRY(td_buf_str(out, "; no manifest of a checkpoint to continue from can be read here"));
    return td_buf_str(out, "\n");
}

td_status td_dump_finish(struct td_dump *d, struct td_rank *r) {
    if (strcmp(d->pass, autotune) != 0 || !d->program) return TD_OK;
    struct choices all = {.arena = r->arena};
    struct td_choices_origin origin;
    all.end = &all.first;
    TD_TRY(td_choices_foresee(r, d->program, take_choice, &all, &origin));
    td_buf_clear(d->text);
    TD_TRY(td_program_text_noted(d->program, note_choices, &all, d->text));
    return sum_up(&all, r, &origin, d->text);
}
