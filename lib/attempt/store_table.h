#ifndef TRAIND_LIB_ATTEMPT_STORE_TABLE_H
#define TRAIND_LIB_ATTEMPT_STORE_TABLE_H

// Store table: keys of an attempt's rendezvous store and their values, within its bounds
// (traind/store.h). A launcher has one of what its ranks set and saw; the coordinator one of what
// all ranks of the attempt set. One owner, one thread.

#include "lib/base/map.h"
#include "traind/store.h"

struct td_store_item {
    char key[TD_STORE_KEY_MAX + 1];
    unsigned marks; // the user's own; 0 in a new one
    size_t bytes;
    uint8_t data[]; // (bytes)
};

struct td_store_table {
    struct td_map *items; // key -> td_store_item
    size_t bytes;         // of all values
};

TD_MUST_USE td_status td_store_table_init(struct td_store_table *t);
void td_store_table_finish(struct td_store_table *t);
// NULL: nobody has set it.
struct td_store_item *td_store_table_get(const struct td_store_table *t, const char *key);
// Sets a key that was checked; *out_item is the item, a new one or the one that has these bytes.
// Errors: FAILED_PRECONDITION names the key that has other bytes; INVALID_ARGUMENT for too long a
// value; RESOURCE_EXHAUSTED names the bound.
TD_MUST_USE td_status td_store_table_set(struct td_store_table *t, const char *key,
                                         const void *data, size_t bytes,
                                         struct td_store_item **out_item);
void td_store_table_remove(struct td_store_table *t, const char *key);

#endif
