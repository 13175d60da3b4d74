"""Checkpoints by time: train_time_interval. When they are due is held against Lightning in test_train_control.c."""
import json

import pytest
from plans import plan_of, state_of, steps_in
from ranks import Attempt

NS = 10**9


def plan_for(directory, interval, **trainer):
    return plan_of(checkpoint={"every_n_train_steps": 0, "train_time_interval": interval},
                   run={"checkpoint_dir": str(directory)}, data={"samples": 4000, "batch_size": 4},
                   trainer={"max_epochs": -1, "limit_val_batches": 0, "log_every_n_steps": 1000} | trainer)


def manifest_of(directory, step):
    return json.loads((directory / f"step-{step}/manifest.json").read_text())


@pytest.mark.parametrize("world", [1, 2])
def test_checkpoints_are_an_interval_apart_and_a_run_goes_on_from_one(tmp_path, world):
    with Attempt(tmp_path, plan_for(tmp_path / "a1", 1), world) as one:
        one.until(lambda a: len(a.ranks[0].event("checkpoint")) == 2)
        one.stop()
        one.wait()
    steps = steps_in(tmp_path / "a1")
    assert len(steps) in (3, 4)  # two and the last; a slow machine may come to a third
    times = [0] + [manifest_of(tmp_path / "a1", s)["progress"]["elapsed_ns"] for s in steps[:-1]]
    assert all(b - a >= NS for a, b in zip(times, times[1:])), times
    # Where it was saved is where time happened to be; the bits are those of a run that saves at no such step.
    last = steps[-1]
    with Attempt(tmp_path, plan_for(tmp_path / "whole", 9999, max_steps=last), world) as one:
        assert one.wait() == [0] * world, one.story()
    assert steps_in(tmp_path / "whole") == [last]
    rest = plan_for(tmp_path / "rest", 9999, max_steps=last)
    rest["run"]["resume_from"] = str(tmp_path / f"a1/step-{steps[0]}")
    with Attempt(tmp_path, rest, world) as one:
        assert one.wait() == [0] * world, one.story()
        assert one.ranks[0].event("resumed")[0]["exact"]
    assert state_of(tmp_path / f"rest/step-{last}") == state_of(tmp_path / f"whole/step-{last}") \
        == state_of(tmp_path / f"a1/step-{last}")


def test_none_is_saved_by_time_when_none_are_kept(tmp_path):
    plan = plan_for(tmp_path / "a1", 1, max_time=2)
    plan["checkpoint"]["save_top_k"] = 0
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        assert not one.ranks[0].event("checkpoint")
    assert steps_in(tmp_path / "a1") == []
