// See the header. A head is read again from its first byte whenever more of it has come: it is
// short, and comes in one piece.

#include "daemon/worker/reports/http_head.h"

#include <string.h>
#include <strings.h>

enum {
    OK = 200,
    BAD = 400,
    NOT_ALLOWED = 405,
    NOT_IMPLEMENTED = 501,
    TOO_LONG = 431,
    VERSION = 505,
    LENGTH_DIGITS = 18, // fit int64_t
};

struct text {
    const char *at;
    size_t bytes;
};

// The next line, without its end. False: it is not whole yet.
static bool next_line(const char **io_at, const char *end, struct text *out_line) {
    const char *at = *io_at, *stop = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    if (!stop) return false;
    *io_at = stop + 1;
    *out_line = (struct text){at, (size_t)(stop - at)};
    if (out_line->bytes > 0 && stop[-1] == '\r') out_line->bytes--;
    return true;
}

static struct text trimmed(struct text t) {
    while (t.bytes > 0 && (*t.at == ' ' || *t.at == '\t')) {
        t.at++;
        t.bytes--;
    }
    while (t.bytes > 0 && (t.at[t.bytes - 1] == ' ' || t.at[t.bytes - 1] == '\t')) {
        t.bytes--;
    }
    return t;
}

static bool is(struct text t, const char *word) {
    return t.bytes == strlen(word) && strncasecmp(t.at, word, t.bytes) == 0;
}

static int read_first(struct text line, struct td_http_head *out) {
    const char *end = line.at + line.bytes;
    const char *path = memchr(line.at, ' ', line.bytes);
    const char *version = path ? memchr(path + 1, ' ', (size_t)(end - path - 1)) : NULL;
    if (!version || path[1] != '/' || end - version != 9) return BAD;
    if (memcmp(version, " HTTP/", 6) != 0) return BAD;
    if (memcmp(version, " HTTP/1.", 8) != 0) return VERSION;
    out->path = path + 1;
    out->path_bytes = (size_t)(version - path - 1);
    if (path - line.at != 4 || memcmp(line.at, "POST", 4) != 0) return NOT_ALLOWED;
    return OK;
}

static int read_length(struct text v, struct td_http_head *out) {
    int64_t n = 0;
    if (out->body_bytes >= 0 || v.bytes == 0 || v.bytes > LENGTH_DIGITS) return BAD;
    for (size_t i = 0; i < v.bytes; i++) {
        if (v.at[i] < '0' || v.at[i] > '9') return BAD;
        n = n * 10 + (v.at[i] - '0');
    }
    out->body_bytes = n;
    return OK;
}

static int read_token(struct text v, struct td_http_head *out) {
    static const char scheme[] = "Bearer ";
    const size_t n = sizeof scheme - 1;
    if (out->token) return BAD;
    const bool bears = v.bytes > n && strncasecmp(v.at, scheme, n) == 0;
    const struct text t =
        bears ? trimmed((struct text){v.at + n, v.bytes - n}) : (struct text){v.at, 0};
    out->token = t.at;
    out->token_bytes = t.bytes;
    return OK;
}

static int read_header(struct text line, struct td_http_head *out) {
    const char *colon = memchr(line.at, ':', line.bytes);
    if (!colon || colon == line.at || *line.at == ' ' || *line.at == '\t') return BAD;
    const struct text name = {line.at, (size_t)(colon - line.at)};
    const struct text value = trimmed((struct text){colon + 1, line.bytes - name.bytes - 1});
    if (is(name, "Content-Length")) return read_length(value, out);
    if (is(name, "Authorization")) return read_token(value, out);
    return is(name, "Transfer-Encoding") ? NOT_IMPLEMENTED : OK;
}

int td_http_head_read(const char *data, size_t bytes, struct td_http_head *out_head) {
    struct td_http_head head = {.body_bytes = -1};
    const size_t most = TD_MIN(bytes, (size_t)TD_HTTP_HEAD_MAX);
    const char *at = data, *end = data + most;
    struct text line;
    for (int n = 0; next_line(&at, end, &line); n++) {
        if (n > 0 && line.bytes == 0) {
            head.bytes = (size_t)(at - data);
            *out_head = head;
            return OK;
        }
        if (memchr(line.at, '\0', line.bytes)) return BAD;
        const int status = n == 0 ? read_first(line, &head) : read_header(line, &head);
        if (status != OK) return status;
    }
    return most == TD_HTTP_HEAD_MAX ? TOO_LONG : 0;
}
