#ifndef TRAIND_WORKLOADS_DATASETS_CACHE_H
#define TRAIND_WORKLOADS_DATASETS_CACHE_H

// Decoded data as one image of bytes, in the node's cache or in private memory.
//
// An image is named by a digest of all that it was made from (paths, sizes, modification times,
// knobs), so changed sources make a new one. It is written aside and renamed, then mapped read-only
// by every rank of the node. Its head holds a digest of all that follows, so every doubt about one
// (absent, short, another format, damaged) has one answer: decode. Ranks that find no image each
// decode for themselves and rename the same bytes into place: no lock, no waiting for a rank that
// may have died. Without a cache directory, or when it cannot be written, the image stays private.
// It is written without fsync: after a crash of the machine a torn image is known by its
// digest. The digest of 55 MB takes 5 ms, of each rank's start. So once it was compared, a note
// (<image>.seen) says so. The note holds for this boot and for as long as the file's number, size
// and times stay. Old images are not removed here: the cache is the node's to empty.

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

// Appends "path size mtime" of a source to the key of an image; NOT_FOUND, class data.
TD_MUST_USE td_status td_image_add_source(struct td_buf *key, const char *path);
// The image's file: <cache_dir>/<kind>-<digest of key>.bin
TD_MUST_USE td_status td_image_path(const char *cache_dir, const char *kind,
                                    const struct td_buf *key, char out_path[TD_IMAGE_PATH]);
// Maps a whole image of that magic; false: there is none.
bool td_image_map(const char *path, const char magic[8], struct td_image *out_image);
// Fills in the head of an image that was made in private memory.
void td_image_seal(struct td_image *image, const char magic[8]);
// Moves a sealed private image into the cache; where that does not work, it stays what it is.
void td_image_share(const char *cache_dir, const char *path, struct td_image *image);

#endif
