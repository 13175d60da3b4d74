// Salvage of a damaged state.db: what is copied around a broken page, and that every row that is
// not is listed, in words that say where it was.

#include "daemon/coordinator/shell/databases/salvage.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/coordinator/shell/databases/db.h"
#include "daemon/coordinator/shell/databases/salvage_copy.h"
#include "tests/unit/test.h"

enum { N_ROWS = 400, PAGE = 4096 };

static const char *const jobs[] = {"jobs"};

static void key_of(int i, char out[16]) {
    snprintf(out, 16, "j-%04d", i);
}

// N_ROWS rows of some 100 bytes; row `bad` has another digest. form: how the table is stored,
// WITHOUT ROWID by older builds.
static void make_source_of(const char *path, int bad, const char *form) {
    sqlite3 *db = NULL;
    sqlite3_stmt *q = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    char text[192];
    snprintf(text, sizeof text,
             "PRAGMA page_size=4096; CREATE TABLE jobs (key TEXT PRIMARY KEY, body TEXT NOT NULL,"
             " digest INTEGER) %s; BEGIN",
             form);
    assert_ok(td_db_sql(db, path, text));
    assert_ok(td_db_prepare(db, path, "INSERT INTO jobs VALUES (?1, ?2, ?3)", &q));
    for (int i = 0; i < N_ROWS; i++) {
        char key[16], body[128];
        key_of(i, key);
        snprintf(body, sizeof body, "{\"state\":\"%089d\"}", i);
        sqlite3_bind_text(q, 1, key, -1, SQLITE_STATIC);
        sqlite3_bind_text(q, 2, body, -1, SQLITE_STATIC);
        sqlite3_bind_int64(q, 3, td_db_row_digest(key, body) + (i == bad));
        assert_int_equal(sqlite3_step(q), SQLITE_DONE);
        sqlite3_reset(q);
    }
    sqlite3_finalize(q);
    assert_ok(td_db_sql(db, path, "COMMIT"));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void make_source(const char *path, int bad) {
    make_source_of(path, bad, "");
}

// The page that has the row of this key.
static void break_page(const char *path, int row) {
    char key[16], start[24];
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 20);
    key_of(row, key);
    snprintf(start, sizeof start, "%s{", key); // in an index no body follows
    assert_ok(td_fs_read(path, 1 << 20, &text));
    const char *at = memmem(text.data, text.len, start, strlen(start));
    assert_non_null(at);
    char noise[PAGE];
    memset(noise, 0xa5, sizeof noise);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    off_t page = (at - (const char *)text.data) / PAGE * PAGE;
    assert_int_equal(pwrite(fd, noise, PAGE, page), PAGE);
    close(fd);
}

struct salvaged {
    int64_t n, first, last;
    struct td_buf log;
};

// What comes to the new file, and what the log says of the rest.
static struct salvaged salvage(const char *dir, const char *source, const char *const *tables,
                               size_t n_tables) {
    char log[TD_FS_PATH_BYTES];
    struct salvaged s = {0};
    sqlite3 *db = NULL;
    assert_ok(td_fs_path(log, "%s/log", dir));
    assert_ok(td_db_open(dir, "new.db", &db));
    assert_ok(td_db_sql(db, "new.db",
                        "CREATE TABLE jobs (key TEXT PRIMARY KEY, body TEXT NOT NULL,"
                        " digest INTEGER)"));
    fflush(stderr);
    int kept = dup(STDERR_FILENO), fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    td_status failed = td_salvage_copy(source, tables, n_tables, db);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    close(kept);
    close(fd);
    assert_ok(failed);
    assert_ok(td_db_number(db, "new.db", "SELECT count(*) FROM jobs", &s.n));
    assert_ok(td_db_number(db, "new.db", "SELECT substr(min(key), 3) FROM jobs", &s.first));
    assert_ok(td_db_number(db, "new.db", "SELECT substr(max(key), 3) FROM jobs", &s.last));
    sqlite3_close(db);
    td_buf_init(&s.log, 1 << 20);
    assert_ok(td_fs_read(log, 1 << 20, &s.log));
    return s;
}

static void expect_said(struct salvaged *s, const char *words) {
    if (!strstr(td_buf_cstr(&s->log), words)) {
        fail_msg("'%s' lacks '%s'", td_buf_cstr(&s->log), words);
    }
}

static char *source_in(const char *dir, char out[TD_FS_PATH_BYTES]) {
    assert_ok(td_fs_path(out, "%s/source.db", dir));
    return out;
}

static void test_bad_row_after_a_broken_page_was_left_out_without_a_word(void **state) {
    char source[TD_FS_PATH_BYTES];
    make_source(source_in(*state, source), 390);
    break_page(source, 200);
    struct salvaged s = salvage(*state, source, jobs, 1);
    assert_true(s.n > N_ROWS / 2 && s.n < N_ROWS - 1);
    assert_int_equal(s.first, 0);
    assert_int_equal(s.last, N_ROWS - 1);
    expect_said(&s, "rows of jobs after 'j-0");
    expect_said(&s, "' and before 'j-0");
    expect_said(&s, "row 'j-0390' of jobs is damaged");
    td_buf_finish(&s.log);
}

