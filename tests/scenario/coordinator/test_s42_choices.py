"""Kernels chosen by timing: what `--dump-graph autotune` says of them before and after a job measured
them, in the worker by hand and through a daemon, and that a choice once made stays in the job."""
import json
import re
import subprocess

import numpy as np
import pytest

import ranks
from support import BUSY, SPEC, until

MLP = {"name": "mlp", "layers": [16, 96, 64, 4]}
CONV = {"name": "conv", "channels": 16, "kernel": 3, "padding": 1}
CONVNET = {"name": "convnet", "layers": [CONV, "relu", CONV, "relu", "flatten", {"name": "linear", "features": 4}]}
# Another way than that; of what is chosen here each level has these.
OTHER = {"matmul": "inner_product", "inner_product": "matmul", "own": "inner_product", "winograd": "direct",
         "direct": "winograd"}
KERNEL = re.compile(r"^    kernel (.+) = (.+): (.+)$", re.M)


def plan_of(tmp_path, trainer=None, model=MLP, **run):
    data = {"name": "synthetic", "samples": 256, "features": 16, "classes": 4}
    if model is CONVNET:
        np.save(tmp_path / "X.npy", np.linspace(0, 1, 64 * 144, dtype=np.float32).reshape(64, 1, 12, 12))
        np.save(tmp_path / "y.npy", np.arange(64, dtype=np.int32) % 4)
        data = {"name": "npy", "x": str(tmp_path / "X.npy"), "y": str(tmp_path / "y.npy")}
    plan = {
        "format": 1, "name": "t", "seed_everything": 7, "stages": ["fit"],
        "model": model, "data": data | {"batch_size": 32},
        "optimizer": {"name": "adamw"},
        "trainer": {"accelerator": "cpu", "max_steps": 4, "limit_val_batches": 0, "num_sanity_val_steps": 0} | (trainer or {}),
        "checkpoint": {"every_n_train_steps": 4},
        "run": {"job": "j", "threads_per_rank": 1, "checkpoint_dir": str(tmp_path / "out")} | run,
    }
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    return file


