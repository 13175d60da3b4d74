// The page of top: what is cut, counted and escaped.

#include "client/nodes/top_page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/utf8.h"
#include "tests/unit/test.h"

enum { NODES = 40, JOBS = 30 };

struct page {
    Traind__V1__ClusterInfo cluster;
    Traind__V1__Node node[NODES], *node_list[NODES];
    Traind__V1__Job job[JOBS], *job_list[JOBS];
    Traind__V1__Progress progress;
    Traind__V1__ListNodesResponse nodes;
    Traind__V1__ListJobsResponse jobs;
    struct td_top top;
};

static void fill(struct page *p) {
    *p = (struct page){.cluster = TRAIND__V1__CLUSTER_INFO__INIT,
                       .progress = TRAIND__V1__PROGRESS__INIT,
                       .nodes = TRAIND__V1__LIST_NODES_RESPONSE__INIT,
                       .jobs = TRAIND__V1__LIST_JOBS_RESPONSE__INIT};
    p->cluster.version = td_unconst("1");
    p->cluster.address = td_unconst("127.0.0.1:1");
    p->progress.step = 7;
    p->progress.samples_per_s = 41234;
    for (int i = 0; i < NODES; i++) {
        traind__v1__node__init(&p->node[i]);
        p->node[i].name = td_unconst("node");
        p->node[i].state = TRAIND__V1__NODE__STATE__READY;
        p->node_list[i] = &p->node[i];
    }
    for (int i = 0; i < JOBS; i++) {
        traind__v1__job__init(&p->job[i]);
        p->job[i].id = td_unconst("j-0123456789ab");
        p->job[i].name = td_unconst("name");
        p->job[i].state = TRAIND__V1__JOB__STATE__RUNNING;
        p->job[i].progress = &p->progress;
        p->job[i].total_steps = 10;
        p->job_list[i] = &p->job[i];
    }
    p->nodes.nodes = p->node_list;
    p->jobs.jobs = p->job_list;
    p->top = (struct td_top){&p->cluster, &p->nodes, &p->jobs, NULL};
}

static char *draw(struct page *p, size_t n_nodes, size_t n_jobs, int columns, int rows) {
    struct td_buf out;
    td_buf_init(&out, 1 << 20);
    p->nodes.n_nodes = n_nodes;
    p->jobs.n_jobs = n_jobs;
    assert_ok(td_top_page(&p->top, columns, rows, &out));
    return td_buf_take_cstr(&out);
}

static int number_at(const char *text) {
    return (int)strtol(text, NULL, 10);
}

static int lines(const char *text) {
    int n = 0;
    for (; (text = strchr(text, '\n')); text++) {
        n++;
    }
    return n;
}

static void test_job_has_step_and_speed_when_it_runs(void **state) {
    (void)state;
    static struct page p;
    fill(&p);
    char *text = draw(&p, 1, 1, 120, 0);
    assert_non_null(strstr(text, "j-0123456789ab  name             RUNNING"));
    assert_non_null(strstr(text, "         7/10"));
    assert_non_null(strstr(text, "    41.2k"));
    free(text);
}

static void test_gpus_have_a_column_where_a_job_has_some(void **state) {
    (void)state;
    static struct page p;
    Traind__V1__JobGpu gpu[2] = {TRAIND__V1__JOB_GPU__INIT, TRAIND__V1__JOB_GPU__INIT},
                       *gpus[] = {&gpu[0], &gpu[1]};
    Traind__V1__JobGpu__MeasuredEntry busy[2] = {TRAIND__V1__JOB_GPU__MEASURED_ENTRY__INIT,
                                                 TRAIND__V1__JOB_GPU__MEASURED_ENTRY__INIT},
                                      *measured[] = {&busy[0], &busy[1]};
    fill(&p);
    char *text = draw(&p, 1, 2, 130, 0);
    assert_null(strstr(text, "GPUS"));
    free(text);
    for (int i = 0; i < 2; i++) {
        busy[i].key = td_unconst("utilization");
        busy[i].value = 90 + 10 * i;
        gpu[i].measured = &measured[i];
        gpu[i].n_measured = 1;
    }
    p.job[1].gpus = gpus;
    p.job[1].n_gpus = 2;
    text = draw(&p, 1, 2, 130, 0);
    assert_non_null(strstr(text, "        GPUS\n"));
    assert_non_null(strstr(text, "           -\n"));
    assert_non_null(strstr(text, "    95% of 2\n"));
    free(text);
    gpu[0].n_measured = 0; // an instance of MIG: the driver does not say it
    text = draw(&p, 1, 2, 130, 0);
    assert_non_null(strstr(text, "   100% of 1\n"));
    free(text);
}

static void test_state_is_what_operators_decided_when_the_node_is_ready(void **state) {
    (void)state;
    static struct page p;
    static const char *const words[] = {"cordoned", "draining", "drained", "LOST"};
    Traind__V1__Cordon cordon[TD_COUNTOF(words)];
    fill(&p);
    for (size_t i = 0; i < TD_COUNTOF(words); i++) {
        traind__v1__cordon__init(&cordon[i]);
        cordon[i].drains = i > 0;
        cordon[i].empty = i > 1;
        p.node[i].cordon = &cordon[i];
        p.node[i].state = i < 3 ? TRAIND__V1__NODE__STATE__READY : TRAIND__V1__NODE__STATE__LOST;
    }
    char *text = draw(&p, TD_COUNTOF(words), 0, 120, 0), row[64];
    for (size_t i = 0; i < TD_COUNTOF(words); i++) {
        snprintf(row, sizeof row, "\nnode                  %-8s  ", words[i]);
        assert_non_null(strstr(text, row));
    }
    free(text);
}

