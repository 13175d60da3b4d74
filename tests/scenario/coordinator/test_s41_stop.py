"""Pause, cancel, resume and death at random moments: ranks act at one step, and a run that was interrupted
ends with the bits of one that was not."""
import os
import random
import signal

import pytest

from marks import some
from support import BIN, LONG, SPEC, until, with_worker

FULL = bool(os.environ.get("TD_FULL"))
# Steps of half a millisecond, so that many moments fit into a short test. Not shorter: a rank makes five points
# a step, and a launcher that gets no core for as long as its ring of 8192 lasts drops some, as it should.
QUICK = LONG.replace("[128, 512, 512, 8]", "[128, 256, 256, 8]").replace("every_n_train_steps: 50", "every_n_train_steps: 1000")


def moment(daemon, job, rng):
    """Waits for a random moment in the life of a job: before it starts, at its start, or in its steps."""
    kind = rng.randrange(4)
    if kind == 1:
        until("it starts", lambda: daemon.state(job) != "QUEUED")
    elif kind == 2:
        daemon.wait_state(job, "RUNNING")
    elif kind == 3:
        daemon.wait_step(job, daemon.job(job).global_step + rng.randint(1, 300))


def check_agreed(daemon, job, n_ranks):
    """Every step up to the last was reported by all ranks, and nobody made one more."""
    points = daemon.points(job) if daemon.job(job).metrics else []
    assert [p.step for p in points] == list(range(1, len(points) + 1))
    assert {p.n_ranks for p in points} <= {n_ranks}
    return len(points)


def test_ranks_stop_at_one_step_when_paused_or_cancelled_at_random_moments(daemon):
    rng = random.Random(11)
    for i in range(200 if FULL else 12):
        verb, state = (("Pause", "PAUSED"), ("Cancel", "CANCELLED"))[i % 2]
        job = daemon.submit(QUICK, "trainer.devices=2", f"name=m{i}")
        moment(daemon, job, rng)
        daemon.steer(verb, job)
        stopped = daemon.wait_state(job, state, deadline_s=20)
        assert not stopped.HasField("failure"), stopped
        steps = check_agreed(daemon, job, 2)
        until("its slots are free", lambda: daemon.nodes()[0].slots_used == 0)
        if state == "PAUSED":
            assert stopped.global_step == steps, stopped
            assert not steps or stopped.checkpoint == f"a1/step-{steps}"
            daemon.steer("Resume", job)
            daemon.wait_step(job, steps + 1)
            daemon.steer("Cancel", job)
            daemon.wait_state(job, "CANCELLED", deadline_s=20)
            assert check_agreed(daemon, job, 2) > steps


def test_stop_that_had_to_be_forced_is_no_failure(cluster):
    daemon = cluster.start("--slots", "2", "--stop-grace-ms", "500")
    job = daemon.submit(LONG, "trainer.devices=2")
    daemon.wait_checkpoint(job)
    os.kill(daemon.workers(job)[1], signal.SIGSTOP)  # as on a machine that has no time for it
    daemon.steer("Pause", job)
    paused = daemon.wait_state(job, "PAUSED")
    assert not paused.HasField("failure") and paused.restarts == 0, paused
    assert any("did not stop in time" in note for note in paused.notes)
    assert paused.checkpoint.startswith("a1/step-") and not daemon.workers(job)
    daemon.steer("Resume", job)
    daemon.wait_step(job, 110)
    assert daemon.job(job).attempt == 2


def check_stopped_on_node(daemon, job, whole, last, n_ranks):
    """It saved, was queued without a failure, and went on to the same bits."""
    done = daemon.finish(job)
    assert done.attempt == 2 and done.restarts == 0 and not done.HasField("failure"), done
    assert [n for n in done.notes if f"attempt 1 was stopped on node {daemon.node_name}, " in n], done.notes
    second = [p.step for p in daemon.points(job) if p.attempt == 2]
    first = [p.step for p in daemon.points(job) if p.attempt == 1]
    assert second == list(range(len(first) + 1, last + 1)), "no step was lost or made twice"
    assert daemon.losses(job, last, n_ranks) == daemon.losses(whole, last, n_ranks)
    assert daemon.weights(job) == daemon.weights(whole)


