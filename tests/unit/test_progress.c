// What `--follow` and `trainctl run` print of a job's notes: each once, in their order, after the
// state that they are of.
#include "client/progress.h"

#include <stdio.h>
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notes_are_shown_once_each_when_the_oldest_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
