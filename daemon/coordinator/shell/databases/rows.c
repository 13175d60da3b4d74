// A list that grows at its head, and is turned around when it is taken.

#include "daemon/coordinator/shell/databases/rows.h"

void td_rows_put(struct td_rows *r, enum td_record_kind kind, const char *key, const char *body) {
    struct td_record *row = td_calloc(1, sizeof *row);
    TD_CHECK(row && "out of memory: start again from the disk");
    row->kind = kind;
    row->key = td_strdup(key);
    row->body = body ? td_strdup(body) : NULL;
    TD_CHECK(row->key && (row->body || !body));
    row->next = r->newest;
    r->newest = row;
}

struct td_record *td_rows_take(struct td_rows *r) {
    struct td_record *in_order = NULL;
    while (r->newest) {
        struct td_record *row = r->newest;
        r->newest = row->next;
        row->next = in_order;
        in_order = row;
    }
    return in_order;
}

void td_rows_finish(struct td_rows *r) {
    while (r->newest) {
        struct td_record *row = r->newest;
        r->newest = row->next;
        td_record_destroy(row);
    }
}
