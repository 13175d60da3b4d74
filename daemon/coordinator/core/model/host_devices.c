// See the header. What a node says is input: a device without a proper name is passed over.

#include "daemon/coordinator/core/model/host_devices.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/host_gpus.h"
#include "lib/base/buf.h"
#include "lib/base/digest.h"
#include "lib/base/json.h"
#include "lib/base/utf8.h"
#include "lib/spec/spec.h"

// ---- keys ---------------------------------------------------------------------------------------
void td_accel_key(const struct td_spec *spec, char out_key[TD_ACCEL_KEY]) {
    if (spec->resources.gpus_per_rank) {
        snprintf(out_key, TD_ACCEL_KEY, "%s", TD_ACCEL_GPU);
        return;
    }
    const struct td_spec_part *p = &spec->trainer.accelerator;
    uint64_t digest = 0;
    const struct td_json *list = p->is_plugin ? spec->plugins : NULL;
    for (const struct td_json *v = list ? list->first : NULL; v; v = v->next) {
        const char *path = td_json_string(v, "");
        digest = digest * 31 + td_xxh3_64(path, strlen(path));
    }
    if (digest) {
        snprintf(out_key, TD_ACCEL_KEY, "%.31s@%016" PRIx64, p->name, digest);
    } else {
        snprintf(out_key, TD_ACCEL_KEY, "%.31s", p->name);
    }
    for (char *c = out_key; *c; c++) { // as the registry compares names
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    }
}

bool td_accel_is_host(const char *key) {
    static const char *const names[] = {"", "auto", "cpu", "reference"};
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        if (strcmp(key, names[i]) == 0) return true;
    }
    return false;
}

bool td_accel_is_gpu(const char *key) {
    return strcmp(key, TD_ACCEL_GPU) == 0;
}

int td_accel_name_len(const char *key) {
    return (int)strcspn(key, "@");
}

static struct td_host_accel *find_exact(const struct td_host_devices *d, const char *key,
                                        size_t len) {
    for (uint32_t i = 0; i < d->n; i++) {
        const char *has = d->accel[i]->key;
        if (strncmp(has, key, len) == 0 && !has[len]) return d->accel[i];
    }
    return NULL;
}

static bool has_digest(const char *key) {
    return strchr(key, '@') != NULL;
}

// The installed one of that name; NULL: there is none that has a device.
static struct td_host_accel *find_installed(const struct td_host_devices *d, const char *key) {
    struct td_host_accel *a = find_exact(d, key, (size_t)td_accel_name_len(key));
    return a && (a->n || a->is_host) ? a : NULL;
}

static struct td_host_accel *find(const struct td_host_devices *d, const char *key) {
    if (td_accel_is_gpu(key)) return d->gpus;
    struct td_host_accel *a = find_exact(d, key, strlen(key));
    return a || !has_digest(key) ? a : find_installed(d, key);
}

const struct td_host_accel *td_host_accel_find(const struct td_host_devices *d, const char *key) {
    static const struct td_host_accel none = {.n = 0};
    const struct td_host_accel *a = find(d, key);
    if (td_accel_is_gpu(key)) return d->no_gpus ? &none : a;
    if (a && a->is_host) return a;
    if (d->withheld || (!a && d->listed && !has_digest(key))) return &none;
    return a;
}

bool td_host_devices_withheld(const struct td_host_devices *d, const char *accelerator) {
    return td_accel_is_gpu(accelerator) ? d->no_gpus : d->withheld;
}

bool td_host_devices_known(const struct td_host_devices *d, const char *accelerator) {
    return td_accel_is_host(accelerator) || td_host_accel_find(d, accelerator);
}

void td_host_devices_use(struct td_host_devices *d, const char *key) {
    struct td_host_accel *a = find(d, key);
    if (a) a->used = ++d->next_use;
}

// ---- which of them ------------------------------------------------------------------------------
static bool fits(const struct td_host_device *d, const struct td_device_want *want) {
    if (d->is_cut || (want->whole && td_device_is_instance(d->uuid))) return false;
    if (d->memory_bytes < want->memory_bytes) return false;
    return !want->model[0] || fnmatch(want->model, d->name, FNM_CASEFOLD | FNM_NOESCAPE) == 0;
}

