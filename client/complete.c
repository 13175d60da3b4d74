// See the header. A line that is not finished is not parsed like one that is run. Its words are
// looked at as far as they say which verb it is, and how many arguments are there.

#include "client/complete.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "client/find_verb.h"
#include "client/nodes/gpus.h"
#include "client/nodes/listing.h"
#include "client/nodes/node_state.h"
#include "client/rows.h"
#include "client/screen/print.h"
#include "client/screen/progress.h"
#include "client/session/pages.h"
#include "client/verbs.h"
#include "lib/spec/completion_words.h"
#include "traind/v1/checkpoint.pb-c.h"
#include "traind/v1/job.pb-c.h"

#define ASKED_NS (2 * TD_NS_PER_S)
enum { JOBS_MAX = 1000 };

struct line {
    const struct td_verb *verb; // NULL: it is not known yet
    int n_verb_words;
    struct argp_option options[TD_VERB_OPTIONS_MAX];
    size_t n_options;
    const char *args[TD_MAX_ARGS]; // before the cursor
    int n_args;
    const struct argp_option *open; // a flag whose value is at the cursor
    const char *value;              // what was typed of that
    const char *key;                // of --set KEY=..., where the shell gives it as a word; or NULL
    const char *typed;              // of the word at the cursor
};

static void offer(const char *typed, const char *text, const char *what) {
    if (strncmp(text, typed, strlen(typed)) != 0 || strpbrk(text, "\n\t")) return;
    td_print(stdout, "%s", text);
    fputc('\t', stdout); // td_print would show it
    td_print(stdout, "%s", what);
    fputc('\n', stdout);
}

// ---- verbs --------------------------------------------------------------------------------------
// The next word of each verb that begins with these.
static void offer_verbs(const char *const *words, int n, const char *typed) {
    char last[32] = "", word[32];
    for (size_t i = 0; td_verb_at(i); i++) {
        int taken;
        const char *rest = td_verb_rest(td_verb_at(i)->name, words, n, &taken);
        const size_t len = strcspn(rest, " ");
        if (taken < n || !*rest) continue;
        (void)snprintf(word, sizeof word, "%.*s", (int)TD_MIN(len, sizeof word - 1), rest);
        if (strcmp(word, last) != 0) offer(typed, word, rest[len] ? "..." : td_verb_at(i)->summary);
        memcpy(last, word, sizeof last);
    }
}

// ---- the line -----------------------------------------------------------------------------------
static const struct argp_option *find_option(const struct line *l, const char *word, size_t len) {
    for (size_t i = 0; i < l->n_options; i++) {
        const struct argp_option *o = &l->options[i];
        const bool is_long = o->name && len > 2 && strncmp(word, "--", 2) == 0 &&
                             strlen(o->name) == len - 2 && strncmp(word + 2, o->name, len - 2) == 0;
        const bool is_short = len == 2 && word[0] == '-' && word[1] == o->key;
        if (is_long || is_short) return o;
    }
    return NULL;
}

// What the line says about the coordinator is what it is asked for.
static void take_value(struct td_flags *f, const struct argp_option *o, const char *value) {
    const struct {
        const char *name, **place;
    } rows[] = {{"address", &f->address}, {"token-file", &f->token_file},
                {"ca", &f->ca},           {"cert", &f->certificate},
                {"key", &f->key},         {"state-dir", &f->state_dir}};
    for (size_t i = 0; o->name && i < TD_COUNTOF(rows); i++) {
        if (strcmp(rows[i].name, o->name) == 0) *rows[i].place = value;
    }
}

static bool is_set(const struct argp_option *o) {
    return o->name && strcmp(o->name, "set") == 0;
}

// bash gives "--output=js" as three words, and "--set a=b" as four; other shells as one and as two.
static void read_line(struct line *l, struct td_flags *f, const char *const *words, int n) {
    for (int i = l->n_verb_words; i < n; i++) {
        const char *word = words[i], *equals = strchr(word, '=');
        const bool is_last = i == n - 1;
        const size_t len = word[0] == '-' && equals ? (size_t)(equals - word) : strlen(word);
        if (l->open && strcmp(word, "=") == 0) {
            if (is_last) l->value = l->typed = ""; // what is typed comes after it
            continue;
        }
        if (l->open) {
            if (is_last) {
                l->value = word;
                return;
            }
            if (is_set(l->open) && !l->key && strcmp(words[i + 1], "=") == 0) {
                l->key = word;
                continue;
            }
            take_value(f, l->open, word);
            l->open = NULL;
            l->key = NULL;
            continue;
        }
        if (word[0] != '-') {
            if (!is_last && l->n_args < TD_MAX_ARGS) l->args[l->n_args++] = word;
            continue;
        }
        const struct argp_option *o = find_option(l, word, len);
        const bool takes_next = i + 1 < n && (word[len] || strcmp(words[i + 1], "=") == 0);
        if (!o || !o->arg || (is_last && !word[len])) continue;
        if ((o->flags & OPTION_ARG_OPTIONAL) && !word[len] && !takes_next) continue;
        if (word[len] && !is_last) {
            take_value(f, o, word + len + 1);
            continue;
        }
        l->open = o;
        if (word[len]) l->value = word + len + 1;
    }
    if (!l->value) l->open = NULL;
}

