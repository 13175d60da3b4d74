// The text of a graph after each pass, and of its memory plan, against tests/golden/graph_*.txt. A
// change of a pass shows up here as a readable difference; TD_GOLDEN_WRITE=1 writes the files
// again.

#include "tests/unit/graph/step_rig.h"

#include "precisions/precisions.h"
#include "traind/precision.h"

static const char *only; // passes to keep, NULL: all

static td_status keep(void *arg, const char *pass, const struct td_program *p) {
    struct td_buf *out = arg;
    if (only && !strstr(only, pass)) return TD_OK;
    TD_TRY(td_buf_printf(out, "== %s\n", pass));
    return p->placement ? td_program_text(p, out) : td_graph_text(p->graph, out);
}

static td_status ddp(void *arg, struct td_graph *g, const struct td_program_key *key) {
    (void)arg;
    TD_TRY(td_rewrite_assign_buckets(g, 64, 1024));
    return key->sync ? td_rewrite_all_reduce(g) : TD_OK;
}

static td_status zero1(void *arg, struct td_graph *g, const struct td_program_key *key) {
    (void)arg;
    TD_TRY(td_rewrite_assign_buckets(g, 64, 1024));
    TD_TRY(td_rewrite_split_gradients(g));
    return key->sync ? td_rewrite_reduce_scatter(g) : TD_OK;
}

static td_status zero1_update(void *arg, struct td_graph *g, const struct td_program_key *key) {
    (void)arg, (void)key;
    return td_rewrite_all_gather(g);
}

static void check_golden(const char *name, struct td_buf *text) {
    char path[256];
    snprintf(path, sizeof path, "tests/golden/graph_%s.txt", name);
    if (getenv("TD_GOLDEN_WRITE")) assert_ok(td_fs_write(path, text->data, text->len, 0644, 0));
    TD_AUTO_BUF want;
    td_buf_init(&want, 1 << 20);
    assert_ok(td_fs_read(path, 1 << 20, &want));
    const char *a = td_buf_cstr(text), *b = td_buf_cstr(&want);
    if (!strcmp(a, b)) return;
    int line = 1;
    while (*a && *a == *b) {
        line += *a == '\n';
        a++, b++;
    }
    fail_msg("%s differs from line %d on; here it goes on with: %.80s", path, line, a);
}

static void check_program(const char *name, struct td_compile_options o) {
    struct rig_mlp m = {.dtype = TD_F32, .n_widths = 3, .width = {8, 6, 4}};
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 20);
    TD_AUTO(td_state_table) *state = NULL;
    TD_AUTO(td_compiled) *c = NULL;
    assert_ok(td_state_table_create(&state));
    td_state_set_rank(state, 0, o.world_size);
    o.state = state;
    o.dump = keep;
    o.dump_arg = &text;
    if (!o.record) {
        o.record = rig_record_mlp;
        o.record_arg = &m;
    }
    assert_ok(td_compile(&o, &c));
    check_golden(name, &text);
}

static void test_train_step_has_this_text_when_ddp_with_clipped_adamw(void **state) {
    (void)state;
    struct td_optimizer_options opt = {
        .op = TD_OP_ADAMW,
        .attrs = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
        .clip_norm = 1};
    check_program("train_ddp", (struct td_compile_options){.key = rig_key(TD_MODE_TRAIN, 4, true),
                                                           .strategy = ddp,
                                                           .optimizer = &opt});
}

static void test_train_step_has_this_text_when_optimizer_state_is_in_pieces(void **state) {
    (void)state;
    struct td_optimizer_options opt = {.op = TD_OP_ADAMW,
                                       .attrs = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
                                       .unscale = true,
                                       .clip_norm = 1};
    only = "strategy optimizer strategy_update memory";
    check_program("train_zero1", (struct td_compile_options){.key = rig_key(TD_MODE_TRAIN, 4, true),
                                                             .world_size = 3,
                                                             .strategy = zero1,
                                                             .strategy_update = zero1_update,
                                                             .optimizer = &opt});
    only = NULL;
}

// Contract 10: nothing is summed inside a window
static void test_train_step_has_this_text_when_accumulating_without_sync(void **state) {
    (void)state;
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, 4, false), .strategy = ddp};
    o.key.accumulate = true;
    o.key.sync = false;
    check_program("train_accumulate", o);
}

static void test_train_step_has_this_text_when_sgd_with_momentum(void **state) {
    (void)state;
    struct td_optimizer_options opt = {.op = TD_OP_SGD, .attrs = {.momentum = 0.9}};
    check_program("train_sgd", (struct td_compile_options){.key = rig_key(TD_MODE_TRAIN, 4, true),
                                                           .optimizer = &opt});
}

