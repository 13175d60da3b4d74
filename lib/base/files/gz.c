// Reads gzip files with zlib, and only here.
//
// The file is read in pieces and inflated straight into the caller's buffer, in steps that never
// pass max_bytes, so a bomb costs at most the cap. Several members one after another are one file,
// as gzip(1) has it. Bytes after the last member that are no further member are an error, because a
// data set with rubbish at its end is a damaged data set. zlib's memory is ours to fail (tests).

#include "lib/base/files/gz.h"

#include <errno.h>
#include <unistd.h>

#include <zlib.h>

#include "lib/base/files/files.h"
#include "lib/base/files/named.h"

enum { PIECE = 1 << 16, GZIP_WINDOW = 15 + 16 };

struct gz_reader {
    const char *path;
    int fd;
    z_stream z;
    bool z_open;
    size_t offset; // of the bytes read from the file so far
    size_t max_bytes;
    size_t decoded;
    bool full;
    uint8_t in[PIECE];
};

static void gz_reader_destroy(struct gz_reader *g) {
    if (!g) return;
    if (g->z_open) inflateEnd(&g->z);
    td_auto_close(&g->fd);
    free(g);
}
TD_DEFINE_AUTO(gz_reader, gz_reader_destroy);

static void *gz_alloc(void *opaque, unsigned n, unsigned bytes) {
    (void)opaque;
    return td_calloc(n, bytes);
}

static void gz_free(void *opaque, void *p) {
    (void)opaque;
    free(p);
}

static td_status damaged(const struct gz_reader *g, const char *what) {
    td_status s = td_fail(TD_DATA_LOSS, "read '%s': %s at offset %zu", g->path, what,
                          g->offset - g->z.avail_in);
    return td_status_with_class(s, TD_CLASS_DATA);
}