@pytest.mark.parametrize("whom", some(["rank 1", "launcher"], ["rank 0", "rank 1", "launcher"]))
def test_sigterm_of_a_rank_or_launcher_saves_and_the_job_goes_on(daemon, whom):
    overrides = ["trainer.devices=2", "trainer.max_steps=300", "restart.max=0"]
    whole, job = reference(daemon, *overrides), daemon.submit(LONG, *overrides)
    daemon.wait_step(job, 60)
    pid = daemon.launcher(job) if whom == "launcher" else daemon.workers(job)[int(whom[-1])]
    os.kill(pid, signal.SIGTERM)
    check_stopped_on_node(daemon, job, whole, 300, 2)


def saved_steps(daemon, job):
    return [c.step for c in daemon.checkpoints(job)]


@pytest.mark.parametrize("whom", some(["rank 1", "launcher", "traind"], ["rank 0", "rank 1", "launcher", "traind"]))
def test_sigusr1_killed_what_it_was_to_warn(daemon, whom):
    """Slurm's warning before its limit: all ranks save, and go on."""
    overrides = ["trainer.devices=2", "trainer.max_steps=400", "checkpoint.every_n_train_steps=0", "checkpoint.save_top_k=-1"]
    job = daemon.submit(LONG, *overrides)
    daemon.wait_step(job, 60)
    pid = {"launcher": daemon.launcher(job), "traind": daemon.process.pid}.get(whom) or daemon.workers(job)[int(whom[-1])]
    os.kill(pid, signal.SIGUSR1)
    step, = until("a checkpoint", lambda: saved_steps(daemon, job))
    done = daemon.finish(job)
    assert done.attempt == 1 and done.restarts == 0 and 60 <= step < 400
    assert sorted(saved_steps(daemon, job)) == [step, 400], "one wish, one checkpoint"


def test_sigusr1_of_all_processes_at_once_is_survived(daemon):
    """As `scancel --signal=USR1` of a step does, which knows no difference."""
    job = daemon.submit(LONG, "trainer.devices=2", "trainer.max_steps=300", "checkpoint.every_n_train_steps=0")
    daemon.wait_step(job, 60)
    for pid in (daemon.process.pid, daemon.launcher(job), *daemon.workers(job)):
        os.kill(pid, signal.SIGUSR1)
    until("a checkpoint", lambda: saved_steps(daemon, job))
    assert daemon.finish(job).attempt == 1


@pytest.mark.parametrize("program", ["traind-worker", "traind-launcher"])
def test_sigusr1_before_a_program_listened_ended_it(cluster, tmp_path, program):
    daemon = cluster.make("--slots", "2")
    daemon.bin = with_worker(tmp_path / "bin", f"kill -USR1 $$; exec {BIN}/traind-worker \"$@\"" if program == "traind-worker"
                             else f"exec {BIN}/traind-worker \"$@\"")
    if program == "traind-launcher":
        (daemon.bin / program).write_text(f"#!/bin/bash\n[ $1 = run ] && kill -USR1 $$\nexec {BIN}/{program} \"$@\"\n")
    daemon.start()
    job = daemon.submit(LONG, "trainer.max_steps=60", "checkpoint.every_n_train_steps=0", "checkpoint.save_top_k=-1")
    done = daemon.finish(job)
    assert done.attempt == 1 and sorted(saved_steps(daemon, job)) == [1, 60], "the wish is kept until the first step"


