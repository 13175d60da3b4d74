#ifndef TRAIND_LIB_BASE_DIGEST_H
#define TRAIND_LIB_BASE_DIGEST_H

// XXH3 digests of checkpoint shards, specs, plans and caches (the only home of xxHash).
// XXH3-128 in canonical big-endian hex is what the manifest stores; 64 bits serve maps and keys.

#include "lib/base/base.h"

enum { TD_DIGEST_HEX = 33 }; // 32 digits and a NUL

uint64_t td_xxh3_64(const void *data, size_t bytes);
void td_xxh3_128_hex(const void *data, size_t bytes, char out_hex[TD_DIGEST_HEX]);

// Streaming form, for shards hashed while they are written.
struct td_digest;
TD_MUST_USE td_status td_digest_create(struct td_digest **out_digest);
void td_digest_destroy(struct td_digest *d);
TD_DEFINE_AUTO(td_digest, td_digest_destroy);
void td_digest_update(struct td_digest *d, const void *data, size_t bytes);
void td_digest_hex(const struct td_digest *d, char out_hex[TD_DIGEST_HEX]);
// Of a whole file, from its start; `path` is for the error (UNAVAILABLE).
TD_MUST_USE td_status td_digest_fd(int fd, const char *path, char out_hex[TD_DIGEST_HEX]);

#endif
