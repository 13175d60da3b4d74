#ifndef TRAIND_LIB_BASE_MAP_H
#define TRAIND_LIB_BASE_MAP_H

// Hash map from strings to pointers, insertion-ordered, with a stated maximum of entries.
// Open addressing over an index, entries in an array, so iteration is in order of insertion and
// deletion leaves a hole that the next growth removes. Keys are copied; values are the caller's.
// One thread. Adding past the maximum is RESOURCE_EXHAUSTED.

#include "lib/base/base.h"

struct td_map;
TD_MUST_USE td_status td_map_create(size_t max_entries, struct td_map **out_map);
void td_map_destroy(struct td_map *m);
TD_DEFINE_AUTO(td_map, td_map_destroy);
size_t td_map_count(const struct td_map *m);
void *td_map_get(const struct td_map *m, const char *key); // NULL: absent
// Adds or replaces; out_old may be NULL.
TD_MUST_USE td_status td_map_put(struct td_map *m, const char *key, void *value, void **out_old);
void *td_map_remove(struct td_map *m, const char *key); // the value, or NULL
// Iteration in insertion order: start with *cursor = 0; false at the end. Removing the current
// entry while iterating is allowed, adding is not.
bool td_map_next(const struct td_map *m, size_t *cursor, const char **out_key, void **out_value);
// The same for values that are never NULL, of which no key is wanted; NULL at the end.
void *td_map_each(const struct td_map *m, size_t *cursor);

#endif
