"""The six precisions through the worker: two ranks train and resume exactly (one rank: test_s08_resume.py),
files hold the types that they say, 16-mixed skips what overflows without counting it, and 64-true is exact to the
last digits of fp64."""
import json
import pathlib

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from plans import plan_of, state_of
from ranks import EXIT, Attempt, run_by_hand

STORED = {"32-true": "F32", "64-true": "F64", "bf16-mixed": "F32", "bf16-true": "BF16",
          "16-mixed": "F32", "16-true": "F16"}


def values(records, name):
    return {m["step"]: m["value"] for m in records if m.get("name") == name}


def types_in(file):
    with safe_open(file, framework="np") as f:
        return {f.get_slice(name).get_dtype() for name in f.keys()}


def manifest_of(step_dir):
    return json.loads((pathlib.Path(step_dir) / "manifest.json").read_text())


def whole_and_resumed(tmp_path, world, steps, middle, **sections):
    """The last state of a run of `steps`, and of one that went on from `middle`'s checkpoint."""
    last = []
    for folder, first in (("whole", None), ("resumed", tmp_path / f"whole/step-{middle}")):
        (tmp_path / folder).mkdir()
        changes = {"resume_from": str(first)} if first else {}
        plan = plan_of(**sections)
        plan["trainer"]["devices"] = world
        plan["trainer"]["max_steps"] = steps
        plan["checkpoint"] = {"every_n_train_steps": middle, "save_top_k": -1}
        plan["run"].update(checkpoint_dir=str(tmp_path / folder), **changes)
        with Attempt(tmp_path / folder, plan, world) as attempt:
            assert attempt.wait() == [0] * world, attempt.story()
        last.append(tmp_path / folder / f"step-{steps}")
    return last


@pytest.mark.parametrize("precision", STORED)
def test_two_ranks_resume_with_the_same_bits(tmp_path, precision, world=2):
    whole, resumed = whole_and_resumed(tmp_path, world, 6, 3,
                                       trainer={"accelerator": "cpu", "precision": precision})
    assert state_of(whole) == state_of(resumed)
    assert types_in(whole / "model.safetensors") == {STORED[precision]}
    # fp16 cannot hold the squares of gradients
    assert types_in(whole / "optimizer.safetensors") == {"F32" if precision == "16-true" else STORED[precision]}
    assert manifest_of(whole)["resume_key"]["precision"] == precision
    assert ("loss_scaler" in manifest_of(whole)) == (precision == "16-mixed")


def test_stochastic_rounding_is_the_same_after_a_resume(tmp_path):
    trainer = {"accelerator": "cpu", "precision": "bf16-true", "stochastic_rounding": True}
    whole, resumed = whole_and_resumed(tmp_path, 2, 6, 3, trainer=trainer)
    assert state_of(whole) == state_of(resumed)


