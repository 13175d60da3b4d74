// The job's table of states, every cell, against its rules written down here a second time, as
// sentences; and the records of jobs and attempts, written and read back.

#include "tests/unit/test.h"

#include <math.h>
#include <string.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/view.h"
#include "lib/attempt/rank_page.h"
#include "traind/v1/job.pb-c.h"

// What each event does, in words: from-states and where they go. Anything not named is refused.
struct rule {
    enum td_job_event event;
    enum td_job_state from, to;
};
static const struct rule rules[] = {
    // placement
    {TD_JOB_ON_ASSIGN, TD_JOB_QUEUED, TD_JOB_STARTING},
    {TD_JOB_ON_ASSIGN, TD_JOB_RECOVERING, TD_JOB_RECOVERING},
    {TD_JOB_ON_RUN, TD_JOB_STARTING, TD_JOB_RUNNING},
    {TD_JOB_ON_RUN, TD_JOB_RECOVERING, TD_JOB_RUNNING},
    {TD_JOB_ON_RUN, TD_JOB_RUNNING, TD_JOB_RUNNING},
    {TD_JOB_ON_RUN, TD_JOB_PAUSING, TD_JOB_PAUSING},
    {TD_JOB_ON_RUN, TD_JOB_STOPPING, TD_JOB_STOPPING},
    // ends of attempts
    {TD_JOB_ON_DONE, TD_JOB_STARTING, TD_JOB_SUCCEEDED},
    {TD_JOB_ON_DONE, TD_JOB_RUNNING, TD_JOB_SUCCEEDED},
    {TD_JOB_ON_DONE, TD_JOB_RECOVERING, TD_JOB_SUCCEEDED},
    {TD_JOB_ON_DONE, TD_JOB_PAUSING, TD_JOB_SUCCEEDED},
    {TD_JOB_ON_DONE, TD_JOB_STOPPING, TD_JOB_CANCELLED},
    {TD_JOB_ON_STOPPED, TD_JOB_STARTING, TD_JOB_QUEUED},
    {TD_JOB_ON_STOPPED, TD_JOB_RUNNING, TD_JOB_QUEUED},
    {TD_JOB_ON_STOPPED, TD_JOB_RECOVERING, TD_JOB_QUEUED},
    {TD_JOB_ON_STOPPED, TD_JOB_PAUSING, TD_JOB_PAUSED},
    {TD_JOB_ON_STOPPED, TD_JOB_STOPPING, TD_JOB_CANCELLED},
    {TD_JOB_ON_RETRY, TD_JOB_STARTING, TD_JOB_RECOVERING},
    {TD_JOB_ON_RETRY, TD_JOB_RUNNING, TD_JOB_RECOVERING},
    {TD_JOB_ON_RETRY, TD_JOB_RECOVERING, TD_JOB_RECOVERING},
    {TD_JOB_ON_RETRY, TD_JOB_PAUSING, TD_JOB_PAUSED},
    {TD_JOB_ON_RETRY, TD_JOB_STOPPING, TD_JOB_CANCELLED},
    {TD_JOB_ON_FAIL, TD_JOB_QUEUED, TD_JOB_FAILED},
    {TD_JOB_ON_FAIL, TD_JOB_STARTING, TD_JOB_FAILED},
    {TD_JOB_ON_FAIL, TD_JOB_RUNNING, TD_JOB_FAILED},
    {TD_JOB_ON_FAIL, TD_JOB_RECOVERING, TD_JOB_FAILED},
    {TD_JOB_ON_FAIL, TD_JOB_PAUSING, TD_JOB_FAILED},
    {TD_JOB_ON_FAIL, TD_JOB_STOPPING, TD_JOB_CANCELLED},
    // verbs
    {TD_JOB_ON_PAUSE, TD_JOB_QUEUED, TD_JOB_PAUSED},
    {TD_JOB_ON_PAUSE, TD_JOB_STARTING, TD_JOB_PAUSING},
    {TD_JOB_ON_PAUSE, TD_JOB_RUNNING, TD_JOB_PAUSING},
    {TD_JOB_ON_PAUSE, TD_JOB_RECOVERING, TD_JOB_PAUSING},
    {TD_JOB_ON_PAUSE, TD_JOB_PAUSING, TD_JOB_PAUSING},
    {TD_JOB_ON_PAUSE, TD_JOB_PAUSED, TD_JOB_PAUSED},
    {TD_JOB_ON_RESUME, TD_JOB_PAUSED, TD_JOB_QUEUED},
    {TD_JOB_ON_CANCEL, TD_JOB_QUEUED, TD_JOB_CANCELLED},
    {TD_JOB_ON_CANCEL, TD_JOB_STARTING, TD_JOB_STOPPING},
    {TD_JOB_ON_CANCEL, TD_JOB_RUNNING, TD_JOB_STOPPING},
    {TD_JOB_ON_CANCEL, TD_JOB_RECOVERING, TD_JOB_STOPPING},
    {TD_JOB_ON_CANCEL, TD_JOB_PAUSING, TD_JOB_STOPPING},
    {TD_JOB_ON_CANCEL, TD_JOB_PAUSED, TD_JOB_CANCELLED},
    {TD_JOB_ON_CANCEL, TD_JOB_STOPPING, TD_JOB_STOPPING},
    {TD_JOB_ON_CANCEL, TD_JOB_CANCELLED, TD_JOB_CANCELLED},
    // patience
    {TD_JOB_ON_EXPIRE, TD_JOB_QUEUED, TD_JOB_EXPIRED},
    {TD_JOB_ON_EXPIRE, TD_JOB_RECOVERING, TD_JOB_EXPIRED},
    {TD_JOB_ON_EXPIRE, TD_JOB_PAUSED, TD_JOB_EXPIRED},
};

