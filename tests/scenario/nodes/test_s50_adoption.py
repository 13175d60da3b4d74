"""Daemons come and go, ranks train on: after any kill the same attempt is adopted by the next daemon, and
everything that it made meanwhile arrives once."""
import contextlib
import json
import os
import random
import signal
import sqlite3

import grpc
import pytest

from marks import some
from support import BIN, LONG, Cluster, alive, below, total_bytes, until, with_worker

LAST = 1000  # many more than train between seeing a step and the kill
FULL = bool(os.environ.get("TD_FULL"))


def segment_bytes(daemon, job):
    return total_bytes(below(daemon.state_dir / "attempts" / job, "metrics.*.seg"))


def ranks_go_on(daemon, job, pids):
    """With no daemon: the same processes live and make points."""
    before = segment_bytes(daemon, job)
    until("ranks make points without a daemon", lambda: segment_bytes(daemon, job) > before)
    assert daemon.workers(job) == pids


def adopted(daemon, job, pids, ranks):
    at = daemon.job(job).global_step
    daemon.wait_step(job, at + 10)
    now = daemon.job(job)
    assert now.attempt == 1 and now.restarts == 0, now
    assert daemon.workers(job) == pids or now.global_step == LAST


@pytest.mark.parametrize("ranks", some([2], [1, 2]))
def test_same_attempt_is_adopted_after_the_daemon_is_killed(daemon, ranks):
    job = daemon.submit(LONG, f"trainer.devices={ranks}", f"trainer.max_steps={LAST}")
    daemon.wait_step(job, 20)
    pids, launcher = daemon.workers(job), daemon.launcher(job)
    assert len(pids) == ranks
    for _ in range(2):
        daemon.kill()
        ranks_go_on(daemon, job, pids)
        daemon.start()
        adopted(daemon, job, pids, ranks)
        assert daemon.launcher(job) in (launcher, None)
    done = daemon.finish(job)
    assert done.attempt == 1 and done.global_step == LAST
    daemon.losses(job, LAST, ranks)


# ---- a coordinator of another build --------------------------------------------------------------
OLD_SCHEMA = 4  # before rows had rowids, and there were tables of these names
YOUNGER = ("tokens", "members", "audit", "node_admin")


