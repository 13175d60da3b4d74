"""One coordinator, two nodes, three processes with directories of their own: jobs run on both, wait with a
reason, and move from one to the other with a checkpoint that was streamed to the coordinator."""
import os
import queue
import signal
import time

import pytest

from fake_node import refused
from marks import some
from support import LONG, SPEC, alive, until


@pytest.fixture
def three(cluster):
    """Coordinator, node A with 2 slots, node B with 4."""
    coordinator = cluster.start("--role", "coordinator", "--heartbeat-ms", "200", "--lease-ms", "1000",
                                "--lost-after-ms", "1000", name="c")
    a, b = cluster.node(coordinator, 2, "a"), cluster.node(coordinator, 4, "b")
    until("both are ready", lambda: len(coordinator.nodes("READY")) == 2)
    return coordinator, a, b


def test_session_that_does_not_register_ends_after_a_lease(three):
    """They stayed for ever, and enough of them kept all nodes out."""
    silent = three[0].stub("Node").Session(iter(queue.Queue().get, None), timeout=20)
    refused("FAILED_PRECONDITION", lambda: silent, "SESSION_ENDED", "no Register came in time")
    assert len(three[0].nodes("READY")) == 2


def names(coordinator):
    return {n.id: n.name for n in coordinator.nodes()}


def place(coordinator, job):
    job = coordinator.job(job)
    return [names(coordinator).get(n, n) for n in job.nodes]


def on(coordinator, job, name):
    coordinator.wait_state(job, "RUNNING")
    assert place(coordinator, job) == [name]


def test_job_on_a_node_of_its_own_streams_everything_to_the_coordinator(three):
    c, a, b = three
    job = c.submit(SPEC, "trainer.devices=2")
    done = c.finish(job)
    c.losses(job, done.global_step, 2)
    newest = c.checkpoints(job)[0]
    until("it is at the coordinator", lambda: c.checkpoints(job)[0].State.Name(c.checkpoints(job)[0].state) == "COMMITTED")
    assert newest.step == done.global_step and set(c.weights(job)) >= {"model.safetensors"}
    for node in (a, b):
        until("its attempt is forgotten", lambda: not node.attempts())
        assert node.kill(signal.SIGTERM) == 0
    assert c.weights(job), "the coordinator has the bytes itself"


def test_jobs_run_on_both_nodes_and_one_waits(three):
    c, a, b = three
    big, small = c.submit(LONG, "trainer.devices=4"), c.submit(LONG, "trainer.devices=2")
    on(c, big, "b")
    on(c, small, "a")
    waiting = c.submit(SPEC, "trainer.devices=2")
    reason = until("it waits", lambda: c.job(waiting).reason.code == "WAITING_FOR_SLOTS" and c.job(waiting).reason)
    assert (reason.needed_slots, reason.free_slots, reason.queue_position) == (2, 0, 1)
    info = c.stub("Admin").GetClusterInfo(c.cluster.stubs.admin.GetClusterInfoRequest())
    assert (info.nodes, info.slots, info.slots_used) == (2, 6, 6)
    c.steer("Cancel", small)
    c.wait_state(small, "CANCELLED")
    c.finish(waiting)


def test_job_moves_to_the_other_node_when_its_launcher_is_killed(three):
    c, a, b = three
    blocker = c.submit(LONG, "trainer.devices=4")
    on(c, blocker, "b")
    job = c.submit(LONG, "trainer.devices=2", "trainer.max_steps=1000")
    on(c, job, "a")
    queued = c.submit(LONG, "trainer.devices=3", "trainer.max_steps=5")  # waits longer than the one to recover
    c.wait_checkpoint(job)
    pids = a.workers(job)
    os.kill(a.launcher(job), signal.SIGKILL)
    until("ranks die", lambda: not any(alive(p) for p in pids))
    recovering = c.wait_state(job, "RECOVERING")
    assert recovering.restarts == 1
    c.steer("Cancel", blocker)
    c.wait_state(blocker, "CANCELLED")
    c.wait_state(job, "RUNNING", "SUCCEEDED")
    assert place(c, job) == ["b"], "the node that lost its launcher is avoided"
    assert c.job(queued).attempt == 0, "what recovers goes first"
    done = c.finish(job)
    assert done.attempt == 2 and not [n for n in done.notes if "exact" in n]
    assert min(p.step for p in c.points(job) if p.attempt == 2) > 1, "it went on from a checkpoint"
    c.losses(job, 1000, 2)
    c.finish(queued)


