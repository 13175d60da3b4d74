// XXH3 digests: the only file that includes xxHash, whose code is inlined here from its header, so
// no binary needs libxxhash at run time.
//
// Digests are stored as canonical (big-endian) hex, as xxhsum prints them: anybody can check a
// shard with `xxhsum -H2`. They detect damage, not malice; what must resist an attacker (tokens)
// uses OpenSSL elsewhere. The streaming state wants 64-byte alignment, which calloc does not give,
// so a digest carries slack and aligns itself. Threads: a digest belongs to one at a time.

#include "lib/base/digest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { STATE_ALIGN = 64, BLOCK_BYTES = 128 << 10 }; // a block stays in a core's cache

struct td_digest {
    XXH3_state_t *state; // inside room
    char room[sizeof(XXH3_state_t) + STATE_ALIGN];
};

uint64_t td_xxh3_64(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
}

static void to_hex(XXH128_hash_t h, char out_hex[TD_DIGEST_HEX]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, h);
    for (size_t i = 0; i < sizeof canonical.digest; i++) {
        snprintf(out_hex + 2 * i, 3, "%02x", canonical.digest[i]);
    }
}

void td_xxh3_128_hex(const void *data, size_t bytes, char out_hex[TD_DIGEST_HEX]) {
    to_hex(XXH3_128bits(data, bytes), out_hex);
}

td_status td_digest_create(struct td_digest **out_digest) {
    struct td_digest *d = td_calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    d->state = (XXH3_state_t *)td_align_up((uintptr_t)d->room, STATE_ALIGN);
    XXH3_INITSTATE(d->state);
    TD_CHECK(XXH3_128bits_reset(d->state) == XXH_OK);
    *out_digest = d;
    return TD_OK;
}

void td_digest_destroy(struct td_digest *d) {
    free(d);
}

void td_digest_update(struct td_digest *d, const void *data, size_t bytes) {
    if (bytes > 0) TD_CHECK(XXH3_128bits_update(d->state, data, bytes) == XXH_OK);
}

void td_digest_hex(const struct td_digest *d, char out_hex[TD_DIGEST_HEX]) {
    to_hex(XXH3_128bits_digest(d->state), out_hex);
}

td_status td_digest_fd(int fd, const char *path, char out_hex[TD_DIGEST_HEX]) {
    TD_AUTO(td_digest) *d = NULL;
    TD_TRY(td_digest_create(&d));
    TD_AUTO_FREE char *block = malloc(BLOCK_BYTES);
    if (!block) return td_fail_oom();
    for (off_t at = 0;;) {
        ssize_t n = pread(fd, block, BLOCK_BYTES, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return td_fail_errno(TD_UNAVAILABLE, "read '%s'", path);
        if (n == 0) break;
        td_digest_update(d, block, (size_t)n);
        at += n;
    }
    td_digest_hex(d, out_hex);
    return TD_OK;
}
