// A line is "7f00a000-7f00c000 r--s 00001000 08:01 1234   /data/x.npy". The list is read in pieces,
// and a line is kept until its end has come.

#include "fabric/signals/mapping.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/base.h"

enum { PIECE = 4096, LINE_MAX_BYTES = 1024 };

static uint64_t take_hex(const char **at) {
    static const char digits[] = "0123456789abcdef";
    uint64_t v = 0;
    for (const char *d; **at && (d = strchr(digits, **at)); ++*at) {
        v = v << 4 | (uint64_t)(d - digits);
    }
    return v;
}

// The line has the address, and a file.
static bool read_line(const char *line, uintptr_t address, struct td_mapping *out) {
    const uint64_t first = take_hex(&line);
    if (*line++ != '-') return false;
    const uint64_t end = take_hex(&line);
    const char *path = strchr(line, '/');
    if (address < first || address >= end || !path || strlen(line) < sizeof " r--s ") return false;
    const char *rights = line + 1;
    line += sizeof " r--s";
    *out = (struct td_mapping){.offset = take_hex(&line) + (address - first),
                               .is_data = memcmp(rights, "r--s", 4) == 0};
    memcpy(out->path, path, strnlen(path, sizeof out->path - 1));
    return true;
}

bool td_mapping_of(uintptr_t address, struct td_mapping *out_mapping) {
    static char piece[PIECE], line[LINE_MAX_BYTES];
    TD_AUTO_CLOSE int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    for (ssize_t n; fd >= 0 && (n = read(fd, piece, sizeof piece)) > 0;) {
        for (ssize_t i = 0; i < n; i++) {
            if (piece[i] != '\n') {
                if (len + 1 < sizeof line) line[len++] = piece[i];
                continue;
            }
            line[len] = '\0';
            len = 0;
            if (read_line(line, address, out_mapping)) return true;
        }
    }
    return false;
}
