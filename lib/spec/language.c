// See the header. Texts and numbers of a row go into one buffer, each with its end.

#include "lib/spec/language.h"

#include "lib/base/buf.h"
#include "lib/spec/knobs.h"
#include "lib/spec/plan.h"

enum { LANGUAGE_BYTES_MAX = 1 << 20 };

// The tables are constants of some tens of KiB: there is memory, or nothing works.
static void add_section(struct td_buf *b, const struct td_section *s) {
    TD_CHECK(!td_buf_printf(b, "%s\n%d\n", s->path, (int)s->kind));
}

static void add_knob(struct td_buf *b, const struct td_knob *k) {
    TD_CHECK(!td_buf_printf(b, "%s\n%s\n%d %d %d %a %a\n%s\n", k->section, k->key, (int)k->type,
                            (int)k->is_plan_only, (int)k->of, k->min, k->max,
                            k->values ? k->values : ""));
}

void td_spec_language_of(const struct td_section *sections, size_t n_sections,
                         const struct td_knob *knobs, size_t n_knobs, char out_hex[TD_DIGEST_HEX]) {
    TD_AUTO_BUF text;
    td_buf_init(&text, LANGUAGE_BYTES_MAX);
    TD_CHECK(!td_buf_printf(&text, "%d\n", TD_PLAN_FORMAT));
    for (size_t i = 0; i < n_sections; i++) {
        add_section(&text, &sections[i]);
    }
    for (size_t i = 0; i < n_knobs; i++) {
        add_knob(&text, &knobs[i]);
    }
    td_xxh3_128_hex(text.data, text.len, out_hex);
}

void td_spec_language(char out_hex[TD_DIGEST_HEX]) {
    td_spec_language_of(td_sections, td_n_sections, td_knobs, td_n_knobs, out_hex);
}
