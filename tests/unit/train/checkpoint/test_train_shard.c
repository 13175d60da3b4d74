// Shards: the image in memory is the file that the plain writer would have written, gaps between
// tensors or not, and it reads back.

#include "tests/unit/test.h"

#include "accelerators/reference/reference.h"
#include "engine/train/checkpoint/shard.h"
#include "tests/tensors_file.h"

enum { TENSORS = 5 };
static const int64_t elems[TENSORS] = {16, 32, 5, 48, 3}; // 64-byte borders: no gap, none, gap
static const char *const names[TENSORS] = {"a", "b", "c", "d", "e"};

struct fixture {
    void *dir;
    struct td_state_table *state;
    const struct td_accelerator_ops *ops;
    struct td_accelerator *accel;
    struct td_strategy_memory memory;
    struct td_tensor tensors[TENSORS];
    struct td_shard shard;
    td_ticket ticket; // stays 0
    char *image;
};

static int make(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    struct td_accel_config config = {.struct_bytes = sizeof config, .n_threads = 1};
    struct td_init zero = {.kind = TD_INIT_ZERO};
    uint32_t index;
    assert_int_equal(td_test_scratch_make(&f->dir), 0);
    f->ops = td_accelerator_reference.ops;
    assert_ok(f->ops->open(&config, &f->accel));
    assert_ok(td_state_table_create(&f->state));
    for (int i = 0; i < TENSORS; i++) {
        struct td_shape shape = {1, {elems[i]}};
        assert_ok(td_state_add(f->state, names[i], TD_ROLE_PARAM, TD_F32, &shape, zero, 0, &index));
    }
    assert_ok(td_state_layout(f->state));
    size_t bytes = td_state_region_bytes(f->state, TD_ROLE_PARAM);
    struct td_buffer *region = &f->memory.region[TD_ROLE_PARAM];
    assert_ok(f->ops->mem_alloc(f->accel, bytes, region));
    float *v = td_buffer_host(*region);
    for (size_t i = 0; i < bytes / sizeof *v; i++) {
        v[i] = (float)i;
    }
    for (uint32_t i = 0; i < TENSORS; i++) {
        const struct td_state_info *t = td_state_at(f->state, i);
        f->tensors[i] = (struct td_tensor){.name = t->name,
                                           .dtype = t->dtype,
                                           .shape = t->shape,
                                           .data = (const char *)v + t->offset,
                                           .bytes = t->bytes};
    }
    assert_ok(td_shard_plan(f->state, 1u << TD_ROLE_PARAM, "model.safetensors", &f->shard));
    f->image = aligned_alloc(TD_SHARD_PAGE, td_shard_room(&f->shard));
    td_shard_lay(&f->shard, f->image);
    *state = f;
    return 0;
}

static int unmake(void **state) {
    struct fixture *f = *state;
    td_shard_finish(&f->shard);
    free(f->image);
    f->ops->mem_free(f->accel, f->memory.region[TD_ROLE_PARAM]);
    f->ops->close(f->accel);
    td_state_table_destroy(f->state);
    int code = td_test_scratch_remove(&f->dir);
    free(f);
    return code;
}

static void read_file(const char *path, struct td_buf *out) {
    td_buf_init(out, 1 << 20);
    assert_ok(td_fs_read(path, 1 << 20, out));
}

static void test_image_is_the_file_of_the_plain_writer(void **state) {
    struct fixture *f = *state;
    char plain[4096], ours[4096], digest[TD_DIGEST_HEX], again[TD_DIGEST_HEX];
    struct td_buf x, y;
    snprintf(plain, sizeof plain, "%s/plain", (char *)f->dir);
    snprintf(ours, sizeof ours, "%s/ours", (char *)f->dir);
    assert_ok(tensors_file(plain, f->tensors, TENSORS));
    const struct td_buffer image = td_buffer_of_host(f->image, td_shard_room(&f->shard));
    assert_ok(td_shard_take(&f->shard, f->ops, f->accel, &f->memory, 0, image, 0, NULL));
    assert_ok(td_shard_write(&f->shard, ours, digest));
    read_file(plain, &x);
    read_file(ours, &y);
    td_xxh3_128_hex(x.data, x.len, again);
    assert_int_equal(f->shard.bytes, x.len);
    assert_string_equal(digest, again);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.data, y.data, x.len);
    td_buf_finish(&x);
    td_buf_finish(&y);
}

static void test_write_refuses_when_the_path_exists(void **state) {
    struct fixture *f = *state;
    char path[4096], digest[TD_DIGEST_HEX];
    snprintf(path, sizeof path, "%s/ours", (char *)f->dir);
    assert_ok(td_shard_write(&f->shard, path, digest));
    assert_fails(td_shard_write(&f->shard, path, digest), TD_ALREADY_EXISTS, "ours");
}

static void test_shard_is_empty_when_no_tensor_has_its_role(void **state) {
    struct fixture *f = *state;
    struct td_shard none;
    assert_ok(td_shard_plan(f->state, 1u << TD_ROLE_OPTIM, "optimizer.safetensors", &none));
    assert_int_equal(none.n_tensors, 0);
    td_shard_finish(&none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_image_is_the_file_of_the_plain_writer, make, unmake),
        cmocka_unit_test_setup_teardown(test_write_refuses_when_the_path_exists, make, unmake),
        cmocka_unit_test_setup_teardown(test_shard_is_empty_when_no_tensor_has_its_role, make,
                                        unmake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
