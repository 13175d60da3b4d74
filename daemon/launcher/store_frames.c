// See the header. A frame that does not decode is dropped: the daemon says what matters again when
// it is asked to.

#include "daemon/launcher/store_frames.h"

#include "traind/v1/launcher.pb-c.h"

// Of a frame with the longest key and value.
enum { FRAME_MAX = TD_FRAME_HEADER + TD_STORE_KEY_MAX + TD_STORE_VALUE_MAX + 32 };

static void put(struct td_link *link, const struct td_launch_store_news *news) {
    static uint8_t packed[FRAME_MAX];
    if (news->item) {
        Traind__V1__LauncherStoreSet m = TRAIND__V1__LAUNCHER_STORE_SET__INIT;
        m.key = td_unconst(news->key);
        m.value.data = td_unconst(news->item->data);
        m.value.len = news->item->bytes;
        const size_t bytes = traind__v1__launcher_store_set__get_packed_size(&m);
        TD_CHECK(bytes <= sizeof packed);
        traind__v1__launcher_store_set__pack(&m, packed);
        td_link_send(link, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_SET, packed, bytes);
    } else {
        Traind__V1__LauncherStoreWant m = TRAIND__V1__LAUNCHER_STORE_WANT__INIT;
        m.key = td_unconst(news->key);
        const size_t bytes = traind__v1__launcher_store_want__pack(&m, packed);
        td_link_send(link, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_WANT, packed, bytes);
    }
}

void td_store_frames_put(struct td_launch_store *s, struct td_link *link) {
    struct td_launch_store_news news;
    while (td_link_has_room(link, FRAME_MAX) && td_launch_store_next(s, &news)) {
        put(link, &news);
    }
}

static void take_done(struct td_launch_store *s, const struct td_frame *f) {
    Traind__V1__LauncherStoreDone *m =
        traind__v1__launcher_store_done__unpack(NULL, f->body_bytes, f->body);
    if (!m) return;
    const bool known = m->code <= TD_UNAUTHENTICATED;
    td_launch_store_done(s, m->key, known ? (enum td_code)m->code : TD_UNKNOWN, m->message);
    traind__v1__launcher_store_done__free_unpacked(m, NULL);
}

static void take_value(struct td_launch_store *s, const struct td_frame *f) {
    Traind__V1__LauncherStoreValue *m =
        traind__v1__launcher_store_value__unpack(NULL, f->body_bytes, f->body);
    if (!m) return;
    td_launch_store_value(s, m->key, m->value.data, m->value.len);
    traind__v1__launcher_store_value__free_unpacked(m, NULL);
}

static void take_again(struct td_launch_store *s, const struct td_frame *f) {
    Traind__V1__LauncherStoreAgain *m =
        traind__v1__launcher_store_again__unpack(NULL, f->body_bytes, f->body);
    if (!m) return;
    td_launch_store_again(s, m->all);
    traind__v1__launcher_store_again__free_unpacked(m, NULL);
}

bool td_store_frames_take(struct td_launch_store *s, const struct td_frame *f) {
    if (!s->n_ranks) return false; // this attempt has no store
    if (f->type == TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_DONE) {
        take_done(s, f);
    } else if (f->type == TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_VALUE) {
        take_value(s, f);
    } else if (f->type == TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STORE_AGAIN) {
        take_again(s, f);
    } else {
        return false;
    }
    return true;
}