static bool is_free(const struct td_host_device *d, const struct td_device_want *want,
                    uint64_t turn) {
    return (d->held == TD_DEVICE_FREE || d->held == turn) && !d->barred[0] && fits(d, want);
}

uint32_t td_host_devices_fitting(const struct td_host_accel *a, const struct td_device_want *want) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        found += fits(&a->device[i], want);
    }
    return found;
}

uint32_t td_host_devices_free(const struct td_host_accel *a, const struct td_device_want *want,
                              uint64_t turn) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < a->n && found < want->n; i++) {
        found += is_free(&a->device[i], want, turn);
    }
    return found;
}

// The i-th list of devices, of an accelerator or of GPUs; NULL: there are no more.
static struct td_host_accel *list_at(const struct td_host_devices *d, uint32_t i) {
    return i < d->n ? d->accel[i] : i == d->n ? d->gpus : NULL;
}

static void set_held(struct td_host_devices *d, const char *uuid, uint64_t holder) {
    struct td_host_accel *a;
    for (uint32_t i = 0; (a = list_at(d, i)); i++) {
        for (uint32_t k = 0; k < a->n; k++) {
            if (strcmp(a->device[k].uuid, uuid) == 0) a->device[k].held = holder;
        }
    }
}

void td_host_devices_release(struct td_host_devices *d) {
    struct td_host_accel *a;
    for (uint32_t i = 0; (a = list_at(d, i)); i++) {
        for (uint32_t k = 0; k < a->n; k++) {
            a->device[k].held = TD_DEVICE_FREE;
        }
    }
}

void td_host_devices_hold(struct td_host_devices *d, const char *list) {
    char uuid[TD_DEVICE_UUID];
    for (uint32_t i = 0; td_device_list_at(list, i, uuid); i++) {
        set_held(d, uuid, TD_DEVICE_ATTEMPT);
    }
}

void td_host_devices_exclude(struct td_host_devices *d, const char *uuid) {
    set_held(d, uuid, TD_DEVICE_EXCLUDED);
}

void td_host_devices_keep(struct td_host_devices *d, const char *key,
                          const struct td_device_want *want, uint64_t turn) {
    const struct td_host_accel *a = td_host_accel_find(d, key);
    uint32_t n = want->n;
    for (uint32_t i = 0; a && i < a->n && n > 0; i++) {
        if (!is_free(&a->device[i], want, turn)) continue;
        set_held(d, a->device[i].uuid, turn);
        n--;
    }
}

// n of the free ones around one of them, a bit set of places: at each turn the one that most of
// those before reach, of equals the first. out_links: how many pairs reach each other.
static uint64_t gather(const struct td_host_accel *a, uint64_t free, uint32_t first, uint32_t n,
                       uint32_t *out_links) {
    uint64_t taken = UINT64_C(1) << first;
    *out_links = 0;
    for (uint32_t found = 1; found < n; found++) {
        uint32_t best = TD_DEVICES_MAX, most = 0;
        for (uint32_t i = 0; i < a->n; i++) {
            const uint64_t bit = UINT64_C(1) << i;
            const uint32_t links = (uint32_t)__builtin_popcountll(a->device[i].peers & taken);
            if (!(free & bit) || taken & bit || (best < TD_DEVICES_MAX && links <= most)) continue;
            best = i;
            most = links;
        }
        taken |= UINT64_C(1) << best;
        *out_links += most;
    }
    return taken;
}

static uint64_t choose(const struct td_host_accel *a, const struct td_device_want *want,
                       uint64_t turn) {
    uint64_t free = 0, best = 0;
    uint32_t most = 0, links;
    for (uint32_t i = 0; i < a->n; i++) {
        free |= (uint64_t)is_free(&a->device[i], want, turn) << i;
    }
    for (uint32_t i = 0; i < a->n; i++) {
        if (!(free & UINT64_C(1) << i)) continue;
        const uint64_t set = gather(a, free, i, want->n, &links);
        if (best && links <= most) continue;
        best = set;
        most = links;
    }
    return best;
}

