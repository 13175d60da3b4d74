"""A job of two steps of every network at each CPU level that this machine has below its own: the losses are those
of the machine's own level within rounding, and no op falls to plain loops that has a kernel there. A gpt whose norms
are hard to compute is near fp64 at every level.

Levels, and which of them `make check` runs, are those of tests/levels.py; the rest is in check-full.
"""
import json
import math
import os
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

import levels
import support
from ranks import run_by_hand

FULL = bool(os.environ.get("TD_FULL"))
MACHINE = levels.of_machine(support.BUILD)
STEPS = 2
# Relative. fp32: sums in another order. 16 bits: a weight that rounds to its neighbour, and what follows from it.
CLOSE = {"32-true": 1e-4, "bf16-mixed": 0.02, "16-mixed": 0.01, "bf16-true": 0.05, "64-true": 1e-10}
IN_CHECK = ("32-true", "bf16-mixed")

PIXELS = np.random.RandomState(0).randint(0, 256, (32, 3, 12, 12)).astype(np.uint8)
LABELS = (np.arange(32) % 10).astype(np.int64)
TEXT = b"the quick brown fox jumps over the lazy dog. " * 60

BASIC = {"name": "residual", "blocks": 2}
MODELS = {
    "mlp": {"name": "mlp", "layers": [432, 72, 40, 10]},
    "convnet": {"name": "convnet", "layers": [
        {"name": "conv", "channels": 20, "padding": 1}, "relu", "max_pool",
        {"name": "conv", "channels": 24, "padding": 1}, "batch_norm", "relu",
        {"name": "residual", "channels": 32, "stride": 2},
        "global_avg_pool", {"name": "dropout", "p": 0.1}, {"name": "linear", "features": 10}]},
    "gpt": {"name": "gpt", "n_layer": 2, "n_head": 3, "n_embd": 72, "embd_pdrop": 0.1},
    "llama": {"name": "llama", "hidden_size": 64, "intermediate_size": 104, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2},
    # examples/resnet18.yaml
    "resnet18": {"name": "convnet", "init": "he", "layers": [
        {"name": "conv", "channels": 64, "kernel": 3, "padding": 1, "bias": False}, "batch_norm", "relu",
        BASIC | {"channels": 64}, BASIC | {"channels": 128, "stride": 2}, BASIC | {"channels": 256, "stride": 2},
        BASIC | {"channels": 512, "stride": 2}, "global_avg_pool", {"name": "linear", "features": 10, "as": "fc"}]},
}


def in_check(level, network, precision):
    """What of all combinations `make check` runs."""
    if precision not in IN_CHECK or level not in ("generic", "avx2"):
        return False
    return network != "resnet18" or level == "avx2"


def combinations():
    """All that this machine can run; one of its own where it has no level below."""
    for level in levels.below(MACHINE) or (MACHINE,):
        for network in MODELS:
            for precision in CLOSE:
                if FULL or in_check(level, network, precision):
                    yield pytest.param(level, network, precision, id=f"{level}-{network}-{precision}")


def plan_of(folder, network, precision):
    if network in ("gpt", "llama"):
        (folder / "text").write_bytes(TEXT)
        data = {"name": "text", "path": str(folder / "text"), "block_size": 40, "batch_size": 3}
    else:
        x = PIXELS.reshape(len(PIXELS), -1) if network == "mlp" else PIXELS
        for name, array in (("x", x), ("y", LABELS)):
            np.save(folder / f"{name}.npy", array)
        data = {"name": "npy", "x": str(folder / "x.npy"), "y": str(folder / "y.npy"),
                "batch_size": 4 if network == "resnet18" else 16}
    return {"format": 1, "name": "levels", "seed_everything": 5, "stages": ["fit"], "model": MODELS[network],
            "data": data, "optimizer": {"name": "adamw", "lr": 1e-4},
            "trainer": {"accelerator": "cpu", "precision": precision, "max_steps": STEPS, "log_every_n_steps": 1,
                        "num_sanity_val_steps": 0, "limit_val_batches": 0},
            "run": {"job": "levels", "threads_per_rank": 2}}


def run(folder, plan, level):
    """Losses of a job that is held to the level, and the ops it ran on plain loops."""
    env = dict(os.environ, TRAIND_CPU_ISA=level, OMP_WAIT_POLICY="passive")
    code, lines = run_by_hand(folder, plan, timeout_s=120, env=env)
    assert code == 0, lines[-1:]
    losses = [x["value"] for x in lines if x.get("name") == "train_loss_step"]
    chosen_on = [x["plan"]["cpu"].split(", ") for x in lines if x.get("event") == "frozen"]
    assert len(chosen_on) == 1 and level in chosen_on[0], "it was not held to the level"
    notes = [x["text"] for x in lines if x.get("event") == "note" and "no fast kernel on cpu" in x["text"]]
    slow = {op for note in notes for op in re.sub(r".*slow but right: ", "", note).split(", ")}
    return losses, slow


