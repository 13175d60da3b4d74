"""Optimizer state in pieces, by a user's strategy (tests/plugins/zero1.c, of installed headers alone):
jobs of a daemon on `cpu`. Checkpoints are ddp's to the bit; a rank that is killed at any step loses nothing."""
import json
import os
import signal

import pytest

import ranks
from plans import plan_of
from ranks import Attempt
from support import LONG, PLUGINS, SPEC, spec_file, until

ZERO = "trainer.strategy={name: plugin, strategy: zero1}"


@pytest.fixture
def zero(cluster):
    daemon = cluster.start("--slots", "3")
    daemon.zero = (f"plugins=[{PLUGINS}/strategy-zero1.so,{PLUGINS}/dataset-slow_synthetic.so]", ZERO)
    return daemon


def files(daemon, job):
    kept = daemon.weights(job)
    return {name: kept[name] for name in ("model.safetensors", "optimizer.safetensors")}


@pytest.mark.parametrize("devices, precision, more", [
    (1, "32-true", []), (2, "bf16-mixed", []), (3, "32-true", []), (3, "64-true", []),
    (3, "bf16-true", ["trainer.stochastic_rounding=true"]), (2, "16-mixed", ["trainer.accumulate_grad_batches=2"])])
def test_checkpoints_are_those_of_ddp(zero, devices, precision, more):
    done = []
    for strategy in ((), zero.zero):
        job = zero.submit(SPEC, f"trainer.devices={devices}", f"trainer.precision={precision}", *more, *strategy)
        last = zero.finish(job)
        assert last.attempt == 1
        done.append((last.global_step, files(zero, job)))
    assert done[0] == done[1]


def sets(*overrides):
    return [word for each in overrides for word in ("--set", each)]


def sizes(folder, **strategy):
    """What a plan says of a rank's state, and what each of 3 ranks then has."""
    folder.mkdir()
    plan = plan_of({"model": {"name": "mlp", "layers": [16, 512, 512, 4]}, "plugins": [str(PLUGINS / "strategy-zero1.so")]}, checkpoint={"save_top_k": 0},
                   optimizer={"name": "adamw"}, run={"world_size": 3}, trainer={"accelerator": "cpu", "devices": 3, "max_steps": 2, **strategy})
    file = folder / "plan.json"
    file.write_text(json.dumps(plan))
    args = ["--plugin-dirs", str(PLUGINS)]
    says = ranks.sizes(file, 3, args)["state_bytes"]
    with Attempt(folder, plan, 3, args_of=lambda rank: args) as attempt:
        assert attempt.wait() == [0, 0, 0], attempt.story()
    assert [e["state_bytes"] for r in attempt.ranks for e in r.event("memory")] == [says] * 3
    return says


def test_rank_has_a_third_of_the_optimizer_state_in_plan_and_in_fact(build, tmp_path):
    """Two moments of adamw are twice the parameters."""
    moments = 2 * 4 * (16 * 512 + 512 + 512 * 512 + 512 + 512 * 4 + 4)
    saved = sizes(tmp_path / "whole") - sizes(tmp_path / "parts", strategy={"name": "plugin", "strategy": "zero1"})
    assert 0.99 < saved / (moments * 2 / 3) < 1.001


@pytest.mark.parametrize("rank", [0, 1])
def test_job_goes_on_with_the_same_bits_when_a_rank_is_killed(zero, rank):
    spec = (LONG, "trainer.devices=2", "trainer.max_steps=600", "restart.backoff=[0]", *zero.zero)
    undisturbed = zero.submit(*spec)
    zero.finish(undisturbed)
    job = zero.submit(*spec)
    zero.wait_checkpoint(job)
    os.kill(until("ranks run", lambda: zero.workers(job))[rank], signal.SIGKILL)
    done = zero.finish(job)
    assert (done.attempt, done.restarts) == (2, 1)
    assert not [n for n in done.notes if "not bit-exact" in n], done.notes
    assert files(zero, job) == files(zero, undisturbed)


def test_plan_shows_sums_of_pieces_and_their_awaits(zero, tmp_path):
    text = zero.ctl("plan", spec_file(tmp_path), *sets("trainer.devices=2", *zero.zero), "--dump-graph", "strategy_update",
                    check=0).stdout
    assert "await reduce_scatter bucket=0" in text and "await all_gather bucket=0" in text