char *td_host_devices_pick(const struct td_host_accel *a, const struct td_device_want *want,
                           uint64_t turn) {
    size_t bytes = (size_t)want->n * TD_DEVICE_UUID + 1, len = 0;
    if (!want->n || td_host_devices_free(a, want, turn) < want->n) return NULL;
    const uint64_t chosen = choose(a, want, turn);
    char *list = td_calloc(1, bytes);
    TD_CHECK(list);
    for (uint32_t i = 0; i < a->n; i++) {
        if (!(chosen & UINT64_C(1) << i)) continue;
        len += (size_t)snprintf(list + len, bytes - len, "%s%s", len ? "," : "", a->device[i].uuid);
    }
    return list;
}

// ---- what a node says ---------------------------------------------------------------------------
static struct td_host_accel *make(const char *key, const char *name, bool is_host, size_t n) {
    n = TD_MIN(n, (size_t)TD_DEVICES_MAX);
    struct td_host_accel *a = td_calloc(1, sizeof *a + n * sizeof a->device[0]);
    TD_CHECK(a); // as everywhere in the core (model.h)
    snprintf(a->key, sizeof a->key, "%s", key);
    snprintf(a->name, sizeof a->name, "%s", name);
    td_utf8_scrub(a->key);
    td_utf8_scrub(a->name);
    a->is_host = is_host;
    return a;
}

static void add(struct td_host_accel *a, const char *uuid, const char *name, uint64_t bytes) {
    if (a->n == TD_DEVICES_MAX || !td_device_uuid_ok(uuid)) return;
    for (uint32_t i = 0; i < a->n; i++) {
        if (strcmp(a->device[i].uuid, uuid) == 0) return;
    }
    struct td_host_device *d = &a->device[a->n++];
    snprintf(d->uuid, sizeof d->uuid, "%s", uuid);
    snprintf(d->name, sizeof d->name, "%s", name);
    td_utf8_scrub(d->name);
    d->memory_bytes = TD_MIN(bytes, (uint64_t)INT64_MAX);
}

static void add_all(struct td_host_accel *a, const struct td_json *list) {
    size_t n = 0;
    for (const struct td_json *v = list ? list->first : NULL; v && n < TD_DEVICES_MAX;
         v = v->next) {
        int64_t bytes = td_json_int(td_json_get(v, "memory_bytes"), 0);
        add(a, td_json_string(td_json_get(v, "uuid"), ""),
            td_json_string(td_json_get(v, "name"), ""), bytes > 0 ? (uint64_t)bytes : 0);
        n++;
    }
}

static bool same(const struct td_host_accel *a, const struct td_host_accel *b) {
    bool equal = a->n == b->n && a->is_host == b->is_host && a->refused == b->refused;
    for (uint32_t i = 0; equal && i < a->n; i++) {
        equal = strcmp(a->device[i].uuid, b->device[i].uuid) == 0 &&
                strcmp(a->device[i].name, b->device[i].name) == 0 &&
                a->device[i].memory_bytes == b->device[i].memory_bytes;
    }
    return equal;
}

// Who holds a device is known of it where another accelerator, or an older list, has it.
static void inherit(const struct td_host_devices *d, struct td_host_accel *made) {
    const struct td_host_accel *a;
    for (uint32_t i = 0; (a = list_at(d, i)); i++) {
        for (uint32_t k = 0; k < a->n; k++) {
            for (uint32_t m = 0; m < made->n; m++) {
                bool is_it = strcmp(a->device[k].uuid, made->device[m].uuid) == 0;
                if (is_it && a->device[k].held) made->device[m].held = a->device[k].held;
            }
        }
    }
}

static const struct td_host_device *find_gpu(const struct td_host_accel *gpus, const char *uuid) {
    for (uint32_t i = 0; i < gpus->n; i++) {
        if (strcmp(gpus->device[i].uuid, uuid) == 0) return &gpus->device[i];
    }
    return NULL;
}

static void cut(const struct td_host_accel *gpus, struct td_host_accel *a) {
    for (uint32_t i = 0; i < a->n; i++) {
        struct td_host_device *d = &a->device[i];
        if (!td_device_is_gpu(d->uuid)) continue;
        const struct td_host_device *gpu = gpus ? find_gpu(gpus, d->uuid) : NULL;
        d->is_cut = gpus && !gpu;
        memcpy(d->barred, gpu ? gpu->barred : "", gpu ? sizeof d->barred : 1);
    }
}