static void test_table_says_what_the_rules_say_in_every_cell(void **state) {
    (void)state;
    for (int from = 0; from < TD_JOB_STATE_COUNT; from++) {
        for (int event = 0; event < TD_JOB_EVENT_COUNT; event++) {
            int expected = -1;
            for (size_t i = 0; i < TD_COUNTOF(rules); i++) {
                if ((int)rules[i].event == event && (int)rules[i].from == from) {
                    expected = (int)rules[i].to;
                }
            }
            enum td_job_state to = TD_JOB_STATE_COUNT;
            enum td_job_step step =
                td_job_next((enum td_job_state)from, (enum td_job_event)event, &to);
            if (expected < 0) {
                assert_int_equal(step, TD_JOB_REFUSED);
                assert_int_equal(to, TD_JOB_STATE_COUNT); // written only when taken
            } else {
                assert_int_equal(to, expected);
                assert_int_equal(step, expected == from ? TD_JOB_KEPT : TD_JOB_MOVED);
            }
        }
    }
}

static void test_terminal_states_never_change(void **state) {
    (void)state;
    for (int from = 0; from < TD_JOB_STATE_COUNT; from++) {
        if (!td_job_state_ended((enum td_job_state)from)) continue;
        for (int event = 0; event < TD_JOB_EVENT_COUNT; event++) {
            enum td_job_state to;
            assert_int_not_equal(
                td_job_next((enum td_job_state)from, (enum td_job_event)event, &to), TD_JOB_MOVED);
        }
    }
}

static void test_states_have_the_numbers_and_names_of_the_wire(void **state) {
    (void)state;
    for (int s = 0; s < TD_JOB_STATE_COUNT; s++) {
        const ProtobufCEnumValue *v =
            protobuf_c_enum_descriptor_get_value(&traind__v1__job__state__descriptor, s + 1);
        assert_non_null(v);
        assert_string_equal(v->name, td_job_state_name((enum td_job_state)s));
    }
    assert_int_equal(traind__v1__job__state__descriptor.n_values, TD_JOB_STATE_COUNT + 1);
}

