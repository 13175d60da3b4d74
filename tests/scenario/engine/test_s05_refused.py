"""Combinations that only a node can see, which has the plugins: each row of them in lib/spec/refused.def has a case here,
and the plan of it is refused as a bad spec, in words that say why. So is a batch norm that would train on one value."""
import json
import os
import re
import subprocess

import numpy as np
import pytest

import support
from plans import plan_of
from ranks import EXIT, run_by_hand

TABLE = (support.ROOT / "lib/spec/refused.def").read_text()
ROWS = re.findall(r'^TD_REFUSED_BY_PLAN\("([^"]+)", "([^"]+)", (?:NULL|"([^"]+)")', TABLE, re.M)
EXAMPLES = support.ROOT / "examples/plugins"
BLIND = """
#include <string.h>
#include "traind/accelerator.h"
#include "traind/plugin.h"
static td_status probe(struct td_accel_facts *out_facts) {
    struct td_accel_facts f = {.struct_bytes = sizeof f, .n_devices = 1, .device_name = "blind", .build = "1"};
    memcpy(out_facts, &f, out_facts->struct_bytes < sizeof f ? out_facts->struct_bytes : sizeof f);
    return NULL;
}
static void never(void) {
}
#define NEVER (void *)never
static const struct td_accelerator_ops ops = {
    .struct_bytes = sizeof ops, .probe = probe, .open = NEVER, .close = NEVER, .mem_alloc = NEVER, .mem_free = NEVER,
    .copy = NEVER, .compile = NEVER, .run = NEVER, .wait = NEVER, .release = NEVER};
TD_PLUGIN(ACCELERATOR, "blind", "finds no anomaly", &ops)
"""


def one_bit_without(slot):
    return re.sub(rf"\n    \.{slot} = [^\n]*", "", (EXAMPLES / "one_bit.c").read_text()).replace(
        "static void bit_end_step", "__attribute__((unused)) static void bit_end_step")


def with_slot(example, ops, function, slot):
    """An example that has one slot more, which is never called."""
    head = f"static const struct {ops} ops = {{\n"
    text = (EXAMPLES / f"{example}.c").read_text()
    assert head in text
    return text.replace(head, f"{function}\n{head}    .{slot},\n")


def plugin(role, name):
    return {"name": "plugin", role: name, "knobs": {}}


TEXT = {"name": "text", "path": str(support.ROOT / "README.md"), "block_size": 8, "batch_size": 4}
IMAGES = {"name": "synthetic", "samples": 64, "features": 784, "classes": 10, "batch_size": 8}
FLOATS = "floats"  # in the folder of plugins

