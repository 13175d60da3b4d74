// See the header.

#include "daemon/coordinator/core/page.h"

enum { HEAD_BYTES = 8 }; // of a row in its list: number of the field, length

struct td_page td_page_of(uint32_t rows) {
    return (struct td_page){.most = rows ? TD_MIN(rows, TD_PAGE_MAX_ROWS) : TD_PAGE_ROWS};
}

bool td_page_takes(struct td_page *p, const ProtobufCMessage *row) {
    if (p->n == p->most) return false;
    size_t bytes = protobuf_c_message_get_packed_size(row) + HEAD_BYTES;
    if (p->n && p->bytes + bytes > TD_PAGE_BYTES) return false;
    p->n++;
    p->bytes += bytes;
    return true;
}

td_status td_page_bad_token(void) {
    return td_status_with_reason(
        td_fail(TD_INVALID_ARGUMENT,
                "page_token: this list has no such place to go on from; begin again"),
        "TOKEN_INVALID");
}
