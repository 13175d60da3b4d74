// See the header.

#include "lib/spec/completion_words.h"

#include <stdio.h>
#include <string.h>

#include "lib/spec/knobs.h"

enum { WORD_MAX = 96 };

// Its keys begin with the path of the section.
static bool is_open(const struct td_section *s) {
    return s->kind == TD_SECTION_ROOT || s->kind == TD_SECTION_PLAIN;
}

// The choice that a section is a name of: a section of the document, or NULL.
static const struct td_section *choice_of(const struct td_section *s) {
    for (size_t i = 0; i < td_n_sections && s->kind == TD_SECTION_VARIANT; i++) {
        const struct td_section *choice = &td_sections[i];
        const bool is_of_it = td_section_variant_of(s, choice->path);
        if (choice->kind == TD_SECTION_CHOICE && is_of_it) return choice;
    }
    return NULL;
}

// An earlier name of the choice has the key, too.
static bool is_known(const struct td_section *choice, const struct td_section *variant,
                     const char *key) {
    for (const struct td_section *s = td_sections; s < variant; s++) {
        if (td_section_variant_of(s, choice->path) && td_section_knob(s, key)) return true;
    }
    return false;
}

void td_spec_keys(td_spec_word_fn *on_key, void *arg) {
    char word[WORD_MAX];
    for (size_t i = 0; i < td_n_sections; i++) {
        const struct td_section *s = &td_sections[i], *choice = choice_of(s);
        const char *section = choice ? choice->path : s->path;
        const struct td_knob *end, *k = td_section_knobs(s, &end);
        if (s->kind == TD_SECTION_CHOICE) {
            on_key(arg, section, s->prose);
            (void)snprintf(word, sizeof word, "%s.name", section);
            on_key(arg, word, "the other keys stay");
        }
        for (; (choice || is_open(s)) && k < end; k++) {
            if (k->is_plan_only || (choice && is_known(choice, s, k->key))) continue;
            (void)snprintf(word, sizeof word, "%s%s%s", section, *section ? "." : "", k->key);
            on_key(arg, word, k->prose);
        }
    }
}

// ---- values -------------------------------------------------------------------------------------
static void offer_names(const char *choice, td_spec_word_fn *on_value, void *arg) {
    for (size_t i = 0; i < td_n_sections; i++) {
        const char *name = td_section_variant_of(&td_sections[i], choice);
        if (name && strcmp(name, "plugin") != 0) on_value(arg, name, "");
    }
}

static void offer_choices(const struct td_knob *k, td_spec_word_fn *on_value, void *arg) {
    struct td_knob_choice c;
    for (const char *at = k->values; (at = td_knob_next_choice(at, &c));) {
        char word[WORD_MAX];
        (void)snprintf(word, sizeof word, "%.*s", (int)c.name.len, c.name.data);
        if (!c.is_later) on_value(arg, word, "");
    }
}

static void offer_values(const struct td_knob *k, td_spec_word_fn *on_value, void *arg) {
    const bool is_named =
        k->type == TD_KNOB_ENUM || k->type == TD_KNOB_ENUM_OR_PLUGIN || k->type == TD_KNOB_PATH;
    if (is_named) offer_choices(k, on_value, arg);
    if (k->type == TD_KNOB_CHOICE) offer_names(k->values, on_value, arg);
    if (k->type == TD_KNOB_INT_OR_AUTO) on_value(arg, "auto", "");
    if (k->type == TD_KNOB_BOOL || k->type == TD_KNOB_INT_OR_BOOL) {
        on_value(arg, "true", "");
        on_value(arg, "false", "");
    }
    if (td_knob_nullable(k)) on_value(arg, "null", "");
}

void td_spec_values(const char *key, td_spec_word_fn *on_value, void *arg) {
    const char *dot = strchr(key, '.'), *own = dot ? dot + 1 : key;
    char section[WORD_MAX] = "";
    if (dot) (void)snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
    const struct td_section *named = td_section_find(dot ? section : key);
    if (named && named->kind == TD_SECTION_CHOICE && (!dot || strcmp(own, "name") == 0)) {
        offer_names(named->path, on_value, arg);
        return;
    }
    const struct td_knob *k = td_knob_find(section, own);
    for (size_t i = 0; !k && dot && i < td_n_sections; i++) {
        const bool is_of_it = td_section_variant_of(&td_sections[i], section);
        if (is_of_it) k = td_section_knob(&td_sections[i], own);
    }
    if (k) offer_values(k, on_value, arg);
}