# The combination of each row, in the order of the table, and what is said of it.
CASES = [
    ({"comm_hook": {"name": "bf16"}, "trainer": {"strategy": plugin("strategy", "sign_vote")}},
     "so that comm_hook 'bf16' has nothing to do; use comm_hook: none"),
    ({"comm_hook": plugin("comm_hook", "one_bit"), "trainer": {"precision": "16-mixed"}},
     "comm_hook 'one_bit' keeps state but has no end_step, and precision '16-mixed' may skip steps; use another "
     "precision, such as bf16-mixed"),
    ({"comm_hook": plugin("comm_hook", "one_bit"), "trainer": {"strategy": plugin("strategy", "updates")}},
     "comm_hook 'one_bit' keeps state but has no end_step, and strategy 'updates' may skip steps in its optimizer_step; "
     "use another comm_hook or strategy"),
    ({"trainer": {"strategy": plugin("strategy", "steps"), "precision": "16-mixed"}},
     "strategy 'steps' has an optimizer_step of its own, and precision '16-mixed' may skip steps; use another "
     "precision, such as bf16-mixed"),
    ({"comm_hook": {"name": "power_sgd", "start_powerSGD_iter": 3}, "trainer": {"precision": "64-true"}},
     "comm_hook power_sgd computes in fp32"),
    ({"trainer": {"stochastic_rounding": True}},
     "stochastic_rounding rounds bf16 weights, but precision '32-true' stores them as f32; use `precision: bf16-true`"),
    ({"trainer": {"accelerator": plugin("accelerator", "blind"), "detect_anomaly": True}},
     "accelerator 'blind' cannot look for anomalies; leave detect_anomaly out"),
    ({"trainer": {"collective": plugin("collective", "fault") | {"knobs": {"fault": "drop"}}}},
     "collective 'fault' wraps no other; trainer.collective takes one that does"),
    ({"trainer": {"use_distributed_sampler": False}, "stages": ["fit", "predict"]},
     "trainer.use_distributed_sampler: false would predict each sample on"),
    ({"trainer": {"accumulate_grad_batches": 2}, "model": plugin("module", "gan"), "data": IMAGES},
     "accumulate_grad_batches with module 'gan', whose training_step adds up gradients itself"),
    ({"trainer": {"accumulate": "tokens"}, "model": plugin("module", "gan"), "data": IMAGES},
     "trainer.accumulate: tokens with module 'gan', whose training_step adds up gradients itself; leave it out"),
    ({"trainer": {"accumulate": "tokens"}, "comm_hook": {"name": "fp16"}},
     "trainer.accumulate: tokens beside comm_hook 'fp16': what it sends need not be the sum of gradients"),
    ({"trainer": {"accumulate": "tokens", "strategy": plugin("strategy", "sign_vote")}},
     "trainer.accumulate: tokens with strategy 'sign_vote', which does not average the gradients of ranks as they are"),
    ({"trainer": {"accumulate": "tokens"},
      "model": {"loss": {"name": "cross_entropy", "label_smoothing": 0.1, "class_weights": [0, 1, 1, 1]}}},
     "trainer.accumulate: tokens beside label_smoothing and a class of weight 0"),
    ({"metrics": ["perplexity"], "model": {"loss": {"name": "mse"}}, "data": FLOATS},
     "metrics: perplexity is of loss cross_entropy alone"),
    ({"metrics": ["perplexity"], "model": {"loss": {"name": "cross_entropy", "label_smoothing": 0.1}}},
     "metrics: perplexity is that of the plain cross entropy; leave out"),
    ({"metrics": ["f1_macro"], "model": {"name": "gpt", "n_layer": 1, "n_head": 1, "n_embd": 8}, "data": TEXT},
     "predicts tokens, of which there is perplexity alone"),
    ({"metrics": ["r2"], "model": {"loss": {"name": "cross_entropy"}}},
     "metrics: r2 is of float targets; set model.loss to mse, or leave it out"),
    ({"metrics": ["f1_macro"], "model": {"loss": {"name": "mse"}}, "data": FLOATS},
     "metrics: F1 and the confusion matrix are of classes; loss mse has r2"),
]

def steps(name):
    """sign_vote with an optimizer_step that is never called."""
    return with_slot("sign_vote", "td_strategy_ops", """
static td_status own_step(struct td_strategy *s, struct td_executable *exe, uint32_t segments,
                          const struct td_buffer *inputs, bool *out_stepped, td_ticket *out_ticket) {
    (void)s, (void)exe, (void)segments, (void)inputs, (void)out_stepped, (void)out_ticket;
    return NULL;
}
""", "optimizer_step = own_step").replace('"sign_vote"', f'"{name}"')


# What is built for them: the object's name, and its source.
SOURCES = {
    "strategy-sign_vote": (EXAMPLES / "sign_vote.c").read_text(),
    "strategy-steps": steps("steps"),
    "strategy-updates": re.sub(r"\n    \.reduce_gradients = [^\n]*", "", steps("updates")),
    "comm_hook-one_bit": one_bit_without("end_step"),
    "module-gan": with_slot("gan", "td_module_ops", """
static td_status play(struct td_module *m, struct td_steps *s, int64_t batch) {
    (void)m, (void)s, (void)batch;
    return NULL;
}
""", "training_step = play"),
    "collective-fault": (EXAMPLES / "fault.c").read_text().replace("wraps = true", "wraps = false"),
    "accelerator-blind": BLIND,
}


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    folder.chmod(0o755)
    for name, text in SOURCES.items():
        source, so = folder / f"{name}.c", folder / f"{name}.so"
        source.write_text(text)
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O1", "-shared", "-fPIC", f"-I{support.ROOT}/include",
                        source, "-o", so, "-lm"], check=True)
        so.chmod(0o644)
    for name, width in (("x", 16), ("y", 4)):
        np.save(folder / f"{name}.npy", np.zeros((64, width), np.float32))
    return folder


def planned(folder, plan, world, plugins=None):
    """What a worker says of a plan: exit code and text."""
    file = folder / "plan.json"
    file.write_text(json.dumps(plan))
    out = subprocess.run([support.BUILD / "bin/traind-worker", "plan", "--plan", file, "--world-size", str(world),
                          *(["--plugin-dirs", plugins] if plugins else [])], capture_output=True, text=True, timeout=60)
    return out.returncode, out.stdout + out.stderr


