// A bucket is what the state table says of it.

#include "engine/train/rank/group/bucket_list.h"

// The table lays tensors out in its own order, so that of their offsets is the same.
static void list_tensors(const struct td_rank *r, struct td_bucket_tensor *at,
                         struct td_bucket *buckets) {
    for (uint32_t b = 0; b < td_state_n_buckets(r->state); b++) {
        struct td_bucket *bucket = &buckets[b];
        bucket->tensors = at;
        for (uint32_t i = 0; i < td_state_count(r->state); i++) {
            const struct td_state_info *t = td_state_at(r->state, i);
            if (t->role != TD_ROLE_GRAD || t->bucket != b) continue;
            *at++ = (struct td_bucket_tensor){t->name, t->offset - bucket->offset, t->shape};
            bucket->n_tensors++;
        }
    }
}

td_status td_rank_list_buckets(const struct td_rank *r, struct td_arena *arena,
                               struct td_bucket *out_buckets) {
    const uint32_t n = td_state_n_buckets(r->state);
    const size_t end = td_state_control_offset(r->state);
    const size_t most = td_state_count(r->state);
    struct td_bucket_tensor *tensors = td_arena_array(arena, most, sizeof *tensors);
    if (!tensors) return td_fail_oom();
    for (uint32_t i = 0; i < n; i++) {
        size_t offset, bytes;
        enum td_dtype dtype;
        td_state_bucket(r->state, i, &offset, &bytes, &dtype);
        out_buckets[i] = (struct td_bucket){
            .struct_bytes = sizeof(struct td_bucket),
            .index = i,
            .n_buckets = n,
            .dtype = dtype,
            .buffer = r->staging.bytes ? r->staging : r->memory.region[TD_ROLE_GRAD],
            .offset = offset,
            .n = (int64_t)(bytes / td_dtype_bytes(dtype)),
            .has_control = i + 1 == n,
            .control_offset = i + 1 == n ? end - offset : 0,
        };
    }
    list_tensors(r, tensors, out_buckets);
    return TD_OK;
}
