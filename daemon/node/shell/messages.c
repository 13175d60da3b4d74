// See the header.

#include "daemon/node/shell/messages.h"

#include <stdio.h>
#include <string.h>

#include "daemon/node/shell/assignment/given_plan.h"
#include "lib/attempt/languages.h"
#include "lib/attempt/segments.h"
#include "lib/base/clip.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/spec/language.h"

// Other files: the list of what they hold is made again.
static void look_at_plugins(struct td_node_daemon *n) {
    if (td_plugin_files_look(&n->plugins, n->plugin_dir, n->plugin_dirs)) {
        td_plugin_list_look(n->plugin_list);
    }
}

// Addresses change; where it is not here, the node is one for jobs of one node alone.
static void look_for_interface(struct td_node_daemon *n) {
    struct td_interface found = {0};
    if (n->collective_interface[0]) {
        td_status_log(TD_LOG_WARN, td_interface_find(n->collective_interface, &found),
                      "--collective-interface: no job over several nodes runs here, continuing");
    }
    n->collective = found;
}

// NULL: out of memory, also for one of them.
static Traind__V1__AttemptHeld **list_held(const struct td_node_daemon *n, struct td_arena *arena,
                                           size_t *out_n) {
    size_t cap = 0, n_attempts = 0;
    while (td_node_core_attempt(n->core, cap)) {
        cap++;
    }
    Traind__V1__AttemptHeld **held = td_arena_array(arena, cap + 1, sizeof *held);
    for (size_t i = 0; held && i < cap; i++) {
        struct td_node_attempt *a = td_node_core_attempt(n->core, i);
        Traind__V1__AttemptHeld *h = td_arena_alloc(arena, sizeof *h);
        Traind__V1__AttemptId *id = td_arena_alloc(arena, sizeof *id);
        if (!h || !id) return NULL;
        traind__v1__attempt_held__init(h);
        traind__v1__attempt_id__init(id);
        id->job = a->job;
        id->attempt = a->attempt;
        id->epoch = a->epoch;
        h->id = id;
        h->alive = a->state != TD_AT_ENDED;
        h->launcher_major = a->major ? a->major : TD_LAUNCHER_MAJOR;
        h->build = a->build;
        held[n_attempts++] = h;
    }
    *out_n = n_attempts;
    return held;
}

void td_messages_register(struct td_node_daemon *n) {
    TD_AUTO(td_arena) *arena = NULL;
    size_t n_attempts = 0;
    td_status s = td_arena_create(4 << 20, &arena);
    Traind__V1__AttemptHeld **held = s ? NULL : list_held(n, arena, &n_attempts);
    Traind__V1__Register r = TRAIND__V1__REGISTER__INIT;
    struct td_inventory *inv = &n->inventory;
    char *accelerators[TD_INVENTORY_ACCELERATORS];
    for (size_t i = 0; i < inv->n_accelerators; i++) {
        accelerators[i] = inv->accelerator[i];
    }
    r.node_id = inv->node_id;
    r.boot_id = inv->boot_id;
    r.daemon = inv->daemon;
    r.name = inv->name;
    r.version = n->version;
    r.launcher_major = TD_LAUNCHER_MAJOR;
    char language[TD_DIGEST_HEX];
    td_spec_language(language);
    r.plan_language = language;
    r.ranks_language = TD_RANKS_LANGUAGE;
    r.cores = (uint32_t)inv->cores;
    r.slots = (uint32_t)inv->slots;
    r.memory_bytes = inv->memory_bytes;
    (void)td_plugin_files_look(&n->plugins, n->plugin_dir, n->plugin_dirs);
    td_plugin_list_look(n->plugin_list); // devices may be others, though files are the same
    r.plugins = n->plugins.digest;
    look_for_interface(n);
    r.collective_address = n->collective.address;
    r.first_port = (uint32_t)n->ports.first;
    r.last_port = (uint32_t)n->ports.last;
    r.cpu_level = td_unconst(td_cpu_level_name(inv->cpu_level));
    r.cpu_level_held = td_unconst(td_cpu_level_name(inv->cpu_level_held));
    r.n_accelerators = inv->n_accelerators;
    r.accelerators = accelerators;
    r.n_attempts = n_attempts;
    r.attempts = held;
    r.embedded = n->transport->ops->embedded;
    r.keyed = r.batches = r.devices = r.gpus = r.gives_gpus = true;
    r.commands = td_job_kind_is_in(n->kinds, TD_KIND_COMMAND);
    r.programs = td_job_kind_is_in(n->kinds, TD_KIND_PROGRAM);
    r.fresh = !n->known;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_REGISTER;
    m.register_ = &r;
    // Out of memory for the list would make the coordinator think that attempts are gone.
    bool sent = !s && held && n->transport->ops->send(n->transport, &m) != TD_TRANSPORT_REFUSED;
    td_status_free(s);
    if (!sent) n->transport->ops->reset(n->transport);
}

