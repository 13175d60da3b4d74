// See the header.

#include "daemon/coordinator/shell/access/caps.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/exchange.h"
#include "daemon/coordinator/shell/access/credentials.h"
#include "lib/base/map.h"

enum { KEY_BYTES = TD_TOKEN_NAME + 16 };

struct td_seat {
    enum td_access_role role;
    char key[KEY_BYTES]; // "viewer bob"
    uint32_t n[TD_CAP_COUNT];
};

struct td_caps {
    struct td_map *seats;
    uint32_t n[TD_CAP_COUNT];
    uint32_t of_role[TD_ROLE_COUNT][TD_CAP_COUNT];
};

static const struct cap {
    uint32_t most;
    const char *reason, *what, *method;
} table[] = {
#define TD_CAP(name, most, reason, what, method) {most, reason, what, method},
#include "daemon/coordinator/shell/access/caps.def"
#undef TD_CAP
};
_Static_assert(TD_COUNTOF(table) == TD_CAP_COUNT, "one row per cap");

td_status td_caps_create(struct td_caps **out_caps) {
    TD_AUTO(td_caps) *caps = td_calloc(1, sizeof *caps);
    if (!caps) return td_fail_oom();
    TD_TRY(td_map_create(table[TD_CAP_CALLS].most, &caps->seats));
    *out_caps = td_steal(caps);
    return TD_OK;
}

void td_caps_destroy(struct td_caps *caps) {
    if (!caps) return;
    TD_CHECK(!caps->seats || td_map_count(caps->seats) == 0);
    td_map_destroy(caps->seats);
    free(caps);
}

uint32_t td_caps_count(const struct td_caps *caps, enum td_cap cap) {
    return caps->n[cap];
}

// ---- judging ------------------------------------------------------------------------------------
static bool has_share(enum td_access_role role) {
    return role == TD_ROLE_VIEWER || role == TD_ROLE_SUBMITTER || role == TD_ROLE_JOIN;
}

static bool has_reserve(enum td_access_role role) {
    return role == TD_ROLE_OPERATOR || role == TD_ROLE_ADMIN;
}

static td_status refuse(const struct cap *cap, const struct td_caller *who, uint32_t n_held,
                        td_status take_why) {
    td_status s = td_status_with_reason(take_why, cap->reason);
    s = td_status_with_meta(s, "limit", "%u", cap->most);
    s = td_status_with_meta(s, "role", "%s", td_access_role_name(who->role));
    return td_status_with_meta(s, "held", "%u", n_held);
}

static td_status judge(const struct td_caps *caps, enum td_cap i, const struct td_caller *who,
                       uint32_t n_held) {
    const struct cap *cap = &table[i];
    const uint32_t share = cap->most / 4;
    const char *role = td_access_role_name(who->role);
    uint32_t n_kept = has_reserve(who->role) ? 0 : cap->most / 8;
    if (has_share(who->role) && n_held >= share / 2) {
        return refuse(cap, who, n_held,
                      td_fail(TD_RESOURCE_EXHAUSTED,
                              "'%s' holds %u %s, as many as one name with the role %s may; end "
                              "some of them first",
                              who->name, n_held, cap->what, role));
    }
    if (has_share(who->role) && caps->of_role[who->role][i] >= share) {
        return refuse(cap, who, n_held,
                      td_fail(TD_RESOURCE_EXHAUSTED,
                              "all with the role %s hold %u %s, as many as they may, '%s' %u of "
                              "them; try again later",
                              role, share, cap->what, who->name, n_held));
    }
    if (caps->n[i] < cap->most - n_kept) return TD_OK;
    return refuse(cap, who, n_held,
                  td_fail(TD_RESOURCE_EXHAUSTED,
                          "%u %s are open, as many as may be with the role %s, '%s' holds %u of "
                          "them; try again later",
                          caps->n[i], cap->what, role, who->name, n_held));
}

// ---- coming and going ---------------------------------------------------------------------------
// Is a call of that method in that cap?
static bool counts(const struct cap *cap, const char *method) {
    return !cap->method[0] || strcmp(cap->method, method) == 0;
}

static void add(struct td_caps *caps, struct td_seat *seat, const char *method, uint32_t by) {
    for (size_t i = 0; i < TD_CAP_COUNT; i++) {
        if (!counts(&table[i], method)) continue;
        seat->n[i] += by;
        caps->n[i] += by;
        caps->of_role[seat->role][i] += by;
    }
}

static td_status take_seat(struct td_caps *caps, enum td_access_role role, const char *key,
                           struct td_seat **out_seat) {
    struct td_seat *seat = td_calloc(1, sizeof *seat);
    if (!seat) return td_fail_oom();
    seat->role = role;
    snprintf(seat->key, sizeof seat->key, "%s", key);
    td_status s = td_map_put(caps->seats, key, seat, NULL);
    if (s) {
        free(seat);
        return s;
    }
    *out_seat = seat;
    return TD_OK;
}

td_status td_caps_enter(struct td_caps *caps, const struct td_caller *who, const char *method,
                        struct td_seat **out_seat) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s %s", td_access_role_name(who->role), who->name);
    struct td_seat *seat = td_map_get(caps->seats, key);
    for (size_t i = 0; i < TD_CAP_COUNT; i++) {
        if (counts(&table[i], method)) {
            TD_TRY(judge(caps, (enum td_cap)i, who, seat ? seat->n[i] : 0));
        }
    }
    if (!seat) TD_TRY(take_seat(caps, who->role, key, &seat));
    add(caps, seat, method, 1);
    *out_seat = seat;
    return TD_OK;
}

void td_caps_leave(struct td_caps *caps, struct td_seat *seat, const char *method) {
    add(caps, seat, method, UINT32_MAX); // -1
    if (seat->n[TD_CAP_CALLS]) return;
    td_map_remove(caps->seats, seat->key);
    free(seat);
}