static void test_eval_step_has_this_text_when_compiled(void **state) {
    (void)state;
    check_program("eval", (struct td_compile_options){.key = rig_key(TD_MODE_EVAL, 3, false)});
}

// What simplify is for: views of views, casts and factors that do nothing, work nobody reads.
static td_status record_clumsy(void *arg, struct td_graph *g, int64_t batch) {
    (void)arg;
    struct td_shape sx = rig_shape(3, batch, 2, 3), sw = rig_shape(2, 6, 6, 0);
    struct td_init init = {0};
    struct td_attrs wide = {.shape = rig_shape(2, batch, 6, 0)};
    struct td_attrs tall = {.shape = rig_shape(2, batch * 6, 1, 0)};
    struct td_attrs same = {.dtype = TD_F32, .scale = 1};
    struct td_attrs ones = {.dtype = TD_F32, .shape = wide.shape, .scale = 1};
    td_value x, w, dead, one, in[2];
    TD_TRY(td_graph_input(g, "x", TD_F32, &sx, &x));
    TD_TRY(td_graph_param(g, "w", TD_F32, &sw, init, &w));
    TD_TRY(td_graph_op(g, TD_OP_RESHAPE, &x, 1, &tall, &x));
    TD_TRY(td_graph_op(g, TD_OP_RESHAPE, &x, 1, &wide, &x));
    TD_TRY(td_graph_op(g, TD_OP_RESHAPE, &x, 1, &wide, &x));
    TD_TRY(td_graph_op(g, TD_OP_CAST, &x, 1, &same, &x));
    TD_TRY(td_graph_op(g, TD_OP_RELU, &x, 1, NULL, &dead));
    in[0] = x;
    in[1] = w;
    TD_TRY(td_graph_op(g, TD_OP_MATMUL, in, 2, NULL, &x));
    TD_TRY(td_graph_op(g, TD_OP_FILL, NULL, 0, &ones, &one));
    in[0] = one;
    in[1] = x;
    TD_TRY(td_graph_op(g, TD_OP_MUL, in, 2, NULL, &x));
    TD_TRY(td_graph_op(g, TD_OP_MEAN, &x, 1, NULL, &x));
    TD_TRY(td_graph_output(g, "loss", x, TD_OUTPUT_MEAN));
    return td_graph_loss(g, x);
}

static void test_clumsy_step_has_this_text_when_simplified(void **state) {
    (void)state;
    check_program("clumsy", (struct td_compile_options){.key = rig_key(TD_MODE_TRAIN, 2, false),
                                                        .record = record_clumsy});
}

// y = relu(x w^T) . relu(x w^T), by a detour: what simplify makes of it is one product, read twice.
static td_status record_crossed(void *arg, struct td_graph *g, int64_t batch) {
    bool detour = *(const bool *)arg;
    struct td_shape sx = rig_shape(2, batch, 6, 0), sw = rig_shape(2, 4, 6, 0);
    struct td_attrs swap = {.perm = {1, 0}}, direct = {.trans_b = true};
    td_value x, w, y[2], mean;
    TD_TRY(td_graph_input(g, "x", TD_F32, &sx, &x));
    TD_TRY(td_graph_param(g, "w", TD_F32, &sw, (struct td_init){0}, &w));
    for (int i = 0; i < 2; i++) {
        td_value in[2] = {x, w};
        for (int k = 0; detour && k < 3; k++) { // odd: the product needs what they come to
            TD_TRY(td_graph_op(g, TD_OP_TRANSPOSE, &in[1], 1, &swap, &in[1]));
        }
        TD_TRY(td_graph_op(g, TD_OP_MATMUL, in, 2, detour ? NULL : &direct, &y[i]));
        TD_TRY(td_graph_op(g, TD_OP_RELU, &y[i], 1, NULL, &y[i]));
        if (!detour) y[1] = y[0];
        if (!detour) break;
    }
    TD_TRY(td_graph_op(g, TD_OP_MUL, y, 2, NULL, &mean));
    TD_TRY(td_graph_op(g, TD_OP_MEAN, &mean, 1, NULL, &mean));
    TD_TRY(td_graph_output(g, "loss", mean, TD_OUTPUT_MEAN));
    return td_graph_loss(g, mean);
}

