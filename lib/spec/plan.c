// Plans: a canonical spec with the facts of one attempt, as JSON.
//
// Built and parsed plans go through the same check, so whatever the coordinator writes a person
// could have written, and the worker trusts neither more than the other. Texts that are absent are
// null in the JSON and "" in the struct.
//
// JSON only, read by jansson, so that a worker carries no YAML reader. Line numbers are lost with
// that; paths in the errors remain.

#include "lib/spec/plan.h"

#include <stdio.h>
#include <string.h>

static const char *text(const struct td_json *run, const char *key) {
    return td_json_string(td_json_get(run, key), "");
}

static td_status complete(struct td_arena *a, const struct td_json *tree, struct td_plan *out) {
    struct td_json *canonical;
    TD_TRY(td_spec_validate(a, tree, TD_SPEC_PLAN, &canonical));
    struct td_plan p = {.tree = canonical};
    td_spec_read(canonical, &p.spec);
    const struct td_json *run = td_json_get(canonical, "run");
    const struct td_json *frozen = td_json_get(run, "frozen");
    const struct td_json *nodes = td_json_get(run, "nodes");
    p.run = (struct td_plan_run){
        .job = text(run, "job"),
        .attempt = (int32_t)td_json_int(td_json_get(run, "attempt"), 1),
        .world_size = (int32_t)td_json_int(td_json_get(run, "world_size"), 0),
        .threads_per_rank = (int32_t)td_json_int(td_json_get(run, "threads_per_rank"), 0),
        .checkpoint_dir = text(run, "checkpoint_dir"),
        .cache_dir = text(run, "cache_dir"),
        .resume_from = text(run, "resume_from"),
        .resume_before = td_json_get(run, "resume_before"),
        .precision = text(run, "precision"),
        .cpu_level = text(run, "cpu_level"),
        .master_address = text(run, "master_address"),
        .master_port = (int32_t)td_json_int(td_json_get(run, "master_port"), 0),
        .collective_interface = text(run, "collective_interface"),
        .collective_address = text(run, "collective_address"),
        .nodes = nodes && nodes->n_children ? nodes : NULL,
        .link_timeout_ms = (int32_t)td_json_int(td_json_get(run, "link_timeout"), 0),
        .frozen = frozen && frozen->kind == TD_JSON_OBJECT ? frozen : NULL,
    };
    *out = p;
    return TD_OK;
}

td_status td_plan_parse(struct td_arena *a, const char *json, size_t len,
                        struct td_plan *out_plan) {
    td_status s;
    if (len > TD_SPEC_MAX_BYTES) {
        s = td_fail(TD_RESOURCE_EXHAUSTED, "the plan has %zu bytes, at most %d are taken", len,
                    TD_SPEC_MAX_BYTES);
        s = td_status_with_reason(s, "SPEC_TOO_LARGE");
        return td_status_with_class(s, TD_CLASS_BAD_SPEC);
    }
    struct td_json *tree;
    s = td_json_parse(a, json, len, &tree);
    if (td_status_code(s) == TD_INVALID_ARGUMENT) {
        s = td_status_context(s, "the plan is not valid JSON");
        s = td_status_with_reason(s, "SPEC_INVALID");
        return td_status_with_class(s, TD_CLASS_BAD_SPEC);
    }
    TD_TRY(s);
    return complete(a, tree, out_plan);
}

// Sets a text, unless it is absent.
static bool set_text(struct td_arena *a, struct td_json *run, const char *key, const char *value) {
    if (!value || !*value) return true;
    return td_json_set(a, run, key, td_json_new_string(a, value));
}

static bool set_count(struct td_arena *a, struct td_json *run, const char *key, int32_t value) {
    return value == 0 || td_json_set(a, run, key, td_json_new_int(a, value));
}

