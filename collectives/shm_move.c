// What the shared-memory collective copies (see shm.h).
//
// Each chunk goes through the stages with one meeting: who has something puts it into its own half,
// all meet, who wants something takes it. Where each rank gets something else, a half is divided
// into pieces, one a rank. What ranks say of the size of their parts is read once and checked
// before it is used.

#include <string.h>

#include "collectives/shm.h"
#include "lib/base/digest.h"

td_status td_shm_all_gather(struct td_collective *c, const void *in, size_t bytes, void *out) {
    TD_TRY(td_shm_settle(c));
    TD_TRY(td_collective_check_gather(in, bytes, out, c->team.world));
    struct td_shm_call call = {.kind = TD_SHM_ALL_GATHER, .n = (int64_t)bytes, .place = -1};
    size_t done = 0;
    do {
        uint32_t meeting = c->team.meeting + 1;
        size_t n = TD_MIN(bytes - done, c->half_bytes);
        if (n) memcpy(td_shm_stage(c, c->team.rank, meeting), (const char *)in + done, n);
        TD_TRY(td_shm_team_meet(&c->team, done ? NULL : &call));
        for (int32_t p = 0; n && p < c->team.world; p++) {
            memcpy((char *)out + (size_t)p * bytes + done, td_shm_stage(c, p, meeting), n);
        }
        done += n;
    } while (done < bytes);
    return TD_OK;
}

td_status td_shm_broadcast(struct td_collective *c, void *data, size_t bytes, int32_t src) {
    TD_TRY(td_shm_settle(c));
    TD_TRY(td_collective_check_broadcast(data, bytes, src, c->team.world));
    struct td_shm_call call = {
        .kind = TD_SHM_BROADCAST, .detail = (uint32_t)src, .n = (int64_t)bytes, .place = -1};
    size_t done = 0;
    do {
        uint32_t meeting = c->team.meeting + 1;
        size_t n = TD_MIN(bytes - done, c->half_bytes);
        char *stage = td_shm_stage(c, src, meeting), *at = (char *)data + done;
        if (n && c->team.rank == src) memcpy(stage, at, n);
        TD_TRY(td_shm_team_meet(&c->team, done ? NULL : &call));
        if (n && c->team.rank != src) memcpy(at, stage, n);
        done += n;
    } while (done < bytes);
    return TD_OK;
}

td_status td_shm_barrier(struct td_collective *c, const char *tag) {
    TD_TRY(td_shm_settle(c));
    const size_t bytes = strlen(tag);
    struct td_shm_call call = {.kind = TD_SHM_BARRIER, .detail = (uint32_t)td_xxh3_64(tag, bytes)};
    size_t kept = TD_MIN(bytes, sizeof call.tag);
    call.is_cut = kept < bytes;
    while (kept && kept < bytes && ((unsigned char)tag[kept] & 0xc0) == 0x80) {
        kept--; // not within a character of UTF-8
    }
    memcpy(call.tag, tag, kept);
    return td_status_context(td_shm_team_meet(&c->team, &call), "barrier '%s'", tag);
}

td_status td_shm_gather(struct td_collective *c, const void *in, size_t bytes, void *out,
                        int32_t dst) {
    TD_TRY(td_shm_settle(c));
    const bool is_dst = c->team.rank == dst;
    TD_TRY(td_collective_check_rank("gather to", dst, c->team.world));
    TD_TRY(td_collective_check_parts("gather", in, 1, is_dst ? out : NULL,
                                     is_dst ? c->team.world : 0, bytes, c->team.world));
    const struct td_shm_call call = {
        .kind = TD_SHM_GATHER, .detail = (uint32_t)dst, .n = (int64_t)bytes, .place = -1};
    size_t done = 0;
    do {
        const uint32_t meeting = c->team.meeting + 1;
        const size_t n = TD_MIN(bytes - done, c->half_bytes);
        if (n) memcpy(td_shm_stage(c, c->team.rank, meeting), (const char *)in + done, n);
        TD_TRY(td_shm_team_meet(&c->team, done ? NULL : &call));
        for (int32_t p = 0; n && is_dst && p < c->team.world; p++) {
            memcpy((char *)out + (size_t)p * bytes + done, td_shm_stage(c, p, meeting), n);
        }
        done += n;
    } while (done < bytes);
    return TD_OK;
}

// ---- a piece for each rank ----------------------------------------------------------------------
// The next n bytes of what this rank has for each.
static void put_pieces(struct td_collective *c, uint32_t meeting, const char *in, size_t bytes,
                       size_t n) {
    const size_t piece = td_shm_piece(c, 1);
    char *own = td_shm_stage(c, c->team.rank, meeting);
    for (size_t p = 0; n && p < (size_t)c->team.world; p++) {
        memcpy(own + p * piece, in + p * bytes, n);
    }
}

static const char *piece_from(struct td_collective *c, int32_t p, uint32_t meeting) {
    return td_shm_stage(c, p, meeting) + (size_t)c->team.rank * td_shm_piece(c, 1);
}

