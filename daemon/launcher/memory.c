// See the header.

#include "daemon/launcher/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/attempt/rank_env.h"

static td_status fail_shared(uint64_t bytes) {
    return td_status_with_class(td_fail_errno(TD_RESOURCE_EXHAUSTED,
                                              "allocate %llu bytes of shared memory",
                                              (unsigned long long)bytes),
                                TD_CLASS_OUT_OF_MEMORY);
}

static uint64_t group_bytes(const struct td_launcher *l) {
    if (l->o.kind != TD_KIND_PROGRAM) return l->o.shared_bytes;
    return l->o.n_ranks > 1 ? TD_GROUP_HEADER_BYTES : 0;
}

static td_status make_group(struct td_launcher *l) {
    const int shut = l->o.kind == TD_KIND_PROGRAM ? 0 : F_SEAL_GROW | F_SEAL_SEAL;
    uint64_t bytes = group_bytes(l);
    if (bytes == 0) return TD_OK;
    l->group_fd = memfd_create("traind-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (l->group_fd < 0 || ftruncate(l->group_fd, (off_t)bytes) != 0 ||
        fcntl(l->group_fd, F_ADD_SEALS, F_SEAL_SHRINK | shut) != 0) {
        return fail_shared(bytes);
    }
    return TD_OK;
}

td_status td_launcher_make_memory(struct td_launcher *l) {
    uint64_t pages = td_rank_page_memory() * (uint64_t)l->o.n_ranks, bytes = group_bytes(l);
    if (l->o.memory_limit_bytes && bytes + pages >= l->o.memory_limit_bytes) {
        td_status s = td_fail(TD_RESOURCE_EXHAUSTED,
                              "the attempt may use %llu bytes here, but its shared memory alone "
                              "needs %llu: raise resources.memory_bytes",
                              (unsigned long long)l->o.memory_limit_bytes,
                              (unsigned long long)(bytes + pages));
        return td_status_with_class(s, TD_CLASS_OUT_OF_MEMORY);
    }
    l->ranks = td_calloc((size_t)l->o.n_ranks, sizeof *l->ranks);
    if (!l->ranks) return td_fail_oom();
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        TD_TRY(td_launch_rank_init(&l->ranks[i], l->o.first_rank + i, &l->o));
    }
    return make_group(l);
}

td_status td_launcher_fill_group(struct td_launcher *l) {
    uint64_t bytes = group_bytes(l);
    if (l->group_fd < 0) return TD_OK;
    return fallocate(l->group_fd, 0, 0, (off_t)bytes) == 0 ? TD_OK : fail_shared(bytes);
}