def dump(file, *more):
    ran = subprocess.run([ranks.WORKER, "plan", "--plan", file, "--dump-graph", "autotune", *more],
                         capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def run(file):
    ran = subprocess.run([ranks.WORKER, "run", "--plan", file], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def kernels_of(manifest):
    return json.loads(manifest.read_text())["frozen"]["kernels"]


def below_nodes(text):
    """Each choice, with the op of the node below which it is."""
    found, op = [], None
    for line in text.splitlines():
        choice = KERNEL.match(line)
        if choice:
            found.append((op, *choice.groups()))
        elif line.startswith("  "):
            op = line.split("=")[1].split()[0] if line.startswith("  %") else line.split()[0]
    return found


# A processor without Winograd has one way for a convolution; our own Winograd has no gradient of weights.
@pytest.mark.parametrize("model, ops", [(MLP, {"matmul"}), (CONVNET, {"conv2d", "conv2d_grad_x", "conv2d_grad_w", "matmul"})])
def test_autotune_shows_each_choice_below_its_node_and_neither_measures_nor_writes(tmp_path, model, ops):
    cache = tmp_path / "cache"
    file = plan_of(tmp_path, model=model)
    before = dump(file, "--choices-dir", str(cache))
    assert not cache.exists()
    asked = below_nodes(before)
    assert {op for op, *_ in asked} in (ops, ops - {"conv2d_grad_w"}, {"matmul"})
    assert all(" or " in name and known == "not measured yet, the first start measures it" for *_, name, known in asked)
    assert before.endswith(f"choices by timing: {len(asked)}; not measured yet: {len(asked)}\n")
    # The same graph as the pass before, with these lines in between and one at the end.
    memory = subprocess.run([ranks.WORKER, "plan", "--plan", file, "--dump-graph", "memory"],
                            capture_output=True, text=True, timeout=60).stdout
    assert KERNEL.sub("", before).replace("\n\n", "\n").startswith(memory)

    run(plan_of(tmp_path, model=model, cache_dir=str(cache)))
    kernels = kernels_of(tmp_path / "out/step-4/manifest.json")
    held = {f.name: f.read_bytes() for f in cache.glob("*")}
    after = dump(file, "--choices-dir", str(cache))
    assert {(key, name) for _, key, name, _ in below_nodes(after)} == set(kernels.items())
    assert {known for *_, known in below_nodes(after)} == {"measured on this machine"}
    assert [x[:2] for x in below_nodes(after)] == [x[:2] for x in asked]
    assert {f.name: f.read_bytes() for f in cache.glob("*")} == held


def test_autotune_shows_what_is_frozen_when_the_cache_says_otherwise(tmp_path):
    cache = tmp_path / "cache"
    run(plan_of(tmp_path, cache_dir=str(cache)))
    saved = tmp_path / "out/step-4"
    kernels = kernels_of(saved / "manifest.json")
    frozen = {key: OTHER[name] for key, name in kernels.items()}
    shown = dump(plan_of(tmp_path, cache_dir=str(cache), frozen={"kernels": frozen}))
    assert {(key, name, known) for _, key, name, known in below_nodes(shown)} == {(k, v, "frozen") for k, v in frozen.items()}
    assert shown.endswith(f"; frozen in the plan: {len(frozen)}\n")
    file, = cache.glob("cpu-tune-*")
    head = file.read_text().splitlines()[0]
    file.write_text("\n".join([head, *(f"{k}={v}" for k, v in frozen.items())]) + "\n")
    shown = dump(plan_of(tmp_path, cache_dir=str(cache), resume_from=str(tmp_path / "lost"), resume_before=[str(saved)]))
    assert shown.startswith("program ")
    assert {(key, name, known) for _, key, name, known in below_nodes(shown)} == {(k, v, "frozen") for k, v in kernels.items()}
    assert shown.endswith(f"; frozen in {saved}: {len(kernels)}\n")


def test_autotune_reads_only_manifests_of_checkpoints_and_says_when_it_finds_none(tmp_path):
    cache = tmp_path / "cache"
    run(plan_of(tmp_path, cache_dir=str(cache)))
    saved = tmp_path / "out/step-4"
    kernels = kernels_of(saved / "manifest.json")
    for file in saved.glob("*.safetensors"):
        file.unlink()  # nobody who looks at more than the manifest takes it now
    resume = {"resume_from": str(tmp_path / "lost"), "resume_before": [str(saved)]}
    assert dump(plan_of(tmp_path, **resume)).endswith(f"; frozen in {saved}: {len(kernels)}\n")
    (saved / "manifest.json").write_text("{")
    shown = dump(plan_of(tmp_path, cache_dir=str(cache), **resume))
    assert {(key, name) for _, key, name, _ in below_nodes(shown)} == set(kernels.items())
    assert shown.endswith(f"; measured on this machine: {len(kernels)}; "
                          "no manifest of a checkpoint to continue from can be read here\n")


def test_autotune_says_why_when_nothing_is_chosen_by_timing(tmp_path):
    asked = below_nodes(dump(plan_of(tmp_path), "--choices-dir", str(tmp_path / "none")))
    first = {(ways.split(" or ")[0], "the first way, nothing is measured") for _, _, ways, _ in asked}
    shown = dump(plan_of(tmp_path, trainer={"deterministic": True}, cache_dir=str(tmp_path / "cache")))
    assert {x[2:] for x in below_nodes(shown)} == first
    assert shown.endswith(f"; not measured, trainer.deterministic: {len(asked)}\n")
    shown = dump(plan_of(tmp_path))
    assert {x[2:] for x in below_nodes(shown)} == first
    assert shown.endswith(f"; not measured without a cache directory: {len(asked)}\n")
    shown = dump(plan_of(tmp_path, trainer={"accelerator": "reference"}))
    assert not below_nodes(shown)
    assert shown.endswith("no choices: accelerator 'reference' has one way for each node\n")


def test_daemons_plan_shows_the_choices_of_its_node(daemon, tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)

    def shown():
        return daemon.ctl("plan", spec, "--dump-graph", "autotune", check=0).stdout

    before = shown()
    n = len(below_nodes(before))
    assert n >= 2 and before.endswith(f"choices by timing: {n}; not measured yet: {n}\n")
    assert not list((daemon.state_dir / "cache").glob("cpu-tune-*"))
    job = daemon.submit(SPEC)
    daemon.finish(job)
    kernels = kernels_of(next((daemon.state_dir / "checkpoints" / job / "a1").glob("step-*[0-9]/manifest.json")))
    after = shown()
    assert {(key, name) for _, key, name, _ in below_nodes(after)} == set(kernels.items())
    assert after.endswith(f"choices by timing: {n}; measured on this machine: {n}\n")
    assert [x[:2] for x in below_nodes(after)] == [x[:2] for x in below_nodes(before)]


def test_later_attempt_computes_as_the_first_when_the_cache_says_otherwise(daemon):
    job = daemon.submit(BUSY)
    daemon.wait_step(job, 1)
    daemon.steer("Pause", job)
    daemon.wait_state(job, "PAUSED")
    saved = daemon.state_dir / "checkpoints" / job
    kernels = kernels_of(next(saved.glob("a1/step-*[0-9]/manifest.json")))
    assert len(kernels) >= 3
    cache, = (daemon.state_dir / "cache").glob("cpu-tune-*")
    head = cache.read_text().splitlines()[0]
    cache.write_text("\n".join([head, *(f"{k}={OTHER[v]}" for k, v in kernels.items())]) + "\n")
    daemon.steer("Resume", job)
    first = until("a checkpoint of the second attempt", lambda: next(saved.glob("a2/step-*[0-9]/manifest.json"), None))
    assert kernels_of(first) == kernels
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")
