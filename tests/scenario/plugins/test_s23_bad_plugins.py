"""Plugins of a stranger that crash, never return or return garbage. The job fails, its message says where, and the daemon
goes on as if nothing had been."""
import json
import os
import signal
import subprocess

import pytest

from support import BIN, until
from test_s23_user_plugins import BITS, DATASET, MODULE, NARROW, build_plugin, spec_of

FAULTS = """
#include <string.h>
static const char *fault;
static int has(const char *name) { return strcmp(fault, name) == 0; }
static void misbehave(const char *where) { // crash_open crashes in open, hang_open never returns from it
    if (strncmp(fault, "crash_", 6) == 0 && strcmp(fault + 6, where) == 0) __builtin_trap();
    while (strncmp(fault, "hang_", 5) == 0 && strcmp(fault + 5, where) == 0) pause();
    if (strncmp(fault, "exit_", 5) == 0 && strcmp(fault + 5, where) == 0) exit(0);
    if (strncmp(fault, "fork_", 5) == 0 && strcmp(fault + 5, where) == 0 && fork() > 0) _exit(0);
    if (strncmp(fault, "close_", 6) == 0 && strcmp(fault + 6, where) == 0) {
        for (int fd = 0; fd < 256; fd++) close(fd);
        _exit(0);
    }
    if (strncmp(fault, "leave_", 6) == 0 && strcmp(fault + 6, where) == 0 && fork() == 0) { // one that no group holds
        setsid();
        if (fork() == 0) execl("/bin/sleep", "sleep", "86400.4217", NULL);
        _exit(0);
    }
}
static td_status choose(const struct td_json *knobs) {
    static char kept[64];
    const char *found;
    td_status s = td_knob_text(knobs, "fault", &found);
    if (s) return s;
    strncpy(kept, found, sizeof kept - 1);
    fault = kept;
    misbehave("open");
    return TD_OK;
}
"""


def broken(code, *changes):
    """The code of a plugin that works, with a knob that names what goes wrong, and with that put in."""
    code = code.replace("#include <stdlib.h>", "#include <stdlib.h>\n#include <unistd.h>")
    for at, put in (("struct td_module {", FAULTS), ("struct td_dataset {", FAULTS),
                    ("static const struct td_plugin_knob knobs[] = {", None), *changes):
        if at not in code:
            assert put is FAULTS, at
            continue
        knob = at + '\n    {"fault", TD_PLUGIN_KNOB_TEXT, 0, 0, NULL, "none", NULL, "what goes wrong"},'
        code = code.replace(at, knob if put is None else put + at, 1)
    return code


ODD_MODULE = broken(
    MODULE,
    ("*out = m;", "if ((s = choose(knobs))) { free(m); return s; }\n    if (has(\"nothing\")) { free(m); return TD_OK; }\n    "),
    ("const struct td_shape rows", "misbehave(\"record\");\n    "),
    ("return td_graph_loss(", "if (has(\"no_loss\")) return TD_OK;\n    if (has(\"foreign\")) h = (td_value){12345};\n"
                              "    if (has(\"foreign\")) return td_graph_loss(g, h);\n    "))
ODD_DATASET = broken(
    DATASET,
    ("*out = d;", "if ((s = choose(config->knobs))) { free(d); return s; }\n"
                  "    if (has(\"nothing\")) { free(d); return TD_OK; }\n    "),
    ("out[0] = (struct td_field)", "misbehave(\"fields\");\n    if (has(\"nine\")) return 9;\n    if (has(\"none_at_all\")) return 0;\n    "),
    ("return 2;", "if (has(\"unnamed\")) memset(out[1].name, 'y', sizeof out[1].name);\n"
                  "    if (has(\"shapeless\")) out[0].sample_shape.n_dims = 99;\n    "),
    ("return split == TD_SPLIT_TRAIN", "if (has(\"negative\")) return -5;\n    "),
    ("for (int64_t i = 0", "static int calls;\n    misbehave(\"gather\");\n"
                          "    if (++calls > 20) misbehave(\"late\");\n    "),
    ("((int32_t *)out[1])", "if (has(\"labels\")) { ((int32_t *)out[1])[i] = 77; continue; }\n        "))


