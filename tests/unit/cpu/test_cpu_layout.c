// Reorders of images in the cpu accelerator: every order into every other, for all sizes of
// elements, against the definition (layout.h), with places and channels that fill no tile.

#include "accelerators/cpu/kernels/reorder.c"
#include "tests/unit/test.h"

// Two ranges, as two threads would get them.
void td_parallel_units(int32_t n_threads, int64_t n, int64_t work, td_range_fn *fn,
                       const void *arg) {
    (void)n_threads, (void)work;
    fn(arg, 0, n / 2);
    fn(arg, n / 2, n);
}

// Of the element (n, c, place).
static int64_t element_at(const struct td_shape *s, enum td_image_layout l, int64_t n, int64_t c,
                          int64_t place) {
    int64_t channels = s->dim[1], places = s->dim[2] * s->dim[3];
    int64_t lanes = td_layout_lanes(l, channels, TD_LAYOUT_LANES);
    return ((n * (channels / lanes) + c / lanes) * places + place) * lanes + c % lanes;
}

static void expect_moved(const struct td_reorder *r) {
    const struct td_shape *s = &r->shape;
    int64_t places = s->dim[2] * s->dim[3], elems = td_shape_elems(s);
    size_t size = r->elem_bytes;
    unsigned char *from = calloc((size_t)elems, size), *to = calloc((size_t)elems + 1, size);
    assert_non_null(from);
    assert_non_null(to);
    for (size_t i = 0; i < (size_t)elems * size; i++) {
        from[i] = (unsigned char)(i * 37 + i / 251);
    }
    memset(to + (size_t)elems * size, 0x5a, size);
    td_reorder_run(r, 2, from, to);
    for (int64_t i = 0; i < elems; i++) {
        int64_t place = i % places, c = i / places % s->dim[1], n = i / places / s->dim[1];
        size_t x = (size_t)element_at(s, r->from, n, c, place) * size;
        size_t y = (size_t)element_at(s, r->to, n, c, place) * size;
        assert_memory_equal(to + y, from + x, size);
    }
    assert_int_equal(to[(size_t)elems * size], 0x5a); // nothing is written after the image
    free(from);
    free(to);
}

static void expect_all_orders(struct td_shape s) {
    for (size_t bytes = 1; bytes <= 8; bytes *= 2) {
        for (int from = 0; from < TD_LAYOUT_COUNT; from++) {
            for (int to = 0; to < TD_LAYOUT_COUNT; to++) {
                bool blocks = from == TD_LAYOUT_BLOCKED || to == TD_LAYOUT_BLOCKED;
                if (from == to || (blocks && s.dim[1] % TD_LAYOUT_LANES)) continue;
                struct td_reorder r = {s, (enum td_image_layout)from, (enum td_image_layout)to,
                                       bytes};
                expect_moved(&r);
            }
        }
    }
}

static void test_images_are_reordered_when_channels_fill_blocks(void **state) {
    (void)state;
    expect_all_orders((struct td_shape){4, {3, 32, 7, 7}});
    expect_all_orders((struct td_shape){4, {2, 16, 1, 3}});
    expect_all_orders((struct td_shape){4, {1, 48, 4, 4}});
}

static void test_images_are_reordered_when_channels_fill_no_block(void **state) {
    (void)state;
    expect_all_orders((struct td_shape){4, {2, 27, 5, 3}});
    expect_all_orders((struct td_shape){4, {3, 3, 9, 2}});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images_are_reordered_when_channels_fill_blocks),
        cmocka_unit_test(test_images_are_reordered_when_channels_fill_no_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