def test_job_of_a_lost_node_goes_on_elsewhere_and_the_old_ranks_are_fenced(three):
    c, a, b = three
    blocker = c.submit(LONG, "trainer.devices=4")
    on(c, blocker, "b")
    job = c.submit(LONG, "trainer.devices=2", "trainer.max_steps=1000000")
    on(c, job, "a")
    c.wait_checkpoint(job)
    c.steer("Cancel", blocker)
    c.wait_state(blocker, "CANCELLED")
    old = a.workers(job)
    a.process.send_signal(signal.SIGSTOP)  # silent, not dead: its ranks train on
    until("the lease is gone", lambda: [n.name for n in c.nodes("LOST")] == ["a"])
    until("another attempt runs", lambda: c.job(job).attempt == 2 and c.state(job) == "RUNNING")
    assert place(c, job) == ["b"] and getattr(c.job(job).failure, "class") == "node_lost"
    assert all(alive(p) for p in old)
    a.process.send_signal(signal.SIGCONT)
    until("the old ranks are stopped", lambda: not any(alive(p) for p in old))
    assert c.job(job).attempt == 2
    at = c.job(job).global_step
    c.wait_step(job, at + 5)


# The loss falls, so with mode max the best is the first, and it is never the last.
BEST_IS_FIRST = ["stages=[fit, test]", "trainer.max_steps=600", "trainer.limit_train_batches=20", "trainer.limit_val_batches=2",
                 "checkpoint.every_n_train_steps=0", "checkpoint.every_n_epochs=1", "checkpoint.monitor=val_loss",
                 "checkpoint.mode=max", "data.knobs.samples=320"]


def moved(cluster, gone=None, *overrides):
    """A job that began on node A and goes on, with A gone, on node B; the best checkpoint; coordinator and B."""
    c = cluster.start("--role", "coordinator", "--heartbeat-ms", "200", "--lease-ms", "1000", "--lost-after-ms", "1000", name="c")
    a = cluster.node(c, 2, "a")
    job = c.submit(LONG, *BEST_IS_FIRST, *overrides)
    best = lambda: [k for k in c.checkpoints(job) if k.state == k.COMMITTED and k.step == 20]
    until("the best and a newer one are at the coordinator", lambda: best() and c.checkpoints(job)[0].step > 40)
    c.steer("Pause", job)
    c.wait_state(job, "PAUSED")
    best, = best()
    until("its attempt is forgotten", lambda: not a.attempts())
    assert a.kill(signal.SIGTERM) == 0
    if gone:
        gone(c.state_dir / "checkpoints" / job / best.path)
    b = cluster.node(c, 2, "b")
    until("b is ready", lambda: [n.name for n in c.nodes("READY")] == ["b"])
    c.steer("Resume", job)
    return c, b, job, best


def test_best_weights_are_tested_after_a_move_to_another_node(cluster):
    c, b, job, best = moved(cluster)
    done = c.finish(job)
    assert done.attempt == 2 and done.weights.startswith(f"best, {best.path} (val_loss "), done.weights
    assert not [n for n in done.notes if "last weights" in n], done.notes
    assert f"checkpoint fetched job={job} path={best.path}" in b.tail(200)
    again = c.submit(LONG, *BEST_IS_FIRST, "stages=[test]", "checkpoint.monitor=null",
                     f"init_from={b.state_dir / 'checkpoints' / job / best.path}")
    c.finish(again)
    test_loss = lambda of: c.points(of, "test_loss")[-1].value
    assert test_loss(job) == pytest.approx(test_loss(again), rel=1e-6)