static td_status fill(struct gz_reader *g, bool *out_end) {
    ssize_t n;
    do {
        n = read(g->fd, g->in, sizeof g->in);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return td_status_with_class(td_fs_fail("read", g->path), TD_CLASS_DATA);
    g->offset += (size_t)n;
    g->z.next_in = g->in;
    g->z.avail_in = (unsigned)n;
    *out_end = n == 0;
    return TD_OK;
}

// Inflates what is in the piece; *out_ended says that a member ended (and input may be left).
static td_status inflate_piece(struct gz_reader *g, struct td_buf *out, bool *out_ended) {
    *out_ended = false;
    for (;;) {
        size_t left = g->max_bytes - g->decoded, step = TD_MIN(left, (size_t)PIECE);
        uint8_t one_more; // inflate needs room even to say that it is done
        if (step > 0) TD_TRY_CTX(td_buf_reserve(out, step), "read '%s'", g->path);
        g->z.next_out = step > 0 ? (uint8_t *)out->data + out->len : &one_more;
        g->z.avail_out = (unsigned)TD_MAX(step, 1);
        int rc = inflate(&g->z, Z_NO_FLUSH);
        size_t made = TD_MAX(step, 1) - g->z.avail_out;
        if (made > step) {
            g->full = true;
            return TD_OK;
        }
        out->len += made;
        if (made > 0) out->data[out->len] = '\0';
        g->decoded += made;
        if (rc == Z_MEM_ERROR) return td_fail_oom();
        if (rc == Z_STREAM_END) {
            *out_ended = true;
            return TD_OK;
        }
        if (rc != Z_OK && rc != Z_BUF_ERROR) return damaged(g, g->z.msg ? g->z.msg : "bad gzip");
        if (g->z.avail_in == 0 && g->z.avail_out > 0) return TD_OK;
    }
}

static td_status inflate_all(struct gz_reader *g, struct td_buf *out) {
    bool in_member = true;
    for (;;) {
        bool end = false;
        if (g->z.avail_in == 0) TD_TRY(fill(g, &end));
        if (end && in_member) return damaged(g, "the file ends inside its gzip data");
        if (end) return TD_OK;
        if (!in_member) {
            if (inflateReset(&g->z) != Z_OK) return damaged(g, "bad gzip");
            in_member = true;
        }
        bool ended;
        TD_TRY(inflate_piece(g, out, &ended));
        if (g->full) return TD_OK;
        if (ended) in_member = false;
    }
}

static td_status read_plain(struct gz_reader *g, struct td_buf *out) {
    TD_TRY(td_buf_reserve(out, g->max_bytes));
    while (g->decoded < g->max_bytes) {
        ssize_t n =
            pread(g->fd, out->data + out->len, g->max_bytes - g->decoded, (off_t)g->decoded);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return td_fs_fail("read", g->path);
        if (n == 0) break;
        g->decoded += (size_t)n;
        out->len += (size_t)n;
    }
    out->data[out->len] = '\0';
    return TD_OK;
}

td_status td_gz_head(const char *path, size_t bytes, struct td_buf *out) {
    TD_AUTO(gz_reader) *g = td_calloc(1, sizeof *g);
    if (!g) return td_fail_oom();
    g->path = path;
    g->max_bytes = bytes;
    g->fd = -1;
    TD_TRY(td_named_open(path, &g->fd, NULL));
    uint8_t magic[2] = {0, 0};
    bool is_gzip = pread(g->fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
    if (!is_gzip) return td_status_with_class(read_plain(g, out), TD_CLASS_DATA);
    g->z.zalloc = gz_alloc;
    g->z.zfree = gz_free;
    if (inflateInit2(&g->z, GZIP_WINDOW) != Z_OK) return td_fail_oom();
    g->z_open = true;
    return inflate_all(g, out);
}

// zlib counts in 32 bits, so input and output go in parts.
const char *td_gz_inflate(const void *data, size_t bytes, void *out, size_t out_bytes,
                          size_t *out_at) {
    enum { PART = 1 << 30 };
    z_stream z = {.zalloc = gz_alloc, .zfree = gz_free};
    uint8_t none; // inflate needs room even to say that it is done
    size_t in_at = 0, made = 0;
    int rc = inflateInit2(&z, -15);
    if (rc != Z_OK) return "there is no memory for it";
    while (rc == Z_OK) {
        const size_t more = TD_MIN(bytes - in_at, (size_t)PART);
        const size_t room = TD_MIN(out_bytes - made, (size_t)PART);
        z.next_in = (uint8_t *)td_unconst(data) + in_at;
        z.avail_in = (unsigned)more;
        z.next_out = room ? (uint8_t *)out + made : &none;
        z.avail_out = (unsigned)TD_MAX(room, 1);
        rc = inflate(&z, Z_NO_FLUSH);
        in_at += more - z.avail_in;
        if (room) made += room - z.avail_out;
        if (!room && z.avail_out == 0) rc = Z_BUF_ERROR; // more than was said
    }
    inflateEnd(&z);
    *out_at = in_at;
    if (rc == Z_STREAM_END && made == out_bytes) return NULL;
    return rc == Z_MEM_ERROR    ? "there is no memory for it"
           : rc == Z_STREAM_END ? "it ends before all of it is there"
           : in_at == bytes     ? "it is cut short"
           : rc == Z_BUF_ERROR  ? "it is longer than the archive says"
                                : "it is no deflated data";
}

td_status td_gz_deflate(const void *data, size_t bytes, struct td_buf *out) {
    z_stream z = {.zalloc = gz_alloc, .zfree = gz_free};
    uint8_t piece[PIECE];
    if (bytes > UINT32_MAX) return td_fail(TD_RESOURCE_EXHAUSTED, "deflate %zu bytes", bytes);
    if (deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        return td_fail_oom();
    }
    z.next_in = td_unconst(data);
    z.avail_in = (unsigned)bytes;
    td_status s = TD_OK;
    int rc = Z_OK;
    while (!s && rc == Z_OK) {
        z.next_out = piece;
        z.avail_out = PIECE;
        rc = deflate(&z, Z_FINISH);
        s = td_buf_append(out, piece, PIECE - z.avail_out);
    }
    deflateEnd(&z);
    TD_CHECK(s || rc == Z_STREAM_END);
    return s;
}

uint32_t td_gz_crc32(const void *data, size_t bytes) {
    return (uint32_t)crc32_z(0, data, bytes);
}