static void drop(struct td_host_devices *d, uint32_t i) {
    free(d->accel[i]);
    memmove(&d->accel[i], &d->accel[i + 1], (--d->n - i) * sizeof d->accel[0]);
}

static uint32_t find_unused(const struct td_host_devices *d) {
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < d->n; i++) {
        if (d->accel[i]->used < d->accel[oldest]->used) oldest = i;
    }
    return oldest;
}

static bool put(struct td_host_devices *d, struct td_host_accel *take_made) {
    take_made->used = ++d->next_use;
    inherit(d, take_made);
    cut(d->gpus, take_made);
    for (uint32_t i = 0; i < d->n; i++) {
        if (strcmp(d->accel[i]->key, take_made->key) != 0) continue;
        bool known = same(d->accel[i], take_made);
        free(d->accel[i]);
        d->accel[i] = take_made;
        return !known;
    }
    if (d->n == TD_HOST_ACCELERATORS) drop(d, find_unused(d));
    d->accel[d->n++] = take_made;
    return true;
}

static bool drop_key(struct td_host_devices *d, const char *key) {
    for (uint32_t i = 0; i < d->n; i++) {
        if (strcmp(d->accel[i]->key, key) != 0) continue;
        drop(d, i);
        return true;
    }
    return false;
}

// "devices" of an object: a list, or null where the host is the only one.
static bool take(struct td_host_devices *d, const char *key, const struct td_json *v) {
    const char *name = td_json_string(td_json_get(v, "accelerator"), "");
    const struct td_json *list = td_json_get(v, "devices");
    if (!*name || !list) return false; // an older node does not say
    struct td_host_accel *a = make(key, name, list->kind == TD_JSON_NULL, list->n_children);
    add_all(a, list);
    const struct td_host_accel *installed = has_digest(a->key) ? find_installed(d, a->key) : NULL;
    if (!installed || !same(installed, a)) return put(d, a);
    bool changed = drop_key(d, a->key); // it means the installed one
    free(a);
    return changed;
}

bool td_host_devices_take_plan(struct td_host_devices *d, const char *key, const char *plan_json) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    if (td_accel_is_host(key)) return false; // nobody asks for them
    td_status s = td_arena_create(TD_SPEC_ARENA_BYTES, &arena);
    if (!s) s = td_json_parse(arena, plan_json, strlen(plan_json), &v);
    bool changed = !s && take(d, key, v);
    td_status_free(s); // who keeps the plan says what is wrong with it
    return changed;
}

static bool is_listed(const char *key, Traind__V1__AcceleratorDevices *const *list, size_t n_list) {
    for (size_t i = 0; i < n_list; i++) {
        if (strcmp(list[i]->accelerator, key) == 0) return true;
    }
    return has_digest(key);
}

bool td_host_devices_take_probe(struct td_host_devices *d,
                                Traind__V1__AcceleratorDevices *const *list, size_t n_list) {
    bool changed = false;
    for (size_t i = 0; i < n_list && i < TD_HOST_ACCELERATORS; i++) {
        const Traind__V1__AcceleratorDevices *m = list[i];
        if (!m->accelerator[0]) continue;
        const char *name = m->accelerator;
        struct td_host_accel *a = make(name, name, m->is_host, m->n_devices);
        for (size_t k = 0; k < m->n_devices && k < TD_DEVICES_MAX; k++) {
            add(a, m->devices[k]->uuid, m->devices[k]->name, m->devices[k]->memory_bytes);
        }
        changed |= put(d, a);
    }
    if (!n_list || n_list > TD_HOST_ACCELERATORS) return changed; // an older node lists none
    for (uint32_t i = d->n; i-- > 0;) {
        if (is_listed(d->accel[i]->key, list, n_list)) continue;
        drop(d, i);
        changed = true;
    }
    changed |= !d->listed;
    d->listed = true;
    return changed;
}

bool td_host_devices_forget(struct td_host_devices *d) {
    bool had = d->n > 0;
    while (d->n) {
        free(d->accel[--d->n]);
    }
    d->listed = false;
    return had;
}

// ---- GPUs ---------------------------------------------------------------------------------------
// Of places in PCI order to places in the list.
static uint64_t peers_of(const Traind__V1__GpuList *list, const Traind__V1__Gpu *gpu) {
    uint64_t peers = 0;
    for (size_t i = 0; i < list->n_gpus && !gpu->parent[0]; i++) {
        for (size_t k = 0; k < gpu->n_peers; k++) {
            const bool is_it = list->gpus[i]->index == gpu->peers[k] && !list->gpus[i]->parent[0];
            peers |= (uint64_t)is_it << i;
        }
    }
    return peers;
}

