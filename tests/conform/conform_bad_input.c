// Inputs of a run that cannot be: it fails on every accelerator, with the text of the reference.
// Of indices that a dataset should have refused that names the step, the node and the row. Buffers
// that are too short, or are not the host's, are refused before anything runs, naming the slot.

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
    td_status s = rig_begin(&r, 0, TD_SEGS_ALL, (const void *const *)in, &ticket);
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

// ---- buffers ------------------------------------------------------------------------------------
// Two buffers, x (2, 4) f32 and y (2) i32, as `spoil` leaves them; the run after it is right.
struct spoiled {
    void (*spoil)(struct rig *r, struct td_buffer in[2]);
    const char *text;
};

static void one_byte_less(struct rig *r, struct td_buffer in[2]) {
    (void)r;
    in[1].bytes--;
}

static void no_memory(struct rig *r, struct td_buffer in[2]) {
    (void)r;
    in[0].handle = 0;
}

static void of_device(struct rig *r, struct td_buffer in[2]) {
    (void)r;
    in[0].space = TD_SPACE_DEVICE;
}

// Memory of the accelerator's own device, where it has one.
static void of_own_device(struct rig *r, struct td_buffer in[2]) {
    const struct td_buffer own = r->region[TD_ROLE_PARAM];
    assert_true(own.bytes >= in[1].bytes);
    in[1] = (struct td_buffer){TD_SPACE_DEVICE, own.handle, own.bytes};
}

static const struct spoiled spoiled[] = {
    {one_byte_less, "step 'train': input 1 ('y') has 7 bytes, but i32(2) has 8"},
    {no_memory, "step 'train': input 0 ('x') has 0 bytes, but f32(2,4) has 32"},
    {of_device, "step 'train': input 0 ('x') is not host memory, and this accelerator reads no "
                "other"},
    {of_own_device, "step 'train': input 1 ('y') is not host memory, and this accelerator reads "
                    "no other"},
};

static void cases_buffers(struct subject *s) {
    struct rig r;
    void *in[2];
    struct td_buffer right[RIG_INPUTS];
    td_ticket ticket = 0;
    rig_open_on(&r, s->ops, bench_threads);
    struct td_compile_options o = step_options(&mlp, NULL);
    o.key = rig_key(TD_MODE_TRAIN, BATCH, false);
    rig_add(&r, &o);
    rig_place(&r);
    step_batch(&mlp, in);
    rig_inputs(&r, 0, (const void *const *)in, right);
    rig_copy_all(&r, &r.program[0], true);
    for (size_t i = 0; i < TD_COUNTOF(spoiled); i++) {
        struct td_buffer wrong[2] = {right[0], right[1]};
        spoiled[i].spoil(&r, wrong);
        r.program[0].outputs[0] = -1;
        assert_fails(s->ops->run(r.program[0].exe, TD_SEGS_ALL, wrong, &ticket),
                     TD_INVALID_ARGUMENT, spoiled[i].text);
        assert_true(r.program[0].outputs[0] == -1);
        s->n_cases++;
    }
    assert_fails(s->ops->run(r.program[0].exe, TD_SEGS_ALL, NULL, &ticket), TD_INVALID_ARGUMENT,
                 "step 'train': run without inputs");
    right[0].bytes *= 2; // more is no harm
    assert_ok(s->ops->run(r.program[0].exe, TD_SEGS_ALL, right, &ticket));
    assert_ok(s->ops->wait(r.accel, ticket, RIG_TIMEOUT_NS));
    assert_true(r.program[0].outputs[0] > 0);
    free(in[0]);
    free(in[1]);
    rig_close(&r);
}

static const struct suite suites[] = {
    {"bad_token", cases_tokens}, {"bad_label", cases_labels}, {"bad_buffer", cases_buffers}};

int main(int argc, char **argv) {
    (void)argc;
    return run_suites(argv[0], "conform_bad_input", suites, TD_COUNTOF(suites));
}