HOOK = """
#include <math.h>
#include <stdlib.h>
#include "traind/comm_hook.h"
#include "traind/knobs.h"
#include "traind/plugin.h"
struct td_comm_hook { struct td_comm_hook_config config; };
static td_status mean_open(const struct td_comm_hook_config *config, struct td_comm_hook **out) {
    struct td_comm_hook *h = calloc(1, sizeof *h);
    if (!h) return td_fail_oom();
    h->config = *config;
    td_status s = choose(config->knobs);
    if (s) { free(h); return s; }
    if (has("nothing")) { free(h); return TD_OK; }
    *out = h;
    return TD_OK;
}
static void mean_close(struct td_comm_hook *h) { free(h); }
static td_status mean_memory(struct td_comm_hook *h, const struct td_bucket *b, size_t n, size_t *out, size_t *state) {
    (void)h, (void)b, (void)n;
    *state = 0;
    *out = has("greedy") ? SIZE_MAX / 2 : 0;
    return TD_OK;
}
static td_status mean_place(struct td_comm_hook *h, const struct td_bucket *b, size_t n) {
    (void)h, (void)b, (void)n;
    misbehave("place");
    return TD_OK;
}
static td_status mean_reduce(struct td_comm_hook *h, const struct td_bucket *b) {
    static int calls;
    const struct td_comm_hook_config *c = &h->config;
    if (++calls > 20 && (c->rank == 0 || has("hang_both"))) misbehave(has("hang_both") ? "both" : "reduce");
    if (calls > 20 && has("fails")) return td_fail(TD_UNAVAILABLE, "the hook is tired");
    if (calls > 20 && has("odd_code")) return td_fail((enum td_code)77, "code 77");
    if (calls > 20 && has("garbage")) return (td_status)64;
    TD_TRY(c->collective_ops->all_reduce(c->collective, td_bucket_host(b), b->n, b->dtype, TD_REDUCE_MEAN));
    if (calls > 20 && has("nan")) ((float *)td_bucket_host(b))[0] = NAN;
    return TD_OK;
}
static const struct td_comm_hook_ops ops = {.struct_bytes = sizeof ops, .open = mean_open, .close = mean_close,
                                            .memory = mean_memory, .place = mean_place, .reduce = mean_reduce};
static const struct td_plugin_knob knobs[] = {
};
"""
STRATEGY = """
#include <stdlib.h>
#include "traind/knobs.h"
#include "traind/plugin.h"
#include "traind/rewrite.h"
#include "traind/strategy.h"
struct td_strategy { struct td_strategy_config config; };
static td_status share_open(const struct td_strategy_config *config, struct td_strategy **out) {
    struct td_strategy *s = calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->config = *config;
    td_status bad = choose(config->knobs);
    if (bad) { free(s); return bad; }
    if (has("nothing")) { free(s); return TD_OK; }
    *out = s;
    return TD_OK;
}
static void share_close(struct td_strategy *s) { free(s); }
static td_status share_environment(struct td_strategy *s, struct td_strategy_facts *f) {
    misbehave("environment");
    if (has("refuses")) return td_status_with_class(td_fail(TD_UNAVAILABLE, "no room to share"), TD_CLASS_USER_CODE);
    if (has("world")) f->world_size = 99;
    if (has("place")) f->global_rank = s->config.world_size - 1 - s->config.global_rank;
    if (has("device")) f->root_device = 7;
    if (has("differ")) f->restore_optimizer = s->config.global_rank == 0;
    return TD_OK;
}
static td_status share_rewrite(struct td_strategy *s, struct td_graph *g, const struct td_program_key *key) {
    (void)s;
    misbehave("rewrite");
    if (key->mode != TD_MODE_TRAIN) return TD_OK;
    TD_TRY(td_rewrite_assign_buckets(g, TD_BUCKET_FIRST_BYTES, TD_BUCKET_CAP_BYTES));
    return key->sync ? td_rewrite_all_reduce(g) : TD_OK;
}
static td_status share_setup(struct td_strategy *s, const struct td_state_table *t, const struct td_strategy_memory *m) {
    (void)s, (void)t, (void)m;
    return has("no_setup") ? td_fail(TD_UNAVAILABLE, "no state to share") : TD_OK;
}
static td_status share_reduce(struct td_strategy *s, const struct td_bucket *b) {
    const struct td_strategy_config *c = &s->config;
    static int calls;
    if (++calls > 20 && c->global_rank == 0) misbehave("reduce");
    if (calls > 20 && has("fails")) return td_fail(TD_UNAVAILABLE, "nothing is shared today");
    if (calls > 20 && has("garbage")) return (td_status)64;
    if (has("deaf")) return TD_OK;
    return c->collective_ops->all_reduce_bucket(c->collective, b);
}
static const struct td_strategy_ops ops = {
    .struct_bytes = sizeof ops, .open = share_open, .close = share_close, .environment = share_environment,
    .rewrite = share_rewrite, .setup = share_setup, .reduce_gradients = share_reduce};
static const struct td_plugin_knob knobs[] = {
};
"""
ODD_HOOK = broken(HOOK, ("struct td_comm_hook {", FAULTS))
ODD_STRATEGY = broken(STRATEGY, ("struct td_strategy {", FAULTS))


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    folder.chmod(0o755)
    build_plugin(folder / "module-narrow.so", "MODULE", "narrow", ODD_MODULE)
    build_plugin(folder / "dataset-bits.so", "DATASET", "bits", ODD_DATASET)
    build_plugin(folder / "comm_hook-mean.so", "COMM_HOOK", "mean", ODD_HOOK)
    build_plugin(folder / "strategy-share.so", "STRATEGY", "share", ODD_STRATEGY)
    return folder