def test_each_row_has_a_case():
    assert len(ROWS) == TABLE.count('TD_REFUSED_BY_PLAN("') == len(CASES)
    for (key, _, beside), (case, _) in zip(ROWS, CASES):
        for path in filter(None, (key, beside)):
            section, _, name = path.partition(".")
            given = case.get(section, {})
            assert not name or name in given or path == "trainer.precision", f"{path}: {case}"


# Contract 21: each row of the table that only a plan can see is refused
@pytest.mark.parametrize("case, words", CASES, ids=["-".join(filter(None, row[::2])) for row in ROWS])
def test_plan_refuses_each_row(plugins, tmp_path, case, words):
    sections = {"trainer": {}, "plugins": [str(plugins)], **case}
    if sections.get("data") == FLOATS:
        sections["data"] = {"name": "npy", "x": f"{plugins}/x.npy", "y": f"{plugins}/y.npy", "batch_size": 4}
    whole = {name: sections.pop(name) for name in ("model", "data") if "name" in sections.get(name, {})}
    plan = plan_of(whole, **sections | {"trainer": {"devices": 2, **sections["trainer"]}})
    code, said = planned(tmp_path, plan, 2, plugins)
    assert code == EXIT["bad_spec"] and words in said, f"exit {code}: {said}"


# ---- batch norms over one value ------------------------------------------------------------------
LAST = "'bn1.weight' trains on 1 value per channel in the last batch of an epoch, of 1 sample, and 1 value has no " \
       "variance: set data.drop_last: true, or another data.batch_size"
EACH = "'bn1.weight' trains on 1 value per channel in batches of 1 sample, and 1 value has no variance: set " \
       "data.batch_size to 2 or more"
SYNC = ", or trainer.sync_batchnorm: true"


# torch: "Expected more than 1 value per channel when training"
@pytest.mark.parametrize("side, samples, batch, world, more, words", [
    (1, 9, 4, 1, {}, LAST), (1, 9, 4, 1, {"drop_last": True}, None), (1, 9, 4, 1, {"limit_train_batches": 2}, None),
    (1, 8, 1, 1, {}, EACH), (1, 8, 1, 1, {"sync_batchnorm": True}, EACH), (2, 9, 1, 1, {}, None),
    (1, 10, 4, 2, {}, LAST + SYNC), (1, 10, 4, 2, {"sync_batchnorm": True}, None), (1, 8, 1, 2, {}, EACH + SYNC),
    (1, 8, 1, 2, {"sync_batchnorm": True}, None), (1, 9, 4, 1, {"stages": ["validate"]}, None)])
def test_batch_norm_over_one_value_is_refused_when_planned(tmp_path, side, samples, batch, world, more, words):
    np.save(tmp_path / "x.npy", np.ones((samples, 3, side, side), np.float32))
    np.save(tmp_path / "y.npy", np.arange(samples) % 2)
    data = {"name": "npy", "x": f"{tmp_path}/x.npy", "y": f"{tmp_path}/y.npy", "batch_size": batch, "classes": 2}
    model = {"name": "convnet", "layers": ["batch_norm", "relu", "flatten", {"name": "linear", "features": 2}]}
    trainer = {k: v for k, v in more.items() if k not in ("drop_last", "stages")}
    plan = plan_of({"model": model, "data": data | {k: v for k, v in more.items() if k == "drop_last"}},
                   stages=more.get("stages", ["fit"]), trainer={"devices": world, **trainer})
    code, said = planned(tmp_path, plan, world)
    assert code == (EXIT["bad_spec"] if words else 0), said
    assert not words or words + '"' in said, said


# 10 samples are 2 batches of 5; after a batch of 4, the 6 that are left are one of 5 and one of 1.
def test_batch_norm_names_the_rest_of_an_epoch_when_a_run_goes_on_with_another_batch(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((10, 3, 1, 1), np.float32))
    np.save(tmp_path / "y.npy", np.arange(10) % 2)
    data = {"name": "npy", "x": f"{tmp_path}/x.npy", "y": f"{tmp_path}/y.npy", "classes": 2}
    model = {"name": "convnet", "layers": ["batch_norm", "relu", "flatten", {"name": "linear", "features": 2}]}
    ends = []
    for batch, steps, resume in ((4, 1, None), (5, 3, f"{tmp_path}/step-1")):
        plan = plan_of({"model": model, "data": data | {"batch_size": batch}}, trainer={"max_steps": steps},
                       run={"checkpoint_dir": str(tmp_path), "resume_from": resume})
        ends.append(run_by_hand(tmp_path, plan))
    assert ends[0][0] == 0 and ends[1][0] != 0
    assert LAST.replace("an epoch", "the epoch, or of its rest after the resume") in ends[1][1][-1]["message"]


