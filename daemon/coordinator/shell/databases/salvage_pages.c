// A row counts only where its digest fits, so that no guess about a page can invent one. The digest
// does not name the table: that is known from how key and body begin, and the core judges what it
// loads. Leaves of tables are read (SQLite's file format, 1.6), with their chains of overflow
// pages; a page is taken from the -wal where that has it. Rows of older builds, stored by their key
// or without a digest, are not found so. Rejected: a page of schema made by us, as roots are
// elsewhere in a database that was migrated.

#include "daemon/coordinator/shell/databases/salvage_pages.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/log.h"

enum { PAGE = 4096, WAL_HEAD = 32, FRAME_HEAD = 24, LEAF = 0x0d, BODY_MAX = 8 << 20 };
enum { LOCAL_MAX = PAGE - 35, LOCAL_MIN = (PAGE - 12) * 32 / 255 - 23, CHAINED = PAGE - 4 };

static const size_t file_bytes_max = (size_t)4 << 30;

struct form {
    const char *table, *key, *body; // how both begin
};
static const struct form forms[] = {
    {"meta", "epoch", ""},
    {"jobs", "j-", "{\"state\":"},
    {"attempts", "j-", "{\"number\":"},
    {"checkpoints", "j-", "{\"attempt\":"},
    {"leaving", "j-", "{\"streamed\":"},
    {"removals", "j-", "{\"attempts\":"},
    {"specs", "j-", "{\"name\":"},
    {"nodes", "n-", "{\"cores\":"},
    {"members", "n-", "{\"name\":"},
    {"tokens", "", "{\"name\":"},
    {"requests", "", "{\"job\":"},
    {"plans", "", "{\"parameters\":"},
};

struct pages {
    struct td_str file, wal;
    const uint8_t **at; // (n) page i + 1; NULL: there is none
    uint32_t n;
    sqlite3 *db;
    uint32_t n_found;
};

static uint32_t big32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

// SQLite's number of 1 to 9 bytes, of which a row has small ones. False: it goes past the end.
static bool take_number(const uint8_t **at, const uint8_t *end, uint64_t *out) {
    *out = 0;
    for (int i = 0; i < 9 && *at < end; i++) {
        const uint8_t b = *(*at)++;
        if (i == 8) {
            *out = *out << 8 | b;
            return true;
        }
        *out = *out << 7 | (b & 0x7f);
        if (!(b & 0x80)) return true;
    }
    return false;
}

// ---- rows ---------------------------------------------------------------------------------------
static const struct form *find_form(const char *key, const char *body) {
    for (size_t i = 0; i < TD_COUNTOF(forms); i++) {
        if (strncmp(key, forms[i].key, strlen(forms[i].key)) == 0 &&
            strncmp(body, forms[i].body, strlen(forms[i].body)) == 0) {
            return &forms[i];
        }
    }
    return NULL;
}

static td_status put(struct pages *p, const char *key, const char *body, int64_t digest) {
    char text[96];
    sqlite3_stmt *q = NULL;
    const struct form *f = find_form(key, body);
    if (!f) {
        td_log_warn("salvage: left out: row '%s', of which nobody knows the table", key);
        return TD_OK;
    }
    snprintf(text, sizeof text, "INSERT OR IGNORE INTO %s (key, body, digest) VALUES (?1, ?2, ?3)",
             f->table);
    TD_TRY(td_db_prepare(p->db, "state.db", text, &q));
    sqlite3_bind_text(q, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, body, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 3, digest);
    TD_TRY(td_db_end(p->db, "state.db", q, sqlite3_step(q), f->table, TD_OK));
    p->n_found += sqlite3_changes(p->db) > 0;
    return TD_OK;
}