td_status td_shm_scatter(struct td_collective *c, const void *in, size_t bytes, void *out,
                         int32_t src) {
    TD_TRY(td_shm_settle(c));
    const bool is_src = c->team.rank == src;
    TD_TRY(td_collective_check_rank("scatter from", src, c->team.world));
    TD_TRY(td_collective_check_parts("scatter", is_src ? in : NULL, is_src ? c->team.world : 0, out,
                                     1, bytes, c->team.world));
    const struct td_shm_call call = {
        .kind = TD_SHM_SCATTER, .detail = (uint32_t)src, .n = (int64_t)bytes, .place = -1};
    size_t done = 0;
    do {
        const uint32_t meeting = c->team.meeting + 1;
        const size_t n = TD_MIN(bytes - done, td_shm_piece(c, 1));
        if (is_src) put_pieces(c, meeting, (const char *)in + done, bytes, n);
        TD_TRY(td_shm_team_meet(&c->team, done ? NULL : &call));
        if (n) memcpy((char *)out + done, piece_from(c, src, meeting), n);
        done += n;
    } while (done < bytes);
    return TD_OK;
}

td_status td_shm_all_to_all(struct td_collective *c, const void *in, size_t bytes, void *out) {
    TD_TRY(td_shm_settle(c));
    const int32_t world = c->team.world;
    TD_TRY(td_collective_check_parts("all_to_all", in, world, out, world, bytes, world));
    const struct td_shm_call call = {.kind = TD_SHM_ALL_TO_ALL, .n = (int64_t)bytes, .place = -1};
    size_t done = 0;
    do {
        const uint32_t meeting = c->team.meeting + 1;
        const size_t n = TD_MIN(bytes - done, td_shm_piece(c, 1));
        put_pieces(c, meeting, (const char *)in + done, bytes, n);
        TD_TRY(td_shm_team_meet(&c->team, done ? NULL : &call));
        for (int32_t p = 0; n && p < world; p++) {
            memcpy((char *)out + (size_t)p * bytes + done, piece_from(c, p, meeting), n);
        }
        done += n;
    } while (done < bytes);
    return TD_OK;
}

// ---- parts of any size --------------------------------------------------------------------------
struct uneven {
    uint64_t bytes, room;
};

// Learns what each rank has, and whether all have room for it. Every rank decides the same.
static td_status agree_on_counts(struct td_collective *c, struct uneven own, size_t *counts,
                                 size_t *out_most) {
    const struct td_shm_call call = {.kind = TD_SHM_ALL_GATHER_UNEVEN, .place = -1};
    const uint32_t meeting = c->team.meeting + 1;
    uint64_t all = 0, least_room = UINT64_MAX;
    int32_t least = 0;
    memcpy(td_shm_stage(c, c->team.rank, meeting), &own, sizeof own);
    TD_TRY(td_shm_team_meet(&c->team, &call));
    *out_most = 0;
    for (int32_t p = 0; p < c->team.world; p++) {
        struct uneven said;
        memcpy(&said, td_shm_stage(c, p, meeting), sizeof said);
        counts[p] = (size_t)said.bytes;
        *out_most = TD_MAX(*out_most, counts[p]);
        all = said.bytes > UINT64_MAX - all ? UINT64_MAX : all + said.bytes;
        if (said.room < least_room) least = p;
        least_room = TD_MIN(least_room, said.room);
    }
    if (all <= least_room) return TD_OK;
    return td_fail(TD_RESOURCE_EXHAUSTED,
                   "all_gather_uneven: rank %d has room for %llu bytes, all parts have %llu; call "
                   "again with that much",
                   td_shm_team_name(&c->team, least), (unsigned long long)least_room,
                   (unsigned long long)all);
}

td_status td_shm_all_gather_uneven(struct td_collective *c, const void *in, size_t bytes, void *out,
                                   size_t out_bytes, size_t *counts) {
    TD_TRY(td_shm_settle(c));
    TD_TRY(td_collective_check_uneven(in, bytes, out, out_bytes, counts));
    size_t most;
    TD_TRY(agree_on_counts(c, (struct uneven){bytes, out_bytes}, counts, &most));
    for (size_t done = 0; done < most; done += TD_MIN(most - done, c->half_bytes)) {
        const uint32_t meeting = c->team.meeting + 1;
        const size_t n = bytes > done ? TD_MIN(bytes - done, c->half_bytes) : 0;
        if (n) memcpy(td_shm_stage(c, c->team.rank, meeting), (const char *)in + done, n);
        TD_TRY(td_shm_team_meet(&c->team, NULL));
        char *to = out;
        for (int32_t p = 0; p < c->team.world; to += counts[p], p++) {
            if (counts[p] <= done) continue;
            const size_t theirs = TD_MIN(counts[p] - done, c->half_bytes);
            memcpy(to + done, td_shm_stage(c, p, meeting), theirs);
        }
    }
    return TD_OK;
}