static void fill(struct td_job *j) {
    j->name = td_strdup("a \"quoted\" name");
    j->labels = td_strdup("run=a7,team=vision");
    j->state = TD_JOB_FAILED;
    j->seq = 7;
    j->queue_seq = 9;
    j->version = 3;
    j->n_ranks = 2;
    j->restarts = 1;
    j->create_ns = 123456789012345678;
    td_reason_set(&j->reason, "FAILED", "because of %d things", 2);
    td_job_note(j, "one note");
    td_job_note(j, "one note"); // once
    td_job_note(j, "another");
    td_job_exclude(j, "node-a");
    const struct td_failure f = {.cls = TD_CLASS_DATA,
                                 .code = TD_DATA_LOSS,
                                 .attempt = 2,
                                 .rank = 1,
                                 .step = 77,
                                 .message = td_unconst("file 'x'\nis bad"),
                                 .node = td_unconst("node-a")};
    assert_null(td_failure_set(&j->failure, &f));
    struct td_metric_point p = {
        .name = "val_accuracy", .step = 5, .sum = 3, .count = 4, .flags = TD_METRIC_SUM_COUNT};
    assert_true(td_job_take_metric(j, 1, 1, &p));
    snprintf(p.name, sizeof p.name, "val_loss");
    p.sum = (double)NAN;
    assert_true(td_job_take_metric(j, 1, 1, &p));
    j->progress.loss = NAN;
}

static void test_job_record_reads_back_equal(void **state) {
    (void)state;
    TD_AUTO(td_job) *a = NULL, *b = NULL;
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_BUF text, again;
    struct td_json *v = NULL;
    td_buf_init(&text, 1 << 20);
    td_buf_init(&again, 1 << 20);
    assert_null(td_arena_create(1 << 20, &arena));
    assert_null(td_job_create("j-000000000001", &a));
    fill(a);
    assert_null(td_job_encode(a, &text));
    assert_null(td_json_parse(arena, text.data, text.len, &v));
    assert_null(td_job_create("j-000000000001", &b));
    assert_null(td_job_decode(b, v));
    assert_int_equal(b->n_notes, 2);
    assert_string_equal(b->labels, a->labels);
    assert_string_equal(b->failure.message, "file 'x'\nis bad");
    assert_true(td_job_excludes(b, "node-a"));
    assert_true(b->metrics[0].shown == 0.75);
    assert_true(isnan(b->metrics[1].shown) && isnan(b->progress.loss));
    assert_null(td_job_encode(b, &again));
    assert_string_equal(td_buf_cstr(&text), td_buf_cstr(&again));
}

static void test_note_is_kept_whole_when_it_names_many_tensors(void **state) {
    (void)state;
    TD_AUTO(td_job) *j = NULL;
    char text[950];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_null(td_job_create("j-000000000001", &j));
    td_job_note(j, "init_from: %s", text);
    td_job_note(j, "init_from: %s", text);
    assert_int_equal(j->n_notes, 1);
    assert_int_equal(strlen(j->notes[0]), strlen("init_from: ") + sizeof text - 1);
}

static void test_job_record_is_data_loss_when_its_state_is_unknown(void **state) {
    (void)state;
    TD_AUTO(td_job) *j = NULL;
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    static const char text[] = "{\"state\":\"DANCING\"}";
    assert_null(td_arena_create(1 << 20, &arena));
    assert_null(td_job_create("j-000000000001", &j));
    assert_null(td_json_parse(arena, text, strlen(text), &v));
    td_status s = td_job_decode(j, v);
    assert_int_equal(td_status_code(s), TD_DATA_LOSS);
    td_status_free(s);
}

static void test_attempt_record_reads_back_equal(void **state) {
    (void)state;
    TD_AUTO(td_attempt) *a = NULL, *b = NULL;
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_BUF text, again;
    struct td_json *v = NULL;
    td_buf_init(&text, 1 << 20);
    td_buf_init(&again, 1 << 20);
    assert_null(td_arena_create(1 << 20, &arena));
    assert_null(td_attempt_create(3, 2, 1, &a));
    a->epoch = 12;
    a->state = TD_ATTEMPT_STARTED;
    a->stop = TD_STOP_CAUSE_PAUSE;
    a->outcome = TD_OUTCOME_STOPPED;
    a->closing = a->stream = true;
    a->parts[0].state = TD_ATTEMPT_ENDED;
    a->parts[0].boundaries = TD_BOUNDARIES_WRITTEN;
    a->parts[0].events = 4711;
    a->parts[0].slots = 4;
    a->parts[0].devices = strdup("far-1,far-0");
    a->ranks[1] = (struct td_rank_cursor){.ready = true,
                                          .final = true,
                                          .metrics_end = 640,
                                          .out_end = 1,
                                          .err_end = 2,
                                          .dropped_points = 5};
    assert_null(td_attempt_encode(a, &text));
    assert_null(td_json_parse(arena, text.data, text.len, &v));
    assert_null(td_attempt_decode(v, &b));
    assert_int_equal(b->ranks[1].metrics_end, 640);
    assert_string_equal(b->parts[0].devices, "far-1,far-0");
    assert_null(td_attempt_encode(b, &again));
    assert_string_equal(td_buf_cstr(&text), td_buf_cstr(&again));
}