@pytest.fixture(scope="module")
def of_machine(tmp_path_factory):
    """The same job at the machine's own level, run once for all levels."""
    done = {}

    def get(network, precision):
        if (network, precision) not in done:
            folder = tmp_path_factory.mktemp("machine")
            done[network, precision] = run(folder, plan_of(folder, network, precision), MACHINE)
        return done[network, precision]
    return get


@pytest.mark.parametrize("level, network, precision", combinations())
def test_two_steps_agree_with_the_machine_s_own_level(tmp_path, of_machine, level, network, precision):
    expected, slow_there = of_machine(network, precision)
    losses, slow = run(tmp_path, plan_of(tmp_path, network, precision), level)
    assert len(losses) == len(expected) == STEPS and all(map(math.isfinite, losses + expected))
    assert losses == pytest.approx(expected, rel=CLOSE[precision])
    assert slow <= slow_there, f"on plain loops at {level} and not at {MACHINE}"


# ---- a norm over two channels --------------------------------------------------------------------
CHANNELS, TOKENS, BLOCKS = 2, 32, 2


def weights_far_from_zero(seed, offset=500):
    """Of a gpt whose channels differ by little, and are large: what a norm is to subtract."""
    rng = np.random.RandomState(seed)

    def some(*shape, around=0.0):
        return (around + 0.3 * rng.standard_normal(shape)).astype(np.float32)

    c = CHANNELS
    w = {"transformer.wte.weight": some(TOKENS, c, around=offset), "transformer.wpe.weight": some(1, c)}
    for i in range(BLOCKS):
        shapes = {"attn.c_attn": (c, 3 * c), "attn.c_proj": (c, c), "mlp.c_fc": (c, 4 * c), "mlp.c_proj": (4 * c, c)}
        for name, shape in shapes.items():
            w |= {f"transformer.h.{i}.{name}.weight": some(*shape), f"transformer.h.{i}.{name}.bias": some(shape[1])}
    for name in [f"h.{i}.ln_{j}" for i in range(BLOCKS) for j in (1, 2)] + ["ln_f"]:
        w |= {f"transformer.{name}.weight": some(c, around=1.0), f"transformer.{name}.bias": some(c)}
    return w


def logits_of(folder, accelerator, precision, level):
    out = folder / f"{accelerator}-{precision}-{level}"
    tokens = str(folder / "tokens.bin")
    plan = {"format": 1, "name": "two", "stages": ["predict"], "init_from": str(folder / "first.safetensors"),
            "model": {"name": "gpt", "n_layer": BLOCKS, "n_head": 1, "n_embd": CHANNELS},
            "data": {"name": "tokens", "train": [tokens], "val": [tokens], "block_size": 1, "vocab_size": TOKENS,
                     "batch_size": TOKENS},
            "predict": {"values": "logits"}, "trainer": {"accelerator": accelerator, "precision": precision},
            "run": {"job": "two", "threads_per_rank": 1, "checkpoint_dir": str(out)}}
    env = dict(os.environ, TRAIND_CPU_ISA=level, OMP_WAIT_POLICY="passive")
    code, lines = run_by_hand(folder, plan, env=env)
    assert code == 0, lines[-1:]
    return np.load(out / "predictions.npy").astype(np.float64)


@pytest.mark.parametrize("seed", range(3))
def test_logits_of_two_channels_are_near_those_of_fp64_where_a_mean_is_large(tmp_path, seed):
    """They were 2e-4 away and more: the mean that a norm subtracts was rounded to fp32. What the sums before the
    norms lose when they are stored in fp32, the reference loses too."""
    save_file(weights_far_from_zero(seed), tmp_path / "first.safetensors")
    np.append(np.arange(TOKENS), 0).astype("<u2").tofile(tmp_path / "tokens.bin")
    exact = logits_of(tmp_path, "reference", "64-true", MACHINE)

    def distance(logits):
        return np.abs(logits - exact).max() / np.abs(exact).max()

    bound = max(1e-5, 2 * distance(logits_of(tmp_path, "reference", "32-true", MACHINE)))
    for level in {MACHINE, *levels.below(MACHINE)} & {"generic", "avx2", MACHINE}:
        assert distance(logits_of(tmp_path, "cpu", "32-true", level)) <= bound, level