def with_fault(folder, kind, fault):
    model = NARROW | {"knobs": NARROW["knobs"] | ({"fault": fault} if kind == "module" else {})}
    data = BITS | {"knobs": BITS["knobs"] | ({"fault": fault} if kind == "dataset" else {})}
    spec = spec_of(folder, model=model, data=data, restart={"max": 0, "stuck_timeout": 2})
    spec["trainer"]["max_steps"] = 30
    if kind in ("comm_hook", "strategy"):
        spec["trainer"]["devices"] = 2
        if fault == "hang_reduce":  # a peer notices, long before the launcher would
            spec["trainer"]["collective_timeout"] = 2
            spec["restart"]["stuck_timeout"] = 60
        part = {"name": "plugin", kind: {"comm_hook": "mean", "strategy": "share"}[kind], "knobs": {"fault": fault}}
        (spec if kind == "comm_hook" else spec["trainer"])[kind] = part
    return json.dumps(spec | {"checkpoint": {"every_n_train_steps": 0}})


SILENT = ("--silent-after-ms", "500")
# Silence is judged from the first step on, so late is after some. What went wrong, the class of the failure, and what is said of it: in the message, or in the last words of the rank.
CASES = [
    ("module", "crash_open", "user_code", "a plugin crashed the planner: SIGILL in ", "module-narrow.so+0x"),
    ("module", "nothing", "user_code", "a plugin crashed the planner: SIGSEGV in module 'narrow'", "module-narrow.so+0x"),
    ("module", "crash_record", "user_code", "a plugin crashed the planner: SIGILL in ", "module-narrow.so+0x"),
    ("module", "no_loss", "bad_spec", "step 'train' is recorded for training but names no loss", "call td_graph_loss"),
    ("module", "foreign", "bad_spec", "step 'train': ", "the loss must be a float scalar"),
    ("dataset", "crash_open", "user_code", "a plugin crashed the planner: SIGILL in ", "dataset-bits.so+0x"),
    ("dataset", "nothing", "user_code", "a plugin crashed the planner: SIGSEGV in dataset 'bits'", "dataset-bits.so+0x"),
    ("dataset", "crash_fields", "user_code", "a plugin crashed the planner: SIGILL in ", "dataset-bits.so+0x"),
    ("dataset", "nine", "user_code", "open dataset 'bits': its slot fields says 9 fields; ", "1 to 8 are possible"),
    ("dataset", "none_at_all", "user_code", "open dataset 'bits': its slot fields says 0 fields", ""),
    ("dataset", "unnamed", "user_code", "field 1 of its slot fields needs a name of at most 15 bytes", ""),
    ("dataset", "shapeless", "user_code", "field 0 of its slot fields needs a name", "a shape of at most"),
    ("dataset", "negative", "user_code", "open dataset 'bits': its slot length says -5 samples of split train", ""),
    ("dataset", "crash_gather", "user_code", "rank 0 died of signal 4 (ILL) in code of dataset 'bits', a plugin", "dataset-bits.so+0x"),
    ("dataset", "labels", "data", "label 77 in row 0 is outside the model's 2 classes", ""),
    ("dataset", "hang_late", "stuck", "rank 0 is silent since", "stuck_timeout"),
    ("module", "exit_open", "user_code", "the planner ended with code 0 and no answer", ""),
    ("dataset", "exit_late", "user_code", "rank 0 left at step ", " of 30 with code 0"),
    ("dataset", "fork_late", "user_code", "rank 0 left at step ", " of 30 with code 0"),
    ("dataset", "close_late", "user_code", "rank 0 left at step ", " of 30 with code 0"),
]
# Of two ranks. A status that is none looks like one that is. The rank dies of it. What waits longest comes first, since
# the others run meanwhile.
GROUP_CASES = [
    ("comm_hook", "hang_reduce", "collective", "comm_hook 'mean', bucket 0: ", "rank 0 of 2 did not arrive within 2.000 s"),
    ("strategy", "hang_reduce", "collective", "strategy 'share', bucket 0: ", "rank 0 of 2 did not arrive within 2.000 s"),
    ("comm_hook", "exit_reduce", "user_code", "rank 0 left at step 20 of 30 with code 0", ""),
    ("comm_hook", "crash_open", "user_code", "a plugin crashed the planner: SIGILL in ", "comm_hook-mean.so+0x"),
    ("comm_hook", "nothing", "user_code", "SIGSEGV in comm_hook 'mean'", "comm_hook-mean.so+0x"),
    ("comm_hook", "greedy", "user_code", "comm_hook 'mean': its slot memory says ", "more than any machine has"),
    ("comm_hook", "crash_place", "user_code", "in code of comm_hook 'mean'", "comm_hook-mean.so+0x"),
    ("comm_hook", "crash_reduce", "user_code", "rank 0 died of signal 4 (ILL) in code of comm_hook 'mean'", "comm_hook-mean.so+0x"),
    ("comm_hook", "fails", "user_code", "comm_hook 'mean', bucket 0: the hook is tired", ""),
    ("comm_hook", "odd_code", "user_code", "comm_hook 'mean', bucket 0: code 77", ""),
    ("comm_hook", "garbage", "internal", " died of signal 11", "td_status_"),
    ("comm_hook", "nan", "numeric", "comm_hook 'mean', bucket 0: the gradients of all ranks were finite", ""),
    ("comm_hook", "hang_both", "stuck", " is silent since", "stuck_timeout"),
    ("strategy", "crash_open", "user_code", "a plugin crashed the planner: SIGILL in ", "strategy-share.so+0x"),
    ("strategy", "nothing", "user_code", " died of signal 11 (SEGV) in code of strategy 'share'", "strategy-share.so+0x"),
    ("strategy", "crash_environment", "user_code", "a plugin crashed the planner: SIGILL in ", "strategy-share.so+0x"),
    ("strategy", "refuses", "user_code", "strategy 'share': no room to share", ""),
    ("strategy", "world", "user_code", "strategy 'share' takes itself for rank 0 of 99 ", "it is rank 0 of 2 "),
    ("strategy", "place", "user_code", "strategy 'share' takes itself for rank 1 of 2 ", "it is rank 0 of 2 "),
    ("strategy", "device", "user_code", "strategy 'share' takes itself for rank 0 of 2 ", "on device 7; "),
    ("strategy", "differ", "user_code", "strategy 'share' says another restore_optimizer on rank ", ""),
    ("strategy", "crash_rewrite", "user_code", "a plugin crashed the planner: SIGILL in ", "strategy-share.so+0x"),
    ("strategy", "no_setup", "internal", "strategy 'share': no state to share", ""),
    ("strategy", "crash_reduce", "user_code", "rank 0 died of signal 4 (ILL) in code of strategy 'share'", "strategy-share.so+0x"),
    ("strategy", "fails", "internal", "strategy 'share', bucket 0: nothing is shared today", ""),
    ("strategy", "garbage", "internal", " died of signal 11", "td_status_"),
    ("strategy", "deaf", "user_code", "strategy 'share' did not sum the control tail over the world", ""),
]


