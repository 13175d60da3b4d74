#ifndef TRAIND_WORKLOADS_DATASETS_CACHE_H
#define TRAIND_WORKLOADS_DATASETS_CACHE_H

// Decoded data as one image of bytes, in the node's cache or in private memory.
//
// An image is named by two digests: of what it is made from (a path, knobs), and of the state that
// its files were in (path, size, both times, number). So changed sources make a new one, also where
// the new file was given the old one's time, and that takes the place of the old. An image that
// nobody has used for a month goes when another one is made. It is written aside and renamed, then
// mapped read-only by every rank of the node. Its head holds a digest of all that follows, so every
// doubt about one (absent, short, another format, damaged) has one answer: decode. Ranks that find
// no image each decode for themselves and rename the same bytes into place: no lock, no waiting for
// a rank that may have died. Without a cache directory, or when it cannot be written, the image
// stays private. It is written without fsync: after a crash of the machine a torn image is known by
// its digest. The digest of 55 MB takes 5 ms, of each rank's start. So once it was compared, a note
// (<image>.seen) says so. The note holds for this boot and for as long as the file's number, size
// and times stay, and its own time is that of the last use.

#include "lib/base/buf.h"

enum { TD_IMAGE_PATH = 4400 };

struct td_image_head { // an image begins with it
    char magic[8];
    uint64_t digest; // XXH3-64 of the image after this field
};

struct td_image {
    void *data;
    size_t bytes;
    bool mapped; // from the cache; else allocated
};
void td_image_finish(struct td_image *image);

// What names an image.
struct td_image_key {
    char kind[8];
    struct td_buf what, state; // what: append knobs and the path that they name
};
void td_image_key_init(struct td_image_key *key, const char *kind);
void td_image_key_finish(struct td_image_key *key);
#define TD_AUTO_IMAGE_KEY __attribute__((cleanup(td_image_key_finish))) struct td_image_key
// A file that it is made from; NOT_FOUND, class data.
TD_MUST_USE td_status td_image_key_add(struct td_image_key *key, const char *path);
// The image's file: <cache_dir>/<kind>-<digest of what>-<digest of state>.bin
TD_MUST_USE td_status td_image_path(const char *cache_dir, const struct td_image_key *key,
                                    char out_path[TD_IMAGE_PATH]);
// Maps a whole image of that magic; false: there is none.
bool td_image_map(const char *path, const char magic[8], struct td_image *out_image);
// Fills in the head of an image that was made in private memory.
void td_image_seal(struct td_image *image, const char magic[8]);
// Moves a sealed private image into the cache; where that does not work, it stays what it is.
// Images of an older state of the same files leave the cache; ranks that have mapped one keep it.
void td_image_share(const char *cache_dir, const char *path, struct td_image *image);

#endif