static bool same_gpus(const struct td_host_accel *a, const struct td_host_accel *b) {
    bool equal = a && same(a, b);
    for (uint32_t i = 0; equal && i < a->n; i++) {
        equal = strcmp(a->device[i].barred, b->device[i].barred) == 0;
    }
    return equal;
}

bool td_host_devices_take_gpus(struct td_host_devices *d, const struct td_host_gpus *gpus) {
    const Traind__V1__GpuList *list = gpus->list && !gpus->list->unknown ? gpus->list : NULL;
    struct td_host_accel *made =
        list ? make(TD_ACCEL_GPU, TD_ACCEL_GPU, false, list->n_gpus) : NULL;
    for (size_t i = 0; list && i < list->n_gpus; i++) {
        const Traind__V1__Gpu *gpu = list->gpus[i];
        add(made, gpu->uuid, gpu->name, gpu->memory_bytes);
        TD_CHECK(made->n == i + 1); // td_host_gpus_take saw to it
        made->device[i].peers = peers_of(list, gpu);
        td_host_gpus_bar(gpus, gpu, made->device[i].barred, sizeof made->device[i].barred);
    }
    if (made) inherit(d, made);
    const bool known = made ? same_gpus(d->gpus, made) : !d->gpus;
    free(d->gpus);
    d->gpus = made;
    for (uint32_t i = 0; i < d->n; i++) {
        cut(made, d->accel[i]);
    }
    return !known;
}

void td_host_devices_refuse(struct td_host_devices *d, const char *key) {
    char name[TD_ACCEL_KEY];
    if (td_accel_is_host(key) || td_host_accel_find(d, key)) return;
    snprintf(name, sizeof name, "%.*s", td_accel_name_len(key), key);
    struct td_host_accel *a = make(key, name, false, 0);
    a->refused = true;
    (void)put(d, a);
}

void td_host_devices_forget_refused(struct td_host_devices *d) {
    for (uint32_t i = d->n; i-- > 0;) {
        if (d->accel[i]->refused) drop(d, i);
    }
}

void td_host_devices_finish(struct td_host_devices *d) {
    (void)td_host_devices_forget(d);
    free(td_steal(d->gpus));
}

// ---- records ------------------------------------------------------------------------------------
static td_status encode_one(const struct td_host_accel *a, struct td_buf *out) {
    TD_TRY(td_buf_str(out, "{\"accelerator\":"));
    TD_TRY(td_json_print_string(a->name, strlen(a->name), out));
    TD_TRY(td_buf_str(out, ",\"key\":"));
    TD_TRY(td_json_print_string(a->key, strlen(a->key), out));
    TD_TRY(td_buf_str(out, ",\"devices\":"));
    if (a->is_host) return td_buf_str(out, "null}");
    TD_TRY(td_buf_str(out, "["));
    for (uint32_t i = 0; i < a->n; i++) {
        const struct td_host_device *d = &a->device[i];
        TD_TRY(td_buf_printf(out, "%s{\"uuid\":\"%s\",\"memory_bytes\":%" PRId64 ",\"name\":",
                             i ? "," : "", d->uuid, (int64_t)d->memory_bytes));
        TD_TRY(td_json_print_string(d->name, strlen(d->name), out));
        TD_TRY(td_buf_str(out, "}"));
    }
    return td_buf_str(out, "]}");
}

td_status td_host_devices_encode(const struct td_host_devices *d, struct td_buf *out) {
    TD_TRY(td_buf_str(out, "["));
    const char *comma = "";
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->accel[i]->refused) continue;
        TD_TRY(td_buf_str(out, comma));
        TD_TRY(encode_one(d->accel[i], out));
        comma = ",";
    }
    return td_buf_str(out, "]");
}

void td_host_devices_decode(struct td_host_devices *d, const struct td_json *list) {
    for (const struct td_json *v = list ? list->first : NULL; v; v = v->next) {
        (void)take(d, td_json_string(td_json_get(v, "key"), ""), v);
    }
}
