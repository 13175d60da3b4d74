// Groups of some ranks, in places of the mapping of all (see shm.h).
//
//   [number and list of ranks][head and slots][stages: 2 halves for each rank]  TD_GROUPS_MAX times
//
// A place has room for every rank, so any group fits any place, and the launcher knows the size
// without knowing the groups. Halves are smaller than those of the whole; a group has no gradient
// region. Each group needs stages of its own, although ranks make one call at a time. A slow rank
// may still read a stage for one group while its owner already fills it for another.
//
// To create one all ranks meet with the same list, rank 0 chooses a place and clears it, and all
// meet again. To destroy one its ranks meet, and the first of them gives the place back. It is
// filled again in a later create at the earliest, to which the others come after that. Rejected:
// a mapping of its own for each group, which only the launcher could bring.

#include <string.h>

#include "collectives/shm.h"
#include "lib/base/digest.h"
#include "lib/base/machine/machine.h"

// ---- a place -----------------------------------------------------------------------------------
static size_t list_bytes(int32_t world) {
    return td_align_up(sizeof(struct td_shm_place) + (size_t)world * sizeof(uint16_t),
                       TD_LINE_BYTES);
}

static size_t head_bytes(int32_t world) {
    return sizeof(struct td_shm_head) + (size_t)world * sizeof(struct td_shm_slot);
}

size_t td_shm_place_bytes(int32_t world) {
    return td_align_up(list_bytes(world) + head_bytes(world) +
                           (size_t)world * 2 * TD_SHM_GROUP_HALF_BYTES,
                       td_page_bytes());
}

static struct td_shm_place *place_at(const struct td_collective *c, uint32_t i) {
    return (struct td_shm_place *)(c->places + i * c->place_bytes);
}

static bool has_ranks(const struct td_shm_place *p, const int32_t *ranks, int32_t n_ranks) {
    if (atomic_load(&p->n_ranks) != (uint32_t)n_ranks) return false;
    for (int32_t i = 0; i < n_ranks; i++) {
        if (p->ranks[i] != ranks[i]) return false;
    }
    return true;
}

// ---- create ------------------------------------------------------------------------------------
// What rank 0 found, for all: 1 + place, or one of these.
enum { ANSWER_EXISTS = UINT16_MAX - 1, ANSWER_FULL = UINT16_MAX };

static uint32_t choose(struct td_collective *c, const int32_t *ranks, int32_t n_ranks) {
    uint32_t free_place = TD_GROUPS_MAX;
    for (uint32_t i = TD_GROUPS_MAX; i--;) {
        if (has_ranks(place_at(c, i), ranks, n_ranks)) return ANSWER_EXISTS;
        if (!atomic_load(&place_at(c, i)->n_ranks)) free_place = i;
    }
    if (free_place == TD_GROUPS_MAX) return ANSWER_FULL;
    struct td_shm_place *p = place_at(c, free_place);
    memset((char *)p + list_bytes(c->team.world), 0, head_bytes(c->team.world));
    for (int32_t i = 0; i < n_ranks; i++) {
        p->ranks[i] = (uint16_t)ranks[i];
    }
    atomic_store(&p->n_ranks, (uint32_t)n_ranks);
    return 1 + free_place;
}

static td_status agree(struct td_collective *c, const int32_t *ranks, int32_t n_ranks,
                       uint32_t *out_place) {
    const struct td_shm_call call = {
        .kind = TD_SHM_GROUP_CREATE,
        .detail = (uint32_t)td_xxh3_64(ranks, (size_t)n_ranks * sizeof *ranks),
        .n = n_ranks,
        .place = -1};
    _Atomic uint32_t *answer = &c->team.head->group_answer;
    TD_TRY(td_shm_team_meet(&c->team, &call));
    if (c->team.rank == 0) atomic_store(answer, choose(c, ranks, n_ranks));
    TD_TRY(td_shm_team_meet(&c->team, NULL));
    const uint32_t said = atomic_load(answer);
    if (said == ANSWER_EXISTS) return td_collective_fail_group_exists(n_ranks);
    if (said == ANSWER_FULL) return td_collective_fail_too_many_groups();
    *out_place = said - 1;
    return TD_OK;
}

static int32_t index_of(const int32_t *ranks, int32_t n_ranks, int32_t rank) {
    for (int32_t i = 0; i < n_ranks; i++) {
        if (ranks[i] == rank) return i;
    }
    return -1;
}

static void open_group(struct td_collective *c, uint32_t place, int32_t rank, int32_t n_ranks,
                       struct td_collective *g) {
    struct td_shm_place *p = place_at(c, place);
    char *head = (char *)p + list_bytes(c->team.world);
    td_shm_team_split(&g->team, &c->team, (struct td_shm_head *)head, p->ranks, rank, n_ranks);
    g->stages = head + head_bytes(c->team.world);
    g->half_bytes = TD_SHM_GROUP_HALF_BYTES;
    c->groups[place] = g;
}

td_status td_shm_group_create(struct td_collective *c, const int32_t *ranks, int32_t n_ranks,
                              struct td_collective **out_group) {
    TD_TRY(td_shm_settle(c));
    struct td_collective *g = NULL;
    uint32_t place = 0;
    if (!c->places) return td_collective_fail_nested_group();
    TD_TRY(td_collective_check_group(ranks, n_ranks, c->team.world));
    const int32_t own = index_of(ranks, n_ranks, c->team.rank);
    if (own >= 0) {
        g = td_calloc(1, sizeof *g + (size_t)n_ranks * sizeof g->parts[0]);
        if (!g) return td_fail_oom();
    }
    td_status s = agree(c, ranks, n_ranks, &place);
    if (s) {
        free(g);
        return s;
    }
    if (g) open_group(c, place, own, n_ranks, g);
    *out_group = g;
    return TD_OK;
}

// ---- destroy -----------------------------------------------------------------------------------
static void close_group(struct td_collective *c, uint32_t place) {
    struct td_collective *g = c->groups[place];
    td_works_destroy(g->works);
    if (g->team.rank == 0) atomic_store(&place_at(c, place)->n_ranks, 0);
    c->groups[place] = NULL;
    free(g);
}

td_status td_shm_group_destroy(struct td_collective *c, struct td_collective *group) {
    const struct td_shm_call call = {.kind = TD_SHM_GROUP_DESTROY, .place = -1};
    if (!group) return TD_OK;
    for (uint32_t i = 0; i < TD_GROUPS_MAX; i++) {
        if (c->groups[i] != group) continue;
        const int n_open = td_works_open(group->works);
        if (n_open) return td_collective_fail_open_handles(n_open);
        TD_TRY(td_shm_team_meet(&group->team, &call));
        close_group(c, i);
        return TD_OK;
    }
    return td_collective_fail_foreign_group();
}

void td_shm_leave_groups(struct td_collective *c) {
    for (uint32_t i = 0; i < TD_GROUPS_MAX; i++) {
        if (c->groups[i]) close_group(c, i);
    }
}
