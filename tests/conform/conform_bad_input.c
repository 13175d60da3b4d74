// Indices that a dataset should have refused: the run fails on every accelerator, with the text of
// the reference, which names the step, the node and the row.

#include "tests/conform/step_bench.h"

enum { VOCABULARY = 256, TOKENS = 6, BATCH = 2, CLASSES = 5 };

static const struct step_case gpt = {
    .name = "gpt",
    .module = &td_module_gpt,
    .knobs = "{\"n_layer\":1,\"n_head\":2,\"n_embd\":16}",
    .field =
        {{.name = "x", .dtype = TD_I32, .sample_shape = {1, {TOKENS}}, .n_classes = VOCABULARY},
         {.name = "y", .dtype = TD_I32, .sample_shape = {1, {TOKENS}}, .n_classes = VOCABULARY}},
    .batch = BATCH};
static const struct step_case mlp = {
    .name = "mlp",
    .module = &td_module_mlp,
    .knobs = "{\"layers\":[4,8,5]}",
    .field = {{.name = "x", .dtype = TD_F32, .sample_shape = {1, {4}}},
              {.name = "y", .dtype = TD_I32, .n_classes = CLASSES}},
    .batch = BATCH};

struct bad {
    const struct step_case *net;
    enum td_mode mode;
    bool split; // logits are never whole: the head is one op
    int field, row;
    int32_t index;   // in that row of that field
    const char *end; // of the text
};

static void fail_on(const struct td_accelerator_ops *ops, const struct bad *b, char *out,
                    size_t bytes) {
    struct rig r;
    void *in[2];
    td_ticket ticket = 0;
    rig_open_on(&r, ops, bench_threads);
    struct td_compile_options o = step_options(b->net, NULL);
    o.key = rig_key(b->mode, b->net->batch, false);
    o.whole_logits_bytes = b->split ? 1 : 0;
    rig_add(&r, &o);
    rig_place(&r);
    step_batch(b->net, in);
    ((int32_t *)in[b->field])[b->row] = b->index;
    rig_copy_all(&r, &r.program[0], true);
    td_status s = ops->run(r.program[0].exe, TD_SEGS_ALL, (const void *const *)in, &ticket);
    if (!s) s = ops->wait(r.accel, ticket, RIG_TIMEOUT_NS);
    assert_int_equal(td_status_class(s), TD_CLASS_DATA);
    assert_int_equal(td_status_code(s), TD_INVALID_ARGUMENT);
    snprintf(out, bytes, "%s", td_status_message(s));
    td_status_free(s);
    free(in[0]);
    free(in[1]);
    rig_close(&r);
}

static void check_text(struct subject *s, struct bad b) {
    static const char start[] = "step 'train': node ";
    char got[512], want[512];
    fail_on(s->ops, &b, got, sizeof got);
    fail_on(td_accelerator_reference.ops, &b, want, sizeof want);
    assert_string_equal(got, want);
    assert_memory_equal(got, start, sizeof start - 1);
    assert_true(strlen(got) > strlen(b.end));
    assert_string_equal(got + strlen(got) - strlen(b.end), b.end);
    s->n_cases++;
}

static void cases_tokens(struct subject *s) {
    check_text(s, (struct bad){&gpt, TD_MODE_TRAIN, false, 0, 3, 50000,
                               " (embedding): token id 50000 in row 3 is outside the model's 256 "
                               "tokens"});
    check_text(s, (struct bad){&gpt, TD_MODE_EVAL, false, 0, TOKENS, -1,
                               " (embedding): token id -1 in row 6 is outside the model's 256 "
                               "tokens"});
}

static void cases_labels(struct subject *s) {
    static const char many[] = ": label 50000 in row 3 is outside the model's 256 classes";
    static const struct {
        enum td_mode mode;
        bool split;
        const char *op;
    } gpts[] = {{TD_MODE_TRAIN, false, " (softmax_ce)"},
                {TD_MODE_EVAL, false, " (softmax_ce)"},
                {TD_MODE_TRAIN, true, " (linear_ce_grad)"},
                {TD_MODE_EVAL, true, " (linear_ce)"}};
    for (size_t i = 0; i < TD_COUNTOF(gpts); i++) {
        char end[128];
        snprintf(end, sizeof end, "%s%s", gpts[i].op, many);
        check_text(s, (struct bad){&gpt, gpts[i].mode, gpts[i].split, 1, 3, 50000, end});
    }
    check_text(s, (struct bad){&mlp, TD_MODE_EVAL, false, 1, 1, CLASSES,
                               " (softmax_ce): label 5 in row 1 is outside the model's 5 classes"});
}

static const struct suite suites[] = {{"bad_token", cases_tokens}, {"bad_label", cases_labels}};

int main(int argc, char **argv) {
    (void)argc;
    return run_suites(argv[0], "conform_bad_input", suites, TD_COUNTOF(suites));
}
