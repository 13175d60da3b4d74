"""64-true is fp64 from the file to the loss: data of float64 and of large integers, in every kind of file, and whatever
stands before the first product. The loss of a first step, and that of a validation, against numpy's long double."""
import itertools

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ranks import Attempt

ROWS, SHAPE = 8, (2, 2, 2)
SIZE = int(np.prod(SHAPE))
CLOSE = 16 * np.finfo("f8").eps
OUT = ["flatten", {"name": "linear", "features": 1}]
LONG = np.longdouble


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def gelu(x):
    erf = np.vectorize(lambda v: LONG(2) / np.sqrt(LONG(np.pi)) * sum(
        (-1) ** k * v ** (2 * k + 1) / (LONG(2 * k + 1) * np.prod(np.arange(1, k + 1, dtype=LONG))) for k in range(60)))
    pi = LONG("3.14159265358979323846264338327950288")
    return x / 2 * (1 + erf(x / np.sqrt(LONG(2))) * np.sqrt(LONG(np.pi)) / np.sqrt(pi))


def batch_norm(x):
    over = (0, 2, 3)
    mean = x.mean(over, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(over, keepdims=True) + LONG(1e-5))


FIRST = {"tanh": np.tanh, "gelu": gelu, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "batch_norm": batch_norm,
         "silu": lambda x: x / (1 + np.exp(-x)), "relu": lambda x: np.maximum(x, 0)}


def plan_of(folder, layers, accelerator, world, x, y, **trainer):
    data = {"name": "npy", "batch_size": ROWS // world, **{k: str(folder / f"{k}.npy") for k in ("x", "y", "val_x", "val_y")}}
    for key, array in (("x", x), ("y", y), ("val_x", x[::-1]), ("val_y", y[::-1])):
        np.save(folder / f"{key}.npy", array)
    return {"format": 1, "name": "double", "stages": ["fit"], "seed_everything": 5,
            "model": {"name": "convnet", "layers": layers, "loss": {"name": "mse"}}, "data": data,
            "optimizer": {"name": "sgd", "lr": 0.0}, "metrics": ["r2"],
            "trainer": {"accelerator": accelerator, "precision": "64-true", "devices": world, "max_epochs": 1,
                        "log_every_n_steps": 1, "num_sanity_val_steps": 0, "sync_batchnorm": True} | trainer,
            "run": {"job": "double", "threads_per_rank": 1, "checkpoint_dir": str(folder / "out")}}


def run(folder, plan, world):
    """Weights, and the numbers that were recorded once."""
    with Attempt(folder, plan, world) as attempt:
        assert attempt.wait(60) == [0] * world, attempt.story()
    sums = {}
    for m in (m for r in attempt.ranks for m in r.metrics):
        total, count = sums.get(m["name"], (0.0, 0.0))
        sums[m["name"]] = (total + m["sum"], count + m["count"])
    weights = load_file(folder / "out/step-1/model.safetensors")
    assert {w.dtype for w in weights.values()} == {np.dtype("f8")}
    return weights, {name: total / count for name, (total, count) in sums.items()}


def outputs(weights, h):
    return h.reshape(len(h), -1).astype(LONG) @ weights["fc1.weight"].T.astype(LONG) + weights["fc1.bias"].astype(LONG)


@pytest.mark.parametrize("accelerator, world", [("reference", 1), ("cpu", 1), ("cpu", 2)])
@pytest.mark.parametrize("first", [None, *FIRST])
def test_loss_is_of_the_numbers_in_the_file(tmp_path, first, accelerator, world):
    x, y = numbers(1, ROWS, *SHAPE), numbers(2, ROWS, 1)
    weights, found = run(tmp_path, plan_of(tmp_path, ([first] if first else []) + OUT, accelerator, world, x, y), world)
    squares = (outputs(weights, FIRST.get(first, lambda x: x)(x.astype(LONG))) - y) ** 2
    assert found["train_loss_step"] == pytest.approx(float(squares.mean()), rel=CLOSE)
    if first == "batch_norm":  # which evaluates by running statistics
        assert weights["bn1.running_mean"] == pytest.approx(x.mean((0, 2, 3)) / 10, rel=CLOSE)
        assert weights["bn1.running_var"] == pytest.approx(0.9 + x.var((0, 2, 3), ddof=1) / 10, rel=CLOSE)
        return
    assert found["val_loss"] == pytest.approx(float(squares.mean()), rel=CLOSE)
    r2 = 1 - squares.sum() / ((y - y.mean()) ** 2).sum()
    assert found["val_r2"] == pytest.approx(float(r2), rel=1e-5)  # of predictions, which are fp32


@pytest.mark.parametrize("accelerator", ["reference", "cpu"])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8 in Fortran order", "f8 large", "i4", "i8", "u8", "npz"])
def test_every_kind_of_file_is_read_to_the_last_digit(tmp_path, kind, accelerator):
    x, y = numbers(1, ROWS, *SHAPE), numbers(2, ROWS, 1)
    if kind == "f8 large":
        x *= 1e150  # no number of fp32
    elif kind[0] in "iu":
        x = (np.abs(x) * 1e8).astype(kind)
    elif kind in ("f2", "f4"):
        x = x.astype(kind)
    plan = plan_of(tmp_path, OUT, accelerator, 1, np.asfortranarray(x) if "Fortran" in kind else x, y)
    if kind == "npz":
        np.savez_compressed(tmp_path / "all.npz", x=x, y=y)
        plan["data"] |= {k: str(tmp_path / f"all.npz:{k[-1]}") for k in ("x", "y", "val_x", "val_y")}
    weights, found = run(tmp_path, plan, 1)
    squares = (outputs(weights, x.astype(LONG)) - y) ** 2
    for name in ("train_loss_step", "val_loss"):
        assert found[name] == pytest.approx(float(squares.mean()), rel=CLOSE), name


@pytest.mark.parametrize("accelerator", ["reference", "cpu"])
def test_dropout_divides_in_double(tmp_path, accelerator):
    """Of eight numbers: what was dropped is the mask that comes nearest."""
    x, y = numbers(1, 1, *SHAPE), numbers(2, 1, 1)
    plan = plan_of(tmp_path, [{"name": "dropout", "p": 0.3}, *OUT], accelerator, 1, x, y)
    plan["data"]["batch_size"] = 1
    del plan["metrics"]
    weights, found = run(tmp_path, plan, 1)
    masks = np.array(list(itertools.product((0, 1), repeat=SIZE)))
    squares = (outputs(weights, masks * x.reshape(1, -1).astype(LONG) / (1 - LONG(0.3))) - y) ** 2
    assert np.abs(squares / found["train_loss_step"] - 1).min() < CLOSE


@pytest.mark.parametrize("accelerator, world", [("reference", 1), ("cpu", 1), ("cpu", 2)])
def test_weights_of_a_float64_file_are_taken_to_the_last_digit(tmp_path, accelerator, world):
    x, y = numbers(1, ROWS, *SHAPE), numbers(2, ROWS, 1)
    first = {"fc1.weight": numbers(3, 1, SIZE), "fc1.bias": numbers(4, 1)}
    save_file(first, tmp_path / "first.safetensors")
    plan = plan_of(tmp_path, OUT, accelerator, world, x, y) | {"init_from": str(tmp_path / "first.safetensors")}
    weights, found = run(tmp_path, plan, world)
    assert all((weights[k] == first[k]).all() for k in first)
    squares = (outputs(first, x.astype(LONG)) - y) ** 2
    assert found["train_loss_step"] == pytest.approx(float(squares.mean()), rel=CLOSE)
