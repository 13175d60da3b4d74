// Images in the node's cache; see cache.h.

#include "workloads/datasets/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/digest.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named.h"
#include "lib/base/machine/proc.h"

void td_image_finish(struct td_image *image) {
    if (image->data && image->mapped) munmap(image->data, image->bytes);
    if (image->data && !image->mapped) free(image->data);
    *image = (struct td_image){0};
}

// ---- names --------------------------------------------------------------------------------------
enum { KEY_MAX = 32 << 20 }; // thousands of paths

void td_image_key_init(struct td_image_key *key, const char *kind) {
    snprintf(key->kind, sizeof key->kind, "%s", kind);
    td_buf_init(&key->what, KEY_MAX);
    td_buf_init(&key->state, KEY_MAX);
}

void td_image_key_finish(struct td_image_key *key) {
    td_buf_finish(&key->what);
    td_buf_finish(&key->state);
}

td_status td_image_key_add(struct td_image_key *key, const char *path) {
    struct stat st;
    TD_TRY(td_named_stat(path, &st)); // an image is no way to what the job may not read
    return td_buf_printf(&key->state, "%s %llu %lld %lld.%09ld %lld.%09ld\n", path,
                         (unsigned long long)st.st_ino, (long long)st.st_size,
                         (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                         (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
}

td_status td_image_path(const char *cache_dir, const struct td_image_key *key,
                        char out_path[TD_IMAGE_PATH]) {
    char what[TD_DIGEST_HEX], state[TD_DIGEST_HEX];
    td_xxh3_128_hex(key->what.data, key->what.len, what);
    td_xxh3_128_hex(key->state.data, key->state.len, state);
    int n = snprintf(out_path, TD_IMAGE_PATH, "%s/%s-%s-%s.bin", cache_dir, key->kind, what, state);
    if (n >= 0 && n < TD_IMAGE_PATH) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "the cache directory's path is too long");
}

static uint64_t digest_of(const struct td_image *image) {
    const size_t skip = sizeof(struct td_image_head);
    return td_xxh3_64((const char *)image->data + skip, image->bytes - skip);
}

static bool is_whole(const struct td_image *image) {
    const struct td_image_head *h = image->data;
    return h->digest == digest_of(image);
}

// ---- images that were verified before -----------------------------------------------------------
// What an image was when its digest was last compared: boot, file, size and times.
enum { SEEN_BYTES = 192 };

static td_status describe(const struct stat *st, char out[SEEN_BYTES]) {
    char boot[37];
    TD_TRY(td_proc_boot_id(boot));
    snprintf(out, SEEN_BYTES, "%s %llu %llu %lld %lld.%09ld %lld.%09ld\n", boot,
             (unsigned long long)st->st_dev, (unsigned long long)st->st_ino, (long long)st->st_size,
             (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (long long)st->st_ctim.tv_sec,
             st->st_ctim.tv_nsec);
    return TD_OK;
}

static td_status seen_path(const char *path, char out[TD_IMAGE_PATH]) {
    int n = snprintf(out, TD_IMAGE_PATH, "%s.seen", path);
    return n < TD_IMAGE_PATH ? TD_OK : td_fail(TD_INVALID_ARGUMENT, "a path is too long");
}

static td_status is_seen(const char *path, const struct stat *st, bool *out_seen) {
    char note[TD_IMAGE_PATH], now[SEEN_BYTES];
    TD_AUTO_BUF then;
    td_buf_init(&then, SEEN_BYTES);
    *out_seen = false;
    TD_TRY(describe(st, now));
    TD_TRY(seen_path(path, note));
    TD_TRY(td_fs_read(note, SEEN_BYTES - 1, &then));
    *out_seen = strcmp(td_buf_cstr(&then), now) == 0;
    if (*out_seen) (void)utimensat(AT_FDCWD, note, NULL, 0); // used now
    return TD_OK;
}

// Of a file that changed just now, a second change may bear the same time: it is not noted. Clocks
// of file systems tick every 10 ms, or every two seconds where times have no fractions.
static bool changed_just_now(const struct stat *st) {
    const struct timespec *t = &st->st_ctim;
    const int64_t tick_ns = t->tv_nsec ? 10 * TD_NS_PER_MS : 2 * TD_NS_PER_S;
    return td_real_now().ns - (t->tv_sec * TD_NS_PER_S + t->tv_nsec) < 2 * tick_ns;
}

static td_status note_seen(const char *path, const struct stat *st) {
    char note[TD_IMAGE_PATH], now[SEEN_BYTES];
    if (changed_just_now(st)) return TD_OK;
    TD_TRY(describe(st, now));
    TD_TRY(seen_path(path, note));
    return td_fs_write(note, now, strlen(now), 0600, 0);
}

// Without a note, or when none can be read or written, the digest is compared: slower, no less
// right.
static bool is_good(const char *path, const struct stat *st, const struct td_image *image,
                    const char magic[8]) {
    const struct td_image_head *h = image->data;
    bool seen = false;
    if (image->bytes <= sizeof *h || memcmp(h->magic, magic, sizeof h->magic) != 0) return false;
    td_status_free(is_seen(path, st, &seen));
    if (seen) return true;
    madvise(image->data, image->bytes, MADV_POPULATE_READ);
    if (!is_whole(image)) return false;
    td_status_free(note_seen(path, st));
    return true;
}

bool td_image_map(const char *path, const char magic[8], struct td_image *out_image) {
    struct stat st;
    TD_AUTO_CLOSE int fd = -1;
    TD_AUTO_STATUS td_status absent = td_fs_open(path, &fd, &st);
    if (absent || st.st_size <= 0) return false;
    struct td_image image = {.bytes = (size_t)st.st_size, .mapped = true};
    image.data =
        mmap(NULL, image.bytes, PROT_READ, MAP_PRIVATE, fd, 0); // not as data: see mapped.h
    if (image.data == MAP_FAILED) return false;
    if (is_good(path, &st, &image, magic)) {
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

// ---- images that nobody will look for any more --------------------------------------------------
enum { DIGEST = TD_DIGEST_HEX - 1 };
static const int64_t unused_s = 30 * 24 * 3600;

// "<kind>-<digest>-<digest>.bin", or with one digest, as older builds named them.
static bool is_image(const char *name) {
    const size_t len = strlen(name), tail = DIGEST + strlen(".bin");
    return len > tail && strcmp(name + len - 4, ".bin") == 0 && name[len - tail - 1] == '-' &&
           strspn(name + len - tail, "0123456789abcdef") == DIGEST;
}

static bool is_unused(const char *path, const char *note) {
    struct stat st;
    int64_t last = 0; // of none: another rank removed both
    const char *const files[] = {path, note};
    for (size_t i = 0; i < TD_COUNTOF(files); i++) {
        if (stat(files[i], &st) == 0) last = TD_MAX(last, (int64_t)st.st_mtim.tv_sec);
    }
    return td_real_now().ns / TD_NS_PER_S - last > unused_s;
}

static td_status evict_one(const char *cache_dir, const char *name, const char *mine) {
    char path[TD_IMAGE_PATH], note[TD_IMAGE_PATH];
    const size_t same = strlen(mine) - DIGEST - strlen(".bin"); // all but the state
    int n = snprintf(path, sizeof path, "%s/%s", cache_dir, name);
    if (n < 0 || n >= TD_IMAGE_PATH) return TD_OK;
    TD_TRY(seen_path(path, note));
    if (strncmp(name, mine, same) != 0 && !is_unused(path, note)) return TD_OK;
    (void)unlink(note);
    (void)unlink(path);
    return TD_OK;
}

// Another rank may be at the same; what cannot be removed is looked at again next time.
static void evict(const char *cache_dir, const char *mine) {
    DIR *dir = opendir(cache_dir);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!is_image(e->d_name) || strcmp(e->d_name, mine) == 0) continue;
        td_status_free(evict_one(cache_dir, e->d_name, mine));
    }
    if (dir) closedir(dir);
}

void td_image_share(const char *cache_dir, const char *path, struct td_image *image) {
    const struct td_image_head *h = image->data;
    char magic[8];
    memcpy(magic, h->magic, sizeof magic);
    TD_AUTO_STATUS td_status s = td_fs_mkdirs(cache_dir, 0700);
    if (!s) s = td_fs_write(path, image->data, image->bytes, 0600, 0);
    if (!s) evict(cache_dir, strrchr(path, '/') + 1);
    struct td_image shared;
    if (s || !td_image_map(path, magic, &shared)) return;
    td_image_finish(image);
    *image = shared;
}
