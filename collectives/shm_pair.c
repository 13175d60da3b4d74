// Messages between two ranks of the shared-memory collective (see shm.h).
//
// A rank is in one call at a time, so it has one message on its way at most. That is described in
// the pair's line of its slot: for whom, how long, which tag. Its bytes go through the half of its
// own stage that the next meeting will use; nobody reads that half before this rank comes to that
// meeting. The half is halved again, so that one chunk is filled while the other is taken.
//
// `posted` has the number of the message and its receiver in one word, so a rank that is not meant
// never reads the rest of the line. The receiver sets `done` to the same word after its last chunk;
// only then the sender goes on and may write the line again. Two ranks that wait for each other see
// it in each other's lines. Rejected: a channel for each pair of ranks, which is W * W lines for
// nothing; and sends that return before they are received, whose memory has no bound.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/shm.h"
#include "lib/base/futex.h"

enum { RANK_BITS = 11, RANK_MASK = (1 << RANK_BITS) - 1 }; // 0: nobody, else 1 + rank
_Static_assert((int)TD_COLLECTIVE_MAX_WORLD <= (int)RANK_MASK,
               "a rank has place beside the number");

typedef char call_text[112];

static struct td_shm_pair_line *line_of(const struct td_collective *c, int32_t rank) {
    return &c->team.head->slot[rank].pair;
}

static bool is_for(uint32_t posted, int32_t rank) {
    return (posted & RANK_MASK) == (uint32_t)rank + 1;
}

static void tell(struct td_shm_pair_line *line, _Atomic uint32_t *word, uint32_t value) {
    atomic_store(word, value);
    if (atomic_load(&line->sleepers)) td_futex_wake_all(word);
}

static void describe(call_text out, const char *call, uint64_t bytes, const char *side,
                     int32_t rank, uint32_t tag) {
    snprintf(out, sizeof(call_text), "%s of %" PRIu64 " bytes %s rank %d (tag %" PRIu32 ")", call,
             bytes, side, rank, tag);
}

static td_status check_partner(const struct td_collective *c, const char *call, const void *data,
                               size_t bytes, int32_t partner) {
    TD_TRY(td_collective_check_rank(call, partner, c->team.world));
    TD_TRY(td_collective_check_parts(call, data, 1, NULL, 0, bytes, 1));
    if (partner != c->team.rank) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "%s rank %d: that is this rank itself", call, partner);
}

// ---- send --------------------------------------------------------------------------------------
// Neither of two ranks that send to each other ever receives.
static td_status check_both_send(struct td_collective *c, const struct td_shm_pair_line *own,
                                 int32_t dst, const char *what) {
    const struct td_shm_pair_line *theirs = line_of(c, dst);
    const uint32_t posted = atomic_load(&theirs->posted);
    if (!is_for(posted, c->team.rank) || atomic_load(&theirs->done) == posted) return TD_OK;
    if (atomic_load(&own->done) == atomic_load(&own->posted)) return TD_OK;
    call_text other;
    describe(other, "send", theirs->bytes, "to", td_shm_team_name(&c->team, c->team.rank),
             theirs->tag);
    return td_shm_team_differ(&c->team, what, dst, other);
}

static td_status pause_sender(struct td_collective *c, struct td_shm_pair_line *own, int32_t dst,
                              _Atomic uint32_t *word, uint32_t seen, const char *what) {
    TD_TRY(check_both_send(c, own, dst, what));
    return td_shm_team_pause(&c->team, dst, word, seen, &own->sleepers, what);
}

