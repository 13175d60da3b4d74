// String map: an array of entries in order of insertion, and an open-addressed index into it.
//
// An index slot holds entry number + 1; 0 is empty. Removing an entry clears its key and leaves the
// slot, so probe chains stay whole; the hole disappears when the entries are next rebuilt, which
// happens only in put. That is why removal while iterating is safe and adding is not. The index is
// at most half full. One thread; a put that fails leaves the map as it was.

#include "lib/base/map.h"

#include <string.h>

#include "lib/base/digest.h"

enum { FIRST_ENTRIES = 8 };

struct entry {
    char *key; // NULL: removed
    void *value;
    uint64_t hash;
};

struct td_map {
    struct entry *entries;
    uint32_t *index;
    size_t n_entries; // holes included
    size_t cap;       // entries; the index has 2 * cap slots, a power of two
    size_t count;     // holes excluded
    size_t max_entries;
};

static uint64_t hash_of(const char *key) {
    return td_xxh3_64(key, strlen(key));
}

td_status td_map_create(size_t max_entries, struct td_map **out_map) {
    TD_CHECK(max_entries > 0 && max_entries < UINT32_MAX / 4);
    struct td_map *m = td_calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    m->max_entries = max_entries;
    *out_map = m;
    return TD_OK;
}

void td_map_destroy(struct td_map *m) {
    if (!m) return;
    for (size_t i = 0; i < m->n_entries; i++) {
        free(m->entries[i].key);
    }
    free(m->entries);
    free(m->index);
    free(m);
}

size_t td_map_count(const struct td_map *m) {
    return m->count;
}

static struct entry *find(const struct td_map *m, const char *key, uint64_t hash) {
    if (m->cap == 0) return NULL;
    size_t mask = 2 * m->cap - 1;
    for (size_t i = hash & mask; m->index[i] != 0; i = (i + 1) & mask) {
        struct entry *e = &m->entries[m->index[i] - 1];
        if (e->key && e->hash == hash && strcmp(e->key, key) == 0) return e;
    }
    return NULL;
}

static void link_entry(uint32_t *index, size_t cap, uint64_t hash, size_t entry_idx) {
    size_t mask = 2 * cap - 1, i = hash & mask;
    while (index[i] != 0) {
        i = (i + 1) & mask;
    }
    index[i] = (uint32_t)entry_idx + 1;
}

// Makes room for one more entry: drops the holes, and doubles unless that freed half.
static td_status rebuild(struct td_map *m) {
    size_t cap = m->cap == 0 ? FIRST_ENTRIES : m->count > m->cap / 2 ? m->cap * 2 : m->cap;
    struct entry *entries = td_calloc(cap, sizeof *entries);
    uint32_t *index = td_calloc(2 * cap, sizeof *index);
    if (!entries || !index) {
        free(entries);
        free(index);
        return td_fail_oom();
    }
    size_t n = 0;
    for (size_t i = 0; i < m->n_entries; i++) {
        if (!m->entries[i].key) continue;
        entries[n] = m->entries[i];
        link_entry(index, cap, entries[n].hash, n);
        n++;
    }
    free(m->entries);
    free(m->index);
    m->entries = entries;
    m->index = index;
    m->cap = cap;
    m->n_entries = n;
    return TD_OK;
}

void *td_map_get(const struct td_map *m, const char *key) {
    const struct entry *e = find(m, key, hash_of(key));
    return e ? e->value : NULL;
}

td_status td_map_put(struct td_map *m, const char *key, void *value, void **out_old) {
    uint64_t hash = hash_of(key);
    struct entry *e = find(m, key, hash);
    if (e) {
        if (out_old) *out_old = e->value;
        e->value = value;
        return TD_OK;
    }
    if (m->count == m->max_entries) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "map is full: it holds at most %zu entries",
                       m->max_entries);
    }
    if (m->n_entries == m->cap) TD_TRY(rebuild(m));
    char *own_key = td_strdup(key);
    if (!own_key) return td_fail_oom();
    m->entries[m->n_entries] = (struct entry){own_key, value, hash};
    link_entry(m->index, m->cap, hash, m->n_entries);
    m->n_entries++;
    m->count++;
    if (out_old) *out_old = NULL;
    return TD_OK;
}

void *td_map_remove(struct td_map *m, const char *key) {
    struct entry *e = find(m, key, hash_of(key));
    if (!e) return NULL;
    void *value = e->value;
    free(e->key);
    *e = (struct entry){0};
    m->count--;
    return value;
}

bool td_map_next(const struct td_map *m, size_t *cursor, const char **out_key, void **out_value) {
    while (*cursor < m->n_entries && !m->entries[*cursor].key) {
        (*cursor)++;
    }
    if (*cursor >= m->n_entries) return false;
    const struct entry *e = &m->entries[(*cursor)++];
    if (out_key) *out_key = e->key;
    if (out_value) *out_value = e->value;
    return true;
}

void *td_map_each(const struct td_map *m, size_t *cursor) {
    void *value;
    return td_map_next(m, cursor, NULL, &value) ? value : NULL;
}
