// Weights to begin with. Floats of every width become the model's, and nothing is touched when
// something does not fit. The module's other names and spares are asked, and memory may run out
// anywhere. Whole directories are tests/scenario/training/test_s08_weights.py's.

#include "tests/unit/test.h"

#include <fcntl.h>
#include <math.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "accelerators/reference/reference.h"
#include "engine/train/checkpoint/weights.h"
#include "tests/tensors_file.h"

enum { N = 3 };

struct fixture {
    char *dir;
    char path[4096];
    struct td_state_table *state;
    struct td_accelerator *accel;
    const struct td_accelerator_ops *ops;
    struct td_strategy_memory memory;
    struct td_events events;
};

static void add(struct fixture *f, const char *name, enum td_role role) {
    int64_t dim = N;
    uint32_t index;
    struct td_shape shape = {1, {dim}};
    struct td_init zero = {.kind = TD_INIT_ZERO};
    assert_ok(td_state_add(f->state, name, role, TD_F32, &shape, zero, 0, &index));
}

static int make(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    struct td_accel_config accel = {.struct_bytes = sizeof accel, .n_threads = 1};
    void *dir = NULL;
    assert_int_equal(td_test_scratch_make(&dir), 0);
    f->dir = dir;
    snprintf(f->path, sizeof f->path, "%s/w.safetensors", f->dir);
    f->ops = td_accelerator_reference.ops;
    assert_ok(f->ops->open(&accel, &f->accel));
    assert_ok(td_state_table_create(&f->state));
    add(f, "net.a", TD_ROLE_PARAM);
    add(f, "net.mean", TD_ROLE_BUFFER);
    add(f, "net.a:exp_avg", TD_ROLE_OPTIM); // not a weight: never asked for
    assert_ok(td_state_layout(f->state));
    for (int role = TD_ROLE_PARAM; role <= TD_ROLE_BUFFER; role++) {
        size_t bytes = td_state_region_bytes(f->state, (enum td_role)role);
        assert_ok(f->ops->mem_alloc(f->accel, bytes, &f->memory.region[role]));
    }
    td_events_init(&f->events, open("/dev/null", O_WRONLY | O_CLOEXEC)); // sends fail, are counted
    *state = f;
    return 0;
}

static int unmake(void **state) {
    struct fixture *f = *state;
    void *dir = f->dir;
    close(f->events.fd);
    td_events_finish(&f->events);
    for (int role = TD_ROLE_PARAM; role <= TD_ROLE_BUFFER; role++) {
        f->ops->mem_free(f->accel, f->memory.region[role]);
    }
    td_state_table_destroy(f->state);
    f->ops->close(f->accel);
    free(f);
    return td_test_scratch_remove(&dir);
}

static const char *without_prefix(struct td_module *m, const char *name) {
    (void)m;
    return strncmp(name, "net.", 4) == 0 ? name + 4 : NULL;
}

static bool spares_counters(struct td_module *m, const char *name) {
    (void)m;
    return strcmp(name, "counter") == 0;
}

static const struct td_module_ops module_ops = {
    .struct_bytes = sizeof module_ops, .other_name = without_prefix, .spares = spares_counters};

static td_status load(struct fixture *f, bool strict) {
    const struct td_weights_options o = {.knob = "init_from",
                                         .path = f->path,
                                         .strict = strict,
                                         .module_ops = &module_ops,
                                         .events = &f->events};
    const struct td_restore_target to = {
        .state = f->state, .memory = &f->memory, .accel_ops = f->ops, .accel = f->accel};
    return td_weights_load(&o, &to);
}

static const float *value(struct fixture *f, enum td_role role) {
    return td_buffer_host(f->memory.region[role]);
}

static struct td_tensor row(const char *name, enum td_dtype t, const void *data, int64_t n) {
    return (struct td_tensor){.name = name,
                              .dtype = t,
                              .shape = {.n_dims = 1, .dim = {n}},
                              .data = data,
                              .bytes = (size_t)n * td_dtype_bytes(t)};
}

static void write_file(struct fixture *f, const struct td_tensor *tensors, size_t n) {
    assert_ok(tensors_file(f->path, tensors, n));
}

static const float mean[N] = {7, 8, 9};

static void test_floats_become_the_models_when_of_any_width(void **state) {
    struct fixture *f = *state;
    static const float f32[N] = {1, -2, 0.5f};
    static const double f64[N] = {1, -2, 0.5};
    static const uint16_t f16[N] = {0x3c00, 0xc000, 0x3800}, bf16[N] = {0x3f80, 0xc000, 0x3f00};
    const struct {
        enum td_dtype t;
        const void *data;
    } cases[] = {{TD_F32, f32}, {TD_F64, f64}, {TD_F16, f16}, {TD_BF16, bf16}};
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        const struct td_tensor t[] = {row("net.a", cases[i].t, cases[i].data, N),
                                      row("mean", TD_F32, mean, N), row("counter", TD_I64, f64, 1)};
        memset(td_buffer_host(f->memory.region[TD_ROLE_PARAM]), 0, sizeof f32);
        write_file(f, t, TD_COUNTOF(t));
        assert_ok(load(f, true));
        assert_memory_equal(value(f, TD_ROLE_PARAM), f32, sizeof f32);
        assert_memory_equal(value(f, TD_ROLE_BUFFER), mean, sizeof mean);
    }
}

