"""What labs run, as it comes: scripts of Lightning and of Hugging Face's Trainer, whose ranks have GPUs that a double of
the driver lists. They compute on the CPU, as no kernel runs on those. Torch does not see the double: where it counts a GPU,
Lightning asks for the state of its random numbers."""
import json
import re
import subprocess

import pytest

from gpu_nodes import Driver, gpu_node, gpus, until_listed
from support import ROOT

RANKS, STEPS = 2, 12


@pytest.fixture
def lab(cluster, tmp_path):
    """A coordinator, and a node with four GPUs."""
    coordinator = cluster.start("--role", "coordinator", name="coordinator")
    driver = Driver(tmp_path, "one")
    driver.says(*gpus("a", 4))
    gpu_node(cluster, coordinator, driver, "one", slots=4)
    until_listed(coordinator, "one", lambda found: len(found.gpus) == 4)
    return coordinator


def needs(python, *packages):
    probe = f"import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, {packages})))"
    if subprocess.run([python, "-c", probe], timeout=60).returncode:
        pytest.skip(f"no Python package {' or '.join(packages)} ({python}; `make rivals`)")


def trained(coordinator, tmp_path, command, resources, **more):
    spec = {"kind": "command", "command": [str(word) for word in command],
            "env": {"HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}, "trainer": {"devices": RANKS}, "resources": resources, **more}
    job = coordinator.submit(json.dumps(spec))
    done = coordinator.finish(job, deadline_s=240)
    found = {}
    for rank in range(RANKS):
        line = re.search(r"^found (\d+) (\d+) (.*)$", coordinator.output(job, rank=rank, out_only=True), re.M)
        assert int(line[1]) == rank and int(line[2]) == RANKS, line[0]
        found[rank] = line[3]
    return job, done, found


def test_lightning_finds_its_gpus_and_is_read_by_a_pattern(lab, tmp_path, torch_python):
    needs(torch_python, "lightning", "torch")
    job, done, found = trained(
        lab, tmp_path, [torch_python, ROOT / "tests/clients/lightning_fit.py", RANKS, STEPS, tmp_path / "out"], {"gpus_per_rank": 1},
        metrics_from={"stdout": r"step=(?P<step>\d+) of (?P<total_steps>\d+) loss=(?P<loss>\S+)"})
    assert found == {rank: "GPU-a0,GPU-a1" for rank in range(RANKS)}
    assert (done.global_step, done.total_steps) == (STEPS, STEPS)
    points = lab.points(job, "loss")
    assert [p.step for p in points] == list(range(1, STEPS + 1)) and points[-1].value < points[0].value
    assert not done.notes, done.notes


def test_trainer_finds_its_gpus_and_reports_by_itself(lab, tmp_path, torch_python):
    needs(torch_python, "transformers", "accelerate")
    job, done, found = trained(
        lab, tmp_path, [torch_python, ROOT / "tests/clients/hf_trainer.py", STEPS, 0.1, tmp_path / "out"],
        {"gpus_per_rank": 2, "isolate_gpus": True})
    assert found == {0: "GPU-a0,GPU-a1", 1: "GPU-a2,GPU-a3"}
    assert (done.global_step, done.total_steps) == (STEPS, STEPS)
    assert lab.points(job, "loss")[-1].step == STEPS
    assert not done.notes, done.notes