# ---- amounts of batches --------------------------------------------------------------------------
NEVER_VALIDATES = "trainer.val_check_interval: 100 batches are more than the 3 of an epoch, so that fit would never " \
                  "validate; give at most 3, or a fraction of the epoch, or limit_val_batches: 0 for no validation"


def too_small(knob, of, least, instead=""):
    return f"trainer.{knob}: 0.1 of {of} is less than one batch; raise it to {least}, or give a count such as 1{instead}"


# Lightning: "You requested to check 0.1 of the `val_dataloader` but 0.1 * 3 < 1"
@pytest.mark.parametrize("stage, trainer, words", [
    ("fit", {"limit_val_batches": 0.1},
     too_small("limit_val_batches (or overfit_batches)", "3 batches of the validation", 0.334, ", or 0 to leave it out")),
    ("validate", {"limit_val_batches": 0.1}, "0.1 of 3 batches of the validation is less than one batch"),
    ("test", {"limit_test_batches": 0.1}, "trainer.limit_test_batches: 0.1 of 3 batches of the test is"),
    ("predict", {"limit_predict_batches": 0.1}, "trainer.limit_predict_batches: 0.1 of 3 batches of the prediction is"),
    ("fit", {"limit_train_batches": 0.1},
     too_small("limit_train_batches (or overfit_batches)", "3 batches of an epoch", 0.334)),
    ("fit", {"overfit_batches": 0.1}, "0.1 of 3 batches of an epoch is less than one batch"),
    ("fit", {"limit_train_batches": 0}, "0 of 3 batches leave fit nothing to train on"),
    ("fit", {"limit_train_batches": 0.0}, "0 of 3 batches leave fit nothing to train on"),
    ("fit", {"val_check_interval": 100}, NEVER_VALIDATES),
    ("fit", {"val_check_interval": 3, "limit_train_batches": 2}, "3 batches are more than the 2 of an epoch"),
    ("fit", {"limit_val_batches": 0.334, "limit_train_batches": 0.334, "val_check_interval": 1}, None),
    ("fit", {"limit_val_batches": 0, "val_check_interval": 100}, None), ("fit", {"limit_val_batches": 0.0}, None),
    ("fit", {"val_check_interval": 3}, None), ("fit", {"val_check_interval": 0.1}, None),
    ("fit", {"limit_test_batches": 0.1, "limit_predict_batches": 0.1}, None),
    ("validate", {"limit_train_batches": 0.1, "val_check_interval": 100}, None),
    ("fit", {"fast_dev_run": True, "val_check_interval": 100, "limit_val_batches": 0.1}, None)])
@pytest.mark.parametrize("world", [1, 2])
def test_amount_of_no_batch_is_refused_when_planned(tmp_path, stage, trainer, words, world):
    for name in "x", "val_x":
        np.save(tmp_path / f"{name}.npy", np.ones((12 * world, 4), np.float32))
        np.save(tmp_path / f"{name.replace('x', 'y')}.npy", np.arange(12 * world) % 2)
    data = {"name": "npy", "classes": 2, "batch_size": 4}
    data |= {name: f"{tmp_path}/{name}.npy" for name in ("x", "y", "val_x", "val_y")}
    plan = plan_of({"model": {"name": "mlp", "layers": [4, 2]}, "data": data}, stages=[stage],
                   trainer={"devices": world, **trainer})
    code, said = planned(tmp_path, plan, world)
    assert code == (EXIT["bad_spec"] if words else 0), said
    assert not words or words in said, said


def test_last_batch_is_not_dropped_without_a_word(tmp_path):
    plan = plan_of(data={"batch_size": 1000, "drop_last": True}, trainer={"devices": 2})
    code, said = planned(tmp_path, plan, 2)
    assert code == EXIT["bad_spec"] and "a rank has 250 samples, batch_size is 1000; lower batch_size" in said, said
