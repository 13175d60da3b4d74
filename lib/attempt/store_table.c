// See the header.

#include "lib/attempt/store_table.h"

#include <stdio.h>
#include <string.h>

#include "lib/attempt/store_message.h"

td_status td_store_table_init(struct td_store_table *t) {
    *t = (struct td_store_table){0};
    return td_map_create(TD_STORE_KEYS_MAX, &t->items);
}

void td_store_table_finish(struct td_store_table *t) {
    void *value;
    for (size_t cursor = 0; t->items && (value = td_map_each(t->items, &cursor));) {
        free(value);
    }
    td_map_destroy(t->items);
    *t = (struct td_store_table){0};
}

struct td_store_item *td_store_table_get(const struct td_store_table *t, const char *key) {
    return td_map_get(t->items, key);
}

static td_status check_room(const struct td_store_table *t, const char *key, size_t bytes) {
    if (td_map_count(t->items) >= TD_STORE_KEYS_MAX) {
        return td_fail(TD_RESOURCE_EXHAUSTED,
                       "key '%s': the rendezvous store of an attempt holds %d keys, and has them",
                       key, TD_STORE_KEYS_MAX);
    }
    if (bytes > TD_STORE_BYTES_MAX - t->bytes) {
        return td_fail(
            TD_RESOURCE_EXHAUSTED,
            "key '%s' with %zu bytes: the rendezvous store of an attempt holds %d bytes, "
            "and has %zu",
            key, bytes, TD_STORE_BYTES_MAX, t->bytes);
    }
    return TD_OK;
}

td_status td_store_table_set(struct td_store_table *t, const char *key, const void *data,
                             size_t bytes, struct td_store_item **out_item) {
    struct td_store_item *item = td_map_get(t->items, key);
    if (item && item->bytes == bytes && (!bytes || memcmp(item->data, data, bytes) == 0)) {
        *out_item = item;
        return TD_OK;
    }
    if (item) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "key '%s' of the rendezvous store was set to other bytes before; a key is "
                       "set once: give each value a key of its own",
                       key);
    }
    TD_TRY(td_store_check_value(key, bytes));
    TD_TRY(check_room(t, key, bytes));
    TD_AUTO_FREE struct td_store_item *made = td_calloc(1, sizeof *made + bytes);
    if (!made) return td_fail_oom();
    snprintf(made->key, sizeof made->key, "%s", key);
    made->bytes = bytes;
    if (bytes) memcpy(made->data, data, bytes);
    TD_TRY(td_map_put(t->items, key, made, NULL));
    t->bytes += bytes;
    *out_item = td_steal(made);
    return TD_OK;
}

void td_store_table_remove(struct td_store_table *t, const char *key) {
    struct td_store_item *gone = td_map_remove(t->items, key);
    if (gone) t->bytes -= gone->bytes;
    free(gone);
}
