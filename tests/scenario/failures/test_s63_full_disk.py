"""A disk that refuses: reads answer at once and say so, changes are refused with its name, and all goes on after."""
import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import time

import grpc
import pytest

from marks import full_only
from support import LONG, SPEC, spec_file, until


def can_mount():
    """As root outside of a strict container."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


# A node that measures its cores when it is idle writes its row then.
QUIET = ("--slots", "2", "--measure-after-ms", "0")


@pytest.fixture
def daemon(cluster):
    return cluster.start(*QUIET)


def settled(daemon):
    """Nothing is on its way to the disk. A commit that is, and fails, has the next change refused before it is tried."""
    rows = lambda: sqlite3.connect(daemon.state_dir / "state.db").execute("SELECT * FROM nodes").fetchall()
    until("the node's row is on disk, with what it found of its devices", lambda: '"devices":[{' in str(rows()))
    until("the ends of attempts are, and all of their points", lambda: not daemon.attempts())


class Locked:
    """Another program writes the database for ever: each commit fails after SQLite's two seconds."""

    def __init__(self, daemon, name):
        self.db = sqlite3.connect(daemon.state_dir / name, isolation_level=None)
        self.db.execute("BEGIN IMMEDIATE")

    def free(self):
        self.db.execute("ROLLBACK")
        self.db.close()


