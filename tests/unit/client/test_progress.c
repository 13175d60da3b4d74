// What `--follow` and `trainctl run` print of a job: its notes, each once, in their order, after
// the state that they are of; and the bar, with numbers of four digits.

#include "client/screen/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/test.h"

enum { LISTED = 3 };

// Prints the job with the notes `first` and the ones after it, of which a job has the last LISTED.
static void show(struct td_progress_line *p, Traind__V1__Job__State state, int first) {
    char text[LISTED][2000], *notes[LISTED];
    Traind__V1__Job job = TRAIND__V1__JOB__INIT;
    for (int i = 0; i < LISTED; i++) {
        notes[i] = text[i];
        snprintf(text[i], sizeof text[i], "%d%s", first + i, first + i == 4 ? " and more" : "");
    }
    job.state = state;
    job.notes = notes;
    job.n_notes = LISTED;
    td_progress_line_show(p, &job);
}

static void read_back(int fd, char *out, size_t bytes) {
    ssize_t n = pread(fd, out, bytes - 1, 0);
    assert_true(n >= 0);
    out[n] = '\0';
}

static void test_notes_are_shown_once_each_when_the_oldest_go(void **state) {
    (void)state;
    struct td_progress_line p;
    char got[1000];
    FILE *file = tmpfile();
    assert_non_null(file);
    const int kept = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    td_progress_line_init(&p, false, false);
    show(&p, TRAIND__V1__JOB__STATE__RUNNING, 1);
    show(&p, TRAIND__V1__JOB__STATE__RUNNING, 1);
    show(&p, TRAIND__V1__JOB__STATE__RUNNING, 2);
    show(&p, TRAIND__V1__JOB__STATE__RUNNING, 7); // some have come and gone meanwhile
    show(&p, TRAIND__V1__JOB__STATE__SUCCEEDED, 8);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    read_back(fileno(file), got, sizeof got);
    close(kept);
    fclose(file);
    assert_string_equal(got, "RUNNING\nnote: 1\nnote: 2\nnote: 3\nnote: 4 and more\nnote: 7\n"
                             "note: 8\nnote: 9\nnote: 10\nSUCCEEDED\n");
}

// The bar of a running job, without what clears the line.
static void expect_bar(const Traind__V1__Progress *now, const char *metric, const char *wanted) {
    char got[1000], name[] = "train_loss_step";
    Traind__V1__Job job = TRAIND__V1__JOB__INIT;
    Traind__V1__Job__MetricsEntry entry = TRAIND__V1__JOB__METRICS_ENTRY__INIT, *list = &entry;
    struct td_progress_line p;
    FILE *file = tmpfile();
    const int kept = dup(STDERR_FILENO);
    assert_non_null(file);
    entry.key = name;
    entry.value = metric ? strtod(metric, NULL) : 0;
    job.n_metrics = metric != NULL;
    job.metrics = &list;
    job.state = TRAIND__V1__JOB__STATE__RUNNING;
    job.progress = td_unconst(now);
    td_progress_line_init(&p, false, false);
    p.bar = true;
    p.state = (int)job.state;
    dup2(fileno(file), STDERR_FILENO);
    td_progress_line_show(&p, &job);
    dup2(kept, STDERR_FILENO);
    read_back(fileno(file), got, sizeof got);
    close(kept);
    fclose(file);
    assert_non_null(strstr(got, wanted));
}

static void test_bar_has_four_digits_and_a_dash_when_there_is_no_loss(void **state) {
    (void)state;
    char training[] = "training", loading[] = "loading", data[] = "data (2 of 6)";
    Traind__V1__Progress p = TRAIND__V1__PROGRESS__INIT;
    p.phase = training;
    p.step = 7;
    p.total_steps = 9;
    expect_bar(&p, NULL, "step 7/9 loss -");
    p.loss = 0.00100000005;
    expect_bar(&p, NULL, "step 7/9 loss 0.001");
    p.loss = 3e-07;
    expect_bar(&p, NULL, "step 7/9 loss 3e-07");
    p.loss = 1e27;
    expect_bar(&p, NULL, "step 7/9 loss 1e+27");
    p.loss = 0;
    p.total_steps = 0;
    expect_bar(&p, "0", "step 7 loss 0"); // it was logged, and is 0
    p.phase = loading;
    p.detail = data;
    expect_bar(&p, NULL, "loading data (2 of 6)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notes_are_shown_once_each_when_the_oldest_go),
        cmocka_unit_test(test_bar_has_four_digits_and_a_dash_when_there_is_no_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