td_status td_plan_build(struct td_arena *a, const struct td_json *spec_tree,
                        const struct td_plan_run *run, struct td_plan *out_plan) {
    struct td_json *tree = td_json_copy(a, spec_tree);
    struct td_json *facts = td_json_new(a, TD_JSON_OBJECT);
    bool ok = td_json_set(a, tree, "format", td_json_new_int(a, TD_PLAN_FORMAT)) &&
              td_json_set(a, tree, "run", facts) && set_text(a, facts, "job", run->job) &&
              set_count(a, facts, "attempt", run->attempt) &&
              set_count(a, facts, "world_size", run->world_size) &&
              set_count(a, facts, "threads_per_rank", run->threads_per_rank) &&
              set_text(a, facts, "checkpoint_dir", run->checkpoint_dir) &&
              set_text(a, facts, "cache_dir", run->cache_dir) &&
              set_text(a, facts, "resume_from", run->resume_from) &&
              set_text(a, facts, "precision", run->precision) &&
              set_text(a, facts, "cpu_level", run->cpu_level) &&
              set_text(a, facts, "master_address", run->master_address) &&
              set_count(a, facts, "master_port", run->master_port) &&
              set_text(a, facts, "collective_interface", run->collective_interface) &&
              set_text(a, facts, "collective_address", run->collective_address) &&
              set_count(a, facts, "link_timeout", run->link_timeout_ms);
    if (ok && run->nodes) ok = td_json_set(a, facts, "nodes", td_json_copy(a, run->nodes));
    if (ok && run->resume_before) {
        ok = td_json_set(a, facts, "resume_before", td_json_copy(a, run->resume_before));
    }
    if (ok && run->frozen) ok = td_json_set(a, facts, "frozen", td_json_copy(a, run->frozen));
    return ok ? complete(a, tree, out_plan) : td_fail_oom();
}

td_status td_plan_print(const struct td_plan *p, struct td_buf *out) {
    TD_TRY(td_json_print(p->tree, true, out));
    return td_buf_str(out, "\n");
}

// ---- texts alone --------------------------------------------------------------------------------
static td_status join_text(struct td_buf *out, const char *key, const char *value) {
    if (!value || !*value) return TD_OK;
    TD_TRY(td_buf_printf(out, ",\"%s\":", key));
    return td_json_print_string(value, strlen(value), out);
}

static td_status join_count(struct td_buf *out, const char *key, int32_t value) {
    return value == 0 ? TD_OK : td_buf_printf(out, ",\"%s\":%d", key, value);
}

td_status td_plan_join(const char *spec_json, const struct td_plan_run *run,
                       const char *frozen_json, struct td_buf *out) {
    size_t len = strlen(spec_json);
    TD_CHECK(len > 2 && spec_json[0] == '{' && spec_json[len - 1] == '}');
    TD_TRY(td_buf_append(out, spec_json, len - 1));
    TD_TRY(td_buf_printf(out, ",\"format\":%d,\"run\":{\"attempt\":%d", TD_PLAN_FORMAT,
                         TD_MAX(run->attempt, 1)));
    TD_TRY(join_text(out, "job", run->job));
    TD_TRY(join_count(out, "world_size", run->world_size));
    TD_TRY(join_count(out, "threads_per_rank", run->threads_per_rank));
    TD_TRY(join_text(out, "checkpoint_dir", run->checkpoint_dir));
    TD_TRY(join_text(out, "cache_dir", run->cache_dir));
    TD_TRY(join_text(out, "resume_from", run->resume_from));
    TD_TRY(join_text(out, "precision", run->precision));
    TD_TRY(join_text(out, "cpu_level", run->cpu_level));
    TD_TRY(join_count(out, "link_timeout", run->link_timeout_ms));
    if (run->nodes) {
        TD_TRY(td_buf_str(out, ",\"nodes\":"));
        TD_TRY(td_json_print(run->nodes, false, out));
    }
    if (frozen_json) {
        TD_TRY(td_buf_str(out, ",\"frozen\":"));
        TD_TRY(td_buf_str(out, frozen_json));
    }
    return td_buf_str(out, "}}\n");
}

void td_plan_say_precision(const char *precision, double seconds, const char *other,
                           double other_seconds, char out[TD_PLAN_PRECISION_BYTES]) {
    const size_t bytes = TD_PLAN_PRECISION_BYTES;
    if (other[0] && seconds > 0 && other_seconds > 0) {
        const bool kept = seconds > other_seconds;
        snprintf(out, bytes,
                 "trainer.precision: auto %s %s%s: a step takes about %.3g ms, with %s %.3g ms",
                 kept ? "keeps" : "chose", precision, kept ? " of the checkpoint" : "",
                 seconds * 1e3, other, other_seconds * 1e3);
    } else {
        snprintf(out, bytes, "trainer.precision: auto chose %s: nothing is known to be faster",
                 precision);
    }
}