void td_messages_heartbeat(struct td_node_daemon *n, uint32_t slots_used) {
    Traind__V1__Heartbeat h = TRAIND__V1__HEARTBEAT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    h.slots_used = slots_used;
    look_at_plugins(n);
    h.plugins = n->plugins.digest;
    h.stale_messages = (uint32_t)td_node_core_stale(n->core);
    h.trouble = td_unconst(n->trouble);
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_HEARTBEAT;
    m.heartbeat = &h;
    (void)td_node_daemon_send(n, &m);
}

void td_messages_refused(struct td_node_daemon *n, const Traind__V1__AttemptId *id,
                         td_status borrow_why) {
    char cls[32], message[2048], job[TD_NODE_JOB_MAX];
    snprintf(cls, sizeof cls, "%s", td_class_name(td_status_class(borrow_why)));
    (void)td_clip(message, sizeof message, "%s", td_status_message(borrow_why));
    snprintf(job, sizeof job, "%s", id->job);
    Traind__V1__AttemptId copy = *id;
    copy.job = job;
    Traind__V1__AttemptRefused r = TRAIND__V1__ATTEMPT_REFUSED__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    r.id = &copy;
    r.code = (uint32_t)td_status_code(borrow_why);
    r.class_ = cls;
    r.message = message;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_REFUSED;
    m.refused = &r;
    (void)td_node_daemon_send(n, &m);
}

void td_messages_planned(struct td_node_daemon *n, const char *request, td_status borrow_status,
                         const char *result_json) {
    TD_AUTO_FREE char *name = td_strdup(request), *json = td_strdup(result_json);
    char cls[32], message[4096];
    snprintf(cls, sizeof cls, "%s", td_class_name(td_status_class(borrow_status)));
    (void)td_clip(message, sizeof message, "%s",
                  borrow_status ? td_status_message(borrow_status) : "");
    Traind__V1__PlanResult r = TRAIND__V1__PLAN_RESULT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    r.request = name;
    r.result_json = json;
    r.code = (uint32_t)td_status_code(borrow_status);
    r.class_ = cls;
    r.message = message;
    r.unreadable = td_given_plan_is_unreadable(borrow_status);
    look_at_plugins(n);
    r.plugins = n->plugins.digest;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PLAN_RESULT;
    m.plan_result = &r;
    if (name && json) (void)td_node_daemon_send(n, &m);
}

void td_messages_compared(struct td_node_daemon *n, const char *request, const char *change) {
    char name[64], changed[1024];
    snprintf(name, sizeof name, "%s", request);
    (void)td_clip(changed, sizeof changed, "%s", change);
    Traind__V1__PlanResult r = TRAIND__V1__PLAN_RESULT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    r.request = name;
    r.same = !change[0];
    r.changed = changed;
    look_at_plugins(n);
    r.plugins = n->plugins.digest;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PLAN_RESULT;
    m.plan_result = &r;
    (void)td_node_daemon_send(n, &m);
}

// ---- plugins ------------------------------------------------------------------------------------
static char *text_of(const struct td_json *v, const char *key) {
    return td_unconst(td_json_string(td_json_get(v, key), ""));
}

static bool read_knobs(struct td_arena *a, const struct td_json *list, Traind__V1__Plugin *p) {
    p->knobs = td_arena_array(a, list ? list->n_children + 1 : 1, sizeof(*p->knobs));
    for (const struct td_json *v = list ? list->first : NULL; p->knobs && v; v = v->next) {
        Traind__V1__PluginKnob *k = td_arena_alloc(a, sizeof *k);
        if (!k) return false;
        traind__v1__plugin_knob__init(k);
        k->name = text_of(v, "name");
        k->type = text_of(v, "type");
        k->min = td_json_real(td_json_get(v, "min"), 0);
        k->max = td_json_real(td_json_get(v, "max"), 0);
        k->unit = text_of(v, "unit");
        k->required = !td_json_get(v, "fallback");
        k->fallback = text_of(v, "fallback");
        k->values = text_of(v, "values");
        k->prose = text_of(v, "prose");
        p->knobs[p->n_knobs++] = k;
    }
    return p->knobs != NULL;
}

