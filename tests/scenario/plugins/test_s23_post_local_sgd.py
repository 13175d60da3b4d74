"""examples/plugins/post_local_sgd.c on two ranks: ddp in the beginning, then means of the parameters."""
import json
import os
import shutil
import subprocess

import pytest
from safetensors.numpy import load_file

import support
from plans import losses, plan_of, state_of
from ranks import Attempt, EXIT


@pytest.fixture
def tree(build, tmp_path, monkeypatch):
    for folder in ("bin", "lib"):
        shutil.copytree(build / folder, tmp_path / "tree" / folder)
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                    f"-I{support.ROOT}/include", support.ROOT / "examples/plugins/post_local_sgd.c",
                    "-o", tmp_path / "tree/lib/traind/strategy-post_local_sgd.so"], check=True)
    monkeypatch.setattr("ranks.WORKER", tmp_path / "tree/bin/traind-worker")
    return tmp_path / "tree"


def plan_for(directory, knobs, resume_from=None, **trainer):
    strategy = {"name": "plugin", "strategy": "post_local_sgd", "knobs": knobs} if knobs else "ddp"
    return plan_of(trainer={"accelerator": "cpu", "devices": 2, "max_steps": 11, "max_epochs": -1, "limit_val_batches": 0,
                            "strategy": strategy, **trainer},
                   run={"checkpoint_dir": str(directory), "resume_from": resume_from and str(resume_from)})


def train(tmp_path, plan):
    with Attempt(tmp_path, plan, 2) as attempt:
        assert attempt.wait(60) == [0, 0], attempt.story()
        return attempt.ranks


def own_parameters(directory):
    """Of each rank, as it keeps them."""
    kept = load_file(directory / "plugins.safetensors")
    n = sum(v.nbytes + -v.nbytes % 64 for v in load_file(directory / "model.safetensors").values())
    return [bytes(kept[f"strategy.post_local_sgd.rank-{r}"][8:8 + n]) for r in range(2)]


# Contract 11: post-local-SGD takes its means
def test_ranks_are_alike_until_they_part_and_at_each_mean(tree, tmp_path):
    ddp = train(tmp_path, plan_for(tmp_path / "ddp", None))
    train(tmp_path, plan_for(tmp_path / "own", {"start_step": 4, "period": 3}))
    for step in range(1, 12):
        alike = len(set(own_parameters(tmp_path / f"own/step-{step}"))) == 1
        assert alike == (step <= 4 or step in (7, 10)), step
    assert state_of(tmp_path / "own/step-4")["model.safetensors"] == state_of(tmp_path / "ddp/step-4")["model.safetensors"]
    assert state_of(tmp_path / "own/step-7")["model.safetensors"] != state_of(tmp_path / "ddp/step-7")["model.safetensors"]
    assert len(losses(ddp[0].metrics)) == 11


@pytest.mark.parametrize("step", [2, 4, 5, 7])
def test_resume_gives_the_same_bits_before_between_and_at_means(tree, tmp_path, step):
    knobs = {"start_step": 4, "period": 3}
    whole = train(tmp_path, plan_for(tmp_path / "whole", knobs))
    rest = train(tmp_path, plan_for(tmp_path / "rest", knobs, resume_from=tmp_path / f"whole/step-{step}"))
    assert [e["reason"] for e in rest[0].event("resumed")] == [""]
    for one, other in zip(rest, whole):
        assert losses(one.metrics) == {s: v for s, v in losses(other.metrics).items() if s > step}
    assert state_of(tmp_path / "rest/step-11") == state_of(tmp_path / "whole/step-11")


# Contract 11: the period of post-local-SGD is required
def test_period_is_required(tree, tmp_path):
    for knobs in ({"start_step": 4}, {"start_step": 4, "period": 0}):
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps(plan_for(tmp_path / "none", knobs)))
        done = subprocess.run([tree / "bin/traind-worker", "plan", "--plan", plan], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == EXIT["bad_spec"] and "trainer.strategy.knobs.period: " in done.stdout


def test_precision_that_skips_steps_is_refused_when_ranks_part(tree, tmp_path):
    plan = plan_for(tmp_path / "none", {"start_step": 4, "period": 2}, precision="16-mixed")
    with Attempt(tmp_path, plan, 2) as attempt:
        assert attempt.wait(60) == [EXIT["bad_spec"]] * 2, attempt.story()
        assert "post_local_sgd under a precision that skips steps: from step 5 on" in attempt.story()
