// Names are compared, not values: the manifest lists every tensor that was saved, the state table
// every one that the job has. Optimizer tensors are called "<parameter>:<kind>", so a line names
// the kinds and counts the tensors.

#include "engine/train/rank/state/resume.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/config/schedule.h"
#include "engine/train/rank/state/own_state.h"
#include "lib/base/clip.h"

static void add(struct td_resume_reasons *out, const char *fmt, ...) TD_PRINTF(2, 3);
static void add(struct td_resume_reasons *out, const char *fmt, ...) {
    TD_CHECK(out->n < TD_RESUME_REASONS); // each kind adds one at most
    va_list ap;
    va_start(ap, fmt);
    (void)td_clip_v(out->text[out->n++], TD_RESUME_REASON_BYTES, fmt, ap);
    va_end(ap);
}

// ---- tensors that only one side has -------------------------------------------------------------
enum { SHOWN = 3, LIST_BYTES = 100 };

// Names without repetition, the first few of them, and how many tensors there are.
struct names {
    char text[LIST_BYTES];
    size_t shown, tensors;
    bool cut;
};

static bool holds(const struct names *l, const char *name) {
    size_t len = strlen(name);
    for (const char *at = l->text; (at = strstr(at, name)); at += len) {
        bool begins = at == l->text || at[-1] == ' ';
        if (begins && (at[len] == ',' || at[len] == '\0')) return true;
    }
    return false;
}

static void take(struct names *l, const char *name) {
    l->tensors++;
    if (holds(l, name)) return;
    size_t len = strlen(l->text);
    if (l->shown == SHOWN || len + strlen(name) + 3 > sizeof l->text) {
        l->cut = true;
        return;
    }
    snprintf(l->text + len, sizeof l->text - len, "%s%s", len ? ", " : "", name);
    l->shown++;
}

// "exp_avg, exp_avg_sq (4 tensors)"; "" for none.
static void describe(const struct names *l, char out[LIST_BYTES + 48]) {
    out[0] = '\0';
    if (!l->tensors) return;
    snprintf(out, LIST_BYTES + 48, "%s%s (%zu tensor%s)", l->text,
             !l->cut    ? ""
             : l->shown ? ", ..."
                        : "...",
             l->tensors, l->tensors == 1 ? "" : "s");
}

static const char *kind_of(const char *tensor) {
    const char *colon = strrchr(tensor, ':');
    return colon ? colon + 1 : tensor;
}

static bool is_optimizers(const struct td_json *saved) {
    return strcmp(td_json_string(td_json_get(saved, "role"), ""), td_role_name(TD_ROLE_OPTIM)) == 0;
}

static bool has_tensor(const struct td_state_table *state, const char *name) {
    for (uint32_t i = 0; i < td_state_count(state); i++) {
        if (strcmp(td_state_at(state, i)->name, name) == 0) return true;
    }
    return false;
}

// Saved tensors, of the optimizer or of the model, that this job has no place for.
static void find_dropped(const struct td_rank *r, bool optimizers, struct names *out) {
    const struct td_json *saved = r->restored.manifest.tensors;
    for (const struct td_json *v = saved ? saved->first : NULL; v; v = v->next) {
        const char *name = td_json_string(td_json_get(v, "name"), "");
        if (is_optimizers(v) != optimizers || has_tensor(r->state, name)) continue;
        take(out, optimizers ? kind_of(name) : name);
    }
}

static void find_new(const struct td_rank *r, bool loads, struct names *out) {
    for (uint32_t i = 0; i < td_state_count(r->state); i++) {
        const struct td_state_info *t = td_state_at(r->state, i);
        if (t->role != TD_ROLE_OPTIM) continue;
        if (!loads || !td_manifest_lists(&r->restored.manifest, t->name)) {
            take(out, kind_of(t->name));
        }
    }
}

static void compare_weights(const struct td_rank *r, struct td_resume_reasons *out) {
    struct names dropped = {0};
    char text[LIST_BYTES + 48];
    find_dropped(r, false, &dropped);
    describe(&dropped, text);
    if (*text) add(out, "the model has no place for %s of the checkpoint", text);
}