def as_an_older_build_left_it(path):
    """Tables and rows of state.db as of that schema. An attempt was on one node, and had no parts: what is its part's
    now was its own, and of ranks there were fewer numbers. Returns the keys of the attempts."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for name, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'schema'").fetchall():
            if name not in YOUNGER:
                db.execute(f"CREATE TABLE old_{name} (key TEXT PRIMARY KEY, body TEXT NOT NULL, digest INTEGER) WITHOUT ROWID")
                db.execute(f"INSERT INTO old_{name} SELECT key, body, digest FROM {name}")
            db.execute(f"DROP TABLE {name}")
            if name not in YOUNGER:
                db.execute(f"ALTER TABLE old_{name} RENAME TO {name}")
        rows = db.execute("SELECT key, body FROM attempts").fetchall()
        for key, body in rows:
            now = json.loads(body)
            (part,), ranks = now.pop("parts"), now.pop("ranks")
            old = {**now, **{k: part[k] for k in ("node", "slots", "events", "forgotten")}, "ranks": [r[:7] for r in ranks]}
            db.execute("UPDATE attempts SET body = ?, digest = NULL WHERE key = ?", (json.dumps(old), key))
        assert db.execute("DELETE FROM schema WHERE version > ?", (OLD_SCHEMA,)).rowcount > 0
        return [key for key, _ in rows]


def test_attempt_of_an_older_state_db_is_adopted_with_its_ranks(cluster):
    c = cluster.start("--role", "coordinator", "--heartbeat-ms", "200", "--lease-ms", "1000", name="c")
    node = cluster.node(c, 2, "a")
    until("it is ready", lambda: len(c.nodes("READY")) == 1)
    job = c.submit(LONG, "trainer.devices=2")
    c.wait_step(job, 20)
    pids = node.workers(job)
    c.kill()
    assert as_an_older_build_left_it(c.state_dir / "state.db") == [f"{job}/a1"]
    ranks_go_on(node, job, pids)
    c.start()
    until("its node has registered", lambda: len(c.nodes("READY")) == 1)
    now = c.job(job)
    assert [(p.node, p.first_rank, p.n_ranks, p.state) for p in now.parts] == [("a", 0, 2, "started")]
    assert (c.state(job), now.attempt, now.restarts) == ("RUNNING", 1, 0) and node.workers(job) == pids
    c.wait_step(job, now.global_step + 10)
    c.steer("Cancel", job)
    done = c.wait_state(job, "CANCELLED")
    assert (done.attempt, done.restarts) == (1, 0) and done.global_step >= now.global_step + 10
    c.losses(job, done.global_step, 2)
    with contextlib.closing(sqlite3.connect(f"file:{c.state_dir}/state.db?mode=ro", uri=True)) as db:
        assert db.execute("SELECT max(version) FROM schema").fetchone()[0] > OLD_SCHEMA
        (body,), = db.execute("SELECT body FROM attempts").fetchall()
        assert len(json.loads(body)["parts"]) == 1


def test_attempt_that_ended_while_no_daemon_ran_counts(daemon):
    job = daemon.submit(LONG, "trainer.devices=2", "trainer.max_steps=1000")
    daemon.wait_step(job, 5)
    pids = daemon.workers(job)
    daemon.kill()
    until("ranks end by themselves", lambda: not any(alive(p) for p in pids))
    daemon.start()
    assert daemon.finish(job).attempt == 1
    daemon.losses(job, 1000, 2)
    assert daemon.checkpoints(job)[0].step == 1000


def test_daemon_killed_at_random_moments_loses_nothing(daemon):
    rng = random.Random(2)
    jobs = [daemon.submit(LONG, f"trainer.max_steps={LAST}", f"name=r{i}") for i in range(2)]
    for _ in range(40 if FULL else 6):
        if rng.randrange(2):
            until("a step", lambda: any(daemon.job(j).global_step for j in jobs))
        daemon.restart()
    for job in jobs:
        done = daemon.finish(job)
        # A kill between the record of an attempt and its launcher leaves a number that never ran.
        assert done.restarts == 0 and {p.attempt for p in daemon.points(job)} == {done.attempt}
        daemon.losses(job, LAST)


def test_stop_of_the_daemon_queues_its_jobs_and_the_next_start_goes_on(daemon):
    job = daemon.submit(LONG, "trainer.devices=2", "trainer.max_steps=1000")
    daemon.wait_step(job, 20)
    pids = daemon.workers(job)
    stubs = daemon.cluster.stubs
    with grpc.insecure_channel(daemon.address) as channel:
        bearer = [("authorization", f"Bearer {daemon.token}")]
        watch = stubs.job_grpc.JobServiceStub(channel).WatchJob(stubs.job.WatchJobRequest(id=job), metadata=bearer)
        last = next(watch).job
        daemon.process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError):
            for r in watch:
                last = r.job
    assert daemon.process.wait(30) == 0
    assert last.State.Name(last.state) == "QUEUED", last
    assert last.reason.code == "DAEMON_STOPPED" and "daemon stopped" in last.reason.text
    assert last.checkpoint == f"a1/step-{last.global_step}" and last.global_step >= 20
    assert not any(alive(p) for p in pids)
    daemon.start()
    done = daemon.finish(job)
    assert done.attempt == 2 and done.restarts == 0 and not done.HasField("failure")
    assert min(p.step for p in daemon.points(job) if p.attempt == 2) == last.global_step + 1
    daemon.losses(job, 1000, 2)


@pytest.fixture
def two(cluster):
    """Coordinator and node as processes of their own."""
    coordinator = cluster.start("--role", "coordinator", name="c")
    node = cluster.node(coordinator, 2, name="n")
    until("the node is ready", lambda: coordinator.nodes("READY"))
    return coordinator, node


def test_node_is_draining_while_its_stopped_daemon_waits_for_ranks(daemon):
    job = daemon.submit(LONG, "trainer.devices=2")
    daemon.wait_step(job, 5)
    held = daemon.workers(job)[0]
    os.kill(held, signal.SIGSTOP)  # it cannot agree to stop
    daemon.process.send_signal(signal.SIGTERM)
    until("its node drains", lambda: daemon.nodes("DRAINING"))
    assert "DRAINING" in daemon.ctl("node", "list", check=0).stdout
    assert daemon.process.poll() is None
    os.kill(held, signal.SIGCONT)
    assert daemon.process.wait(30) == 0
    daemon.start()  # what the end of its attempt left is taken by the next start


def test_end_of_a_test_finds_an_attempt_that_was_left(tmp_path, stubs):
    cluster = Cluster(tmp_path, stubs)
    daemon = cluster.start("--slots", "1")
    daemon.finish(daemon.submit())
    until("it is forgotten", lambda: not daemon.attempts())
    assert daemon.kill(signal.SIGTERM) == 0
    (daemon.state_dir / "attempts/j-000000000000/a1").mkdir(parents=True)
    with pytest.raises(AssertionError, match="left over.*attempts/j-000000000000"):
        cluster.close()


def test_empty_folder_of_a_job_goes_at_the_next_start(daemon):
    """A node that was killed after it removed a job's last attempt, before it removed the folder of the job."""
    job = daemon.submit()
    daemon.finish(job)
    until("it is forgotten", lambda: not daemon.attempts())
    daemon.kill()
    (daemon.state_dir / "attempts" / job).mkdir()
    daemon.start()
    assert not daemon.attempts()