static void test_crossed_step_has_this_text_when_simplified(void **state) {
    (void)state;
    bool detour = true;
    only = "optimizer simplify fuse";
    check_program("crossed", (struct td_compile_options){.key = rig_key(TD_MODE_TRAIN, 5, false),
                                                         .record = record_crossed,
                                                         .record_arg = &detour});
    only = NULL;
}

static void test_crossed_step_computes_the_same_when_it_takes_no_detour(void **state) {
    (void)state;
    float x[30], grad[2][24];
    double loss[2];
    for (int i = 0; i < 2; i++) {
        bool detour = i == 0;
        struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, 5, false),
                                       .record = record_crossed,
                                       .record_arg = &detour};
        struct rig r;
        rig_open(&r);
        int p = rig_add(&r, &o);
        rig_place(&r);
        for (int k = 0; k < 30; k++) {
            x[k] = (float)rig_random("x", (uint64_t)k);
        }
        rig_run(&r, p, TD_SEGS_ALL, (const void *const[]){x});
        loss[i] = r.program[p].outputs[0];
        memcpy(grad[i], rig_named(&r, "w:grad"), sizeof grad[i]);
        rig_close(&r);
    }
    assert_true(loss[0] > 0 && loss[0] == loss[1]);
    for (int k = 0; k < 24; k++) {
        assert_true(fabsf(grad[0][k] - grad[1][k]) <= 1e-6f);
    }
}

// What sink and recompute are for: relu sees what is pooled, blocks are made again in backward.
static void test_convnet_has_this_text_when_its_pools_follow_relus(void **state) {
    (void)state;
    struct td_optimizer_options opt = {.op = TD_OP_SGD};
    check_program("convnet", step_options(step_case("convnet"), &opt));
}

static void test_gpt_has_this_text_when_it_is_made_again(void **state) {
    (void)state;
    struct step_case c = *step_case("gpt");
    struct td_optimizer_options opt = {.op = TD_OP_SGD};
    c.knobs = "{\"n_layer\":2,\"n_head\":2,\"n_embd\":8}";
    struct td_compile_options o = step_options(&c, &opt);
    o.recompute = TD_RECOMPUTE_FULL;
    only = "fuse memory";
    check_program("gpt_recompute", o);
    only = NULL;
}

// Sums and RMS norms in one node; queries and keys turned, forward and back; silu times up.
static void test_llama_has_this_text_when_its_sums_and_norms_are_joined(void **state) {
    (void)state;
    struct step_case c = *step_case("llama");
    struct td_optimizer_options opt = {.op = TD_OP_SGD};
    c.knobs = "{\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":1,"
              "\"num_attention_heads\":4,\"num_key_value_heads\":2}";
    only = "residual";
    check_program("llama", step_options(&c, &opt));
    only = NULL;
}

// A gpt whose loss is a head's, in the first program of a window.
static struct td_compile_options head_options(struct step_case *c) {
    *c = *step_case("gpt");
    c->knobs = "{\"n_layer\":1,\"n_head\":2,\"n_embd\":8}";
    struct td_compile_options o = step_options(c, NULL);
    o.whole_logits_bytes = 1;
    o.windowed = true;
    return o;
}

// What head is for: the first program of a window, where the seed is no constant, and evaluation.
static void test_gpt_has_this_text_when_its_logits_are_never_whole(void **state) {
    (void)state;
    struct step_case c;
    struct td_compile_options o = head_options(&c);
    only = "simplify fuse head memory";
    check_program("gpt_head", o);
    o.key.mode = TD_MODE_EVAL;
    only = "head";
    check_program("gpt_head_eval", o);
    only = NULL;
}

// The seed counts labels before the head; finish divides by what all of a window counted, once.
static void test_gpt_has_this_text_when_its_tokens_are_counted(void **state) {
    (void)state;
    struct step_case c = *step_case("weighed gpt");
    struct td_optimizer_options opt = {.op = TD_OP_SGD, .clip_norm = 1, .divides = true};
    c.knobs = "{\"n_layer\":1,\"n_head\":2,\"n_embd\":8," STEP_WEIGHED "}";
    struct td_compile_options o = step_options(&c, &opt);
    step_set_precision(&o, &td_precision_fp16_mixed);
    o.whole_logits_bytes = 1;
    o.counted = true;
    only = "autodiff head";
    check_program("gpt_counted", o);
    only = NULL;
}

