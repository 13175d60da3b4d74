// Read the two tables first: one reader for each kind of optimizer and of schedule.

#include "fabric/configure/method.h"

#include <string.h>

#include "engine/train/config/schedule.h"
#include "lib/spec/read.h"

// ---- optimizers ---------------------------------------------------------------------------------

static void read_betas(struct td_read *k, const char *key, struct td_optim_attrs *to) {
    double betas[2];
    td_read_reals(k, key, betas, TD_COUNTOF(betas));
    to->beta1 = betas[0];
    to->beta2 = betas[1];
}

static void read_sgd(struct td_read *k, struct td_optimizer_config *to) {
    to->attrs.momentum = td_read_real(k, "momentum");
    to->attrs.dampening = td_read_real(k, "dampening");
    to->attrs.nesterov = td_read_bool(k, "nesterov");
}

static void read_adam(struct td_read *k, struct td_optimizer_config *to) {
    read_betas(k, "betas", &to->attrs);
    to->attrs.eps = td_read_real(k, "eps");
}

static void read_lion(struct td_read *k, struct td_optimizer_config *to) {
    read_betas(k, "betas", &to->attrs);
}

static void read_adafactor(struct td_read *k, struct td_optimizer_config *to) {
    to->attrs.beta2_decay = td_read_real(k, "beta2_decay");
    to->attrs.eps = td_read_real_or(k, "eps1", 0); // that of the parameter's type
    to->attrs.eps2 = td_read_real(k, "eps2");
    to->attrs.threshold = td_read_real(k, "d");
    to->attrs.fixed_step = !td_read_bool(k, "relative_step");
    to->attrs.unscaled = !td_read_bool(k, "scale_parameter");
}

static void read_muon(struct td_read *k, struct td_optimizer_config *to) {
    static const char *const scales[] = {
        [TD_MUON_ORIGINAL] = "original",
        [TD_MUON_MATCH_RMS_ADAMW] = "match_rms_adamw",
        [TD_MUON_SPECTRAL_UNCLAMPED] = "spectral_unclamped",
    };
    struct td_muon_config *muon = &to->muon;
    to->attrs.momentum = td_read_real(k, "momentum");
    to->attrs.nesterov = td_read_bool(k, "nesterov");
    to->attrs.eps = td_read_real(k, "eps");
    td_read_reals(k, "ns_coefficients", muon->ns_coefficients, TD_COUNTOF(muon->ns_coefficients));
    muon->ns_steps = (int)td_read_int(k, "ns_steps");
    muon->scale = (enum td_muon_scale)td_read_choice(k, "adjust_lr_fn", scales, TD_COUNTOF(scales));
    muon->adamw_lr = td_read_real_or(k, "adamw_lr", to->lr);
    read_betas(k, "adamw_betas", &muon->adamw);
    muon->adamw.eps = td_read_real(k, "adamw_eps");
    muon->adamw.weight_decay = td_read_real(k, "adamw_weight_decay");
}

static const char *const optimizer_names[] = {
    [TD_OPTIMIZER_SGD] = "sgd",     [TD_OPTIMIZER_ADAM] = "adam",
    [TD_OPTIMIZER_ADAMW] = "adamw", [TD_OPTIMIZER_LION] = "lion",
    [TD_OPTIMIZER_MUON] = "muon",   [TD_OPTIMIZER_ADAFACTOR] = "adafactor",
};
typedef void optimizer_reader(struct td_read *k, struct td_optimizer_config *to);
static optimizer_reader *const optimizers[] = {
    [TD_OPTIMIZER_SGD] = read_sgd,    [TD_OPTIMIZER_ADAM] = read_adam,
    [TD_OPTIMIZER_ADAMW] = read_adam, [TD_OPTIMIZER_LION] = read_lion,
    [TD_OPTIMIZER_MUON] = read_muon,  [TD_OPTIMIZER_ADAFACTOR] = read_adafactor,
};
_Static_assert(TD_COUNTOF(optimizer_names) == TD_COUNTOF(optimizers), "one reader per kind");

static td_status read_groups(const struct td_json *list, struct td_arena *arena,
                             struct td_optimizer_config *to) {
    if (!list->n_children) return TD_OK;
    struct td_optimizer_group *group = td_arena_array(arena, list->n_children, sizeof *group);
    if (!group) return td_fail_oom();
    to->groups = group;
    to->n_groups = list->n_children;
    for (const struct td_json *v = list->first; v; v = v->next) {
        struct td_read one = td_read_begin(v, "optimizer.groups");
        const struct td_json *decay = td_json_get(v, "weight_decay");
        *group++ = (struct td_optimizer_group){
            .match = td_read_text(&one, "match"),
            .lr_scale = td_read_real(&one, "lr_scale"),
            .has_weight_decay = decay && decay->kind != TD_JSON_NULL,
            .weight_decay = td_read_real_or(&one, "weight_decay", 0),
        };
        TD_TRY(td_read_end(&one));
    }
    return TD_OK;
}

