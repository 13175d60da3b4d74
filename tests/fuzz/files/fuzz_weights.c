// Fuzz entry of engine/train/checkpoint/weights: the first byte says where the others go, into the
// index of a directory with two shards or into its config.json. Then a small gpt asks for its
// weights, strictly and not. Whatever comes in, it loads or is refused with a text, of class data
// or bad_spec, and a load that is not refused has the value that the shards hold. Run by
// tests/unit/fuzz/files/test_fuzz_weights.c.

#include "tests/fuzz/fuzz.h"

#include "accelerators/reference/reference.h"
#include "engine/train/checkpoint/weights.h"
#include "lib/base/files/files.h"
#include "tests/tensors_file.h"
#include "tests/unit/plugin/knobs_rig.h"
#include "workloads/workloads.h"

enum { WIDTH = 2 };

static struct home { // made once: a directory, a model of two rows, their memory
    char dir[64];
    struct td_arena *arena;
    struct td_module *module;
    struct td_state_table *state;
    struct td_accelerator *accel;
    struct td_strategy_memory memory;
    struct td_events events;
} made;

static const float values[2][WIDTH] = {{1, 2}, {3, 4}};
static const char *const names[2] = {"transformer.a", "transformer.b"};

static void put_file(const struct home *h, const char *name, const void *data, size_t bytes) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", h->dir, name);
    td_fuzz_expect(!td_fs_write(path, data, bytes, 0600, 0));
}

static void put_shard(const struct home *h, int i) {
    char path[256];
    const struct td_tensor t = {.name = names[i],
                                .dtype = TD_F32,
                                .shape = {1, {WIDTH}},
                                .data = values[i],
                                .bytes = sizeof values[i]};
    snprintf(path, sizeof path, "%s/%c.safetensors", h->dir, 'a' + i);
    td_fuzz_expect(!tensors_file(path, &t, 1));
}

static void open_module(struct home *h) {
    static const char text[] = "{\"n_layer\":1,\"n_head\":1,\"n_embd\":2}";
    const struct td_module_ops *ops = td_module_gpt.ops;
    struct td_field fields[2] = {
        {.name = "x", .dtype = TD_I32, .sample_shape = {1, {2}}, .n_classes = 2}};
    struct td_json *knobs;
    fields[1] = fields[0];
    fields[1].name[0] = 'y';
    td_fuzz_expect(!td_arena_create(1 << 20, &h->arena));
    td_fuzz_expect(!knobs_of(h->arena, &td_module_gpt, text, &knobs));
    td_fuzz_expect(!ops->open(knobs, fields, 2, &h->module));
}

static struct home *home(void) {
    struct home *h = &made;
    if (h->module) return h;
    const struct td_accelerator_ops *ops = td_accelerator_reference.ops;
    const struct td_accel_config accel = {.struct_bytes = sizeof accel, .n_threads = 1};
    const struct td_shape shape = {1, {WIDTH}};
    const struct td_init zero = {.kind = TD_INIT_ZERO};
    uint32_t index;
    snprintf(h->dir, sizeof h->dir, "/tmp/td-fuzz-weights-XXXXXX");
    td_fuzz_expect(mkdtemp(h->dir) != NULL);
    open_module(h);
    td_fuzz_expect(!ops->open(&accel, &h->accel));
    td_fuzz_expect(!td_state_table_create(&h->state));
    for (int i = 0; i < 2; i++) {
        td_fuzz_expect(
            !td_state_add(h->state, names[i], TD_ROLE_PARAM, TD_F32, &shape, zero, 0, &index));
        put_shard(h, i);
    }
    td_fuzz_expect(!td_state_layout(h->state));
    size_t bytes = td_state_region_bytes(h->state, TD_ROLE_PARAM);
    td_fuzz_expect(!ops->mem_alloc(h->accel, bytes, &h->memory.region[TD_ROLE_PARAM]));
    td_events_init(&h->events, open("/dev/null", O_WRONLY | O_CLOEXEC));
    return h;
}

// The directory goes when the process ends well; what a crash leaves is for whoever looks into it.
static void __attribute__((destructor)) leave(void) {
    if (made.dir[0]) td_status_free(td_fs_remove_tree(made.dir));
}

static void ask(struct home *h, bool strict) {
    const struct td_weights_options o = {.knob = "init_from",
                                         .path = h->dir,
                                         .strict = strict,
                                         .module_ops = td_module_gpt.ops,
                                         .module = h->module,
                                         .events = &h->events};
    const struct td_restore_target to = {.state = h->state,
                                         .memory = &h->memory,
                                         .accel_ops = td_accelerator_reference.ops,
                                         .accel = h->accel};
    float *first = td_buffer_host(h->memory.region[TD_ROLE_PARAM]);
    first[0] = -1;
    td_status s = td_weights_load(&o, &to);
    if (!s) {
        td_fuzz_expect(first[0] == values[0][0] || (!strict && first[0] == -1));
        return;
    }
    enum td_class cls = td_status_class(s);
    td_fuzz_expect(cls == TD_CLASS_DATA || cls == TD_CLASS_BAD_SPEC);
    td_fuzz_expect(*td_status_message(s) != '\0' && first[0] == -1);
    td_status_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char index[] = "{\"weight_map\":{\"transformer.a\":\"a.safetensors\","
                                "\"transformer.b\":\"b.safetensors\"}}";
    static const char fits[] = "{\"n_head\":1}";
    struct home *h = home();
    if (size == 0) return 0;
    bool config = data[0] & 1;
    put_file(h, "config.json", config ? (const void *)(data + 1) : fits,
             config ? size - 1 : sizeof fits - 1);
    put_file(h, "model.safetensors.index.json", config ? (const void *)index : data + 1,
             config ? sizeof index - 1 : size - 1);
    ask(h, true);
    ask(h, false);
    return 0;
}
