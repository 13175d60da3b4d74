// See the header. It is written, then sealed, so that no rank can change what another reads.

#include "fabric/spawn/spawn_call.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/base/files/files.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL };
_Static_assert(sizeof(struct td_spawn_call) <= TD_SPAWN_CALL_BYTES, "it fits its place");

td_status td_spawn_call_make(const struct td_spawn_call *call, const void *args, int *out_fd) {
    TD_AUTO_CLOSE int fd = memfd_create("traind-call", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make memory for the arguments");
    TD_TRY(td_fd_write_all(fd, call, sizeof *call, "the memory of the call"));
    if (ftruncate(fd, TD_SPAWN_CALL_BYTES) != 0 ||
        lseek(fd, TD_SPAWN_CALL_BYTES, SEEK_SET) != TD_SPAWN_CALL_BYTES) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make memory for the arguments");
    }
    TD_TRY_CTX(td_fd_write_all(fd, args, call->args_bytes, "the memory of the arguments"),
               "copy %zu bytes of arguments", (size_t)call->args_bytes);
    if (fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        return td_fail_errno(TD_INTERNAL, "seal the memory of the arguments");
    }
    *out_fd = td_steal_fd(&fd);
    return TD_OK;
}

td_status td_spawn_call_read(int fd, const struct td_spawn_call **out_call, const void **out_args) {
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) != 0 ||
        st.st_size < TD_SPAWN_CALL_BYTES) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "descriptor %d is not the sealed memory of a call of td_spawn", fd);
    }
    const char *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "map the arguments");
    const struct td_spawn_call *c = (const struct td_spawn_call *)(const void *)map;
    if (c->magic != TD_SPAWN_CALL_MAGIC || c->version != TD_SPAWN_CALL_VERSION ||
        c->args_bytes != (uint64_t)st.st_size - TD_SPAWN_CALL_BYTES ||
        !memchr(c->function, '\0', sizeof c->function) || !memchr(c->dir, '\0', sizeof c->dir)) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "the call has version %u, this program reads %d: its parent is of another "
                       "build of libtraind.so",
                       c->version, TD_SPAWN_CALL_VERSION);
    }
    *out_call = c;
    *out_args = c->args_bytes > 0 ? map + TD_SPAWN_CALL_BYTES : NULL;
    return TD_OK;
}
