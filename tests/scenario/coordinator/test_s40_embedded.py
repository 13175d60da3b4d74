"""One `traind` with everything in it: what was acknowledged is there, and all that a job made can be read."""
import fcntl
import os
import pathlib
import re
import threading
import time

import grpc
import pytest

from support import LONG, SPEC, below, until

STEPS = 3 * 32  # of SPEC with one rank


def everything(daemon, job):
    """All that clients can read of a job that has ended."""
    shown = daemon.job(job)
    shown.ClearField("progress")  # of the moment, not of the record
    names = sorted(shown.metrics)
    return (shown, {name: daemon.points(job, name) for name in names}, daemon.logs(job, follow=True),
            daemon.checkpoints(job), daemon.weights(job))


def test_job_succeeds_when_directories_are_given_from_where_the_daemon_starts(cluster, tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    daemon = cluster.make("--slots", "2", "--runtime-dir", "./run", name=f"here-{os.getpid()}")
    daemon.state_dir = pathlib.Path("..", daemon.state_dir.name)
    daemon.start()
    assert daemon.finish(daemon.submit(SPEC, "trainer.max_steps=3")).global_step == 3
    assert (tmp_path / "below/run").is_dir()


@pytest.mark.parametrize("ranks", [1, 2])
def test_job_succeeds_and_a_restart_keeps_everything(daemon, ranks):
    job = daemon.submit(SPEC, f"trainer.devices={ranks}")
    done = daemon.finish(job)
    steps = STEPS // ranks
    assert (done.global_step, done.total_steps, done.attempt, done.restarts) == (steps, steps, 1, 0)
    assert done.n_ranks == ranks and done.create_time and done.start_time and done.end_time
    assert not done.HasField("failure") and not done.reason.text
    losses = daemon.losses(job, steps, ranks)
    assert losses[steps] < losses[1]
    assert done.metrics["train_loss_step"] == losses[steps]
    for name in ("val_loss", "val_accuracy", "test_accuracy"):
        assert done.metrics[name] == daemon.points(job, name)[-1].value
    saved = [c.step for c in daemon.checkpoints(job)]  # a periodic one is skipped while another is written
    assert saved[0] == steps and saved == sorted(saved, reverse=True) and {s % (steps // 3) for s in saved} == {0}
    assert done.checkpoint == f"a1/step-{steps}"
    before = everything(daemon, job)
    daemon.restart()
    for was, now in zip(before, everything(daemon, job)):
        assert now == was
    until("slots are free", lambda: daemon.nodes()[0].slots_used == 0)


def test_jobs_wait_with_reason_and_numbers(daemon):
    first = daemon.submit(LONG, "trainer.devices=2")
    daemon.wait_state(first, "RUNNING")
    second = daemon.submit(LONG, "trainer.max_steps=5")
    third = daemon.submit(LONG, "trainer.devices=2", "trainer.max_steps=5")

    def reason(job, code):
        now = daemon.job(job)
        return now.State.Name(now.state) == "QUEUED" and now.reason.code == code and now.reason

    waits = until("the second waits", lambda: reason(second, "WAITING_FOR_SLOTS"))
    assert (waits.needed_slots, waits.free_slots, waits.queue_position) == (1, 0, 1)
    assert "needs 1 slot, 0 free" in waits.text and list(waits.blockers) == [first]
    waits = until("the third waits", lambda: reason(third, "WAITING_FOR_SLOTS"))
    assert (waits.needed_slots, waits.queue_position) == (2, 2)
    info = daemon.stub("Admin").GetClusterInfo(daemon.cluster.stubs.admin.GetClusterInfoRequest())
    assert (info.slots, info.slots_used, info.jobs_running, info.jobs_queued) == (2, 2, 1, 2)
    daemon.steer("Cancel", first)
    daemon.wait_state(first, "CANCELLED")
    daemon.finish(second)
    daemon.finish(third)


def test_waiting_job_can_be_cancelled_or_paused(daemon):
    first = daemon.submit(LONG, "trainer.devices=2")
    daemon.wait_state(first, "RUNNING")
    second, third = daemon.submit(SPEC), daemon.submit(SPEC)
    daemon.steer("Cancel", second)
    daemon.steer("Pause", third)
    assert daemon.state(second) == "CANCELLED" and daemon.state(third) == "PAUSED"
    daemon.steer("Cancel", first)
    daemon.wait_state(first, "CANCELLED")
    assert daemon.job(second).attempt == 0 and daemon.state(third) == "PAUSED"
    daemon.steer("Resume", third)
    daemon.finish(third)
    for job, verb in ((second, "Resume"), (third, "Pause"), (third, "Cancel")):
        with pytest.raises(grpc.RpcError) as error:
            daemon.steer(verb, job)
        assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize("overrides, numbers", [
    (["trainer.devices=3"], ("3", "2")),
    (["trainer.devices=200"], ("200", "2")),
    (["resources.threads=4096"], ("slots", "2")),
])
def test_job_that_can_never_fit_is_refused_with_numbers(daemon, overrides, numbers):
    with pytest.raises(grpc.RpcError) as error:
        daemon.submit(SPEC, *overrides)
    assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert all(n in error.value.details() for n in numbers), error.value.details()
    details = dict(error.value.trailing_metadata())["grpc-status-details-bin"]
    assert b"UNSATISFIABLE" in details and b"needed_slots" in details


@pytest.mark.parametrize("recompute", ["auto", "none"])
def test_job_without_the_memory_fails_with_numbers_before_it_starts(daemon, recompute):
    job = daemon.submit(SPEC.replace("[16, 32, 4]", "[16, 1000000, 1000000, 4]"), f"trainer.recompute={recompute}")
    failed = daemon.wait_state(job, "FAILED", deadline_s=30)
    assert failed.attempt == 0 and failed.reason.code == "UNSATISFIABLE"
    needed, has = map(int, re.findall(r"(\d+) MiB", failed.failure.message))
    assert needed > 4 * 4e12 / 2**20 > has, "weights, gradients and two moments"
    # auto has gone there already
    assert ("trainer.recompute: full" in failed.failure.message) == (recompute == "none")


def test_never_more_ranks_than_slots(daemon):
    jobs = [daemon.submit(SPEC, f"trainer.devices={1 + i % 2}", f"seed_everything={i}") for i in range(9)]
    most = 0

    def all_done():
        nonlocal most
        node, = daemon.nodes()
        running = sum(len(daemon.workers(j)) for j in jobs)
        most = max(most, node.slots_used, running)
        assert node.slots_used <= 2 and running <= 2
        return all(daemon.state(j) == "SUCCEEDED" for j in jobs)

    until("all succeed", all_done, 60)
    assert most == 2


def test_threads_take_the_slots_they_need(daemon):
    cores = daemon.nodes()[0].cores
    job = daemon.submit(LONG, f"resources.threads={cores}")
    daemon.wait_state(job, "RUNNING")
    assert daemon.job(job).slots == 2 and daemon.nodes()[0].slots_used == 2


def test_acknowledged_job_survives_a_kill(daemon):
    for i in range(5):
        request_id = f"00000000-0000-4000-8000-00000000000{i}"
        job = daemon.submit(SPEC, request_id=request_id)
        daemon.restart()
        assert daemon.submit(SPEC, request_id=request_id) == job
        done = daemon.finish(job)
        assert done.global_step == STEPS
    listed = daemon.stub("Job").ListJobs(daemon.cluster.stubs.job.ListJobsRequest()).jobs
    assert len(listed) == 5


def test_daemon_starts_when_a_child_of_the_killed_one_holds_the_lock_a_moment_longer(daemon):
    daemon.kill()
    with open(daemon.state_dir / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        release = threading.Timer(0.2, fcntl.flock, (lock, fcntl.LOCK_UN))
        release.start()
        daemon.start()
        release.join()


def test_list_comes_in_pages_newest_first(daemon):
    stubs = daemon.cluster.stubs.job
    jobs = [daemon.submit(SPEC, "trainer.max_steps=1", f"name=n{i}") for i in range(5)]
    seen, token = [], ""
    while True:
        page = daemon.stub("Job").ListJobs(stubs.ListJobsRequest(page_size=2, page_token=token))
        assert len(page.jobs) <= 2
        seen += [j.id for j in page.jobs]
        token = page.next_page_token
        if not token:
            break
    assert seen == jobs[::-1]
    assert daemon.job("n3").id == jobs[3]
    for job in jobs:
        daemon.finish(job)
    states = [stubs.Job.FAILED]
    assert not daemon.stub("Job").ListJobs(stubs.ListJobsRequest(states=states)).jobs


def test_watch_goes_on_from_its_token(daemon):
    stubs, watch = daemon.cluster.stubs.job, daemon.stub("Job").WatchJob
    job = daemon.submit(LONG, "trainer.max_steps=300")
    call = watch(stubs.WatchJobRequest(id=job), timeout=60)
    first = next(call)
    assert first.job.id == job and first.token
    call.cancel()
    states = [r.job.State.Name(r.job.state) for r in watch(stubs.WatchJobRequest(id=job, token=first.token), timeout=60)]
    assert states[-1] == "SUCCEEDED" and "RUNNING" in states
    for token, code in (("1:999999", grpc.StatusCode.OUT_OF_RANGE), ("999:1", grpc.StatusCode.OUT_OF_RANGE), ("nonsense", grpc.StatusCode.INVALID_ARGUMENT)):
        with pytest.raises(grpc.RpcError) as error:
            next(watch(stubs.WatchJobRequest(id=job, token=token), timeout=20))
        assert error.value.code() == code, token


def test_watch_sends_progress_at_most_ten_times_a_second(daemon):
    job = daemon.submit(LONG, "trainer.max_steps=500")
    began = time.monotonic()
    seen = list(daemon.stub("Job").WatchJob(daemon.cluster.stubs.job.WatchJobRequest(id=job), timeout=60))
    started = [r.job for r in seen if not r.durable and r.job.progress.step > 0]
    assert started and [p.progress.step for p in started] == sorted(p.progress.step for p in started)
    assert all(p.progress.total_steps == 500 and p.progress.samples_per_s >= 0 for p in started)
    assert len(started) <= 10 * (time.monotonic() - began) + 2


def test_plan_says_numbers_and_validate_stores_nothing(daemon):
    stubs = daemon.cluster.stubs.job
    plan = daemon.stub("Job").PlanJob(stubs.PlanJobRequest(spec=SPEC, overrides=["trainer.devices=2"]), timeout=30)
    assert plan.parameters == 16 * 32 + 32 + 32 * 4 + 4
    assert (plan.steps_per_epoch, plan.total_steps, plan.slots) == (16, 48, 2)
    assert plan.memory_bytes > 0 and plan.shared_bytes > 0 and plan.flops_per_step > 0
    valid = daemon.stub("Job").ValidateJob(stubs.ValidateJobRequest(spec=SPEC))
    assert '"max_epochs"' in valid.spec_json
    assert not daemon.stub("Job").ListJobs(stubs.ListJobsRequest()).jobs


def test_runtime_directory_with_a_long_path_is_no_hindrance(cluster):
    long = cluster.runtime / ("r" * 100)
    daemon = cluster.start("--slots", "1", "--runtime-dir", long)
    daemon.finish(daemon.submit())
    assert not [p for p in below(long) if p.is_socket()]
