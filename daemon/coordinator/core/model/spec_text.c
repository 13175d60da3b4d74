// See the header. A text below PACK_FROM stays: most specs are, a start reads ten thousand of them,
// and there is little to gain.

#include "daemon/coordinator/core/model/spec_text.h"

#include <string.h>

#include "lib/base/files/gz.h"

enum { PACK_FROM = 4 << 10 };

void td_spec_text_finish(struct td_spec_text *t) {
    free(t->text);
    free(t->packed);
    *t = (struct td_spec_text){0};
}

bool td_spec_text_is_set(const struct td_spec_text *t) {
    return t->text || t->packed;
}

td_status td_spec_text_set(struct td_spec_text *t, const char *text) {
    TD_CHECK(!td_spec_text_is_set(t));
    t->text = td_strdup(text);
    if (!t->text) return td_fail_oom();
    t->bytes = strlen(text);
    return TD_OK;
}

void td_spec_text_pack(struct td_spec_text *t) {
    if (!t->text || t->bytes < PACK_FROM) return;
    TD_AUTO_BUF packed;
    td_buf_init(&packed, t->bytes);
    td_status s = td_gz_deflate(t->text, t->bytes, &packed);
    char *kept = s ? NULL : malloc(packed.len);
    td_status_free(s); // as it is, then
    if (!kept) return;
    memcpy(kept, packed.data, packed.len);
    t->packed = kept;
    t->packed_bytes = packed.len;
    free(td_steal(t->text));
}

td_status td_spec_text_read(const struct td_spec_text *t, char **out_inflated,
                            const char **borrow_text) {
    if (!td_spec_text_is_set(t)) return td_fail(TD_DATA_LOSS, "the spec is lost");
    if (t->text) {
        *borrow_text = t->text;
        return TD_OK;
    }
    TD_AUTO_FREE char *text = td_calloc(1, t->bytes + 1);
    size_t at = 0;
    if (!text) return td_fail_oom();
    const char *wrong = td_gz_inflate(t->packed, t->packed_bytes, text, t->bytes, &at);
    if (wrong) return td_fail(TD_INTERNAL, "a deflated spec, byte %zu: %s", at, wrong);
    *borrow_text = *out_inflated = td_steal(text);
    return TD_OK;
}

size_t td_spec_text_kept(const struct td_spec_text *t) {
    return t->text ? t->bytes : t->packed_bytes;
}
