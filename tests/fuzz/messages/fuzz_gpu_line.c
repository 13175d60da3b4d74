// Fuzz entry of the lines of `traind-worker devices`: any bytes as a line. Whatever came, it is
// refused with a reason, or what it gives is in its bounds and can be sent. Run by
// tests/unit/fuzz/messages/test_fuzz_gpu_line.c.

#include "tests/fuzz/fuzz.h"

#include "daemon/node/shell/gpus/gpu_cut.h"
#include "daemon/node/shell/gpus/gpu_lines.h"
#include "lib/attempt/devices.h"
#include "lib/base/utf8.h"

static void check_gpu(const Traind__V1__Gpu *g) {
    td_fuzz_expect(td_device_uuid_ok(g->uuid));
    td_fuzz_expect(!g->parent[0] || td_device_uuid_ok(g->parent));
    td_fuzz_expect(g->index < TD_DEVICES_MAX && g->n_processes <= TD_GPU_PROCESSES);
    td_fuzz_expect(td_utf8_valid(g->name, strlen(g->name)));
    for (size_t i = 0; i < g->n_peers; i++) {
        td_fuzz_expect(g->peers[i] < 64);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct td_gpu_cut cut = {.gpus = "auto", .visible = "1,GPU-a,MIG,0"};
    TD_AUTO(td_arena) *arena = NULL;
    struct td_gpu_line line;
    char why[TD_GPU_WHY];
    td_fuzz_expect(!td_arena_create(TD_GPU_ARENA_BYTES, &arena));
    td_status s = td_gpu_line_read(arena, (const char *)data, size, &line);
    if (s) {
        td_fuzz_expect_refusal(s, TD_INVALID_ARGUMENT, TD_RESOURCE_EXHAUSTED);
        return 0;
    }
    td_fuzz_expect(line.list.n_gpus <= TD_DEVICES_MAX);
    for (size_t i = 0; i < line.list.n_gpus; i++) {
        check_gpu(line.list.gpus[i]);
    }
    const size_t before = line.list.n_gpus;
    td_gpu_cut_apply(&cut, &line.list, why, sizeof why);
    td_fuzz_expect(line.list.n_gpus <= before && strlen(why) < sizeof why);
    td_fuzz_expect(traind__v1__gpu_list__get_packed_size(&line.list) < TD_GPU_ARENA_BYTES);
    return 0;
}
