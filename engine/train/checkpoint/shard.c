// Snapshots in the form of the file they become.
//
// The optimizer's and the parameters' tensors are in their regions in the order of the file, so
// neighbours are copied together. A whole region goes in one piece, unless a tensor's size leaves a
// gap.
//
// The image is written with O_DIRECT: through the page cache the kernel would copy it once more, on
// a core that the training wants. A gpt of 130 MB took ten times as long to write while it trained,
// and slowed its steps by a third. The last block is padded to a page and the file cut to its size.
// A file system that cannot do it (EINVAL) gets ordinary writes.

#include "engine/train/checkpoint/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "engine/train/checkpoint/manifest.h"
#include "lib/base/files/files.h"

enum { CHUNK_BYTES = 8 << 20 };

// ---- layout ------------------------------------------------------------------------------------
static bool belongs(const struct td_state_info *t, uint32_t roles, const char *name) {
    return (roles & 1u << t->role) && strcmp(td_manifest_file_of(t->role), name) == 0;
}

static td_status plan(struct td_shard *s, uint32_t roles,
                      bool (*filter)(void *arg, const char *name), void *arg) {
    uint32_t n = td_state_count(s->state);
    s->tensor = td_calloc((size_t)n + 1, sizeof *s->tensor);
    TD_AUTO_FREE struct td_tensor *entries = td_calloc((size_t)n + 1, sizeof *entries);
    if (!s->tensor || !entries) return td_fail_oom();
    size_t data_bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct td_state_info *t = td_state_at(s->state, i);
        if (!belongs(t, roles, s->name) || (filter && !filter(arg, t->name))) continue;
        entries[s->n_tensors] = (struct td_tensor){.name = t->name,
                                                   .dtype = t->dtype,
                                                   .shape = t->shape,
                                                   .bytes = td_state_whole_bytes(t)};
        s->tensor[s->n_tensors++] = (struct td_shard_tensor){t, data_bytes};
        data_bytes += td_state_whole_bytes(t);
    }
    TD_TRY(td_safetensors_head(entries, s->n_tensors, &s->head));
    for (size_t i = 0; i < s->n_tensors; i++) {
        s->tensor[i].at += s->head.len;
    }
    s->bytes = s->head.len + data_bytes;
    return TD_OK;
}

td_status td_shard_plan(const struct td_state_table *state, uint32_t roles, const char *name,
                        struct td_shard *out_shard) {
    return td_shard_plan_some(state, roles, name, NULL, NULL, out_shard);
}

td_status td_shard_plan_some(const struct td_state_table *state, uint32_t roles, const char *name,
                             bool (*filter)(void *arg, const char *name), void *arg,
                             struct td_shard *out_shard) {
    struct td_shard s = {.name = name, .state = state};
    td_buf_init(&s.head, 8 + TD_SAFETENSORS_HEADER_MAX);
    td_status failed = plan(&s, roles, filter, arg);
    if (failed) {
        td_shard_finish(&s);
        return failed;
    }
    *out_shard = s;
    return TD_OK;
}

void td_shard_finish(struct td_shard *s) {
    td_buf_finish(&s->head);
    free(s->tensor);
    *s = (struct td_shard){0};
}

size_t td_shard_room(const struct td_shard *s) {
    return td_align_up(s->bytes, TD_SHARD_PAGE);
}

void td_shard_lay(struct td_shard *s, char *memory) {
    memcpy(memory, s->head.data, s->head.len);
    s->image = memory;
}

// ---- snapshot ----------------------------------------------------------------------------------
static size_t offset_of(const struct td_state_info *t, bool whole) {
    return whole ? t->whole_offset : t->offset;
}

td_status td_shard_take(const struct td_shard *s, const struct td_accelerator_ops *ops,
                        struct td_accelerator *accel, const struct td_strategy_memory *memory,
                        uint32_t whole_roles, struct td_buffer to, size_t to_offset,
                        td_ticket *io_ticket) {
    for (size_t i = 0, next; i < s->n_tensors; i = next) {
        const struct td_shard_tensor *first = &s->tensor[i];
        const bool whole = whole_roles >> first->info->role & 1;
        const size_t from = offset_of(first->info, whole);
        size_t bytes = td_state_whole_bytes(first->info);
        for (next = i + 1; next < s->n_tensors; next++) {
            const struct td_state_info *t = s->tensor[next].info;
            if (t->role != first->info->role || offset_of(t, whole) != from + bytes) break;
            bytes += td_state_whole_bytes(t);
        }
        const struct td_buffer region = memory->region[first->info->role];
        const size_t at = to_offset + first->at;
        if (!io_ticket) {
            TD_TRY(ops->copy(accel, to, at, region, from, bytes));
            continue;
        }
        td_ticket ticket;
        TD_TRY(ops->copy_begin(accel, to, at, region, from, bytes, &ticket));
        *io_ticket = TD_MAX(*io_ticket, ticket);
    }
    return TD_OK;
}

// ---- writing -----------------------------------------------------------------------------------
static int create(const char *path) {
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = open(path, flags | O_DIRECT, 0666);
    if (fd >= 0 || errno != EINVAL) return fd;
    (void)unlink(path); // some file systems make the file before they refuse
    return open(path, flags, 0666);
}

// Whole pages at page borders, as O_DIRECT wants them; *direct turns false where it is refused.
static td_status write_pages(int fd, const char *path, const char *data, size_t bytes,
                             bool *direct) {
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        bool odd = n > 0 && n % TD_SHARD_PAGE; // a disk that is nearly full
        if (*direct && (odd || (n < 0 && errno == EINVAL))) {
            *direct = false;
            if (fcntl(fd, F_SETFL, 0) != 0) return td_fs_fail("write", path);
        } else if (n < 0) {
            return td_fs_fail("write", path);
        }
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
    return TD_OK;
}

static td_status write_to(int fd, const struct td_shard *s, const char *path,
                          char out_digest[TD_DIGEST_HEX]) {
    bool direct = true;
    TD_AUTO(td_digest) *digest = NULL;
    TD_TRY(td_digest_create(&digest));
    for (size_t at = 0; at < s->bytes; at += CHUNK_BYTES) {
        size_t bytes = TD_MIN(s->bytes - at, (size_t)CHUNK_BYTES);
        td_digest_update(digest, s->image + at, bytes);
        TD_TRY(write_pages(fd, path, s->image + at, td_align_up(bytes, TD_SHARD_PAGE), &direct));
    }
    if (ftruncate(fd, (off_t)s->bytes) != 0) return td_fs_fail("cut", path);
    if (fsync(fd) != 0) return td_fs_fail("sync", path);
    td_digest_hex(digest, out_digest);
    return TD_OK;
}

td_status td_shard_write(const struct td_shard *s, const char *path,
                         char out_digest[TD_DIGEST_HEX]) {
    TD_AUTO_CLOSE int fd = create(path);
    if (fd < 0) return td_fs_fail("create shard", path);
    td_status failed = write_to(fd, s, path, out_digest);
    if (failed) (void)unlink(path);
    return failed;
}