static td_status read_optimizer(const struct td_spec *spec, const struct td_json *section,
                                struct td_arena *arena, struct td_optimizer_config *out_optimizer) {
    bool by_value = strcmp(spec->trainer.gradient_clip_algorithm, "value") == 0;
    struct td_optimizer_config o = {
        .max_norm = by_value ? 0 : spec->trainer.gradient_clip_val,
        .max_value = by_value ? spec->trainer.gradient_clip_val : 0,
        .stochastic = spec->trainer.stochastic_rounding,
        .log_norm = spec->trainer.log_grad_norm,
    };
    struct td_read k = td_read_begin(section, "optimizer");
    int kind = td_read_choice(&k, "name", optimizer_names, TD_COUNTOF(optimizer_names));
    o.kind = (enum td_optimizer_kind)kind;
    o.lr = td_read_real(&k, "lr");
    o.attrs.weight_decay = td_read_real(&k, "weight_decay");
    optimizers[kind](&k, &o);
    const struct td_json *groups = td_read_list(&k, "groups");
    TD_TRY(td_read_end(&k));
    TD_TRY(read_groups(groups, arena, &o));
    *out_optimizer = o;
    return TD_OK;
}

td_status td_method_optimizer(const struct td_spec *spec, struct td_arena *arena,
                              struct td_optimizer_config *out_optimizer) {
    return read_optimizer(spec, spec->optimizer.knobs, arena, out_optimizer);
}

// ---- schedules ----------------------------------------------------------------------------------

static void read_total(struct td_read *k, struct td_schedule_config *to) {
    to->total_steps = td_read_int_or(k, td_schedule_end_knob(to->kind), 0);
}

// One key for both: "cos" is torch's word, "cosine" transformers'.
static enum td_schedule_curve read_curve(struct td_read *k, const char *key) {
    static const char *const names[] = {"linear", "cosine", "cos", "1-sqrt"};
    static const enum td_schedule_curve curves[] = {TD_CURVE_LINEAR, TD_CURVE_COSINE,
                                                    TD_CURVE_COSINE, TD_CURVE_ONE_MINUS_SQRT};
    _Static_assert(TD_COUNTOF(names) == TD_COUNTOF(curves), "one curve per name");
    return curves[td_read_choice(k, key, names, TD_COUNTOF(names))];
}

static void read_constant(struct td_read *k, struct td_schedule_config *to) {
    (void)k;
    (void)to;
}

static void read_warmup_cosine(struct td_read *k, struct td_schedule_config *to) {
    to->warmup_steps = td_read_int(k, "warmup_steps");
    to->min_lr = td_read_real(k, "min_lr");
    read_total(k, to);
}

static void read_linear(struct td_read *k, struct td_schedule_config *to) {
    to->start_factor = td_read_real(k, "start_factor");
    to->end_factor = td_read_real(k, "end_factor");
    read_total(k, to);
}

static void read_cosine(struct td_read *k, struct td_schedule_config *to) {
    to->min_lr = td_read_real(k, "eta_min");
    read_total(k, to);
}

static void read_step(struct td_read *k, struct td_schedule_config *to) {
    to->period_steps = td_read_int(k, "step_size");
    to->gamma = td_read_real(k, "gamma");
}

static void read_multistep(struct td_read *k, struct td_schedule_config *to) {
    const struct td_json *list = td_read_list(k, "milestones");
    to->gamma = td_read_real(k, "gamma");
    for (const struct td_json *v = list ? list->first : NULL;
         v && to->n_milestones < TD_SCHEDULE_MILESTONES; v = v->next) {
        to->milestone[to->n_milestones++] = td_json_int(v, 0);
    }
}

static void read_exponential(struct td_read *k, struct td_schedule_config *to) {
    to->gamma = td_read_real(k, "gamma");
}

static void read_polynomial(struct td_read *k, struct td_schedule_config *to) {
    to->power = td_read_real(k, "power");
    read_total(k, to);
}

static void read_inverse_sqrt(struct td_read *k, struct td_schedule_config *to) {
    to->warmup_steps = td_read_int(k, "num_warmup_steps");
    to->timescale = td_read_int_or(k, "timescale", to->warmup_steps ? to->warmup_steps : 10000);
}