static void decode(const char *text, struct td_attempt **out) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    assert_null(td_arena_create(1 << 20, &arena));
    assert_null(td_json_parse(arena, text, strlen(text), &v));
    assert_null(td_attempt_decode(v, out));
}

static void test_record_of_an_attempt_from_before_there_were_parts_has_one(void **state) {
    (void)state;
    TD_AUTO(td_attempt) *a = NULL;
    decode("{\"number\":2,\"state\":\"ended\",\"epoch\":7,\"node\":\"n-1\",\"forgotten\":1,"
           "\"outcome\":0,\"n_ranks\":2,\"slots\":4,\"devices\":\"far-1,far-0\",\"events\":4711,"
           "\"step\":3}",
           &a);
    const struct td_attempt_part *p = &a->parts[0];
    assert_int_equal(a->n_parts, 1);
    assert_string_equal(p->node, "n-1");
    assert_string_equal(p->devices, "far-1,far-0");
    assert_true(p->forgotten && td_attempt_forgotten(a));
    assert_int_equal(p->first_rank, 0);
    assert_int_equal(p->n_ranks, 2);
    assert_int_equal(p->events, 4711);
    assert_int_equal(td_attempt_slots(a), 4);
}

// Of the last two, one is from before there were parts, and one was read and written by a build
// that took its state for the part's.
static void test_record_of_an_attempt_that_is_over_has_no_part_that_lives(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum td_attempt_state part;
    } rows[] = {
        {"{\"state\":\"started\",\"n_ranks\":1,\"node\":\"n-1\"}", TD_ATTEMPT_STARTED},
        {"{\"state\":\"fenced\",\"n_ranks\":1,\"node\":\"n-1\"}", TD_ATTEMPT_FENCED},
        {"{\"state\":\"started\",\"closing\":1,\"outcome\":1,\"n_ranks\":1,\"node\":\"n-1\"}",
         TD_ATTEMPT_ENDED},
        {"{\"state\":\"ended\",\"outcome\":1,\"n_ranks\":1,\"parts\":[{\"node\":\"n-1\","
         "\"state\":\"started\",\"outcome\":1}]}",
         TD_ATTEMPT_ENDED},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        TD_AUTO(td_attempt) *a = NULL;
        decode(rows[i].text, &a);
        assert_int_equal(a->parts[0].state, rows[i].part);
        assert_int_equal(a->parts[0].outcome, a->outcome);
        assert_string_equal(a->parts[0].node, "n-1");
    }
}

static void test_parts_divide_the_ranks_in_their_order(void **state) {
    (void)state;
    TD_AUTO(td_attempt) *a = NULL, *b = NULL;
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 20);
    assert_null(td_attempt_create(1, 6, 3, &a));
    a->state = TD_ATTEMPT_STARTED;
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(a->parts[i].node, sizeof a->parts[i].node, "n-%u", i);
        a->parts[i].slots = i + 1;
        a->parts[i].events = 100 * i;
    }
    a->parts[1].forgotten = true;
    assert_null(td_attempt_encode(a, &text));
    decode(td_buf_cstr(&text), &b);
    assert_int_equal(b->n_parts, 3);
    for (uint32_t r = 0; r < 6; r++) {
        assert_ptr_equal(td_attempt_part_of(b, r), &b->parts[r / 2]);
        assert_true(td_attempt_part_of(b, r)->first_rank == r / 2 * 2);
    }
    assert_ptr_equal(td_attempt_part_on(b, "n-2"), &b->parts[2]);
    assert_null(td_attempt_part_on(b, "n-3"));
    assert_int_equal(b->parts[2].events, 200);
    assert_true(b->parts[1].forgotten && !td_attempt_forgotten(b));
    assert_int_equal(td_attempt_slots(b), 6);
}

