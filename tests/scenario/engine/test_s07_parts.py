"""A first convolution and its pool run some images at a time where a rank has one thread (accelerators/cpu/parts.h).
With `detect_anomaly`, which has to see whole values, they do not: the losses of both are the same to the bit."""
import os

import numpy as np
import pytest

import levels
import support
from ranks import run_by_hand

BATCH = 96  # 38 MB of fp32 in 128 channels: more than the cache of any core
LEVELS = [x for x in ("generic", "avx2") if x in levels.below(levels.of_machine(support.BUILD))]


def losses(folder, layers, precision, looks, level):
    rng = np.random.RandomState(0)
    np.save(folder / "x.npy", rng.randint(0, 256, (2 * BATCH, 28, 28)).astype(np.uint8))
    np.save(folder / "y.npy", (np.arange(2 * BATCH) % 10).astype(np.int64))
    plan = {"format": 1, "name": "parts", "seed_everything": 5, "stages": ["fit"],
            "model": {"name": "convnet", "layers": [*layers, "flatten", {"name": "linear", "features": 10}]},
            "data": {"name": "npy", "x": str(folder / "x.npy"), "y": str(folder / "y.npy"), "batch_size": BATCH},
            "optimizer": {"name": "sgd", "lr": 0.01},
            "trainer": {"accelerator": "cpu", "precision": precision, "max_steps": 4, "log_every_n_steps": 1,
                        "num_sanity_val_steps": 0, "limit_val_batches": 0, "detect_anomaly": looks},
            "run": {"job": "parts", "threads_per_rank": 1}}
    env = dict(os.environ, OMP_WAIT_POLICY="passive") | ({"TRAIND_CPU_ISA": level} if level else {})
    code, lines = run_by_hand(folder, plan, timeout_s=120, env=env)
    assert code == 0, lines[-1:]
    return [x["value"] for x in lines if x.get("name") == "train_loss_step"]


def conv(channels):
    return {"name": "conv", "channels": channels, "kernel": 3, "padding": 1}


@pytest.mark.parametrize("level", [None, *LEVELS])
@pytest.mark.parametrize("layers, precision", [
    ([conv(128), "relu", "max_pool"], "32-true"),
    ([conv(128), {"name": "avg_pool", "kernel": 2}], "32-true"),
    ([conv(128), {"name": "max_pool", "kernel": 3, "stride": 2, "padding": 1}], "32-true"),
    ([conv(130), "max_pool", conv(16), "max_pool"], "32-true"),  # no whole blocks
    ([conv(128), "relu", "max_pool"], "bf16-mixed"),  # not by parts: the pool writes where cast weights were
], ids=["max", "avg", "overlapping", "channels", "bf16"])
def test_losses_are_those_of_whole_batches_to_the_bit(tmp_path, layers, precision, level):
    parts, whole = (losses(tmp_path, layers, precision, looks, level) for looks in (False, True))
    assert len(parts) == 4 and parts == whole
