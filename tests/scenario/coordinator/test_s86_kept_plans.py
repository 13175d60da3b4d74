"""A plan that is kept is used for as long as what it was made from is the same: data that grew, weights that were
replaced under the same name and a daemon that was started again between two jobs of one spec."""
import os

import numpy as np
from safetensors.numpy import save_file

from support import spec_file

OK = 0
SPEC = """
name: kept
model: {name: mlp, layers: [8, 16, 3]}
data: {name: npy, x: x.npy, y: y.npy, batch_size: 10}
optimizer: {name: sgd, lr: 0.1}
trainer: {accelerator: cpu, max_epochs: 1}
checkpoint: {every_n_epochs: 1000}
"""


def write(folder, n, seed=0):
    draw = np.random.RandomState(seed)
    np.save(folder / "x.npy", draw.randn(n, 8).astype("f4"))
    np.save(folder / "y.npy", draw.randint(0, 3, n))


def asked(daemon):
    return daemon.ctl_json("cluster", "info")["counters"]["plans_asked"]


def run(daemon, spec):
    job = daemon.ctl("submit", spec, "-o", "name", check=OK).stdout.strip()
    done = daemon.finish(job)
    return done.global_step, done.progress.total_steps


def test_data_that_grew_was_planned_as_it_had_been(daemon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, 160)
    spec = spec_file(tmp_path, SPEC)
    assert run(daemon, spec) == (16, 16)
    before = asked(daemon)
    assert run(daemon, spec) == (16, 16) and asked(daemon) == before
    write(tmp_path, 1600)
    assert daemon.ctl_json("plan", spec)["total_steps"] == 160
    write(tmp_path, 320)
    assert run(daemon, spec) == (32, 32)
    before = asked(daemon)
    daemon.restart()
    assert run(daemon, spec) == (32, 32) and asked(daemon) == 0 < before  # kept over the restart
    write(tmp_path, 480)
    daemon.restart()
    assert run(daemon, spec) == (48, 48) and asked(daemon) == 1


def test_file_that_was_only_touched_is_not_planned_again(daemon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, 160)
    spec = spec_file(tmp_path, SPEC)
    assert daemon.ctl_json("plan", spec)["total_steps"] == 16
    before = asked(daemon)
    write(tmp_path, 160)  # another file with the same content
    os.utime(tmp_path / "y.npy")
    assert daemon.ctl_json("plan", spec)["total_steps"] == 16 and asked(daemon) == before


def test_weights_that_were_replaced_decide_the_next_plan(daemon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, 160)
    weights = {"fc1.weight": np.ones((16, 8), "f4"), "fc1.bias": np.ones(16, "f4"),
               "fc2.weight": np.ones((3, 16), "f4"), "fc2.bias": np.ones(3, "f4")}
    save_file(weights, tmp_path / "w.safetensors")
    spec = spec_file(tmp_path, SPEC + "init_from: w.safetensors\n")
    assert run(daemon, spec) == (16, 16)
    save_file({k: v for k, v in weights.items() if k != "fc2.bias"}, tmp_path / "w.safetensors")
    said = daemon.ctl("plan", spec, check=1).stderr
    assert "fc2.bias" in said and "is missing" in said, said
    save_file(weights, tmp_path / "w.safetensors")
    assert run(daemon, spec) == (16, 16)
