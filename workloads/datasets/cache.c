// Images in the node's cache; see cache.h.

#include "workloads/datasets/cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/base/digest.h"
#include "lib/base/fsio.h"

void td_image_finish(struct td_image *image) {
    if (image->data && image->mapped) munmap(image->data, image->bytes);
    if (image->data && !image->mapped) free(image->data);
    *image = (struct td_image){0};
}

td_status td_image_add_source(struct td_buf *key, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) {
        return td_status_with_class(td_fail_errno(TD_NOT_FOUND, "look at '%s'", path),
                                    TD_CLASS_DATA);
    }
    return td_buf_printf(key, "%s %lld %lld.%09ld\n", path, (long long)st.st_size,
                         (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

td_status td_image_path(const char *cache_dir, const char *kind, const struct td_buf *key,
                        char out_path[TD_IMAGE_PATH]) {
    char hex[TD_DIGEST_HEX];
    td_xxh3_128_hex(key->data, key->len, hex);
    int n = snprintf(out_path, TD_IMAGE_PATH, "%s/%s-%s.bin", cache_dir, kind, hex);
    if (n >= 0 && n < TD_IMAGE_PATH) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "the cache directory's path is too long");
}

static uint64_t digest_of(const struct td_image *image) {
    const size_t skip = sizeof(struct td_image_head);
    return td_xxh3_64((const char *)image->data + skip, image->bytes - skip);
}

static bool is_whole(const struct td_image *image, const char magic[8]) {
    const struct td_image_head *h = image->data;
    return image->bytes > sizeof *h && memcmp(h->magic, magic, sizeof h->magic) == 0 &&
           h->digest == digest_of(image);
}

bool td_image_map(const char *path, const char magic[8], struct td_image *out_image) {
    TD_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size <= 0) return false;
    struct td_image image = {.bytes = (size_t)st.st_size, .mapped = true};
    image.data = mmap(NULL, image.bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (image.data == MAP_FAILED) return false;
    if (is_whole(&image, magic)) {
        *out_image = image;
        return true;
    }
    td_image_finish(&image);
    return false;
}

void td_image_seal(struct td_image *image, const char magic[8]) {
    struct td_image_head *h = image->data;
    memcpy(h->magic, magic, sizeof h->magic);
    h->digest = digest_of(image);
}

void td_image_share(const char *cache_dir, const char *path, struct td_image *image) {
    const struct td_image_head *h = image->data;
    char magic[8];
    memcpy(magic, h->magic, sizeof magic);
    TD_AUTO_STATUS td_status s = td_fs_mkdirs(cache_dir, 0700);
    if (!s) s = td_fs_write(path, image->data, image->bytes, 0600, 0);
    struct td_image shared;
    if (s || !td_image_map(path, magic, &shared)) return;
    td_image_finish(image);
    *image = shared;
}
