// See the header.

#include "engine/train/plan/autotune.h"

#include "engine/graph/graph_text.h"
#include "engine/train/plan/choices.h"

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
    if (origin->is_foreign) {
        TD_TRY(td_buf_printf(out, "; those frozen in %s are of other hardware or another CPU level",
                             frozen));
    }
    if (!frozen && r->config->n_resume_from) {
        TD_TRY(td_buf_str(out, "; no manifest of a checkpoint to continue from can be read here"));
    }
    return td_buf_str(out, "\n");
}

td_status td_autotune_text(struct td_dump *d, struct td_rank *r) {
    if (!td_dump_wants_choices(d)) return TD_OK;
    struct choices all = {.arena = r->arena};
    struct td_choices_origin origin;
    all.end = &all.first;
    TD_TRY(td_choices_preview(r, d->program, take_choice, &all, &origin));
    td_buf_clear(d->text);
    TD_TRY(td_program_text_noted(d->program, note_choices, &all, d->text));
    return sum_up(&all, r, &origin, d->text);
}
