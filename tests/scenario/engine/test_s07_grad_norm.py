"""A gradient whose norm is above 1.8e19, where its square is no fp32 number any more: the norm is recorded, and
clipping by it still moves the weights. On reference, and on cpu at every level."""
import numpy as np
import pytest

import levels
import support
from ranks import Attempt
from safetensors.numpy import load_file

MACHINE = levels.of_machine(support.BUILD)
LEVELS = [("reference", None), ("cpu", None)] + [("cpu", level) for level in levels.below(MACHINE)]
LARGE = 1e15
ROWS, BATCH = 16, 8


def plan_of(folder, accelerator, world, precision="32-true", **trainer):
    rng = np.random.default_rng(5)
    np.save(folder / "x.npy", (rng.standard_normal((ROWS, 4)) * LARGE).astype("f4"))
    np.save(folder / "y.npy", rng.standard_normal((ROWS, 2)).astype("f4"))
    return {"format": 1, "name": "norm", "stages": ["fit"], "seed_everything": 3,
            "model": {"name": "mlp", "layers": [4, 2], "loss": {"name": "mse"}},
            "data": {"name": "npy", "x": str(folder / "x.npy"), "y": str(folder / "y.npy"), "batch_size": BATCH // world},
            "optimizer": {"name": "sgd", "lr": 0.5},
            "trainer": {"accelerator": accelerator, "max_steps": 1, "log_every_n_steps": 1, "devices": world,
                        "num_sanity_val_steps": 0, "precision": precision} | trainer,
            "checkpoint": {"every_n_epochs": 1, "save_top_k": -1},
            "run": {"job": "norm", "threads_per_rank": 1, "checkpoint_dir": str(folder / "out")}}


def run(folder, plan, world, level):
    env = {"TRAIND_CPU_ISA": level} if level else None
    with Attempt(folder, plan, world, env) as attempt:
        assert attempt.wait(60) == [0] * world, attempt.story()
        return [m["sum"] for r in attempt.ranks for m in r.metrics if m["name"] == "grad_norm"]


def expected(folder, start):
    """The gradient of the first step in fp64, from the first weights, which an update at a rate of 0 leaves."""
    x, y = (np.load(folder / f"{n}.npy")[:BATCH].astype("f8") for n in "xy")
    w, b = (start[k].astype("f8") for k in ("fc1.weight", "fc1.bias"))
    d = 2 * (x @ w.T + b - y) / y.size
    return {"fc1.weight": d.T @ x, "fc1.bias": d.sum(0)}


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("accelerator, level", LEVELS)
def test_norm_is_recorded_and_clips_when_its_square_is_no_fp32_number(tmp_path, accelerator, level, world):
    parts = {}
    for part, lr in (("start", 0), ("moved", 0.5)):
        (tmp_path / part).mkdir()
        plan = plan_of(tmp_path / part, accelerator, world, gradient_clip_val=2.0)
        plan["optimizer"]["lr"] = lr
        parts[part] = (run(tmp_path / part, plan, world, level),
                       load_file(tmp_path / part / "out/step-1/model.safetensors"))
    gradient = expected(tmp_path / "start", parts["start"][1])
    norm = np.sqrt(sum((g ** 2).sum() for g in gradient.values()))
    assert norm > 1e20
    for norms, _ in parts.values():
        assert len(norms) == world and norms == pytest.approx([norm] * world, rel=1e-5)
    for name, g in gradient.items():
        moved = parts["moved"][1][name].astype("f8") - parts["start"][1][name]
        assert moved == pytest.approx(-0.5 * 2.0 * g / norm, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_norm_is_recorded_when_products_have_16_bits(tmp_path, precision):
    norms = run(tmp_path, plan_of(tmp_path, "cpu", 1, precision, log_grad_norm=True), 1, None)
    assert len(norms) == 1 and 1e20 < norms[0] < 1e38