@pytest.mark.parametrize("victim", some(["both"], ["coordinator", "node", "both"]))
def test_attempt_of_another_process_is_adopted(two, victim):
    coordinator, node = two
    job = coordinator.submit(LONG, "trainer.devices=2", f"trainer.max_steps={LAST}")
    coordinator.wait_step(job, 20)
    pids = node.workers(job)
    assert len(pids) == 2
    killed = {"coordinator": [coordinator], "node": [node], "both": [coordinator, node]}[victim]
    for d in killed:
        d.kill()
    ranks_go_on(node, job, pids)
    for d in killed:
        d.start()
    until("the node is back", lambda: coordinator.nodes("READY"))
    now = coordinator.wait_step(job, coordinator.job(job).global_step + 10)
    assert now.attempt == 1
    done = coordinator.finish(job)
    assert done.attempt == 1 and done.restarts == 0
    coordinator.losses(job, LAST, 2)


def test_stop_of_coordinator_and_node_in_mid_transfer_is_clean(two):
    coordinator, node = two
    rng = random.Random(4)
    jobs = []
    for i in range(60 if FULL else 5):
        jobs.append(coordinator.submit(LONG, f"trainer.max_steps={rng.randint(20, 80)}", f"name=t{i}"))
        if rng.randrange(4):
            until("it starts", lambda: coordinator.state(jobs[-1]) != "QUEUED")
        if rng.randrange(2):
            until("its first checkpoint is announced", lambda: coordinator.checkpoints(jobs[-1]))
        for d in (coordinator, node):
            d.process.send_signal(signal.SIGTERM)
        assert [d.process.wait(30) for d in (coordinator, node)] == [0, 0], coordinator.tail()
        for d in (coordinator, node):
            d.start()
        until("the node is back", lambda: coordinator.nodes("READY"))
    for job in jobs:
        assert coordinator.finish(job).restarts == 0


def test_stop_of_a_node_leaves_its_ranks_running(two):
    coordinator, node = two
    job = coordinator.submit(LONG, f"trainer.max_steps={LAST}")
    coordinator.wait_step(job, 20)
    pids = node.workers(job)
    assert node.kill(signal.SIGTERM) == 0
    ranks_go_on(node, job, pids)
    node.start()
    assert coordinator.finish(job).attempt == 1
    coordinator.losses(job, LAST)


