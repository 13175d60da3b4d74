"""The worker's numbers are torch's: losses, gradient norms and last weights of the problems of tests/problems.py,
against tests/golden/parity.json, which tests/tools/make_golden.py made: an mlp, a convnet, a gpt, a llama. `make parity`
does the same with torch at hand and more of it."""
import base64
import gzip
import json
import pathlib
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import problems
import support
from ranks import Attempt, run_by_hand

GOLDENS = pathlib.Path(support.ROOT) / "tests/golden"
GOLDEN = json.loads((GOLDENS / "parity.json").read_text())
CLOSE = 2e-5  # fp32 against fp64, relative; 2-norm of a tensor


def write_images(folder, pixels, labels):
    folder.mkdir()
    for part in ("train", "t10k"):
        for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = struct.pack(">BBBB", 0, 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + values.tobytes()))


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """The data of each job, and its first weights."""
    folder = tmp_path_factory.mktemp("given")
    write_images(folder / "mlp", *problems.images())
    write_images(folder / "convnet", *problems.images(6, 7))
    for job in problems.TEXTS:
        (folder / job).mkdir()
        (folder / job / "tokens.bin").write_bytes(problems.tokens().tobytes())
    for job in problems.SHAPES_OF:
        save_file(problems.first_weights(job), folder / job / "first.safetensors")
    return folder


def model_and_data(job, folder):
    if job == "mlp":
        return {"name": "mlp", "layers": [4, 5, 3]}, {"name": "idx", "path": str(folder), "classes": 3}
    if job == "convnet":
        layers = [{"name": "conv", "channels": 2, "padding": 1}, "relu", {"name": "max_pool"},
                  {"name": "conv", "channels": 3, "padding": 1}, "relu", {"name": "max_pool", "kernel": 3},
                  "flatten", {"name": "linear", "features": 3}]
        return {"name": "convnet", "layers": layers}, {"name": "idx", "path": str(folder), "classes": 3}
    gpt = {"name": "gpt", "n_layer": problems.BLOCKS, "n_head": problems.HEADS, "n_embd": problems.WIDTH}
    llama = {"name": "llama", "num_hidden_layers": problems.BLOCKS, "num_attention_heads": problems.HEADS,
             "num_key_value_heads": problems.GROUPS, "hidden_size": problems.WIDTH,
             "intermediate_size": problems.INNER, "rope_theta": problems.THETA}
    return {"gpt": gpt, "llama": llama}[job], \
        {"name": "tokens", "train": [str(folder / "tokens.bin")], "block_size": problems.CONTEXT,
         "vocab_size": problems.TOKENS}


