"""What is forgotten of ended jobs, on the disk of a real coordinator: rows, points, logs, streamed checkpoints."""
import signal
import sqlite3

import grpc

from fake_node import FakeNode, record
from support import SPEC, until


def rows(daemon, database, query):
    db = sqlite3.connect(f"file:{daemon.state_dir}/{database}?mode=ro", uri=True, timeout=10)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


def known(daemon, job):
    try:
        return bool(daemon.job(job).id)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error
        return False


def run_through(daemon, node):
    """A job with a point, a line on stderr and a streamed checkpoint. Its last log bytes are acknowledged."""
    job = daemon.submit(SPEC, "checkpoint.store=stream")
    attempt = node.attempt()
    assert attempt.id.job == job
    attempt.begin()
    attempt.segment(2, 0, 0, record("train_loss", 1, 2.0, 1.0))
    attempt.segment(4, 0, 0, b"words")
    attempt.acked(4, 0, 5)
    attempt.checkpoint(5, {"model.safetensors": b"weights"})
    attempt.put(5, "model.safetensors", b"weights")
    attempt.put(5, "manifest.json", b'{"format":1}')
    attempt.end(metrics=64, err=5)
    daemon.finish(job)
    return job


def test_forgotten_job_leaves_no_row_point_log_or_streamed_file(cluster):
    daemon = cluster.start("--role", "coordinator", "--retention-jobs", "1", name="c")
    node = FakeNode(daemon)
    first = run_through(daemon, node)
    logs, streamed = (daemon.state_dir / kind / first for kind in ("logs", "checkpoints"))
    assert (logs / "a1/0.err").exists() and (streamed / "a1/step-5/manifest.json").exists()
    second = run_through(daemon, node)
    until("the first is forgotten", lambda: not known(daemon, first))
    until("nothing of it is left to be removed", lambda: not rows(daemon, "state.db", "SELECT key FROM leaving"))
    assert not logs.exists() and not streamed.exists()
    assert {j for j, in rows(daemon, "metrics.db", "SELECT job FROM series")} == {second}
    for table in ("jobs", "specs", "attempts", "checkpoints", "shards"):
        assert all(key.startswith(second) for key, in rows(daemon, "state.db", f"SELECT key FROM {table}")), table
    assert known(daemon, second) and daemon.checkpoints(second)
    node.close()


def test_crash_while_a_job_is_forgotten_leaves_nothing(cluster):
    daemon = cluster.start("--role", "coordinator", name="c")
    daemon.kill(signal.SIGKILL)
    logs, streamed = (daemon.state_dir / kind / "j-0123456789ab/a1" for kind in ("logs", "checkpoints"))
    own = streamed.parent / "a2/step-5"  # an embedded node's: not the coordinator's to remove
    for folder in (logs, streamed, own):
        folder.mkdir(parents=True)
    (logs / "0.err").write_text("words")
    db = sqlite3.connect(daemon.state_dir / "state.db")
    db.execute("INSERT INTO leaving (key, body) VALUES ('j-0123456789ab', '{\"streamed\":[1]}')")
    db.commit()
    db.close()
    daemon.start()
    until("it is gone", lambda: not rows(daemon, "state.db", "SELECT key FROM leaving"))
    assert not logs.parent.exists() and not streamed.exists() and own.exists()


def test_coordinator_starts_when_its_store_holds_more_jobs_than_are_kept(cluster):
    daemon = cluster.start("--role", "coordinator", name="c")
    jobs = [daemon.submit() for _ in range(20)]
    for job in jobs:
        daemon.steer("Cancel", job)
    daemon.kill(signal.SIGKILL)
    daemon.args = [*daemon.args, "--retention-jobs", "5"]
    daemon.start()
    until("five are kept", lambda: [known(daemon, j) for j in jobs] == [False] * 15 + [True] * 5)
    assert "state.db holds more ended jobs than are kept" in daemon.tail(200)