static void test_cell_says_so_when_it_has_no_room(void **state) {
    (void)state;
    static struct page p;
    fill(&p);
    setenv("LC_ALL", "C", 1);
    p.progress.step = 225305;
    p.job[0].total_steps = 1600000;
    p.job[0].name = td_unconst("a-name-of-20-letters");
    char *text = draw(&p, 1, 1, 120, 0);
    assert_non_null(strstr(text, "  225.3k/1.6M"));
    assert_non_null(strstr(text, "  a-name-of-20-l~  "));
    free(text);
    setenv("LC_ALL", "C.UTF-8", 1);
    text = draw(&p, 1, 1, 120, 0);
    assert_non_null(strstr(text, "  a-name-of-20-l\u2026  "));
    free(text);
}

static const char *after(const char *text, const char *what) {
    const char *at = strstr(text, what);
    assert_non_null(at);
    return at;
}

static void test_columns_are_left_out_whole_when_the_screen_is_narrow(void **state) {
    (void)state;
    static struct page p;
    fill(&p);
    setenv("LC_ALL", "C", 1);
    p.progress.loss = 0.5;
    char *text = draw(&p, 1, 1, 40, 0);
    assert_true(strncmp(text, "traind 1 at 127.0.0.1:1, up 0:00: 0 run~\n", 41) == 0);
    assert_non_null(strstr(text, "\nNODE                  STATE       SLOTS\n"));
    assert_non_null(strstr(text, "\nJOB                      STEP  STEP LOSS\n"
                                 "j-0123456789ab           7/10        0.5\n"));
    free(text);
    text = draw(&p, 1, 1, 80, 0);
    assert_true(strncmp(after(text, "\nJOB ") + 1,
                        "JOB             NAME             STATE                STEP  STEP LOSS  "
                        "SAMPLES/S\n",
                        81) == 0);
    free(text);
    text = draw(&p, 1, 1, 30, 0); // not even those that are never left out
    assert_non_null(strstr(text, "\nJOB                      STEP~\n"));
    free(text);
    setenv("LC_ALL", "C.UTF-8", 1);
}

static void test_rest_is_counted_when_the_screen_is_short(void **state) {
    (void)state;
    static struct page p;
    fill(&p);
    for (int rows = 8; rows < 90; rows++) {
        char *text = draw(&p, NODES, JOBS, 100, rows);
        assert_true(lines(text) <= rows);
        int nodes = 0, jobs = 0, shown_nodes = 0, shown_jobs = 0;
        const char *first = strstr(text, "\nand "),
                   *last = first ? strstr(first + 1, "\nand ") : NULL;
        if (first && strstr(first, "nodes more")) nodes = number_at(first + 5);
        if (first && !nodes) last = first;
        if (last) jobs = number_at(last + 5);
        for (const char *at = text; (at = strstr(at, "\nnode ")); at++) {
            shown_nodes++;
        }
        for (const char *at = text; (at = strstr(at, "\nj-")); at++) {
            shown_jobs++;
        }
        assert_int_equal(nodes + shown_nodes, NODES);
        assert_int_equal(jobs + shown_jobs, JOBS);
        free(text);
    }
}

static void test_no_line_is_wider_than_the_screen_when_names_are_long(void **state) {
    (void)state;
    static struct page p;
    fill(&p);
    p.job[0].name =
        td_unconst("\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
                   "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4");
    p.top.notice = "a notice that is longer than a narrow screen has columns, and says so";
    for (int columns = 20; columns < 130; columns += 7) {
        char *text = draw(&p, 2, 2, columns, 0);
        assert_true(td_utf8_valid(text, strlen(text)));
        for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
            int n = 0;
            for (const char *c = at; *c != '\n'; c++) {
                n += ((unsigned char)*c & 0xc0) != 0x80;
            }
            assert_true(n <= columns);
        }
        free(text);
    }
}

static void test_name_does_not_act_on_the_terminal_when_it_has_control_characters(void **state) {
    (void)state;
    static struct page p;
    fill(&p);
    p.job[0].name = td_unconst("\033[2Jx\n");
    p.node[0].name = td_unconst("n\r\033c");
    char *text = draw(&p, 1, 1, 120, 0);
    assert_null(strpbrk(text, "\033\r"));
    assert_non_null(strstr(text, "\\x1b[2Jx\\x0a"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_has_step_and_speed_when_it_runs),
        cmocka_unit_test(test_gpus_have_a_column_where_a_job_has_some),
        cmocka_unit_test(test_state_is_what_operators_decided_when_the_node_is_ready),
        cmocka_unit_test(test_cell_says_so_when_it_has_no_room),
        cmocka_unit_test(test_columns_are_left_out_whole_when_the_screen_is_narrow),
        cmocka_unit_test(test_rest_is_counted_when_the_screen_is_short),
        cmocka_unit_test(test_no_line_is_wider_than_the_screen_when_names_are_long),
        cmocka_unit_test(test_name_does_not_act_on_the_terminal_when_it_has_control_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