static void compare_optimizers(const struct td_rank *r, bool loads, struct td_resume_reasons *out) {
    const char *was = r->restored.manifest.optimizer, *is = r->optimizer_name;
    bool same = !*was || strcmp(was, is) == 0;
    struct names dropped = {0}, fresh = {0};
    char not_taken[LIST_BYTES + 48], begins[LIST_BYTES + 48], arrow[64] = "";
    find_dropped(r, true, &dropped);
    find_new(r, loads, &fresh);
    if (same && !dropped.tensors && !fresh.tensors) return;
    describe(&dropped, not_taken);
    describe(&fresh, begins);
    if (!same) snprintf(arrow, sizeof arrow, "%.24s -> ", was);
    bool all_kept = !dropped.tensors && !fresh.tensors;
    add(out, "optimizer %s%s%s%s%s%s%s", arrow, is, *not_taken ? ": not taken over: " : "",
        not_taken, *begins ? (*not_taken ? "; zero at first: " : ": zero at first: ") : "", begins,
        all_kept ? ": its state is taken over" : "");
}

// ---- what is no tensor --------------------------------------------------------------------------
static const struct td_plugin_file *find_plugin(const struct td_resume_key *k, const char *name) {
    for (int i = 0; i < k->n_plugins; i++) {
        if (strcmp(k->plugin[i].name, name) == 0) return &k->plugin[i];
    }
    return NULL;
}

// By their files: one that is rebuilt may compute something else under the same name.
static void compare_plugins(const struct td_rank *r, struct td_resume_reasons *out) {
    const struct td_resume_key *was = &r->restored.manifest.key, *is = &r->key;
    struct names changed = {0};
    for (int i = 0; i < is->n_plugins && was->n_plugins >= 0; i++) {
        const struct td_plugin_file *before = find_plugin(was, is->plugin[i].name);
        if (!before || strcmp(before->digest, is->plugin[i].digest) != 0) {
            take(&changed, is->plugin[i].name);
        }
    }
    if (changed.tensors) {
        add(out, "plugin%s %s%s changed", changed.tensors == 1 ? "" : "s", changed.text,
            changed.cut ? ", ..." : "");
    }
}

static void compare_schedules(const struct td_rank *r, struct td_resume_reasons *out) {
    const struct td_schedule_config *now = &r->config->schedule;
    const struct td_plateau *p = &r->restored.manifest.progress.plateau;
    const char *was = r->restored.manifest.schedule, *is = r->schedule_name;
    bool same = !*was || strcmp(was, is) == 0;
    bool follows = now->kind == TD_SCHEDULE_REDUCE_ON_PLATEAU;
    if (!same && *p->monitor) {
        add(out,
            "lr_scheduler %s -> %s: not taken over: its scale of the rate, %g, and its best %s",
            was, is, p->lr_scale, p->monitor);
    } else if (!same) {
        add(out, "lr_scheduler %s -> %s%s", was, is, follows ? ", which has no metric yet" : "");
    } else if (follows && *p->monitor && strcmp(p->monitor, now->plateau.monitor) != 0) {
        add(out,
            "lr_scheduler.monitor %s -> %s: not taken over: the best %s; the scale of the "
            "rate, %g, is",
            p->monitor, now->plateau.monitor, p->monitor, p->lr_scale);
    }
}

static void compare_early_stops(const struct td_rank *r, struct td_resume_reasons *out) {
    const struct td_early_stop *was = &r->restored.manifest.progress.early_stop;
    const struct td_early_stop_config *is = &r->config->early_stop;
    const char *monitor = is->monitor ? is->monitor : "",
               *mode = is->larger_is_better ? "max" : "min";
    const bool same = strcmp(was->monitor, monitor) == 0;
    if (same && (!*monitor || was->larger_is_better == is->larger_is_better)) return;
    if (!*was->monitor) {
        add(out, "early_stopping.monitor %s: its checks count from 0", monitor);
    } else if (!*monitor) {
        add(out, "early_stopping.monitor %s: not taken over, this job has none", was->monitor);
    } else {
        add(out, "early_stopping.monitor %s (%s) -> %s (%s): its checks count from 0", was->monitor,
            was->larger_is_better ? "max" : "min", monitor, mode);
    }
}