@pytest.mark.parametrize("program", ["traind-worker", "traind-launcher"])
def test_sigterm_before_a_program_listened_counted_as_a_failure(cluster, tmp_path, program):
    daemon = cluster.make("--slots", "2")
    once = f"[ -e {tmp_path}/once ] || {{ : > {tmp_path}/once; kill -TERM $$; }}; exec {BIN}/{program} \"$@\""
    daemon.bin = with_worker(tmp_path / "bin", once if program == "traind-worker" else f"exec {BIN}/traind-worker \"$@\"")
    if program == "traind-launcher":
        (daemon.bin / program).write_text(f"#!/bin/bash\n[ $1 = run ] && {{ {once}; }}\nexec {BIN}/{program} \"$@\"\n")
    daemon.start()
    overrides = ["trainer.max_steps=120", "restart.max=0"]
    job = daemon.submit(LONG, *overrides)
    daemon.finish(job)
    check_stopped_on_node(daemon, job, reference(daemon, *overrides), 120, 1)


def test_pause_frees_the_slots_for_another_job(daemon):
    first = daemon.submit(LONG, "trainer.devices=2")
    daemon.wait_step(first, 5)
    second = daemon.submit(SPEC, "trainer.devices=2")
    daemon.steer("Pause", first)
    daemon.finish(second)
    assert daemon.state(first) == "PAUSED" and not daemon.workers(first)
    at = daemon.job(first).global_step
    daemon.steer("Resume", first)
    daemon.wait_step(first, at + 5)
    assert daemon.job(first).attempt == 2 and daemon.job(first).restarts == 0


def test_pause_near_the_end_pauses_or_succeeds(daemon):
    rng = random.Random(5)
    for i in range(40 if FULL else 6):
        last = rng.randint(100, 120)
        job = daemon.submit(QUICK, "trainer.devices=2", f"trainer.max_steps={last}", f"name=e{i}")
        daemon.wait_state(job, "RUNNING", "SUCCEEDED")
        if rng.randrange(2) and daemon.state(job) == "RUNNING":
            until("nearly done", lambda: daemon.job(job).global_step > last - 20 or daemon.state(job) == "SUCCEEDED")
        if daemon.state(job) != "SUCCEEDED":
            try:
                daemon.steer("Pause", job)
            except Exception:  # it has just ended
                assert daemon.state(job) == "SUCCEEDED"
        now = daemon.wait_state(job, "PAUSED", "SUCCEEDED", deadline_s=20)
        if now.State.Name(now.state) == "PAUSED":
            assert now.global_step < last
            daemon.steer("Resume", job)
            daemon.finish(job)
        daemon.losses(job, last, 2)


def reference(daemon, *overrides):
    job = daemon.submit(LONG, *overrides)
    daemon.finish(job)
    return job


@pytest.mark.parametrize("overrides", [
    ["trainer.devices=2"],
    ["resources.threads=2", "trainer.devices=1"],
], ids=["2 ranks x 1 thread", "1 rank x 2 threads"])
def test_interrupted_run_ends_with_the_same_bits(daemon, overrides):
    rng = random.Random(3)
    last, ranks = 300, 2 if "trainer.devices=2" in overrides else 1
    overrides = [*overrides, f"trainer.max_steps={last}", "restart.max=100"]
    whole = reference(daemon, *overrides)
    for _ in range(5 if FULL else 1):
        job = daemon.submit(LONG, *overrides)
        for kill in range(3):
            daemon.wait_step(job, rng.randint(10, 40) + kill * 50)
            attempt = daemon.job(job).attempt
            os.kill(rng.choice(until("ranks run", lambda: daemon.workers(job))), signal.SIGKILL)
            until("the next attempt", lambda: daemon.job(job).attempt > attempt)
        daemon.steer("Pause", job)
        daemon.wait_state(job, "PAUSED")
        daemon.steer("Resume", job)
        done = daemon.finish(job)
        assert done.attempt == 5 and done.restarts == 3, done
        assert not [n for n in done.notes if "exact" in n], done.notes
        assert daemon.losses(job, last, ranks) == daemon.losses(whole, last, ranks)
        assert daemon.weights(job) == daemon.weights(whole)