static void test_record_with_parts_that_do_not_divide_the_ranks_is_damaged(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{\"state\":\"ended\",\"n_ranks\":3,\"parts\":[{\"node\":\"a\"},{\"node\":\"b\"}]}",
        "{\"state\":\"ended\",\"n_ranks\":2,\"parts\":[]}",
        "{\"state\":\"ended\",\"n_ranks\":0,\"parts\":[{},{}]}",
    };
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        TD_AUTO(td_arena) *arena = NULL;
        struct td_attempt *a = NULL;
        struct td_json *v = NULL;
        assert_null(td_arena_create(1 << 20, &arena));
        assert_null(td_json_parse(arena, texts[i], strlen(texts[i]), &v));
        td_status s = td_attempt_decode(v, &a);
        assert_int_equal(td_status_code(s), TD_DATA_LOSS);
        td_status_free(s);
    }
}

static void test_checkpoint_shows_nan_where_a_metric_was_no_number(void **state) {
    (void)state;
    TD_AUTO(td_job) *j = NULL;
    TD_AUTO(td_core) *core = NULL;
    TD_AUTO(td_arena) *arena = NULL;
    char metrics[] = "{\"val_loss\":null,\"val_accuracy\":0.5}";
    const struct td_core_options options = {.incarnation = 1, .checkpoint_dir = ""};
    const struct td_checkpoint c = {.path = "a1/step-1", .streamed = true, .metrics_json = metrics};
    assert_null(td_arena_create(1 << 20, &arena));
    assert_null(td_job_create("j-000000000001", &j));
    assert_null(td_core_create(&options, &core));
    const Traind__V1__Checkpoint *m = td_view_checkpoint(arena, core, j, &c);
    assert_non_null(m);
    assert_int_equal(m->n_metrics, 2);
    assert_true(isnan(m->metrics[0]->value)); // 0 would be the best of all
    assert_true(m->metrics[1]->value == 0.5);
}

static void push(struct td_job *j, uint32_t attempt, int step, double sum, double count) {
    struct td_metric_point p = {.name = "train_loss",
                                .step = step,
                                .sum = sum,
                                .count = count,
                                .flags = TD_METRIC_SUM_COUNT};
    assert_true(td_job_take_metric(j, attempt, 2, &p));
}

static void
test_metric_shows_the_merged_value_of_the_newest_step_that_all_ranks_reported(void **state) {
    (void)state;
    TD_AUTO(td_job) *j = NULL;
    assert_null(td_job_create("j-000000000001", &j));
    push(j, 1, 10, 4, 2);
    assert_true(j->metrics[0].shown == 2.0); // better than nothing
    push(j, 1, 10, 2, 1);
    assert_true(j->metrics[0].shown == 2.0);
    push(j, 1, 20, 30, 2); // rank 1 has not reported step 20 yet
    assert_true(j->metrics[0].shown == 2.0);
    push(j, 1, 20, 10, 2);
    assert_true(j->metrics[0].shown == 10.0);
    push(j, 1, 10, 99, 1); // late: changes nothing
    assert_true(j->metrics[0].shown == 10.0);
    push(j, 2, 15, 6, 2); // a new attempt went back to an earlier step
    push(j, 2, 15, 2, 2);
    assert_true(j->metrics[0].shown == 2.0);
}

static void test_metric_shows_nan_where_no_rank_counted_anything(void **state) {
    (void)state;
    TD_AUTO(td_job) *j = NULL;
    assert_null(td_job_create("j-000000000001", &j));
    push(j, 1, 10, 0, 0);
    push(j, 1, 10, 6, 2);
    assert_true(j->metrics[0].shown == 3.0); // the other rank's
    push(j, 1, 20, 0, 0);
    push(j, 1, 20, 0, 0);
    assert_true(isnan(j->metrics[0].shown)); // 0 would be the best of all
    push(j, 1, 30, 4, 2);
    push(j, 1, 30, 0, 0);
    assert_true(j->metrics[0].shown == 2.0);
}