def check(daemon, folder, cases):
    jobs = [daemon.submit(with_fault(folder, kind, fault)) for kind, fault, *_ in cases]
    for job, (kind, fault, cls, *words) in zip(jobs, cases):
        daemon.wait_state(job, "FAILED")
        failure = daemon.job(job).failure
        said = f"{failure.message}\n{failure.last_words}"
        assert getattr(failure, "class") == cls, f"{kind} {fault}: {failure}"
        assert all(w in said for w in words), f"{kind} {fault}: {failure}"
    for kind in dict.fromkeys(kind for kind, *_ in cases):
        daemon.finish(daemon.submit(with_fault(folder, kind, "none")))


def test_job_fails_and_the_daemon_lives_when_a_plugin_misbehaves(cluster, odd):
    check(cluster.make("--slots", "2", "--plugin-dirs", odd, *SILENT).start(), odd, CASES)


def test_job_fails_and_the_daemon_lives_when_a_plugin_of_ranks_misbehaves(cluster, odd):
    check(cluster.make("--slots", "4", "--plugin-dirs", odd, *SILENT).start(), odd, GROUP_CASES)


def left_running():
    return subprocess.run(["pgrep", "-f", "sleep 86400.4217"], capture_output=True, text=True).stdout.split()


def test_nothing_that_a_plugin_starts_outlives_the_planner(cluster, odd, tmp_path):
    daemon = cluster.make("--slots", "2", "--plugin-dirs", odd, "--plan-timeout-s", "2").start()
    for kind, fault in (("module", "leave_open"), ("dataset", "leave_open"), ("module", "leave_record")):
        (tmp_path / "spec.json").write_text(with_fault(odd, kind, fault))
        daemon.ctl("plan", tmp_path / "spec.json", check=0)
        assert not left_running(), f"{kind} {fault}"
    planned = subprocess.run([BIN / "trainctl", "run", "spec.json"], cwd=tmp_path, capture_output=True, timeout=60)
    assert planned.returncode == 0 and not left_running()
    # Nor where the daemon is killed while it plans.
    hangs = json.loads(with_fault(odd, "module", "hang_record"))
    hangs["data"]["knobs"]["fault"] = "leave_open"
    daemon.submit(json.dumps(hangs))
    until("it has started one", left_running)
    daemon.kill()
    until("it is gone", lambda: not left_running())
    daemon.start()