td_status td_shm_send(struct td_collective *c, const void *data, size_t bytes, int32_t dst,
                      uint32_t tag) {
    TD_TRY(td_shm_settle(c));
    TD_TRY(check_partner(c, "send to", data, bytes, dst));
    struct td_shm_pair_line *own = line_of(c, c->team.rank);
    const size_t room = c->half_bytes / 2;
    const uint32_t half = (c->team.meeting + 1) & 1;
    char *stage = td_shm_stage(c, c->team.rank, half);
    call_text what;
    describe(what, "send", bytes, "to", td_shm_team_name(&c->team, dst), tag);
    td_shm_team_open_pair(&c->team);
    own->bytes = bytes;
    own->tag = tag;
    own->half = half;
    const uint32_t number = (atomic_load(&own->posted) >> RANK_BITS) + 1;
    const uint32_t posted = number << RANK_BITS | ((uint32_t)dst + 1);
    uint32_t put = atomic_load(&own->put), seen;
    tell(own, &own->posted, posted);
    size_t done = 0;
    do {
        while (put - (seen = atomic_load(&own->taken)) >= 2) {
            TD_TRY(pause_sender(c, own, dst, &own->taken, seen, what));
        }
        const size_t n = TD_MIN(bytes - done, room);
        if (n) memcpy(stage + (put & 1) * room, (const char *)data + done, n);
        tell(own, &own->put, ++put);
        done += n;
    } while (done < bytes);
    while ((seen = atomic_load(&own->done)) != posted) {
        TD_TRY(pause_sender(c, own, dst, &own->done, seen, what));
    }
    return TD_OK;
}

// ---- recv --------------------------------------------------------------------------------------
// Waits until the line has a message for this rank.
static td_status await_message(struct td_collective *c, struct td_shm_pair_line *line, int32_t src,
                               const char *what, uint32_t *out_posted) {
    for (;;) {
        const bool waits_for_us = atomic_load(&line->wants_from) == (uint32_t)c->team.rank + 1;
        const uint32_t posted = atomic_load(&line->posted);
        if (is_for(posted, c->team.rank) && atomic_load(&line->done) != posted) {
            *out_posted = posted;
            return TD_OK;
        }
        if (waits_for_us) {
            call_text theirs;
            snprintf(theirs, sizeof theirs, "recv from rank %d",
                     td_shm_team_name(&c->team, c->team.rank));
            return td_shm_team_differ(&c->team, what, src, theirs);
        }
        TD_TRY(td_shm_team_pause(&c->team, src, &line->posted, posted, &line->sleepers, what));
    }
}

td_status td_shm_recv(struct td_collective *c, void *data, size_t bytes, int32_t src,
                      uint32_t tag) {
    TD_TRY(td_shm_settle(c));
    TD_TRY(check_partner(c, "recv from", data, bytes, src));
    struct td_shm_pair_line *line = line_of(c, src), *own = line_of(c, c->team.rank);
    const size_t room = c->half_bytes / 2;
    call_text what, theirs;
    uint32_t posted = 0;
    describe(what, "recv", bytes, "from", td_shm_team_name(&c->team, src), tag);
    td_shm_team_open_pair(&c->team);
    atomic_store(&own->wants_from, (uint32_t)src + 1);
    TD_TRY(await_message(c, line, src, what, &posted));
    if (line->bytes != bytes || line->tag != tag) {
        describe(theirs, "send", line->bytes, "to", td_shm_team_name(&c->team, c->team.rank),
                 line->tag);
        return td_shm_team_differ(&c->team, what, src, theirs);
    }
    const char *stage = td_shm_stage(c, src, line->half & 1);
    uint32_t taken = atomic_load(&line->taken);
    size_t done = 0;
    do {
        while (atomic_load(&line->put) == taken) {
            TD_TRY(td_shm_team_pause(&c->team, src, &line->put, taken, &line->sleepers, what));
        }
        const size_t n = TD_MIN(bytes - done, room);
        if (n) memcpy((char *)data + done, stage + (taken & 1) * room, n);
        done += n;
        if (done == bytes) atomic_store(&own->wants_from, 0); // before the sender goes on
        tell(line, &line->taken, ++taken);
    } while (done < bytes);
    tell(line, &line->done, posted);
    return TD_OK;
}
