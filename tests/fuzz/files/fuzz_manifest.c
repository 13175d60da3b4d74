// Fuzz entry of engine/train/checkpoint/manifest: any bytes as a checkpoint's manifest. One that is
// believed names files that stay in its directory, has progress that can be gone on from, and texts
// that end. Run by tests/unit/fuzz/files/test_fuzz_manifest.c.

#include "tests/fuzz/fuzz.h"

#include "engine/train/checkpoint/manifest.h"

enum { ARENA_BYTES = 4 << 20 };

static void check_name(const struct td_manifest_file *f) {
    td_fuzz_expect(memchr(f->name, '\0', sizeof f->name) && f->name[0]);
    td_fuzz_expect(!strchr(f->name, '/') && f->name[0] != '.');
    td_fuzz_expect(memchr(f->digest, '\0', sizeof f->digest) != NULL);
}

static void check(const struct td_manifest *m) {
    const struct td_progress *p = &m->progress;
    td_fuzz_expect(p->step >= 0 && p->epoch >= 0 && p->epoch_offset >= 0 && p->samples >= 0);
    td_fuzz_expect(m->n_files <= TD_MANIFEST_MAX_FILES && m->n_metrics <= TD_MANIFEST_MAX_METRICS);
    for (size_t i = 0; i < m->n_files; i++) {
        check_name(&m->file[i]);
    }
    for (size_t i = 0; i < m->n_metrics; i++) {
        td_fuzz_expect(memchr(m->metric[i].name, '\0', sizeof m->metric[i].name) != NULL);
    }
    td_fuzz_expect(m->job && m->optimizer && m->schedule && m->spec_digest);
    struct td_resume_key other = {.world_size = 1};
    char reason[256];
    td_resume_key_compare(&m->key, &other, TD_CPU_AMX, reason, sizeof reason);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    TD_AUTO(td_arena) *a = NULL;
    td_fuzz_expect(!td_arena_create(ARENA_BYTES, &a));
    struct td_manifest m;
    td_status s = td_manifest_read(a, td_fuzz_file(data, size), &m);
    if (s) {
        td_fuzz_expect_refusal(s, TD_DATA_LOSS, TD_RESOURCE_EXHAUSTED);
        return 0;
    }
    check(&m);
    return 0;
}