def test_planner_is_given_up_when_a_module_never_returns(odd, tmp_path):
    (tmp_path / "spec.json").write_text(with_fault(odd, "module", "hang_record"))
    ran = subprocess.run([BIN / "trainctl", "run", "spec.json", "--timeout", "1"], cwd=tmp_path, capture_output=True,
                         text=True, timeout=60)
    assert ran.returncode != 0 and "planning took more than 1 s (--timeout)" in ran.stderr, ran


def test_job_behind_one_whose_plan_hangs_starts_soon(cluster, odd):
    daemon = cluster.make("--slots", "2", "--plugin-dirs", odd, "--plan-timeout-s", "2").start()
    daemon.finish(daemon.submit(with_fault(odd, "module", "none")))  # its plan is known from here on
    hangs, behind = (daemon.submit(with_fault(odd, kind, fault), "trainer.devices=2")
                     for kind, fault in (("module", "hang_record"), ("module", "none")))
    crashed = daemon.submit(with_fault(odd, "dataset", "crash_gather"))
    daemon.wait_state(hangs, "FAILED")
    failure = daemon.job(hangs).failure
    assert getattr(failure, "class") == "user_code" and "planning took more than 2 s and was stopped" in failure.message, failure
    assert "does a plugin never return" in failure.message and "--plan-timeout-s" in failure.message, failure
    daemon.finish(behind)
    last_words = daemon.ctl("wait", crashed, "--follow", check=1).stdout
    assert "rank 0 died of signal 4" in last_words and "dataset-bits.so+0x" in last_words, last_words
    assert not list(daemon.job(crashed).notes)  # restart.max is 0: none was used up


def test_run_says_that_a_rank_left_in_the_middle(odd, tmp_path):
    (tmp_path / "spec.json").write_text(with_fault(odd, "dataset", "exit_late"))
    ran = subprocess.run([BIN / "trainctl", "run", "spec.json"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and "own FAILED: step " in ran.stdout and "user_code" in ran.stdout, ran
    assert "rank 0 left at step " in ran.stdout and " of 30 with code 0" in ran.stdout, ran


def test_describe_says_no_remaining_time_when_nothing_moves(cluster, odd):
    daemon = cluster.make("--slots", "2", "--plugin-dirs", odd).start()
    job = daemon.submit(with_fault(odd, "dataset", "hang_gather"))
    daemon.wait_state(job, "RUNNING")

    def moves():
        progress = next(line for line in daemon.ctl("describe", job, check=0).stdout.splitlines() if line.startswith("progress"))
        return progress if "samples/s" in progress else None  # before that it says what it loads

    progress = until("it trains", moves)
    assert "0 samples/s" in progress and "ETA" not in progress, progress
    os.kill(daemon.launcher(job), signal.SIGKILL)  # its ranks die with it
    daemon.wait_state(job, "FAILED")
