// Fuzz entry of what a coordinator reads of the pages of a damaged state.db. An input is short, and
// a page is long, so it says what is put where on pages of one byte:
//
//   pages of the file, frames of its -wal, bytes cut from both ends, the byte,
//   then pieces: page, place (2 bytes), length, bytes
//
// A page from 0x80 on has a row there: the length of its key, key and body, after which its digest
// is put. So a row whose text was mutated reaches the database, too. Whatever came, there is no
// failure, each row that was found has its digest, and a row that was there before stays as it was.
// Run by tests/unit/fuzz/files/test_fuzz_salvage_pages.c.

#include "tests/fuzz/fuzz.h"

#include "daemon/coordinator/shell/databases/salvage_pages.h"
#include "daemon/coordinator/shell/databases/schema.h"
#include "lib/base/log.h"

enum { PAGE = 4096, WAL_HEAD = 32, FRAME = 24 + PAGE, PAGES_MAX = 8, FRAMES_MAX = 4, HEAD = 4 };
enum { ROW = 0x80, ROWS_A_PAGE = PAGE / 2 };
#define KEPT_KEY  "j-kept"
#define KEPT_BODY "{\"state\":\"kept\"}"

struct image {
    uint8_t *file, *wal;
    size_t n_pages, file_bytes, wal_bytes;
};

static uint32_t n_found; // of the last input

// ---- the database -------------------------------------------------------------------------------
static void sql(sqlite3 *db, const char *text) {
    td_fuzz_expect(!td_db_sql(db, "fuzz", text));
}

static sqlite3 *make_db(void) {
    sqlite3 *db = NULL;
    char text[160];
    td_fuzz_expect(sqlite3_open(":memory:", &db) == SQLITE_OK);
    td_fuzz_expect(!td_schema_apply(db, "fuzz"));
    snprintf(text, sizeof text, "INSERT INTO jobs VALUES ('" KEPT_KEY "', '" KEPT_BODY "', %lld)",
             (long long)td_db_row_digest(KEPT_KEY, KEPT_BODY));
    sql(db, text);
    return db;
}

static void expect_whole(sqlite3 *db) {
    char text[96];
    for (size_t i = 0; i < TD_RECORD_KIND_COUNT; i++) {
        sqlite3_stmt *q = NULL;
        snprintf(text, sizeof text, "SELECT key, body, digest FROM %s", td_schema_tables[i]);
        td_fuzz_expect(!td_db_prepare(db, "fuzz", text, &q));
        while (sqlite3_step(q) == SQLITE_ROW) {
            td_fuzz_expect(!td_db_row_check(q, "fuzz", td_schema_tables[i]));
        }
        sqlite3_finalize(q);
    }
    int64_t n_kept = 0;
    td_fuzz_expect(!td_db_number(
        db, "fuzz", "SELECT count(*) FROM jobs WHERE body = '" KEPT_BODY "'", &n_kept));
    td_fuzz_expect(n_kept == 1);
}

// ---- the image ----------------------------------------------------------------------------------
// As much as fits there.
static void put(uint8_t *to, size_t room, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, TD_MIN(room, bytes));
}

static void put_row(uint8_t *to, size_t room, const uint8_t *row, size_t bytes) {
    char key[256] = "", body[256] = "";
    uint8_t digest[8];
    if (bytes == 0) return;
    const size_t n_key = TD_MIN((size_t)row[0], bytes - 1), n_texts = bytes - 1;
    memcpy(key, row + 1, n_key);
    memcpy(body, row + 1 + n_key, n_texts - n_key);
    const uint64_t n = (uint64_t)td_db_row_digest(key, body);
    for (size_t i = 0; i < sizeof digest; i++) {
        digest[i] = (uint8_t)(n >> (56 - 8 * i));
    }
    put(to, room, row + 1, n_texts);
    if (n_texts < room) put(to + n_texts, room - n_texts, digest, sizeof digest);
}

static void put_piece(struct image *m, uint8_t page, size_t at, const uint8_t *data, size_t bytes) {
    const size_t idx = page & (ROW - 1);
    const bool in_file = idx < m->n_pages;
    const size_t all = in_file ? m->file_bytes : m->wal_bytes;
    at += in_file ? idx * PAGE : WAL_HEAD + (idx - m->n_pages) * FRAME;
    if (at >= all) return;
    uint8_t *to = (in_file ? m->file : m->wal) + at;
    if (page & ROW) {
        put_row(to, all - at, data, bytes);
    } else {
        put(to, all - at, data, bytes);
    }
}

static void make_image(struct image *m, const uint8_t *data, size_t size) {
    const size_t cut = data[2];
    m->n_pages = data[0] % PAGES_MAX;
    m->file_bytes = m->n_pages * PAGE;
    m->wal_bytes = data[1] % FRAMES_MAX * (size_t)FRAME;
    if (m->wal_bytes) m->wal_bytes += WAL_HEAD;
    m->file_bytes -= TD_MIN(cut, m->file_bytes);
    m->wal_bytes -= TD_MIN(cut, m->wal_bytes);
    m->file = malloc(m->file_bytes + !m->file_bytes);
    m->wal = malloc(m->wal_bytes + !m->wal_bytes);
    td_fuzz_expect(m->file && m->wal);
    memset(m->file, data[3], m->file_bytes);
    memset(m->wal, data[3], m->wal_bytes);
    for (size_t at = HEAD; at + 4 <= size;) {
        const size_t place = (size_t)data[at + 1] << 8 | data[at + 2];
        const size_t bytes = TD_MIN((size_t)data[at + 3], size - at - 4);
        put_piece(m, data[at], place, data + at + 4, bytes);
        at += 4 + bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static sqlite3 *db;
    struct image m;
    if (size < HEAD) return 0;
    if (!db) {
        td_log_set_level(TD_LOG_ERROR);
        db = make_db();
    }
    make_image(&m, data, size);
    sql(db, "BEGIN");
    const int before = sqlite3_total_changes(db);
    td_fuzz_expect(!td_salvage_pages_take((struct td_str){(const char *)m.file, m.file_bytes},
                                          (struct td_str){(const char *)m.wal, m.wal_bytes}, db));
    n_found = (uint32_t)(sqlite3_total_changes(db) - before);
    td_fuzz_expect(n_found <= (PAGES_MAX + FRAMES_MAX) * ROWS_A_PAGE);
    if (n_found) expect_whole(db);
    sql(db, "ROLLBACK");
    free(m.file);
    free(m.wal);
    return 0;
}