// ---- flags --------------------------------------------------------------------------------------
static void offer_flags(const struct line *l) {
    for (size_t i = 0; i < l->n_options; i++) {
        const struct argp_option *o = &l->options[i];
        char text[64];
        if (!o->name || (o->flags & OPTION_HIDDEN)) continue;
        (void)snprintf(text, sizeof text, "--%s", o->name);
        offer(l->typed, text, o->doc ? o->doc : "");
    }
    offer(l->typed, "--help", "flags and examples");
}

static void offer_words(const char *typed, const char *before, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char text[96];
        (void)snprintf(text, sizeof text, "%s%s", before, words[i]);
        offer(typed, text, "");
    }
}

// before: of the word at the cursor, what is no part of the value.
static void offer_states(const struct line *l, const char *before) {
    char typed[64] = "";
    const char *comma = strrchr(l->value, ',');
    if (comma) {
        (void)snprintf(typed, sizeof typed, "%.*s", (int)(comma - l->value) + 1, l->value);
    }
    const ProtobufCEnumDescriptor *d = &traind__v1__job__state__descriptor;
    for (unsigned i = 0; i < d->n_values; i++) {
        char text[160], *at = text;
        if (d->values[i].value == 0) continue;
        (void)snprintf(text, sizeof text, "%s%s%s", before, typed, d->values[i].name);
        for (at += strlen(before) + strlen(typed); *at; at++) {
            *at = (char)tolower((unsigned char)*at);
        }
        offer(l->typed, text, "");
    }
}

struct spec_words {
    const char *typed, *before, *after;
};

// Its prose up to where it goes into detail.
static void offer_spec_word(void *arg, const char *word, const char *what) {
    enum { SHOWN = 60 };
    const struct spec_words *w = arg;
    char text[256], about[SHOWN + 4];
    const size_t len = strcspn(what, ";.:");
    (void)snprintf(text, sizeof text, "%s%s%s", w->before, word, w->after);
    (void)snprintf(about, sizeof about, "%.*s", (int)TD_MIN(len, (size_t)SHOWN), what);
    offer(w->typed, text, about);
}

// Keys, and after a '=' what the key takes.
static void offer_overrides(const struct line *l, const char *before) {
    const char *equals = strchr(l->value, '=');
    char key[96], whole[192];
    if (!l->key && !equals) {
        td_spec_keys(offer_spec_word, &(struct spec_words){l->typed, before, "="});
        return;
    }
    const int len = l->key ? (int)strlen(l->key) : (int)(equals - l->value);
    (void)snprintf(key, sizeof key, "%.*s", len, l->key ? l->key : l->value);
    (void)snprintf(whole, sizeof whole, "%s%s=", before, key);
    td_spec_values(key, offer_spec_word, &(struct spec_words){l->typed, l->key ? "" : whole, ""});
}

static void offer_values(const struct line *l) {
    static const char *const formats[] = {"table", "wide", "json", "jsonl", "name"};
    static const char *const roles[] = {"viewer", "submitter", "operator", "admin", "node"};
    const char *name = l->open->name ? l->open->name : "";
    char before[64] = "";
    // One word of zsh and fish: "--output=js".
    const char *equals = l->typed[0] == '-' ? strchr(l->typed, '=') : NULL;
    if (equals) {
        (void)snprintf(before, sizeof before, "%.*s", (int)(equals - l->typed) + 1, l->typed);
    }
    if (strcmp(name, "output") == 0) offer_words(l->typed, before, formats, TD_COUNTOF(formats));
    if (strcmp(name, "role") == 0) offer_words(l->typed, before, roles, TD_COUNTOF(roles));
    if (strcmp(name, "state") == 0 || strcmp(name, "for") == 0) offer_states(l, before);
    if (is_set(l->open)) offer_overrides(l, before);
}

// ---- what the coordinator knows -----------------------------------------------------------------
static bool was_offered(Traind__V1__Job *const *jobs, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(jobs[i]->name, name) == 0) return true;
    }
    return false;
}