// ---- specs --------------------------------------------------------------------------------------
// A job is created with the tree of its spec, and loaded from the text. With 10,000 jobs that wait,
// trees took 135 MiB.
static void test_knobs_are_kept_without_the_tree_of_the_spec(void **state) {
    (void)state;
    static const char text[] =
        "{name: n, stages: [fit, validate], model: {name: gpt, preset: gpt2, resid_pdrop: 0.1},"
        " data: {name: tokens, train: [/a.bin], val: [/b.bin], batch_size: 2},"
        " optimizer: {name: adamw, lr: 3e-4, betas: [0.9, 0.95]}, lr_scheduler: {name: cosine},"
        " checkpoint: {monitor: val_loss, mode: max, dir: /ckpt},"
        " trainer: {devices: 2, val_check_interval: 0.25}, restart: {backoff: [1, 2]}}";
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO(td_job) *kept = NULL;
    TD_AUTO(td_job) *parsed = NULL;
    struct td_json *tree = NULL;
    TD_AUTO_BUF json;
    td_buf_init(&json, 1 << 20);
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    assert_ok(td_spec_parse(arena, text, strlen(text), NULL, 0, &tree));
    assert_ok(td_json_print(tree, false, &json));
    assert_ok(td_job_create("j-1", &kept));
    assert_ok(td_job_create("j-2", &parsed));
    assert_ok(td_job_set_spec(kept, td_buf_cstr(&json), tree));
    assert_ok(td_job_set_spec(parsed, td_buf_cstr(&json), NULL));
    td_arena_destroy(td_steal(arena)); // nothing of the caller's tree is left in it
    const struct td_job *jobs[] = {kept, parsed};
    for (size_t i = 0; i < TD_COUNTOF(jobs); i++) {
        const struct td_job_knobs *k = &jobs[i]->knobs;
        assert_string_equal(jobs[i]->spec.text, td_buf_cstr(&json));
        assert_string_equal(jobs[i]->spec_digest, kept->spec_digest);
        assert_string_equal(jobs[i]->name, "n");
        assert_int_equal(jobs[i]->n_ranks, 2);
        assert_int_equal(k->restart.backoff_s[1], 2);
        assert_int_equal(k->batch_size, 2);
        assert_string_equal(k->checkpoint.monitor, "val_loss");
        assert_string_equal(k->checkpoint.mode, "max");
        assert_string_equal(k->checkpoint.dir, "/ckpt");
        assert_string_equal(k->cpu_level, "auto");
        assert_string_equal(k->precision, "32-true");
        assert_string_equal(k->init_from, "");
    }
}

// NAME/best looks at each job of the name, of which there may be 20,000.
static void test_spec_is_not_read_when_there_is_no_checkpoint_to_choose_from(void **state) {
    (void)state;
    TD_AUTO(td_job) *j = NULL;
    assert_ok(td_job_create("j-1", &j));
    assert_ok(td_spec_text_set(&j->spec, "{\"checkpoint\":{\"monitor\":\"val_loss\"}}"));
    assert_null(td_retain_best(j));
    assert_null(j->knobs.texts);
    assert_true(td_job_has_knobs(j)); // it could have been
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_knobs_are_kept_without_the_tree_of_the_spec),
        cmocka_unit_test(test_spec_is_not_read_when_there_is_no_checkpoint_to_choose_from),
        cmocka_unit_test(test_table_says_what_the_rules_say_in_every_cell),
        cmocka_unit_test(test_terminal_states_never_change),
        cmocka_unit_test(test_states_have_the_numbers_and_names_of_the_wire),
        cmocka_unit_test(test_job_record_reads_back_equal),
        cmocka_unit_test(test_note_is_kept_whole_when_it_names_many_tensors),
        cmocka_unit_test(test_job_record_is_data_loss_when_its_state_is_unknown),
        cmocka_unit_test(test_attempt_record_reads_back_equal),
        cmocka_unit_test(test_record_of_an_attempt_from_before_there_were_parts_has_one),
        cmocka_unit_test(test_record_of_an_attempt_that_is_over_has_no_part_that_lives),
        cmocka_unit_test(test_parts_divide_the_ranks_in_their_order),
        cmocka_unit_test(test_record_with_parts_that_do_not_divide_the_ranks_is_damaged),
        cmocka_unit_test(test_checkpoint_shows_nan_where_a_metric_was_no_number),
        cmocka_unit_test(
            test_metric_shows_the_merged_value_of_the_newest_step_that_all_ranks_reported),
        cmocka_unit_test(test_metric_shows_nan_where_no_rank_counted_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