// The bytes of a column by its serial type; text alone has an odd one.
static uint64_t bytes_of(uint64_t type) {
    static const uint8_t fixed[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
    return type < TD_COUNTOF(fixed) ? fixed[type] : (type - 12) / 2;
}

// A record of key, body and digest; another is no row of ours.
static td_status take_record(struct pages *p, const uint8_t *record, uint64_t bytes) {
    const uint8_t *at = record, *end = record + bytes;
    uint64_t head, type[3];
    if (!take_number(&at, end, &head) || head > bytes) return TD_OK;
    for (int i = 0; i < 3; i++) {
        if (!take_number(&at, record + head, &type[i])) return TD_OK;
    }
    const bool texts = type[0] >= 13 && type[0] % 2 && type[1] >= 13 && type[1] % 2;
    const uint64_t n_key = bytes_of(type[0]), n_body = bytes_of(type[1]),
                   n_digest = bytes_of(type[2]);
    if (at != record + head || !texts || n_digest == 0 || n_digest > 8) return TD_OK;
    if (n_key > bytes || n_body > bytes || head + n_key + n_body + n_digest != bytes) return TD_OK;
    TD_AUTO_FREE char *key = td_calloc(n_key + 1, 1), *body = td_calloc(n_body + 1, 1);
    if (!key || !body) return td_fail_oom();
    memcpy(key, at, n_key);
    memcpy(body, at + n_key, n_body);
    int64_t digest = (int8_t)at[n_key + n_body];
    for (uint64_t i = 1; i < n_digest; i++) {
        digest = (int64_t)((uint64_t)digest << 8 | at[n_key + n_body + i]);
    }
    return td_db_row_digest(key, body) == digest ? put(p, key, body, digest) : TD_OK;
}

// A record that does not fit on its page goes on in others. A broken chain has no row.
static td_status take_long(struct pages *p, const uint8_t *local, uint64_t n_local,
                           uint64_t bytes) {
    TD_AUTO_FREE uint8_t *record = td_calloc(bytes, 1);
    if (!record) return td_fail_oom();
    memcpy(record, local, n_local);
    uint32_t next = big32(local + n_local);
    for (uint64_t done = n_local; done < bytes;) {
        if (next == 0 || next > p->n || !p->at[next - 1]) return TD_OK;
        const uint64_t n = TD_MIN(bytes - done, (uint64_t)CHAINED);
        memcpy(record + done, p->at[next - 1] + 4, n);
        next = big32(p->at[next - 1]);
        done += n;
    }
    return take_record(p, record, bytes);
}

static td_status take_cell(struct pages *p, const uint8_t *page, const uint8_t *at) {
    const uint8_t *end = page + PAGE;
    uint64_t bytes, rowid, n_local;
    if (!take_number(&at, end, &bytes) || !take_number(&at, end, &rowid)) return TD_OK;
    if (bytes < 4 || bytes > BODY_MAX) return TD_OK;
    n_local = bytes;
    if (bytes > LOCAL_MAX) {
        n_local = LOCAL_MIN + (bytes - LOCAL_MIN) % CHAINED;
        if (n_local > LOCAL_MAX) n_local = LOCAL_MIN;
    }
    if (n_local + (n_local < bytes ? 4 : 0) > (uint64_t)(end - at)) return TD_OK;
    return n_local < bytes ? take_long(p, at, n_local, bytes) : take_record(p, at, bytes);
}

static td_status take_leaf(struct pages *p, const uint8_t *page) {
    const uint32_t n_cells = (uint32_t)page[3] << 8 | page[4];
    if (page[0] != LEAF || 8 + 2 * n_cells > PAGE) return TD_OK;
    for (uint32_t i = 0; i < n_cells; i++) {
        const uint32_t at = (uint32_t)page[8 + 2 * i] << 8 | page[9 + 2 * i];
        if (at >= 8 + 2 * n_cells && at < PAGE) TD_TRY(take_cell(p, page, page + at));
    }
    return TD_OK;
}

// ---- pages --------------------------------------------------------------------------------------
static td_status read_file(const char *source, const char *end, struct td_buf *out) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s%s", source, end));
    return td_fs_exists(path) ? td_fs_read(path, out->max_bytes, out) : TD_OK;
}

// Frames of one log have the salt of its first; those of an older one follow.
static const uint8_t *frame(const struct pages *p, size_t i) {
    const uint8_t *wal = (const uint8_t *)p->wal.data, *first = wal + WAL_HEAD;
    const size_t at = WAL_HEAD + i * (FRAME_HEAD + PAGE);
    if (at + FRAME_HEAD + PAGE > p->wal.len) return NULL;
    return memcmp(wal + at + 8, first + 8, 8) == 0 ? wal + at : NULL;
}

