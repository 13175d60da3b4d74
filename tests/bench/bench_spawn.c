// From td_spawn to both of 2 ranks in their function, and to the end of their first step, of an mlp
// under ddp: one JSON line, milliseconds of each try. The ranks write their times into a file,
// because rank 0 alone gives back results. Kernels are chosen by a first call, which is not
// counted: as in a job, a cache directory keeps what was measured.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "traind/fabric.h"
#include "traind/spawn.h"

enum { TRIES = 10, RANKS = 2 };

struct moments {
    int64_t entered_ns, stepped_ns;
};

static td_status step_once(struct td_fabric *f) {
    struct td_fabric_batch batch = {.struct_bytes = sizeof batch};
    double loss;
    TD_TRY(td_fabric_setup_module(f, "{name: mlp, layers: [784, 512, 512, 10]}"));
    TD_TRY(td_fabric_setup_optimizers(f, "{name: adamw, lr: 0.001}", NULL));
    TD_TRY(td_fabric_setup_dataloaders(f, "{name: synthetic, samples: 1024, features: 784, "
                                          "classes: 10, batch_size: 128}"));
    TD_TRY(td_fabric_setup(f));
    TD_TRY(td_fabric_next(f, TD_SPLIT_TRAIN, &batch));
    TD_TRY(td_fabric_forward(f, NULL));
    TD_TRY(td_fabric_backward(f));
    TD_TRY(td_fabric_optimizer_step(f, NULL, NULL));
    return td_fabric_value(f, "loss", &loss); // waits for the step
}

static td_status first_step(const char *cache_dir, int64_t *out_stepped_ns) {
    const struct td_fabric_options o = {.struct_bytes = sizeof o,
                                        .strategy = "ddp",
                                        .threads = 1,
                                        .cache_dir = cache_dir,
                                        .quiet = true};
    struct td_fabric *f;
    TD_TRY(td_fabric_create(&o, &f));
    td_status s = step_once(f);
    *out_stepped_ns = td_mono_now().ns;
    s = td_fabric_finish(f, s);
    td_fabric_destroy(f);
    return s;
}

static td_status enter(struct td_spawned *self, const void *args, size_t args_bytes) {
    struct moments now = {.entered_ns = td_mono_now().ns};
    (void)args_bytes;
    TD_TRY(first_step(args, &now.stepped_ns));
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/times", (const char *)args));
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return td_fail_errno(TD_UNAVAILABLE, "open '%s'", path);
    ssize_t n = pwrite(fd, &now, sizeof now, td_spawned_rank(self) * (off_t)sizeof now);
    close(fd);
    return n == sizeof now ? TD_OK : td_fail_errno(TD_UNAVAILABLE, "write a time");
}

// out_ms: to the function, to the end of the first step
static td_status try_once(int fd, const char *dir, double out_ms[2]) {
    const struct td_spawn_options o = {.function = "enter",
                                       .world_size = RANKS,
                                       .args = dir,
                                       .args_bytes = strlen(dir) + 1,
                                       .timeout_ns = 60 * TD_NS_PER_S};
    struct moments of[RANKS];
    const int64_t start_ns = td_mono_now().ns;
    TD_TRY(td_spawn(&o, NULL));
    if (pread(fd, of, sizeof of, 0) != sizeof of) {
        return td_fail_errno(TD_UNAVAILABLE, "read the times");
    }
    const int64_t entered_ns = TD_MAX(of[0].entered_ns, of[1].entered_ns);
    const int64_t stepped_ns = TD_MAX(of[0].stepped_ns, of[1].stepped_ns);
    out_ms[0] = (double)(entered_ns - start_ns) / TD_NS_PER_MS;
    out_ms[1] = (double)(stepped_ns - start_ns) / TD_NS_PER_MS;
    return TD_OK;
}

static td_status try_all(const char *dir, double ms[TRIES][2]) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/times", dir));
    TD_AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return td_fail_errno(TD_UNAVAILABLE, "make '%s'", path);
    TD_TRY(try_once(fd, dir, ms[0])); // not counted
    for (int i = 0; i < TRIES; i++) {
        TD_TRY(try_once(fd, dir, ms[i]));
    }
    return TD_OK;
}

static td_status measure(void) {
    char dir[] = "/tmp/traind-bench-XXXXXX";
    double ms[TRIES][2];
    if (!mkdtemp(dir)) return td_fail_errno(TD_UNAVAILABLE, "make a directory");
    td_status s = try_all(dir, ms);
    td_status removed = td_fs_remove_tree(dir);
    if (s) td_status_free(removed);
    TD_TRY(s ? s : removed);
    for (int what = 0; what < 2; what++) {
        printf(what ? "],\"step_ms\":[" : "{\"ms\":[");
        for (int i = 0; i < TRIES; i++) {
            printf("%s%.3f", i ? "," : "", ms[i][what]);
        }
    }
    printf("]}\n");
    return TD_OK;
}

int main(int argc, char **argv) {
    static const struct td_spawn_function functions[] = {{"enter", enter}};
    td_status s = td_main(argc, argv, functions, 1);
    if (!s) s = measure();
    if (!s) return 0;
    fprintf(stderr, "bench_spawn: %s\n", td_status_message(s));
    td_status_free(s);
    return 1;
}
