// Descriptors -> memory. A launcher of another version, or a descriptor of something else, is a
// FAILED_PRECONDITION that says which.

#include "fabric/attach.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/attempt/store_client.h"

static td_status map_fd(int fd, const char *what, size_t min_bytes, void **out_map,
                        size_t *out_bytes) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return td_fail_errno(TD_FAILED_PRECONDITION, "descriptor %d for the %s", fd, what);
    }
    if (st.st_size < 0 || (size_t)st.st_size < min_bytes) {
        return td_fail(TD_FAILED_PRECONDITION, "the %s has %lld bytes, at least %zu are needed",
                       what, (long long)st.st_size, min_bytes);
    }
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "map the %s", what);
    *out_map = map;
    *out_bytes = (size_t)st.st_size;
    return TD_OK;
}

static td_status make_private(struct td_rank_io *io) {
    size_t ring = td_ring_bytes(sizeof(struct td_metric_record), TD_METRIC_RING_RECORDS);
    io->page_bytes = TD_RANK_PAGE_BYTES + ring;
    io->page_map =
        mmap(NULL, io->page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (io->page_map == MAP_FAILED) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "map a page");
    io->train.page = io->page_map;
    *io->train.page = (struct td_rank_page){
        .magic = TD_RANK_PAGE_MAGIC,
        .version = TD_RANK_PAGE_VERSION,
        .world_size = 1,
    };
    io->train.print_metrics = true;
    return td_ring_format((char *)io->page_map + TD_RANK_PAGE_BYTES, ring,
                          sizeof(struct td_metric_record), TD_METRIC_RING_RECORDS, &io->train.ring);
}

static td_status attach_launcher(const struct td_rank_args *args, struct td_rank_io *io) {
    TD_TRY(map_fd(args->page_fd, "rank page", TD_RANK_PAGE_BYTES, &io->page_map, &io->page_bytes));
    struct td_rank_page *p = io->page_map;
    if (p->magic != TD_RANK_PAGE_MAGIC || p->version != TD_RANK_PAGE_VERSION) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "the launcher's rank page has version %u, this worker knows %d; they come "
                       "from different builds",
                       p->version, TD_RANK_PAGE_VERSION);
    }
    if (p->rank != args->rank || (args->world_size && p->world_size != args->world_size)) {
        return td_fail(TD_FAILED_PRECONDITION, "the rank page is for rank %d of %d, not %d of %d",
                       p->rank, p->world_size, args->rank, args->world_size);
    }
    io->train.page = p;
    return td_ring_attach((char *)io->page_map + TD_RANK_PAGE_BYTES,
                          io->page_bytes - TD_RANK_PAGE_BYTES, sizeof(struct td_metric_record),
                          &io->train.ring);
}

td_status td_rank_attach(const struct td_rank_args *args, struct td_rank_io *out_io) {
    struct td_rank_io io = {0};
    td_status s = args->page_fd >= 0 ? attach_launcher(args, &io) : make_private(&io);
    if (!s && args->store_fd >= 0) {
        s = td_store_client_create(args->store_fd, TD_STORE_SET_NS, &io.store);
    }
    if (s) {
        td_rank_detach(&io);
        return s;
    }
    if (io.store) io.train.store = td_store_client_store(io.store);
    *out_io = io;
    return TD_OK;
}

td_status td_rank_attach_group(const struct td_rank_args *args, int32_t local_world_size,
                               struct td_rank_io *io) {
    if (local_world_size == 1) return TD_OK;
    if (args->group_fd < 0) {
        return td_status_with_class(
            td_fail(
                TD_FAILED_PRECONDITION,
                "%d ranks need a launcher: submit the job to traind, or set trainer.devices to 1",
                local_world_size),
            TD_CLASS_BAD_SPEC);
    }
    return map_fd(args->group_fd, "mapping of the group", 1, &io->train.group,
                  &io->train.group_bytes);
}

void td_rank_detach(struct td_rank_io *io) {
    td_store_client_destroy(io->store);
    if (io->train.group) munmap(io->train.group, io->train.group_bytes);
    if (io->page_map && io->page_map != MAP_FAILED) munmap(io->page_map, io->page_bytes);
    *io = (struct td_rank_io){0};
}