static void read_one_cycle(struct td_read *k, struct td_schedule_config *to) {
    to->pct_start = td_read_real(k, "pct_start");
    to->decay_curve = read_curve(k, "anneal_strategy");
    to->div_factor = td_read_real(k, "div_factor");
    to->final_div_factor = td_read_real(k, "final_div_factor");
    to->three_phase = td_read_bool(k, "three_phase");
    read_total(k, to);
}

static void read_warmup_stable_decay(struct td_read *k, struct td_schedule_config *to) {
    to->warmup_steps = td_read_int(k, "num_warmup_steps");
    to->decay_steps = td_read_int(k, "num_decay_steps");
    to->warmup_curve = read_curve(k, "warmup_type");
    to->decay_curve = read_curve(k, "decay_type");
    to->end_factor = td_read_real(k, "min_lr_ratio");
    read_total(k, to);
}

static void read_plateau(struct td_read *k, struct td_schedule_config *to) {
    to->plateau = (struct td_plateau_config){
        .monitor = td_read_text(k, "monitor"),
        .larger_is_better = strcmp(td_read_text(k, "mode"), "max") == 0,
        .factor = td_read_real(k, "factor"),
        .patience = td_read_int(k, "patience"),
        .threshold = td_read_real(k, "threshold"),
        .threshold_is_absolute = strcmp(td_read_text(k, "threshold_mode"), "abs") == 0,
        .cooldown = td_read_int(k, "cooldown"),
        .min_lr = td_read_real(k, "min_lr"),
        .eps = td_read_real(k, "eps"),
    };
}

typedef void schedule_reader(struct td_read *k, struct td_schedule_config *to);
static schedule_reader *const schedules[] = {
    [TD_SCHEDULE_CONSTANT] = read_constant,
    [TD_SCHEDULE_WARMUP_COSINE] = read_warmup_cosine,
    [TD_SCHEDULE_LINEAR] = read_linear,
    [TD_SCHEDULE_COSINE] = read_cosine,
    [TD_SCHEDULE_STEP] = read_step,
    [TD_SCHEDULE_MULTISTEP] = read_multistep,
    [TD_SCHEDULE_EXPONENTIAL] = read_exponential,
    [TD_SCHEDULE_POLYNOMIAL] = read_polynomial,
    [TD_SCHEDULE_INVERSE_SQRT] = read_inverse_sqrt,
    [TD_SCHEDULE_ONE_CYCLE] = read_one_cycle,
    [TD_SCHEDULE_WARMUP_STABLE_DECAY] = read_warmup_stable_decay,
    [TD_SCHEDULE_REDUCE_ON_PLATEAU] = read_plateau,
};
_Static_assert(TD_COUNTOF(schedules) == TD_SCHEDULE_COUNT, "one reader per kind");

static td_status read_schedule(const struct td_json *section,
                               struct td_schedule_config *out_schedule) {
    struct td_schedule_config s = {0};
    bool known = td_schedule_find(td_json_string(td_json_get(section, "name"), ""), &s.kind);
    TD_CHECK(known); // the spec was checked, and a test holds its names against the engine's
    struct td_read k = td_read_begin(section, "lr_scheduler");
    schedules[s.kind](&k, &s);
    TD_TRY(td_read_end(&k));
    *out_schedule = s;
    return TD_OK;
}

td_status td_method_schedule(const struct td_spec *spec, struct td_schedule_config *out_schedule) {
    return read_schedule(spec->lr_scheduler.knobs, out_schedule);
}

// ---- several of both ----------------------------------------------------------------------------
td_status td_method_optimizers(const struct td_spec *spec, struct td_arena *arena,
                               const struct td_named_optimizer **out_optimizers, int *out_n) {
    const struct td_json *list = spec->optimizers;
    const size_t n = list ? list->n_children : 0;
    TD_CHECK(n <= TD_OPTIMIZERS_MAX); // as the rows say
    struct td_named_optimizer *o = n ? td_arena_array(arena, n, sizeof *o) : NULL;
    if (n && !o) return td_fail_oom();
    size_t i = 0;
    for (const struct td_json *v = n ? list->first : NULL; v; v = v->next, i++) {
        struct td_read one = td_read_begin(v, "optimizers");
        o[i] = (struct td_named_optimizer){.name = td_read_text(&one, "name"),
                                           .match = td_read_text(&one, "match")};
        TD_TRY(td_read_end(&one));
        TD_TRY_CTX(read_optimizer(spec, td_json_get(v, "optimizer"), arena, &o[i].optimizer),
                   "optimizers[%zu]", i);
        TD_TRY_CTX(read_schedule(td_json_get(v, "lr_scheduler"), &o[i].schedule), "optimizers[%zu]",
                   i);
    }
    *out_optimizers = o;
    *out_n = (int)n;
    return TD_OK;
}