def plan_of(tmp_path, given, case, accelerator, world):
    job, optimizer, cosine, clip, window = problems.MORE.get(case) or ("mlp", *problems.CASES[case])
    model, data = model_and_data(job, given / job)
    return {
        "format": 1, "name": "parity", "stages": ["fit"], "init_from": str(given / job / "first.safetensors"),
        "model": model, "data": data | {"batch_size": problems.BATCH // world},
        "optimizer": optimizer,
        "lr_scheduler": dict(cosine, name="warmup_cosine") if cosine else {"name": "constant"},
        "trainer": {"accelerator": accelerator, "max_steps": problems.STEPS, "log_every_n_steps": 1,
                    "num_sanity_val_steps": 0, "limit_val_batches": 0, "log_grad_norm": True,
                    "devices": world, "gradient_clip_val": clip, "accumulate_grad_batches": window},
        "run": {"job": "parity", "threads_per_rank": 1, "checkpoint_dir": str(tmp_path)},
    }


def values_of(stored):
    """Weights as the golden file has them."""
    if isinstance(stored, str):
        return np.frombuffer(base64.b64decode(stored), "<f4").astype(np.float64)
    return np.array(stored)


def merged(attempt, name):
    """One value a step, merged over the ranks."""
    sums = {}
    for m in (m for r in attempt.ranks for m in r.metrics if m["name"] == name):
        total, count = sums.get(m["step"], (0.0, 0.0))
        sums[m["step"]] = (total + m["sum"], count + m["count"])
    return [total / count for _, (total, count) in sorted(sums.items())]


@pytest.mark.parametrize("accelerator, world", [("reference", 1), ("cpu", 1), ("cpu", 2)])
@pytest.mark.parametrize("case", [*problems.CASES, *problems.MORE])
def test_steps_are_those_of_torch(tmp_path, given, case, accelerator, world):
    golden = GOLDEN[case]
    with Attempt(tmp_path, plan_of(tmp_path, given, case, accelerator, world), world) as attempt:
        assert attempt.wait() == [0] * world, attempt.story()
        assert merged(attempt, "train_loss_step") == pytest.approx(golden["loss"], rel=CLOSE)
        assert merged(attempt, "grad_norm") == pytest.approx(golden["grad_norm"], rel=CLOSE)
    last = load_file(tmp_path / f"step-{problems.STEPS}/model.safetensors")
    assert last.keys() == golden["last"].keys()
    for name, weights in last.items():
        theirs = values_of(golden["last"][name])
        assert np.linalg.norm(weights.flatten() - theirs) <= CLOSE * np.linalg.norm(theirs), name


@pytest.mark.parametrize("trainer, logged", [
    ({}, False), ({"log_grad_norm": True}, True), ({"gradient_clip_val": 1.0}, True),
    ({"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}, True)])
def test_grad_norm_is_logged_when_it_is_asked_for_or_clipped(tmp_path, given, trainer, logged):
    plan = plan_of(tmp_path, given, "sgd", "cpu", 1)
    del plan["trainer"]["log_grad_norm"], plan["trainer"]["gradient_clip_val"]
    plan["trainer"].update(trainer, max_steps=4, log_every_n_steps=2)
    code, lines = run_by_hand(tmp_path, plan)
    assert code == 0
    steps = [m["step"] for m in lines if m.get("name") == "grad_norm"]
    assert steps == [m["step"] for m in lines if m.get("name") == "train_loss_step"] * logged


def test_grad_norm_is_of_the_gradients_before_clipping_when_it_is_by_value(tmp_path, given):
    first = []
    for trainer in ({"log_grad_norm": True}, {"gradient_clip_val": 1e-4, "gradient_clip_algorithm": "value"}):
        plan = plan_of(tmp_path, given, "sgd", "cpu", 1)
        del plan["trainer"]["log_grad_norm"], plan["trainer"]["gradient_clip_val"]
        plan["trainer"].update(trainer, max_steps=1)
        plan["run"]["checkpoint_dir"] = str(tmp_path / str(len(first)))
        code, lines = run_by_hand(tmp_path, plan)
        assert code == 0
        first += [m["value"] for m in lines if m.get("name") == "grad_norm"]
    assert len(first) == 2 and first[0] == first[1] > 0.1


def test_the_bits_are_the_same_when_the_norm_is_logged(tmp_path, given):
    files = []
    for logs in (False, True):
        plan = plan_of(tmp_path, given, "adam decay", "cpu", 1)
        plan["trainer"]["log_grad_norm"] = logs
        plan["run"]["checkpoint_dir"] = str(tmp_path / str(logs))
        assert run_by_hand(tmp_path, plan)[0] == 0
        files.append((tmp_path / str(logs) / f"step-{problems.STEPS}/model.safetensors").read_bytes())
    assert files[0] == files[1]


SCHEDULES = json.loads((GOLDENS / "schedules.json").read_text())


@pytest.mark.parametrize("case", SCHEDULES["cases"], ids=lambda c: c["lr_scheduler"]["name"])
def test_learning_rates_are_those_of_torch_and_transformers(tmp_path, given, case):
    """tests/tools/make_golden.py made them; the knobs go through spec and plan."""
    plan = plan_of(tmp_path, given, "sgd", "reference", 1)
    plan["lr_scheduler"] = case["lr_scheduler"]
    plan["optimizer"]["lr"] = SCHEDULES["lr"]
    plan["trainer"]["max_steps"] = SCHEDULES["max_steps"]
    code, lines = run_by_hand(tmp_path, plan)
    assert code == 0, lines[-1]
    rates = [m["value"] for m in lines if m.get("name") == "lr"]
    assert rates == pytest.approx(case["rates"], rel=1e-6, abs=1e-9)  # they are fp32