// Options of a loss stay with it wherever it goes, and its batch counts by the weights of its
// labels. Under a -true precision weights of classes stay f32, and so does a difference to targets.
static void test_losses_have_this_text_when_they_are_not_the_plain_one(void **state) {
    (void)state;
    struct step_case gpt = *step_case("weighed gpt");
    gpt.knobs = "{\"n_layer\":1,\"n_head\":2,\"n_embd\":8," STEP_WEIGHED "}";
    struct td_compile_options o = step_options(&gpt, NULL);
    step_set_precision(&o, &td_precision_bf16_true);
    o.whole_logits_bytes = 1;
    only = "head";
    check_program("gpt_weighed", o);
    o = step_options(step_case("several labels"), NULL);
    step_set_precision(&o, &td_precision_bf16_true);
    only = "fuse";
    check_program("several_labels", o);
    only = NULL;
}

// ---- the same step, as each precision leaves it -------------------------------------------------
static void check_precision(const char *name, const struct td_plugin_desc *plugin) {
    struct td_optimizer_options opt = {
        .op = TD_OP_ADAMW,
        .attrs = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
        .unscale = plugin == &td_precision_fp16_mixed,
        .clip_norm = 1};
    struct td_compile_options o = {
        .key = rig_key(TD_MODE_TRAIN, 4, true), .strategy = ddp, .optimizer = &opt};
    step_set_precision(&o, plugin);
    only = "precision fuse";
    check_program(name, o);
    only = NULL;
}

// 16-mixed has casts around the loss, and in a window a seed of two scalars.
static void test_gpt_has_this_text_when_16_mixed_logits_are_never_whole(void **state) {
    (void)state;
    struct step_case c;
    struct td_compile_options o = head_options(&c);
    step_set_precision(&o, &td_precision_fp16_mixed);
    only = "head";
    check_program("gpt_head_fp16_mixed", o);
    only = NULL;
}

static void test_train_step_has_this_text_when_bf16_mixed(void **state) {
    (void)state;
    check_precision("bf16_mixed", &td_precision_bf16_mixed);
}

static void test_train_step_has_this_text_when_fp16_mixed_with_scaled_loss(void **state) {
    (void)state;
    check_precision("fp16_mixed", &td_precision_fp16_mixed);
}

static void test_train_step_has_this_text_when_bf16_true(void **state) {
    (void)state;
    check_precision("bf16_true", &td_precision_bf16_true);
}

static void test_train_step_has_this_text_when_fp64(void **state) {
    (void)state;
    check_precision("fp64", &td_precision_fp64);
}

static void test_finish_has_this_text_when_values_are_clipped_under_a_scaled_loss(void **state) {
    (void)state;
    struct td_optimizer_options opt = {.op = TD_OP_SGD, .clip_value = 0.5, .unscale = true};
    only = "fuse";
    check_program("clip_value", (struct td_compile_options){.key = rig_key(TD_MODE_TRAIN, 4, true),
                                                            .scales_loss = true,
                                                            .optimizer = &opt});
    only = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_step_has_this_text_when_ddp_with_clipped_adamw),
        cmocka_unit_test(test_train_step_has_this_text_when_optimizer_state_is_in_pieces),
        cmocka_unit_test(test_train_step_has_this_text_when_accumulating_without_sync),
        cmocka_unit_test(test_train_step_has_this_text_when_sgd_with_momentum),
        cmocka_unit_test(test_eval_step_has_this_text_when_compiled),
        cmocka_unit_test(test_clumsy_step_has_this_text_when_simplified),
        cmocka_unit_test(test_crossed_step_has_this_text_when_simplified),
        cmocka_unit_test(test_crossed_step_computes_the_same_when_it_takes_no_detour),
        cmocka_unit_test(test_convnet_has_this_text_when_its_pools_follow_relus),
        cmocka_unit_test(test_gpt_has_this_text_when_it_is_made_again),
        cmocka_unit_test(test_gpt_has_this_text_when_its_tokens_are_counted),
        cmocka_unit_test(test_losses_have_this_text_when_they_are_not_the_plain_one),
        cmocka_unit_test(test_llama_has_this_text_when_its_sums_and_norms_are_joined),
        cmocka_unit_test(test_gpt_has_this_text_when_its_logits_are_never_whole),
        cmocka_unit_test(test_train_step_has_this_text_when_bf16_mixed),
        cmocka_unit_test(test_train_step_has_this_text_when_fp16_mixed_with_scaled_loss),
        cmocka_unit_test(test_gpt_has_this_text_when_16_mixed_logits_are_never_whole),
        cmocka_unit_test(test_train_step_has_this_text_when_bf16_true),
        cmocka_unit_test(test_train_step_has_this_text_when_fp64),
        cmocka_unit_test(test_finish_has_this_text_when_values_are_clipped_under_a_scaled_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