def scaled_up(step_dir, scale):
    """The checkpoint as one that was about to use a loss scale that overflows."""
    manifest = manifest_of(step_dir)
    manifest["loss_scaler"]["scale"] = scale
    (pathlib.Path(step_dir) / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("world", [1, 2])
def test_steps_that_overflow_are_skipped_and_not_counted(tmp_path, world):
    plan = plan_of(trainer={"accelerator": "cpu", "precision": "16-mixed", "max_steps": 2, "max_epochs": 9,
                            "devices": world})
    plan["run"]["checkpoint_dir"] = str(tmp_path / "a")
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait() == [0] * world, attempt.story()
    scaled_up(tmp_path / "a/step-2", 2.0 ** 40)
    plan["trainer"]["max_steps"] = 6
    plan["run"].update(checkpoint_dir=str(tmp_path / "b"), resume_from=str(tmp_path / "a/step-2"))
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait() == [0] * world, attempt.story()
        metrics = attempt.ranks[0].metrics
        saved = [e["step"] for e in attempt.ranks[0].event("checkpoint")]
    assert saved == sorted(set(saved)) and saved[-1] == 6 and 2 not in saved, "a skipped step saves nothing"
    last = manifest_of(tmp_path / "b/step-6")
    scaler, skipped = last["loss_scaler"], last["loss_scaler"]["skipped_steps"]
    assert skipped > 0 and scaler["scale"] == 2.0 ** (40 - skipped)
    assert last["step"] == 6 and scaler["clean_steps"] <= 4
    # Each skipped step took a batch of its own and no number.
    epochs, batches = divmod(6 + skipped, 16 // world)
    assert last["progress"]["samples"] == epochs * 500 + batches * 32 * world
    assert sorted({m["step"] for m in metrics if m["name"] == "train_loss_step"}) == [3, 4, 5, 6]


def test_a_run_that_skipped_resumes_with_the_same_bits(tmp_path):
    plan = plan_of(trainer={"accelerator": "cpu", "precision": "16-mixed", "max_steps": 2})
    plan["run"]["checkpoint_dir"] = str(tmp_path / "a")
    assert run_by_hand(tmp_path, plan)[0] == 0
    scaled_up(tmp_path / "a/step-2", 2.0 ** 40)
    for folder, start, steps in (("b", "a/step-2", 6), ("c", "a/step-2", 4), ("d", "c/step-4", 6)):
        plan["trainer"]["max_steps"] = steps
        plan["run"].update(checkpoint_dir=str(tmp_path / folder), resume_from=str(tmp_path / start))
        assert run_by_hand(tmp_path, plan)[0] == 0
    assert state_of(tmp_path / "b/step-6") == state_of(tmp_path / "d/step-6")
    whole, resumed = manifest_of(tmp_path / "b/step-6"), manifest_of(tmp_path / "d/step-6")
    assert whole["loss_scaler"] == resumed["loss_scaler"]
    assert whole["progress"]["samples"] == resumed["progress"]["samples"]


def test_a_model_that_overflows_whatever_the_scale_ends_as_numeric(tmp_path):
    plan = plan_of(optimizer={"name": "sgd", "lr": 1e6},
                   trainer={"accelerator": "cpu", "precision": "16-mixed", "max_epochs": 20})
    code, records = run_by_hand(tmp_path, plan)
    assert code == EXIT["numeric"], records[-3:]


def test_weights_load_across_precisions(tmp_path):
    plan = plan_of(trainer={"accelerator": "cpu", "precision": "bf16-true", "max_steps": 2})
    plan["run"]["checkpoint_dir"] = str(tmp_path / "a")
    assert run_by_hand(tmp_path, plan)[0] == 0
    plan["trainer"].update(precision="32-true", max_steps=4)
    plan["run"].update(checkpoint_dir=str(tmp_path / "b"), resume_from=str(tmp_path / "a/step-2"))
    code, records = run_by_hand(tmp_path, plan)
    assert code == 0 and types_in(tmp_path / "b/step-4/model.safetensors") == {"F32"}
    assert any("precision bf16-true -> 32-true" in json.dumps(r) for r in records)


LLAMA = {"name": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2}


def curve_of(tmp_path, precision, model, optimizer, steps=48, width=16, **trainer):
    (tmp_path / "text").write_text("the quick brown fox jumps over the lazy dog. " * 60)
    plan = plan_of({"optimizer": optimizer} if optimizer else {},
                   trainer={"accelerator": "cpu", "precision": precision, "max_steps": steps,
                            "limit_val_batches": 0} | trainer,
                   checkpoint={"save_top_k": 0}, run={"job": None})
    if model != "mlp":
        gpt = {"name": "gpt", "n_layer": 2, "n_head": 2, "n_embd": width}
        plan["model"] = {"gpt": gpt, "llama": LLAMA}[model]
        plan["data"] = {"name": "text", "path": str(tmp_path / "text"), "block_size": 16, "batch_size": 8}
    code, lines = run_by_hand(tmp_path, plan)
    assert code == 0, lines[-1]
    return list(values(lines, "train_loss_step").values())


@pytest.mark.parametrize("precision, model, optimizer", [
    ("bf16-mixed", "mlp", None),
    ("16-mixed", "gpt", {"name": "adamw", "lr": 0.003}),
    ("bf16-mixed", "llama", {"name": "adamw", "lr": 0.003}),
    ("16-mixed", "llama", {"name": "adamw", "lr": 0.003}),
    # with the eps of fp32, far below anything that fp16 can say
    ("16-true", "gpt", {"name": "adam", "lr": 0.003, "eps": 1e-8}),
    ("16-true", "gpt", {"name": "muon", "lr": 0.01, "adamw_lr": 0.003}),
])
def test_curve_of_losses_is_that_of_fp32(tmp_path, precision, model, optimizer):
    curve, fp32 = (curve_of(tmp_path, p, model, optimizer) for p in (precision, "32-true"))
    assert len(fp32) == 48 and fp32[-1] < 0.8 * fp32[0]
    assert curve == pytest.approx(fp32, abs=2e-2, rel=1e-2)


def test_weights_that_are_not_cast_are_no_anomaly_when_their_memory_is_used_again(tmp_path):
    seen, unseen = (curve_of(tmp_path, "bf16-mixed", "gpt", None, 8, 64, detect_anomaly=looks)
                    for looks in (True, False))
    assert len(seen) == 8 and seen == unseen


def test_stochastic_rounding_is_refused_where_no_weight_is_bf16(tmp_path):
    plan = plan_of(trainer={"precision": "bf16-mixed", "stochastic_rounding": True})
    code, records = run_by_hand(tmp_path, plan)
    assert code == EXIT["bad_spec"] and "bf16-true" in json.dumps(records)


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_gradients_are_clipped_to_exactly_the_value(tmp_path, precision):
    """With sgd at lr 1, the largest change of a weight is the largest gradient."""
    plan = plan_of(optimizer={"name": "sgd", "lr": 1.0},
                   trainer={"accelerator": "cpu", "precision": precision, "max_steps": 1,
                            "gradient_clip_val": 2.0 ** -8, "gradient_clip_algorithm": "value"})
    plan["run"]["checkpoint_dir"] = str(tmp_path / "a")
    assert run_by_hand(tmp_path, plan)[0] == 0
    plan["run"]["checkpoint_dir"] = str(tmp_path / "b")
    plan["optimizer"]["lr"] = 0.0
    assert run_by_hand(tmp_path, plan)[0] == 0
    with safe_open(tmp_path / "a/step-1/model.safetensors", framework="np") as moved, \
            safe_open(tmp_path / "b/step-1/model.safetensors", framework="np") as still:
        largest = max(float(abs(moved.get_tensor(n).astype("f8") - still.get_tensor(n).astype("f8")).max())
                      for n in still.keys())
    assert largest == pytest.approx(2.0 ** -8, abs=1e-7)


# ---- 64-true against doubles ---------------------------------------------------------------------
ROWS, BATCH, WINDOW, STEPS, LR, DECAY, CLIP = 24, 4, 3, 6, 1e-3, 0.1, 0.05


def batches_of(x, y):
    while True:
        for i in range(0, ROWS, BATCH):
            yield x[i:i + BATCH].astype(np.float64), y[i:i + BATCH]


def loss_and_gradients(w, x, y):
    """Cross entropy of a linear layer, relu, and another one."""
    hidden = np.maximum(x @ w["fc1.weight"].T + w["fc1.bias"], 0)
    logits = hidden @ w["fc2.weight"].T + w["fc2.bias"]
    log_p = logits - logits.max(1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
    d = (np.exp(log_p) - np.eye(3)[y]) / len(y)
    dh = (d @ w["fc2.weight"]) * (hidden > 0)
    return -log_p[np.arange(len(y)), y].mean(), {
        "fc1.weight": dh.T @ x, "fc1.bias": dh.sum(0), "fc2.weight": d.T @ hidden, "fc2.bias": d.sum(0)}


def trained_in_doubles(w, x, y):
    """torch's AdamW, clip_grad_norm_ and windows, in numpy: losses, norms, last weights."""
    w = {k: v.astype(np.float64) for k, v in w.items()}
    m, v = ({k: np.zeros_like(t) for k, t in w.items()} for _ in range(2))
    source, losses, norms = batches_of(x, y), [], []
    for t in range(1, STEPS + 1):
        parts = [loss_and_gradients(w, *next(source)) for _ in range(WINDOW)]
        losses.append(sum(p[0] for p in parts) / WINDOW)
        grads = {k: sum(p[1][k] / WINDOW for p in parts) for k in w}
        norms.append(np.sqrt(sum((g ** 2).sum() for g in grads.values())))
        for k, g in grads.items():
            g = g * min(1.0, CLIP / (norms[-1] + 1e-6))
            m[k] = 0.9 * m[k] + (1 - 0.9) * g
            v[k] = 0.999 * v[k] + (1 - 0.999) * g * g
            w[k] = w[k] * (1 - LR * DECAY) - LR / (1 - 0.9 ** t) * m[k] / (
                np.sqrt(v[k]) / np.sqrt(1 - 0.999 ** t) + 1e-8)
    return losses, norms, w


@pytest.mark.parametrize("accelerator", ["reference", "cpu"])
def test_fp64_is_that_of_doubles_where_rate_and_window_are_no_floats(tmp_path, accelerator):
    """Rate and 1 / window came to the accelerator as fp32, which cost half of the digits."""
    rng = np.random.RandomState(0)
    x, y = rng.standard_normal((ROWS, 4)).astype(np.float32), rng.randint(0, 3, ROWS).astype(np.int64)
    first = {k: rng.standard_normal(s).astype(np.float32) for k, s in (
        ("fc1.weight", (5, 4)), ("fc1.bias", (5,)), ("fc2.weight", (3, 5)), ("fc2.bias", (3,)))}
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    save_file(first, tmp_path / "first.safetensors")
    plan = plan_of({"init_from": str(tmp_path / "first.safetensors"),
                    "model": {"name": "mlp", "layers": [4, 5, 3]},
                    "data": {"name": "npy", "x": str(tmp_path / "x.npy"), "y": str(tmp_path / "y.npy"),
                             "batch_size": BATCH, "shuffle": False},
                    "optimizer": {"name": "adamw", "lr": LR, "weight_decay": DECAY}},
                   trainer={"accelerator": accelerator, "precision": "64-true", "max_steps": STEPS,
                            "limit_val_batches": 0, "accumulate_grad_batches": WINDOW, "gradient_clip_val": CLIP})
    plan["run"]["checkpoint_dir"] = str(tmp_path / "out")
    code, lines = run_by_hand(tmp_path, plan)
    assert code == 0, lines[-1]
    losses, norms, last = trained_in_doubles(first, x, y)
    assert list(values(lines, "lr").values()) == [LR] * STEPS
    assert list(values(lines, "train_loss_step").values()) == pytest.approx(losses, rel=1e-14)
    assert list(values(lines, "grad_norm").values()) == pytest.approx(norms, rel=1e-14)
    found = load_file(tmp_path / f"out/step-{STEPS}/model.safetensors")
    assert found.keys() == last.keys()
    for name, weights in found.items():
        assert np.linalg.norm(weights - last[name]) <= 1e-14 * np.linalg.norm(last[name]), name