// The counts of a step are its own; what one has done says nothing of another.
static void compare_steps(const struct td_rank *r, struct td_resume_reasons *out) {
    const struct td_progress *was = &r->restored.manifest.progress;
    const int is = r->steps.n > 1 ? r->steps.n : 0;
    struct names fresh = {0};
    for (int i = 0; i < is; i++) {
        bool known = false;
        for (int k = 0; k < was->n_counts; k++) {
            known |= strcmp(was->count[k].name, r->steps.step[i].name) == 0;
        }
        if (!known) take(&fresh, r->steps.step[i].name);
    }
    if (fresh.tensors) {
        add(out, "training step%s %s%s: counted from 0", fresh.tensors == 1 ? "" : "s", fresh.text,
            fresh.cut ? ", ..." : "");
    } else if (was->n_counts > is) {
        add(out, "the checkpoint counts %d training steps, the model has %d", was->n_counts,
            r->steps.n);
    }
}

static void compare_scales(const struct td_rank *r, struct td_resume_reasons *out) {
    const struct td_precision_state *was = &r->restored.manifest.progress.precision;
    bool had = was->loss_scale > 0, has = r->precision_facts.scales_loss;
    if (had && !has) {
        add(out, "the loss scale %g is not taken over: %s scales no loss", was->loss_scale,
            r->config->precision);
    }
    if (!had && has) add(out, "the loss scale begins at its first value: the checkpoint has none");
}

// Of several ranks each strategy makes its own bits; of one, the plugin's file says enough.
static bool names_another(const struct td_rank *r, const char **out_was) {
    const struct td_resume_key *was = &r->restored.manifest.key;
    *out_was = td_json_string(td_json_get(r->restored.manifest.frozen, "strategy"), "");
    bool same_world = was->world_size == r->facts.world_size && was->world_size > 1;
    return same_world && **out_was && strcmp(*out_was, r->strategy_name) != 0;
}

static void compare_own_state(const struct td_rank *r, struct td_resume_reasons *out) {
    char strategy[TD_RESUME_REASON_BYTES], precision[TD_RESUME_REASON_BYTES];
    char hook[TD_RESUME_REASON_BYTES];
    const char *was;
    td_rank_compare_own_state(r, strategy, sizeof strategy, precision, sizeof precision);
    if (*strategy) {
        add(out, "%s", strategy);
    } else if (names_another(r, &was)) {
        add(out, "strategy %s -> %s", was, r->strategy_name);
    }
    if (*precision) add(out, "%s", precision);
    td_rank_compare_hook_state(r, hook, sizeof hook);
    if (*hook) add(out, "%s", hook);
}

// The orders hold the same samples, so a seed says nothing of this.
static void compare_orders(const struct td_rank *r, struct td_resume_reasons *out) {
    const struct td_json *plan = r->restored.manifest.plan;
    const char *was = td_json_string(plan ? td_json_path(plan, "trainer.sampler") : NULL, "torch");
    const char *is = r->config->keyed_order ? "keyed" : "torch";
    const struct td_amount *part = &r->config->val_split;
    const bool holds_out = part->is_fraction || part->batches;
    if (strcmp(was, is) == 0) return;
    add(out, "trainer.sampler %s -> %s: another order of samples from here on%s", was, is,
        holds_out ? ", and val_split holds out others, of which most were trained on" : "");
}

void td_resume_compare(const struct td_rank *r, uint32_t roles,
                       struct td_resume_reasons *out_reasons) {
    const struct td_manifest *m = &r->restored.manifest;
    char key[TD_RESUME_REASON_BYTES];
    out_reasons->n = 0;
    td_resume_key_compare(&m->key, &r->key, r->config->most_cpu_level, key, sizeof key);
    if (*key) add(out_reasons, "%s", key);
    compare_plugins(r, out_reasons);
    compare_weights(r, out_reasons);
    if (!(r->config->stages & TD_STAGE_FIT)) return;
    compare_optimizers(r, roles & 1u << TD_ROLE_OPTIM, out_reasons);
    compare_schedules(r, out_reasons);
    compare_early_stops(r, out_reasons);
    compare_steps(r, out_reasons);
    compare_scales(r, out_reasons);
    compare_own_state(r, out_reasons);
    compare_orders(r, out_reasons);
    if (m->seed != r->config->seed) {
        add(out_reasons, "seed %llu -> %llu: other samples and other dropout from here on",
            (unsigned long long)m->seed, (unsigned long long)r->config->seed);
    }
}

void td_resume_join(const struct td_resume_reasons *reasons, char out[TD_RESUME_BYTES]) {
    struct td_clip_list list;
    td_clip_list_init(&list, out, TD_RESUME_BYTES, "; ");
    for (size_t i = 0; i < reasons->n; i++) {
        td_clip_list_add(&list, "%s", reasons->text[i]);
    }
}