static void test_nothing_is_touched_when_a_tensor_does_not_fit(void **state) {
    struct fixture *f = *state;
    static const float zero[N], other[N] = {1, 2, 3};
    const struct td_tensor t[] = {row("net.a", TD_F32, other, N), row("net.mean", TD_F32, mean, 2)};
    write_file(f, t, 2);
    td_status s = load(f, true);
    assert_int_equal(td_status_class(s), TD_CLASS_BAD_SPEC);
    assert_fails(s, TD_INVALID_ARGUMENT, "'net.mean' has shape (2), the model's is (3)");
    assert_memory_equal(value(f, TD_ROLE_PARAM), zero, sizeof zero);
    assert_ok(load(f, false));
    assert_memory_equal(value(f, TD_ROLE_PARAM), other, sizeof other);
    assert_memory_equal(value(f, TD_ROLE_BUFFER), zero, sizeof zero);
}

static void test_nothing_is_touched_when_an_element_is_nan(void **state) {
    struct fixture *f = *state;
    static const float zero[N], other[N] = {1, INFINITY, 3}, bad[N] = {1, INFINITY, NAN};
    static const uint16_t bf16[N] = {0x3f80, 0x7f80, 0x7fc0};
    const struct td_tensor bads[] = {row("mean", TD_F32, bad, N), row("mean", TD_BF16, bf16, N)};
    for (size_t i = 0; i < TD_COUNTOF(bads); i++) {
        const struct td_tensor t[] = {row("net.a", TD_F32, other, N), bads[i]};
        write_file(f, t, 2);
        td_status s = load(f, true);
        assert_int_equal(td_status_class(s), TD_CLASS_DATA);
        assert_non_null(strstr(td_status_message(s), "(copy its files again)"));
        // The bytes of the file end with the tensor.
        struct stat st;
        char place[80];
        assert_int_equal(stat(f->path, &st), 0);
        snprintf(place, sizeof place,
                 "w.safetensors' offset %lld: element 2 of tensor 'mean' is nan",
                 (long long)st.st_size - (long long)(bads[i].bytes / N));
        assert_fails(s, TD_DATA_LOSS, place);
        assert_memory_equal(value(f, TD_ROLE_PARAM), zero, sizeof zero);
    }
}

static void test_load_refuses_when_nothing_fits_at_all(void **state) {
    struct fixture *f = *state;
    const struct td_tensor t[] = {row("other", TD_F32, mean, N)};
    write_file(f, t, 1);
    for (int strict = 0; strict < 2; strict++) {
        assert_fails(load(f, strict), TD_INVALID_ARGUMENT, "'net.a' is missing");
    }
    (void)unlink(f->path);
    assert_fails(load(f, true), TD_NOT_FOUND, "w.safetensors");
}

static void test_every_tensor_is_named_when_there_are_more_than_a_note_holds(void **state) {
    enum { EXTRA = 16, NAME = 240 };
    struct fixture *f = *state;
    int pair[2], null = f->events.fd;
    char names[EXTRA][NAME + 1], received[EXTRA * 1024] = "";
    struct td_tensor t[EXTRA + 2] = {row("net.a", TD_F32, mean, N),
                                     row("net.mean", TD_F32, mean, N)};
    for (int i = 0; i < EXTRA; i++) { // three fill a note, and four are left for the last
        snprintf(names[i], sizeof names[i], "%0*d", NAME, i);
        t[i + 2] = row(names[i], TD_F32, mean, N);
    }
    write_file(f, t, TD_COUNTOF(t));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    f->events.fd = pair[0];
    assert_ok(load(f, false));
    f->events.fd = null;
    close(pair[0]);
    for (size_t n = 0; n < sizeof received - 1;) {
        ssize_t some = read(pair[1], received + n, sizeof received - 1 - n);
        if (some <= 0) break;
        n += (size_t)some;
    }
    close(pair[1]);
    for (int i = 0; i < EXTRA; i++) {
        char whole[NAME + 64];
        snprintf(whole, sizeof whole, "'%.240s' is no tensor of the model", names[i]);
        assert_non_null(strstr(received, whole));
    }
}

static td_status load_once(void *arg) {
    return load(arg, true);
}

static void test_load_fails_cleanly_when_any_allocation_fails(void **state) {
    struct fixture *f = *state;
    static const double f64[N] = {1, 2, 3};
    const struct td_tensor t[] = {row("net.a", TD_F64, f64, N), row("net.mean", TD_F32, mean, N)};
    write_file(f, t, 2);
    td_test_failing_allocations(load_once, f);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, make, unmake)
    const struct CMUnitTest tests[] = {
        CASE(test_floats_become_the_models_when_of_any_width),
        CASE(test_nothing_is_touched_when_a_tensor_does_not_fit),
        CASE(test_nothing_is_touched_when_an_element_is_nan),
        CASE(test_load_refuses_when_nothing_fits_at_all),
        CASE(test_every_tensor_is_named_when_there_are_more_than_a_note_holds),
        CASE(test_load_fails_cleanly_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
