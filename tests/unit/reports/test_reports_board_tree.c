// Which event files are found below a directory: what is followed, what is not and is noted, and
// what becomes of directories that go and come.

#include "daemon/worker/reports/board_tree.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "daemon/worker/reports/board_notes.h"
#include "daemon/worker/reports/sink.h"
#include "tests/unit/scratch_rig.h"
#include "tests/unit/test.h"

struct rig {
    int fds[2];
    struct td_board_notes notes;
    struct td_board_tree tree;
    int64_t now_ns;
};

static void begin(struct rig *r, void **state) {
    *r = (struct rig){.now_ns = TD_NS_PER_S};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, r->fds), 0);
    assert_ok(td_report_sink_create(r->fds[0], &r->notes.sink));
    r->tree = (struct td_board_tree){.path = *state, .notes = &r->notes, .root_fd = -1};
}

static void end(struct rig *r) {
    td_board_tree_finish(&r->tree);
    td_report_sink_destroy(r->notes.sink);
    close(r->fds[0]);
    close(r->fds[1]);
}

static void look(struct rig *r) {
    r->now_ns += TD_NS_PER_S / 10;
    td_board_tree_look(&r->tree, (struct td_mono){r->now_ns});
}

static void make_file(void **state, const char *name) {
    const int fd = open(in(state, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}
static void make_dir(void **state, const char *name) {
    assert_int_equal(mkdir(in(state, name), 0700), 0);
}

// The paths, sorted, with blanks between them.
static const char *found(const struct rig *r) {
    static char text[4096];
    const char *last = "";
    size_t len = 0;
    text[0] = '\0';
    for (size_t k = 0; k < r->tree.n_files; k++) {
        const char *next = NULL;
        for (size_t i = 0; i < r->tree.n_files; i++) {
            const char *path = r->tree.file[i].path;
            if (strcmp(path, last) > 0 && (!next || strcmp(path, next) < 0)) next = path;
        }
        assert_non_null(next); // each once
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", len ? " " : "", next);
        last = next;
    }
    return text;
}

static void test_event_files_are_found_in_directories_of_directories(void **state) {
    struct rig r;
    begin(&r, state);
    make_file(state, "a.tfevents.1");
    make_dir(state, "run");
    make_dir(state, "run/val");
    make_file(state, "run/val/tfevents");
    make_file(state, "run/model.pt");
    make_file(state, "events.out.tfevents.1.host.traind.a12"); // of a launcher
    make_file(state, "events.out.tfevents.1.host.traind.ax");
    look(&r);
    assert_string_equal(found(&r),
                        "a.tfevents.1 events.out.tfevents.1.host.traind.ax run/val/tfevents");
    assert_int_equal(r.tree.file[0].dir_bytes + r.tree.file[1].dir_bytes + r.tree.file[2].dir_bytes,
                     7);
    make_file(state, "run/tfevents.2");
    look(&r);
    look(&r);
    assert_int_equal(r.tree.n_files, 4);
    for (int i = 0; i < TD_BOARD_ODDS; i++) {
        assert_int_equal(r.notes.n[i], 0);
    }
    end(&r);
}

static void test_links_and_special_files_are_noted_and_not_opened(void **state) {
    struct rig r;
    begin(&r, state);
    make_dir(state, "run");
    make_file(state, "run/tfevents.1");
    make_file(state, "run/other");
    make_dir(state, "run/tfevents.dir");
    assert_int_equal(mkfifo(in(state, "run/tfevents.fifo"), 0600), 0);
    assert_int_equal(symlink("/etc", in(state, "run/out")), 0);
    assert_int_equal(symlink("other", in(state, "run/tfevents.link")), 0);
    assert_int_equal(symlink("model.pt", in(state, "run/latest.pt")), 0); // no event file
    for (int i = 0; i < 300; i++) {
        look(&r); // they are listed many times
    }
    assert_string_equal(found(&r), "run/tfevents.1");
    assert_int_equal(r.notes.n[TD_BOARD_LINK], 3);
    // A file that becomes a link to another one.
    struct stat st;
    int fd = -1;
    assert_true(td_board_tree_stat(&r.tree, &r.tree.file[0], &st));
    assert_int_equal(rename(in(state, "run/tfevents.link"), in(state, "run/tfevents.1")), 0);
    assert_false(td_board_tree_stat(&r.tree, &r.tree.file[0], &st));
    assert_fails(td_board_tree_open(&r.tree, &r.tree.file[0], &fd), TD_FAILED_PRECONDITION,
                 "is a link");
    end(&r);
}

static void test_directory_that_becomes_a_link_leads_nowhere(void **state) {
    struct rig r;
    begin(&r, state);
    make_dir(state, "root");
    make_dir(state, "root/run");
    make_dir(state, "other");
    make_file(state, "root/run/tfevents.1");
    make_file(state, "other/tfevents.1");
    r.tree.path = in(state, "root");
    look(&r);
    assert_string_equal(found(&r), "run/tfevents.1");
    assert_int_equal(rename(in(state, "root/run"), in(state, "root/old")), 0);
    assert_int_equal(symlink("../other", in(state, "root/run")), 0);
    int fd = -1;
    assert_fails(td_board_tree_open(&r.tree, &r.tree.file[0], &fd), TD_FAILED_PRECONDITION,
                 "'run' is a link");
    look(&r);
    assert_string_equal(found(&r), "old/tfevents.1");
    assert_int_equal(r.notes.n[TD_BOARD_LINK], 1);
    end(&r);
}

static void test_root_may_come_late_and_be_made_again(void **state) {
    struct rig r;
    begin(&r, state);
    r.tree.path = in(state, "runs");
    look(&r);
    assert_int_equal(r.tree.n_files, 0);
    for (int i = 0; i < 3; i++) {
        make_dir(state, "runs");
        make_dir(state, "runs/a");
        make_file(state, "runs/a/tfevents.1");
        look(&r);
        assert_string_equal(found(&r), "a/tfevents.1");
        assert_int_equal(rename(in(state, "runs"), in(state, i ? "before2" : "before1")), 0);
        if (i == 1) assert_ok(td_fs_remove_tree(in(state, "before2")));
        if (i == 0) look(&r);
        if (i == 0) assert_int_equal(r.tree.n_files, 0);
    }
    assert_int_equal(r.notes.n[TD_BOARD_UNREAD], 0);
    make_file(state, "runs"); // no directory
    look(&r);
    look(&r);
    assert_int_equal(r.notes.n[TD_BOARD_UNREAD], 1);
    end(&r);
}

static void test_file_of_another_run_is_left_out_until_it_changes(void **state) {
    struct rig r;
    begin(&r, state);
    make_file(state, "tfevents.1");
    r.tree.old_ns = INT64_MAX;
    look(&r);
    assert_int_equal(r.tree.n_files, 0);
    r.tree.old_ns = 0; // as if it had been written
    look(&r);
    assert_int_equal(r.tree.n_files, 1);
    end(&r);
}

static void test_what_is_past_the_bounds_is_noted_and_the_rest_followed(void **state) {
    struct rig r;
    begin(&r, state);
    char name[128], deep[128] = "d";
    for (int i = 0; i < TD_BOARD_FILES + 5; i++) {
        snprintf(name, sizeof name, "tfevents.%d", i);
        make_file(state, name);
    }
    for (int i = 0; i < TD_BOARD_DIRS + 5; i++) {
        snprintf(name, sizeof name, "r%d", i);
        make_dir(state, name);
    }
    for (int i = 0; i < 30; i++) {
        look(&r);
    }
    assert_int_equal(r.tree.n_files, TD_BOARD_FILES);
    assert_int_equal(r.tree.n_dirs, TD_BOARD_DIRS);
    assert_int_equal(r.notes.n[TD_BOARD_MANY], 5 + 6); // the root is one of them
    end(&r);
    begin(&r, state);
    make_dir(state, "root");
    r.tree.path = in(state, "root");
    snprintf(name, sizeof name, "root/%.*s", 62,
             "a_directory_whose_name_leaves_no_room_for_a_tag_of_a_metric_at_all");
    make_dir(state, name);
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "root/%s", deep);
        make_dir(state, name);
        snprintf(deep + strlen(deep), sizeof deep - strlen(deep), "/d");
    }
    look(&r);
    assert_int_equal(r.notes.n[TD_BOARD_MANY], 2);
    assert_int_equal(r.tree.n_dirs, 1 + 8);
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_event_files_are_found_in_directories_of_directories),
        test_in_scratch(test_links_and_special_files_are_noted_and_not_opened),
        test_in_scratch(test_directory_that_becomes_a_link_leads_nowhere),
        test_in_scratch(test_root_may_come_late_and_be_made_again),
        test_in_scratch(test_file_of_another_run_is_left_out_until_it_changes),
        test_in_scratch(test_what_is_past_the_bounds_is_noted_and_the_rest_followed),
    };
    return cmocka_run_group_tests_name("reports_board_tree", tests, NULL, NULL);
}