static td_status offer_jobs(struct td_session *s, const char *typed) {
    struct td_pages p = {.limit = JOBS_MAX, .quiet = true};
    Traind__V1__ListJobsRequest request = TRAIND__V1__LIST_JOBS_REQUEST__INIT;
    td_status failed = td_pages_read(s, "/traind.v1.JobService/ListJobs", &request.base,
                                     &traind__v1__list_jobs_response__descriptor, "jobs", &p);
    Traind__V1__Job *const *jobs = (Traind__V1__Job *const *)(void *)p.item;
    for (size_t i = 0; !failed && i < p.n_items; i++) {
        const Traind__V1__Job *j = jobs[i];
        const char *state = td_job_state_word(j->state);
        if (!was_offered(jobs, i, j->name)) offer(typed, j->name, state);
        char what[96];
        (void)snprintf(what, sizeof what, "%s %s", j->name, state);
        if (typed[0]) offer(typed, j->id, what); // names alone at first
    }
    td_pages_finish(&p);
    return failed;
}

static td_status offer_checkpoints(struct td_session *s, const char *job, const char *typed) {
    struct td_pages p = {.quiet = true};
    Traind__V1__ListCheckpointsRequest request = TRAIND__V1__LIST_CHECKPOINTS_REQUEST__INIT;
    request.job = td_unconst(job);
    td_status failed =
        td_pages_read(s, "/traind.v1.CheckpointService/ListCheckpoints", &request.base,
                      &traind__v1__list_checkpoints_response__descriptor, "checkpoints", &p);
    for (size_t i = 0; !failed && i < p.n_items; i++) {
        offer(typed, ((const Traind__V1__Checkpoint *)p.item[i])->path, "");
    }
    td_pages_finish(&p);
    return failed;
}

static td_status offer_nodes(struct td_session *s, const char *typed) {
    struct td_pages p = {.quiet = true};
    td_status failed = td_listing_read(s, &p);
    for (size_t i = 0; !failed && i < p.n_items; i++) {
        const Traind__V1__Node *n = p.item[i];
        char state[TD_NODE_STATE_BYTES];
        offer(typed, n->name, td_node_state_words(n, state));
    }
    td_pages_finish(&p);
    return failed;
}

static td_status offer_gpus(struct td_session *s, const char *node, const char *typed) {
    struct td_pages p = {.quiet = true};
    const Traind__V1__Node *n = NULL;
    td_status failed = td_listing_read(s, &p);
    if (!failed) failed = td_listing_find(&p, node, &n);
    for (size_t i = 0; !failed && n->gpus && i < n->gpus->n_gpus; i++) {
        const Traind__V1__Gpu *g = n->gpus->gpus[i];
        const Traind__V1__GpuExclusion *x = td_gpus_exclusion(n->gpus, g);
        offer(typed, g->uuid, x ? x->reason : g->name);
    }
    td_pages_finish(&p);
    return failed;
}

// "JOB [CHECKPOINT]", "JOB...": is the argument of that number a job?
static bool is_job(const struct td_verb *v, int at) {
    const char *word = v->args;
    for (const char *next; at > 0 && (next = strchr(word, ' ')); at--) {
        word = next + 1;
    }
    return strncmp(word, "JOB", 3) == 0 && (at == 0 || strncmp(word + 3, "...", 3) == 0);
}

// ---- all of it ----------------------------------------------------------------------------------
static void offer_argument(struct td_session *s, const struct line *l) {
    static const char *const shells[] = {"bash", "zsh", "fish"};
    td_status silent = TD_OK;
    if (is_job(l->verb, l->n_args)) {
        silent = offer_jobs(s, l->typed);
    } else if (strncmp(l->verb->args, "NODE", 4) == 0 && l->n_args == 0) {
        silent = offer_nodes(s, l->typed);
    } else if (strcmp(l->verb->args, "NODE UUID") == 0 && l->n_args == 1) {
        silent = offer_gpus(s, l->args[0], l->typed);
    } else if (strcmp(l->verb->name, "checkpoint download") == 0 && l->n_args == 1) {
        silent = offer_checkpoints(s, l->args[0], l->typed);
    } else if (strcmp(l->verb->name, "completion") == 0 && l->n_args == 0) {
        offer_words(l->typed, "", shells, TD_COUNTOF(shells));
    }
    td_status_free(silent);
}

td_status td_complete(struct td_session *s, const char *const *words, int n) {
    static struct line l;
    if (n < 1) return TD_OK;
    l = (struct line){.typed = words[n - 1]};
    struct td_flags asked = {.timeout_ns = ASKED_NS, .rank = -1};
    l.verb = td_verb_find(words, n - 1, &l.n_verb_words);
    if (!l.verb) {
        offer_verbs(words, n - 1, l.typed);
        return TD_OK;
    }
    l.n_options = td_verb_options(l.verb, l.options);
    read_line(&l, &asked, words, n);
    const struct td_flags *const own = s->flags;
    s->flags = &asked;
    if (l.open) {
        offer_values(&l);
    } else if (l.typed[0] == '-') {
        offer_flags(&l);
    } else {
        offer_argument(s, &l);
    }
    s->flags = own;
    return TD_OK;
}