def test_attempt_under_other_frames_is_stopped_with_a_checkpoint_and_resumed(daemon):
    job = daemon.submit(LONG, "trainer.devices=2", "trainer.max_steps=1000")
    daemon.wait_step(job, 20)
    pids = daemon.workers(job)
    daemon.kill()
    record = daemon.state_dir / "attempts" / job / "a1/record.json"
    written = json.loads(record.read_text())
    record.write_text(json.dumps(dict(written, major=written["major"] + 1, build="9.9.9")))
    daemon.start()
    done = daemon.finish(job)
    assert not any(alive(p) for p in pids)
    assert done.attempt == 2 and done.restarts == 0 and not done.HasField("failure")
    assert any("another version of traind" in n for n in done.notes), done.notes
    daemon.losses(job, 1000, 2)


def test_orphaned_attempt_stops_with_a_checkpoint_and_goes_on_later(cluster):
    daemon = cluster.start("--slots", "2", "--orphan-timeout-s", "1")
    job = daemon.submit(LONG, "trainer.devices=2", "trainer.max_steps=2500")
    daemon.wait_step(job, 20)
    pids = daemon.workers(job)
    daemon.kill()
    until("ranks stop by themselves", lambda: not any(alive(p) for p in pids))
    daemon.start()
    daemon.wait_state(job, "RUNNING")
    until("the next attempt", lambda: daemon.job(job).attempt == 2)
    now = daemon.wait_step(job, daemon.job(job).global_step + 10)
    assert now.restarts == 0 and not now.HasField("failure"), now
    points = daemon.points(job)
    assert [p.step for p in points] == list(range(1, len(points) + 1)), "nothing was lost, nothing done twice"


def with_talking_worker(daemon, folder):
    daemon.bin = with_worker(folder, f"""
        (for ((i = 1; i <= 300; i++)); do echo "line $i"; echo "oops $i" >&2; sleep 0.01; done) &
        exec {BIN}/traind-worker "$@" """)
    return daemon


def check_log(coordinator, job):
    for err, word in ((False, "line"), (True, "oops")):
        pieces = coordinator.logs(job, rank=0, err_only=err, out_only=not err)
        data = b"".join(r.data for r in pieces)
        assert [r.offset for r in pieces] == [sum(len(p.data) for p in pieces[:i]) for i in range(len(pieces))]
        lines = [l for l in data.decode().splitlines() if l.startswith(word)]
        assert len(lines) > 10 and lines[:-1] == [f"{word} {i + 1}" for i in range(len(lines) - 1)]


def disturb(killed, node, job):
    out_size = lambda: total_bytes(below(node.state_dir / "attempts" / job, "out.0.log"))
    for _ in range(2):
        for d in killed:
            d.kill()
        before = out_size()
        until("more lines", lambda: out_size() > before)
        for d in killed:
            d.start()


def test_log_bytes_made_while_the_daemon_is_away_arrive_once(cluster, tmp_path):
    daemon = with_talking_worker(cluster.make("--slots", "1"), tmp_path / "bin").start()
    job = daemon.submit(LONG, f"trainer.max_steps={LAST}")
    daemon.wait_step(job, 5)
    disturb([daemon], daemon, job)
    daemon.finish(job)
    check_log(daemon, job)


def test_log_bytes_of_a_node_of_its_own_arrive_once(two, tmp_path):
    coordinator, node = two
    node.kill(signal.SIGTERM)
    with_talking_worker(node, tmp_path / "bin").start()
    until("the node is ready", lambda: coordinator.nodes("READY"))
    job = coordinator.submit(LONG, f"trainer.max_steps={LAST}")
    coordinator.wait_step(job, 5)
    disturb([coordinator, node], node, job)
    coordinator.finish(job)
    until("all of the log is there", lambda: not below(node.state_dir / "attempts", "out.0.log"))
    check_log(coordinator, job)