static void test_rows_were_lost_after_no_key_when_the_first_page_is_broken(void **state) {
    char source[TD_FS_PATH_BYTES];
    make_source(source_in(*state, source), -1);
    break_page(source, 0);
    struct salvaged s = salvage(*state, source, jobs, 1);
    assert_true(s.first > 0);
    assert_int_equal(s.last, N_ROWS - 1);
    expect_said(&s, "rows of jobs before 'j-0");
    assert_null(strstr(td_buf_cstr(&s.log), "''"));
    td_buf_finish(&s.log);
}

static void test_rows_were_lost_before_no_key_when_the_last_page_is_broken(void **state) {
    char source[TD_FS_PATH_BYTES];
    make_source(source_in(*state, source), -1);
    break_page(source, N_ROWS - 1);
    struct salvaged s = salvage(*state, source, jobs, 1);
    assert_int_equal(s.first, 0);
    assert_true(s.last < N_ROWS - 1);
    expect_said(&s, "rows of jobs after 'j-0");
    assert_null(strstr(td_buf_cstr(&s.log), "before"));
    td_buf_finish(&s.log);
}

static void test_table_of_an_older_build_is_salvaged_by_its_keys(void **state) {
    char source[TD_FS_PATH_BYTES];
    make_source_of(source_in(*state, source), -1, "WITHOUT ROWID");
    break_page(source, 200);
    struct salvaged s = salvage(*state, source, jobs, 1);
    assert_true(s.n > N_ROWS / 2 && s.n < N_ROWS);
    assert_int_equal(s.first, 0);
    assert_int_equal(s.last, N_ROWS - 1);
    td_buf_finish(&s.log);
}

static void test_table_of_a_later_build_was_called_broken(void **state) {
    static const char *const tables[] = {"removals", "jobs"};
    char source[TD_FS_PATH_BYTES];
    make_source(source_in(*state, source), -1);
    struct salvaged s = salvage(*state, source, tables, 2);
    assert_int_equal(s.n, N_ROWS);
    assert_null(strstr(td_buf_cstr(&s.log), "left out"));
    td_buf_finish(&s.log);
}

// The first row has another body in the -wal.
static void make_wal(const char *path) {
    const char *body = "{\"state\":\"newer\"}";
    char text[192];
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    assert_ok(td_db_sql(db, path, "PRAGMA journal_mode=WAL"));
    snprintf(text, sizeof text, "UPDATE jobs SET body = '%s', digest = %lld WHERE key = 'j-0000'",
             body, (long long)td_db_row_digest("j-0000", body));
    assert_ok(td_db_sql(db, path, text));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_older_row_won_over_that_of_a_wal_with_a_broken_byte(void **state) {
    static const off_t at[] = {0, 17}; // in the magic, in the salt
    char source[TD_FS_PATH_BYTES], wal[TD_FS_PATH_BYTES], new_db[TD_FS_PATH_BYTES];
    make_source(source_in(*state, source), -1);
    make_wal(source);
    assert_ok(td_fs_path(wal, "%s-wal", source));
    assert_ok(td_fs_path(new_db, "%s/new.db", (const char *)*state));
    for (size_t i = 0; i < TD_COUNTOF(at); i++) {
        uint8_t byte, bad;
        int64_t n_newer;
        sqlite3 *db = NULL;
        int fd = open(wal, O_RDWR | O_CLOEXEC);
        assert_int_equal(pread(fd, &byte, 1, at[i]), 1);
        bad = byte ^ 0x55;
        assert_int_equal(pwrite(fd, &bad, 1, at[i]), 1);
        struct salvaged s = salvage(*state, source, jobs, 1);
        assert_int_equal(s.n, N_ROWS);
        assert_int_equal(sqlite3_open(new_db, &db), SQLITE_OK);
        assert_ok(td_db_number(db, new_db, "SELECT count(*) FROM jobs WHERE body LIKE '%newer%'",
                               &n_newer));
        assert_int_equal(n_newer, 1);
        sqlite3_close(db);
        assert_int_equal(pwrite(fd, &byte, 1, at[i]), 1);
        close(fd);
        assert_int_equal(unlink(new_db), 0);
        td_buf_finish(&s.log);
    }
}

static void test_deleted_row_left_its_bytes(void **state) {
    int64_t on;
    sqlite3 *db = NULL;
    assert_ok(td_db_open(*state, "new.db", &db));
    assert_ok(td_db_number(db, "new.db", "PRAGMA secure_delete", &on));
    assert_int_equal(on, 1);
    sqlite3_close(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_in_scratch(test_bad_row_after_a_broken_page_was_left_out_without_a_word),
        test_in_scratch(test_rows_were_lost_after_no_key_when_the_first_page_is_broken),
        test_in_scratch(test_rows_were_lost_before_no_key_when_the_last_page_is_broken),
        test_in_scratch(test_table_of_an_older_build_is_salvaged_by_its_keys),
        test_in_scratch(test_table_of_a_later_build_was_called_broken),
        test_in_scratch(test_older_row_won_over_that_of_a_wal_with_a_broken_byte),
        test_in_scratch(test_deleted_row_left_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