class Full:
    def __init__(self, daemon, _):
        self.path = daemon.state_dir / "filler"
        with open(self.path, "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(b"x" * 4096)

    def free(self):
        self.path.unlink()


@pytest.fixture(params=["locked", "tmpfs"] if can_mount() else ["locked"])
def refusing(request, cluster):
    daemon = cluster.make(*QUIET)
    if request.param == "tmpfs":
        daemon.state_dir.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", daemon.state_dir], check=True)
        request.addfinalizer(lambda: subprocess.run(["umount", "-l", daemon.state_dir]))
    return daemon.start(), Full if request.param == "tmpfs" else Locked


def refused(call):
    with pytest.raises(grpc.RpcError) as error:
        call()
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE, error.value
    assert "cannot write its disk (state.db: " in error.value.details(), error.value.details()
    return error.value.details()


def read_shard(daemon, job):
    """The manifest of its newest checkpoint."""
    m = daemon.cluster.stubs.checkpoint
    request = m.ReadShardRequest(job=job, file="manifest.json")
    return b"".join(part.data for part in daemon.stub("Checkpoint").ReadShard(request, timeout=20))


def test_reads_answer_while_the_disk_refuses(refusing):
    daemon, Refuse = refusing
    job = daemon.submit(SPEC)
    daemon.finish(job)
    manifest = read_shard(daemon, job)
    settled(daemon)  # for a full disk: nothing is removed any more, which would make room
    points = daemon.points(job)
    assert points
    refuse = Refuse(daemon, "state.db")
    # It begins to refuse while this waits: an answer all the same, within the call's time.
    assert "may be lost" in refused(lambda: daemon.submit(SPEC, request_id="again-and-again"))
    # From then on at once.
    assert "changed nothing" in refused(lambda: daemon.submit(SPEC))
    assert "changed nothing" in refused(lambda: daemon.steer("Cancel", job))
    m = daemon.cluster.stubs
    assert "changed nothing" in refused(lambda: daemon.stub("Job").DeleteJob(m.job.DeleteJobRequest(id=job), timeout=20))
    shown = daemon.job(job)
    assert shown.unsaved.startswith("state.db: ") and shown.State.Name(shown.state) == "SUCCEEDED"
    assert daemon.stub("Job").ListJobs(m.job.ListJobsRequest(), timeout=20).unsaved
    assert daemon.stub("NodeAdmin").ListNodes(m.admin.ListNodesRequest(), timeout=20).unsaved
    info = daemon.stub("Admin").GetClusterInfo(m.admin.GetClusterInfoRequest(), timeout=20)
    assert info.unsaved
    daemon.stub("Checkpoint").ListCheckpoints(m.checkpoint.ListCheckpointsRequest(job=job), timeout=20)
    assert daemon.points(job) == points
    assert read_shard(daemon, job) == manifest
    daemon.logs(job)
    said = daemon.ctl("describe", job, check=0).stderr
    assert "cannot write its disk (state.db: " in said and "may not survive a restart" in said
    refuse.free()
    again = until("it is written again", lambda: not daemon.job(job).unsaved and daemon.submit(SPEC, request_id="again-and-again"))
    assert len([j for j in daemon.ctl_json("list")["jobs"]]) == 2 and daemon.finish(again)
    daemon.restart()
    assert daemon.state(again) == "SUCCEEDED" and not daemon.job(again).unsaved


def test_printed_request_id_gives_the_job_of_the_submission_that_had_no_answer(daemon, tmp_path):
    spec = spec_file(tmp_path)
    settled(daemon)
    refuse = Locked(daemon, "state.db")
    said = daemon.ctl("submit", spec, check=5).stderr
    request_id = re.search(r"--request-id ([0-9a-f-]{36}) makes one job of both", said)
    assert "may be lost" in said and request_id, said
    refuse.free()
    until("it is written again", lambda: not daemon.stub("Job").ListJobs(daemon.cluster.stubs.job.ListJobsRequest(), timeout=20).unsaved)
    again = daemon.ctl("submit", spec, "--request-id", request_id[1], "-o", "name", check=0).stdout.strip()
    assert [j["id"] for j in daemon.ctl_json("list")["jobs"]] == [again], "one job of both"
    other = daemon.ctl("submit", spec, "-o", "name", check=0).stdout.strip()
    assert other != again
    assert "request-id" not in daemon.ctl("submit", "-", stdin="name: [", check=2).stderr


@full_only  # it waits for 10 s
def test_stop_waited_for_a_full_disk_without_end(daemon):
    """What stops the ranks waits for the disk: they stay, as after a SIGKILL, and are adopted."""
    ended = daemon.submit(SPEC)
    daemon.finish(ended)
    runs = daemon.submit(LONG, "trainer.max_steps=100000")
    reached = daemon.wait_step(runs, 5).global_step
    refuse = Locked(daemon, "state.db")
    refused(lambda: daemon.submit(SPEC))  # its own row, or one of the job that runs, was not written
    assert daemon.kill(signal.SIGTERM) == 0
    assert "the last changes are not on disk (state.db: database is locked)" in daemon.log.read_text()
    refuse.free()
    daemon.start()
    assert daemon.state(ended) == "SUCCEEDED" and not daemon.job(ended).unsaved
    daemon.wait_step(runs, reached + 5)
    assert daemon.job(runs).attempt == 1
    daemon.steer("Cancel", runs)
    daemon.wait_state(runs, "CANCELLED")


def test_delete_was_acknowledged_while_the_disk_refused_and_the_job_was_back_after_a_restart(daemon):
    """The first delete comes before the disk is known to refuse: it is done in memory, and says so."""
    job = daemon.submit(SPEC, "checkpoint.save_top_k=0")
    daemon.finish(job)
    settled(daemon)
    refuse = Locked(daemon, "state.db")
    m = daemon.cluster.stubs
    delete = lambda: daemon.stub("Job").DeleteJob(m.job.DeleteJobRequest(id=job), timeout=20)
    assert "may be lost" in refused(delete)
    assert "changed nothing" in refused(delete)
    refuse.free()
    until("it is written again", lambda: not daemon.stub("Job").ListJobs(m.job.ListJobsRequest(), timeout=20).unsaved)
    daemon.restart()
    assert not daemon.ctl_json("list").get("jobs")


def test_metrics_answer_from_what_is_committed_while_theirs_refuses(daemon):
    job = daemon.submit(LONG, "trainer.max_steps=100000")
    daemon.wait_step(job, 20)
    until("points are committed", lambda: daemon.points(job))
    refuse = Locked(daemon, "metrics.db")
    reached = daemon.job(job).global_step
    daemon.wait_step(job, reached + 300)
    m = daemon.cluster.stubs.metric
    ask = lambda: daemon.stub("Metric").QueryMetrics(m.QueryMetricsRequest(job=job, names=["train_loss_step"]), timeout=20)
    answer = until("it is said", lambda: (lambda a: a.unsaved and a)(ask()))
    assert answer.unsaved.startswith("metrics.db: ") and answer.series[0].points
    daemon.steer("Cancel", job)  # state.db is well
    refuse.free()
    last = daemon.wait_state(job, "CANCELLED").global_step
    until("nothing is lost", lambda: [p.step for p in daemon.points(job)] == list(range(1, last + 1)))


def test_reads_waited_for_what_the_disk_thread_wrote(daemon):
    """The log of one job is a pipe that nobody reads: its write waits. Reads of another job do not."""
    done = daemon.submit(SPEC)
    daemon.finish(done)
    settled(daemon)
    read_log = lambda: b"".join(part.data for part in daemon.logs(done))
    logs, manifest = read_log(), read_shard(daemon, done)
    first = daemon.submit(LONG, "trainer.max_steps=100000", "trainer.devices=2")  # all slots
    daemon.wait_step(first, 1)
    stuck = daemon.submit(SPEC)
    directory = daemon.state_dir / "logs" / stuck / "a1"
    directory.mkdir(parents=True)
    pipes, failed = [directory / name for name in ("0.out", "0.err")], "log bytes were not written"
    for pipe in pipes:
        os.mkfifo(pipe)
    daemon.steer("Cancel", first)
    try:
        daemon.finish(stuck)  # its events came, and so did its first line
        assert logs and read_log() == logs
        assert manifest and read_shard(daemon, done) == manifest
        assert daemon.points(done)
        assert failed not in daemon.log.read_text()
    finally:
        ends = [os.open(pipe, os.O_RDONLY | os.O_NONBLOCK) for pipe in pipes]
        try:
            until("the write that waited has failed: it is a pipe", lambda: failed in daemon.log.read_text())
        finally:
            for pipe, end in zip(pipes, ends):
                pipe.unlink()
                os.close(end)
    until("its log is sent again", lambda: daemon.logs(stuck))