static td_status read_devices(struct td_arena *a, const struct td_json *v,
                              Traind__V1__PluginList *m) {
    enum { MOST = 64 };
    const struct td_json *list = td_json_get(v, "devices");
    if (!list || m->n_accelerators == MOST) return TD_OK;
    if (!m->accelerators) m->accelerators = td_arena_array(a, MOST, sizeof(*m->accelerators));
    Traind__V1__AcceleratorDevices *one = td_arena_alloc(a, sizeof *one);
    if (!one || !m->accelerators) return td_fail_oom();
    traind__v1__accelerator_devices__init(one);
    one->accelerator = text_of(v, "name");
    one->is_host = list->kind == TD_JSON_NULL;
    one->devices = td_arena_array(a, list->n_children + 1, sizeof(*one->devices));
    if (!one->devices) return td_fail_oom();
    for (const struct td_json *d = list->first; d; d = d->next) {
        Traind__V1__Device *device = td_arena_alloc(a, sizeof *device);
        if (!device) return td_fail_oom();
        traind__v1__device__init(device);
        device->uuid = text_of(d, "uuid");
        device->name = text_of(d, "name");
        device->memory_bytes = (uint64_t)td_json_int(td_json_get(d, "memory_bytes"), 0);
        one->devices[one->n_devices++] = device;
    }
    m->accelerators[m->n_accelerators++] = one;
    return TD_OK;
}

static td_status read_plugin(struct td_arena *a, const struct td_json *v,
                             Traind__V1__Plugin **out_plugin) {
    Traind__V1__Plugin *p = td_arena_alloc(a, sizeof *p);
    if (!p) return td_fail_oom();
    traind__v1__plugin__init(p);
    p->kind = text_of(v, "kind");
    p->name = text_of(v, "name");
    p->summary = text_of(v, "summary");
    p->file = text_of(v, "file");
    p->error = text_of(v, "error");
    if (!read_knobs(a, td_json_get(v, "knobs"), p)) return td_fail_oom();
    *out_plugin = p;
    return TD_OK;
}

static td_status read_plugins(struct td_arena *a, const char *lines, Traind__V1__PluginList *m) {
    enum { MOST = 1024 };
    m->plugins = td_arena_array(a, MOST, sizeof(*m->plugins));
    if (!m->plugins) return td_fail_oom();
    for (const char *at = lines; *at && m->n_plugins < MOST;) {
        size_t len = strcspn(at, "\n");
        if (!at[len]) break; // the last line was cut
        struct td_json *v;
        TD_TRY(td_json_parse(a, at, len, &v));
        TD_TRY(read_plugin(a, v, &m->plugins[m->n_plugins]));
        TD_TRY(read_devices(a, v, m));
        m->n_plugins++;
        at += len + 1;
    }
    return TD_OK;
}

void td_messages_plugins(struct td_node_daemon *n) {
    const char *lines = td_plugin_list_text(n->plugin_list);
    TD_AUTO(td_arena) *arena = NULL;
    Traind__V1__PluginList list = TRAIND__V1__PLUGIN_LIST__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    if (!*lines) return; // the probe's end sends it
    td_status s = td_arena_create(8 << 20, &arena);
    if (!s) s = read_plugins(arena, lines, &list);
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PLUGIN_LIST;
    m.plugin_list = &list;
    if (!s) (void)td_node_daemon_send(n, &m);
    td_status_log(TD_LOG_WARN, s, "list of plugins not sent, continuing");
}

void td_messages_gpus(struct td_node_daemon *n) {
    const Traind__V1__GpuList *list = td_gpus_list(n->gpus);
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    if (!list) return; // its coming sends it
    Traind__V1__GpuList copy = *list;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_GPU_LIST;
    m.gpu_list = &copy;
    (void)td_node_daemon_send(n, &m);
}