static td_status list_pages(struct pages *p) {
    const uint8_t *f;
    const uint8_t *file = (const uint8_t *)p->file.data;
    const size_t n_most = (p->file.len + p->wal.len) / PAGE + 1;
    p->n = (uint32_t)(p->file.len / PAGE);
    for (size_t i = 0; (f = frame(p, i)); i++) {
        if (big32(f) <= 2 * n_most) p->n = TD_MAX(p->n, big32(f));
    }
    p->at = td_calloc((size_t)p->n + 1, sizeof *p->at);
    if (!p->at) return td_fail_oom();
    for (size_t i = 0; i < p->file.len / PAGE; i++) {
        p->at[i] = file + i * PAGE;
    }
    for (size_t i = 0; (f = frame(p, i)); i++) {
        if (big32(f) && big32(f) <= p->n) p->at[big32(f) - 1] = f + FRAME_HEAD;
    }
    return TD_OK;
}

// SQLite's checksum of a -wal: the magic's last bit says how its words are stored.
static void sum_up(const uint8_t *at, size_t n_bytes, bool big, uint32_t sum[2]) {
    for (size_t i = 0; i < n_bytes; i += 8) {
        const uint32_t a = big32(at + i), b = big32(at + i + 4);
        sum[0] += (big ? a : __builtin_bswap32(a)) + sum[1];
        sum[1] += (big ? b : __builtin_bswap32(b)) + sum[0];
    }
}

static bool sum_fits(const uint8_t *at, const uint32_t sum[2]) {
    return big32(at) == sum[0] && big32(at + 4) == sum[1];
}

// SQLite stops at the first frame whose checksum is wrong. The last one may be torn by a crash; a
// frame of the same log after it is one that SQLite should have read.
static bool wal_is_bad(const uint8_t *wal, size_t len) {
    if (len < WAL_HEAD) return false;
    uint32_t sum[2] = {0, 0};
    const bool big = wal[3] & 1;
    sum_up(wal, 24, big, sum);
    if ((big32(wal) & ~1u) != 0x377f0682 || !sum_fits(wal + 24, sum)) return true;
    bool stopped = false;
    for (size_t at = WAL_HEAD; at + FRAME_HEAD + PAGE <= len; at += FRAME_HEAD + PAGE) {
        const uint8_t *f = wal + at;
        const bool same_log = memcmp(f + 8, wal + 16, 8) == 0;
        if (stopped && same_log) return true;
        sum_up(f, 8, big, sum);
        sum_up(f + FRAME_HEAD, PAGE, big, sum);
        stopped = stopped || !same_log || !sum_fits(f + 16, sum);
    }
    return false;
}

bool td_salvage_wal_is_bad(const char *source) {
    TD_AUTO_BUF wal;
    td_buf_init(&wal, file_bytes_max);
    td_status s = read_file(source, "-wal", &wal);
    const bool bad = !s && wal_is_bad((const uint8_t *)wal.data, wal.len);
    td_status_free(s);
    return bad;
}

td_status td_salvage_pages_take(struct td_str file, struct td_str wal, sqlite3 *db) {
    struct pages p = {.file = file, .wal = wal, .db = db};
    td_status s = list_pages(&p);
    for (uint32_t i = 0; i < p.n && !s; i++) {
        if (p.at[i]) s = take_leaf(&p, p.at[i]);
    }
    if (p.n_found) td_log_warn("salvage: %u rows were found on pages of their own", p.n_found);
    free(p.at);
    return s;
}

td_status td_salvage_pages(const char *source, sqlite3 *db) {
    TD_AUTO_BUF file, wal;
    td_buf_init(&file, file_bytes_max);
    td_buf_init(&wal, file_bytes_max);
    TD_TRY(read_file(source, "", &file));
    TD_TRY(read_file(source, "-wal", &wal));
    return td_salvage_pages_take((struct td_str){file.data, file.len},
                                 (struct td_str){wal.data, wal.len}, db);
}
