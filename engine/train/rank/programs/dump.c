// Each pass up to the wanted one replaces the text of the one before, so that what is left is the
// newest. Which passes a program goes through is compile.c's business alone. Rejected: keeping the
// text of all programs, which is the same graph a dozen times with other batch sizes.

#include "engine/train/rank/programs/dump.h"

#include <string.h>

#include "engine/graph/graph_text.h"

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

bool td_dump_wants_choices(const struct td_dump *d) {
    return strcmp(d->pass, autotune) == 0 && d->program;
}