@pytest.mark.parametrize("asked", some(["best"], [None, "best"]))
def test_best_that_the_coordinator_lost_is_said_or_refused_after_a_move(cluster, asked):
    flip = lambda d: (d / "model.safetensors").write_bytes(b"x" * (d / "model.safetensors").stat().st_size)
    c, b, job, best = moved(cluster, flip, *([f"evaluate_from={asked}"] if asked else []))
    ended = c.wait_state(job, "FAILED" if asked else "SUCCEEDED")
    why = f"the best checkpoint, {best.path}, is not on this node; with checkpoint.store: stream"
    said = ended.failure.message if asked else ended.weights
    assert ended.attempt == 2 and why in said, ended
    assert asked or [n for n in ended.notes if why in n], ended.notes
    assert f"checkpoint skipped job={job} path={best.path}" in b.tail(200)
    newest = lambda: c.checkpoints(job)[0]  # a job that failed does not wait for its transfer
    until("the last one is at the coordinator", lambda: (newest().attempt, newest().state) == (2, newest().COMMITTED))


def test_node_that_comes_back_within_its_time_keeps_its_job(three):
    c, a, b = three
    job = c.submit(LONG, "trainer.devices=2", "trainer.max_steps=1000")
    c.wait_step(job, 5)
    node = {"a": a, "b": b}[place(c, job)[0]]
    node.restart()
    done = c.finish(job)
    assert done.attempt == 1
    c.losses(job, 1000, 2)


def test_plan_is_refused_with_what_to_do_when_no_node_is_connected(cluster, tmp_path):
    """It waited for the client's timeout, and said then that the daemon does not answer."""
    c = cluster.start("--role", "coordinator", name="c")
    spec = tmp_path / "job.yaml"
    spec.write_text(SPEC)
    for verb in (["plan", spec], ["submit", spec, "--dry-run"]):
        said = c.ctl(*verb, check=5).stderr
        assert "no node has registered yet" in said and "traind --role node" in said
    cluster.node(c, 1, "n1")
    until("the node is known", lambda: c.nodes("READY"))
    c.ctl("plan", spec, check=0)


def test_job_that_no_node_could_hold_is_refused_and_waits_when_none_is_known(cluster):
    import grpc

    c = cluster.start("--role", "coordinator", name="c")
    job = c.submit(SPEC, "trainer.devices=3")
    waits = c.job(job)
    assert waits.State.Name(waits.state) == "QUEUED" and waits.reason.code == "NO_NODES"
    cluster.node(c, 2, "small")
    until("the node is known", lambda: c.nodes("READY"))
    with pytest.raises(grpc.RpcError) as error:
        c.submit(SPEC, "trainer.devices=3")
    assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION and "small" in error.value.details()
    cluster.node(c, 3, "large")
    c.finish(job)


def test_node_with_the_wrong_token_logs_that_it_is_refused(cluster, tmp_path):
    c = cluster.start("--role", "coordinator", name="c")
    token = tmp_path / "token"
    token.write_text("trd_" + "0" * 64 + "\n")
    token.chmod(0o600)
    node = cluster.make("--role", "node", "--coordinator", c.address, "--token-file", token, name="n")
    node.start(wait=False)
    until("its log says so", lambda: "no coordinator why=\"wrong token: " in node.tail())
    assert not c.nodes()


def test_coordinator_that_was_stopped_itself_finds_its_nodes_alive(three):
    c, a, b = three
    job = c.submit(LONG, "trainer.devices=2")
    c.wait_step(job, 10)
    info = lambda: c.stub("Admin").GetClusterInfo(c.cluster.stubs.admin.GetClusterInfoRequest(), timeout=20).counters
    before = info()["registrations"]
    os.kill(c.process.pid, signal.SIGSTOP)
    until("lease and grace are over", lambda began=time.monotonic(): time.monotonic() > began + 2.5)
    os.kill(c.process.pid, signal.SIGCONT)
    until("it sees that it was stopped", lambda: info()["stalls"])
    now = c.wait_step(job, c.job(job).global_step + 10)
    assert now.attempt == 1 and not now.reason.code and len(c.nodes("READY")) == 2
    assert info()["attempts_lost"] == 0 and info()["registrations"] == before, "no session was ended"
    assert "session ended" not in c.tail(100)
