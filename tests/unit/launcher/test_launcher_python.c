// Which Python a command is run by: by its name, its first line, or PATH.

#include "daemon/launcher/reports/python.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit/test.h"

static void place(const char *dir, const char *name, const char *text, mode_t mode) {
    char path[512], folder[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    assert_ok(td_fs_mkdirs(folder, 0700));
    assert_ok(td_fs_write(path, text, strlen(text), mode, 0));
    assert_int_equal(chmod(path, mode), 0);
}

static void point(const char *dir, const char *name, const char *to) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(symlink(to, path), 0);
}

static int minor(const char *dir, const char *program, const char *path) {
    static struct td_python found;
    const struct td_python_of of = {.program = program, .path = path, .workdir = dir};
    td_python_find(&of, &found);
    return found.minor;
}

static void test_python_is_known_by_its_name(void **state) {
    const char *dir = *state;
    char path[512], program[512];
    place(dir, "bin/python3.10", "x", 0700);
    place(dir, "bin/python3.13t", "x", 0700);
    place(dir, "bin/python3.11-config", "x", 0700);
    place(dir, "bin/python3.9", "x", 0600); // cannot be executed
    point(dir, "bin/python3", "python3.10");
    place(dir, "venv/bin/activate", "x", 0600);
    point(dir, "venv/bin/python", "../../bin/python3");
    snprintf(path, sizeof path, "/nowhere:%s/bin", dir);
    assert_int_equal(minor(dir, "python3", path), 10);
    assert_int_equal(minor(dir, "python3.13t", path), 13);
    assert_int_equal(minor(dir, "python3.9", path), 0);
    assert_int_equal(minor(dir, "python3.11-config", path), 0);
    assert_int_equal(minor(dir, "python3", ""), 0);
    assert_int_equal(minor(dir, "", path), 0);
    assert_int_equal(minor(dir, "venv/bin/python", ""), 10); // of the working directory
    snprintf(program, sizeof program, "%s/venv/bin/python", dir);
    assert_int_equal(minor("/", program, ""), 10);
}

static void test_script_is_run_by_what_its_first_line_names(void **state) {
    const char *dir = *state;
    char path[512], line[600];
    place(dir, "bin/python3.12", "x", 0700);
    point(dir, "bin/python3", "python3.12");
    snprintf(path, sizeof path, "%s/bin:/usr/bin:/bin", dir);
    snprintf(line, sizeof line, "#!%s/bin/python3.12 -u\nimport x\n", dir);
    place(dir, "accelerate", line, 0700);
    place(dir, "train.py", "#!/usr/bin/env -S python3 -u\r\n", 0700);
    place(dir, "run.sh", "#!/bin/sh\npython3 train.py\n", 0700);
    place(dir, "circle", "#!./circle\n", 0700);
    place(dir, "program",
          "\x7f"
          "ELF",
          0700);
    assert_int_equal(minor(dir, "./accelerate", path), 12);
    assert_int_equal(minor(dir, "./train.py", path), 12);
    assert_int_equal(minor(dir, "./run.sh", path), 12);
    assert_int_equal(minor(dir, "./circle", path), 0);
    assert_int_equal(minor(dir, "./program", path), 0);
    assert_int_equal(minor(dir, "./gone", path), 0);
}

static void test_shell_may_run_the_older_python_of_its_path(void **state) {
    const char *dir = *state;
    char path[512], python[600];
    place(dir, "bin/sh", "x", 0700);
    snprintf(path, sizeof path, "%s/bin", dir);
    assert_int_equal(minor(dir, "sh", path), 0); // there is none
    place(dir, "bin/python3.12", "x", 0700);
    place(dir, "bin/python3.10", "x", 0700);
    point(dir, "bin/python3", "python3.12");
    assert_int_equal(minor(dir, "sh", path), 12);
    point(dir, "bin/python", "python3.10");
    assert_int_equal(minor(dir, "sh", path), 10);
    snprintf(python, sizeof python, "%s/python", path);
    assert_int_equal(unlink(python), 0);
    place(dir, "bin/python", "#!/bin/sh\n", 0700); // a shim: which one that is cannot be seen
    assert_int_equal(minor(dir, "sh", path), 0);
}

static void test_package_is_found_in_the_folders_of_its_python(void **state) {
    const char *dir = *state;
    static struct td_python p = {.minor = 10};
    place(dir, "venv/bin/python", "x", 0700);
    snprintf(p.file, sizeof p.file, "%s/venv/bin/python", dir);
    assert_false(td_python_has(&p, "transformers", ""));
    place(dir, "venv/lib/python3.11/site-packages/transformers/x", "", 0600);
    assert_false(td_python_has(&p, "transformers", ""));
    place(dir, "venv/lib/python3.10/site-packages/transformers/x", "", 0600);
    assert_true(td_python_has(&p, "transformers", ""));
    p.minor = 9;
    place(dir, ".local/lib/python3.9/site-packages/transformers/x", "", 0600);
    assert_false(td_python_has(&p, "transformers", ""));
    assert_true(td_python_has(&p, "transformers", dir));
    p.minor = 0;
    assert_false(td_python_has(&p, "transformers", dir));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_python_is_known_by_its_name),
        test_in_scratch(test_script_is_run_by_what_its_first_line_names),
        test_in_scratch(test_shell_may_run_the_older_python_of_its_path),
        test_in_scratch(test_package_is_found_in_the_folders_of_its_python),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
