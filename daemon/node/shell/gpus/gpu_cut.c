// See the header. One item of a list is looked at at a time; which devices it means is kept by
// their place in the list.

#include "daemon/node/shell/gpus/gpu_cut.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/attempt/devices.h"
#include "lib/base/clip.h"

struct item {
    const char *text;
    size_t len;
};

// The next of a list with ',' between, without blanks around it. False: there is none.
static bool next_item(const char **at, struct item *out) {
    if (!*at) return false;
    const char *p = *at + strspn(*at, " \t");
    size_t len = strcspn(p, ",");
    *at = p[len] ? p + len + 1 : NULL;
    while (len && (p[len - 1] == ' ' || p[len - 1] == '\t')) {
        len--;
    }
    *out = (struct item){p, len};
    return true;
}

static bool begins(const char *text, const struct item *with) {
    return with->len && strncmp(text, with->text, with->len) == 0;
}

bool td_gpu_cut_is_none(const char *gpus) {
    return strcmp(gpus, "none") == 0;
}

td_status td_gpu_cut_check(const char *gpus) {
    static const char rule[] = "auto, none, or uuids of GPUs with ',' between, as `nvidia-smi -L` "
                               "prints them (GPU-..., MIG-...), or their beginnings";
    struct item i;
    if (td_gpu_cut_is_none(gpus) || strcmp(gpus, "auto") == 0) return TD_OK;
    for (const char *at = gpus; next_item(&at, &i);) {
        char uuid[TD_DEVICE_UUID];
        (void)td_clip(uuid, sizeof uuid, "%.*s", (int)TD_MIN(i.len, sizeof uuid), i.text);
        const bool is_named = strncmp(uuid, "GPU-", 4) == 0 || strncmp(uuid, "MIG-", 4) == 0;
        if (is_named && i.len < sizeof uuid && td_device_uuid_ok(uuid)) continue;
        return td_fail(TD_INVALID_ARGUMENT, "expected %s; found '%s'", rule, uuid);
    }
    return TD_OK;
}

// ---- what an item means -------------------------------------------------------------------------
// Marks the devices of an index; their number.
static size_t mark_index(const Traind__V1__GpuList *l, const struct item *i, bool *chosen) {
    char *end;
    size_t n = 0;
    errno = 0;
    const long index = strtol(i->text, &end, 10);
    if (errno || end != i->text + i->len || index < 0) return 0;
    for (size_t k = 0; k < l->n_gpus; k++) {
        if (l->gpus[k]->index != (unsigned long)index) continue;
        chosen[k] = true;
        n++;
    }
    return n;
}

// The same of a uuid, or the beginning of one. -1: it fits several.
static int mark_uuid(const Traind__V1__GpuList *l, const struct item *i, bool *chosen) {
    const char *found = NULL;
    int n = 0;
    for (int pass = 0; pass < 2; pass++) { // a second one marks
        for (size_t k = 0; k < l->n_gpus; k++) {
            const Traind__V1__Gpu *g = l->gpus[k];
            const char *name = begins(g->uuid, i) ? g->uuid : g->parent;
            if (!begins(name, i)) continue;
            if (found && strcmp(found, name) != 0) return -1;
            found = name;
            if (pass) chosen[k] = true;
            n += !pass;
        }
    }
    return n;
}

// ---- the two lists ------------------------------------------------------------------------------
static void choose_visible(const char *visible, const Traind__V1__GpuList *l, bool *chosen,
                           char *why, size_t why_bytes) {
    struct item i;
    for (const char *at = visible; next_item(&at, &i);) {
        const bool is_number = i.len && strspn(i.text, "+-0123456789") >= i.len;
        const int n = is_number ? (int)mark_index(l, &i, chosen) : mark_uuid(l, &i, chosen);
        if (n > 0) continue;
        const bool ends_it = is_number && i.text[0] == '-'; // "-1" is how it is said
        if (i.len && !ends_it) {
            (void)td_clip(why, why_bytes,
                          "CUDA_VISIBLE_DEVICES of the daemon names '%.*s', which %s; from there "
                          "on it does not count, as with CUDA",
                          (int)TD_MIN(i.len, (size_t)TD_DEVICE_UUID), i.text,
                          n < 0 ? "fits several devices" : "is not here");
        }
        return;
    }
}

static void choose_named(const char *gpus, const Traind__V1__GpuList *l, bool *chosen, char *why,
                         size_t why_bytes) {
    struct td_clip_list missing;
    struct item i;
    td_clip_list_init(&missing, why, why_bytes, "; ");
    for (const char *at = gpus; next_item(&at, &i);) {
        const int n = mark_uuid(l, &i, chosen);
        if (n > 0) continue;
        td_clip_list_add(&missing, "--gpus names %.*s, which %s", (int)i.len, i.text,
                         n < 0 ? "fits several devices" : "is not here");
    }
}

static bool has_index(const Traind__V1__GpuList *l, uint32_t index) {
    for (size_t k = 0; k < l->n_gpus; k++) {
        if (l->gpus[k]->index == index) return true;
    }
    return false;
}

// Peers that the node does not give away are of no use to a job.
static void drop_peers(const Traind__V1__GpuList *l) {
    for (size_t k = 0; k < l->n_gpus; k++) {
        Traind__V1__Gpu *g = l->gpus[k];
        size_t n = 0;
        for (size_t p = 0; p < g->n_peers; p++) {
            if (has_index(l, g->peers[p])) g->peers[n++] = g->peers[p];
        }
        g->n_peers = n;
    }
}

void td_gpu_cut_apply(const struct td_gpu_cut *cut, Traind__V1__GpuList *io_list, char *why,
                      size_t why_bytes) {
    bool chosen[TD_DEVICES_MAX] = {false};
    size_t n = 0;
    const bool is_auto = strcmp(cut->gpus, "auto") == 0;
    why[0] = '\0';
    TD_CHECK(io_list->n_gpus <= TD_DEVICES_MAX);
    if (is_auto && !cut->visible) return;
    if (is_auto) choose_visible(cut->visible, io_list, chosen, why, why_bytes);
    if (!is_auto && !td_gpu_cut_is_none(cut->gpus)) {
        choose_named(cut->gpus, io_list, chosen, why, why_bytes);
    }
    const size_t all = io_list->n_gpus;
    for (size_t k = 0; k < all; k++) {
        if (chosen[k]) io_list->gpus[n++] = io_list->gpus[k];
    }
    io_list->n_gpus = n;
    drop_peers(io_list);
    if (is_auto && all && !n && !why[0]) {
        (void)td_clip(why, why_bytes, "CUDA_VISIBLE_DEVICES of the daemon leaves none of %zu", all);
    }
}
