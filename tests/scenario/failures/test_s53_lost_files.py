"""Files of an attempt that somebody removes, cuts or replaces: the attempt ends as a failure that names the file, its slots
are free, and the job goes on from its last checkpoint. What was lost is never passed over."""
import os
import signal

import pytest

from support import BIN, LONG, alive, until, with_worker


def remove(path):
    path.unlink()


def cut(path):
    os.truncate(path, 0)


def replace(path):
    other = path.with_name("other")
    other.write_bytes(path.read_bytes() + b"\n" * 4096)
    other.rename(path)


DEEDS = {"removed": remove, "cut": cut, "replaced": replace}
CASES = [(name, how) for name in ("events.log", "metrics.0.seg") for how in DEEDS] + [("out.0.log", "removed")]


def talking(cluster, tmp_path):
    """Its rank says something, so that its log has bytes to lose."""
    daemon = cluster.make("--slots", "1")
    daemon.bin = with_worker(tmp_path / "bin", f"echo begin; echo oops >&2; exec {BIN}/traind-worker \"$@\"")
    return daemon.start()


def start(daemon, *overrides):
    job = daemon.submit(LONG, *overrides)
    daemon.wait_checkpoint(job)
    return job, daemon.state_dir / "attempts" / job / "a1"


def goes_on(daemon, job, name, how):
    """It has failed by name, and the next attempt trains on from a checkpoint."""
    until("another attempt trains", lambda: daemon.job(job).attempt == 2 and daemon.state(job) == "RUNNING")
    now = daemon.job(job)
    assert (getattr(now.failure, "class"), now.failure.code) == ("internal", "DATA_LOSS"), now
    assert name in now.failure.message and how in now.failure.message, now.failure
    assert now.restarts == 1
    events = daemon.state_dir / "attempts" / job / "a2/events.log"
    assert b'"event":"resumed"' in until("it resumes", lambda: b"resumed" in events.read_bytes() and events.read_bytes())
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


@pytest.mark.parametrize("name, how", CASES)
def test_lost_file_of_a_running_attempt_ends_it_by_name(cluster, tmp_path, name, how):
    daemon = talking(cluster, tmp_path)
    job, home = start(daemon)
    pids = daemon.workers(job)
    DEEDS[how](home / name)
    until("its ranks end", lambda: not any(alive(p) for p in pids))
    goes_on(daemon, job, name, how)


@pytest.mark.parametrize("name, how", CASES)
def test_lost_file_of_an_attempt_without_a_daemon_ends_it_by_name(cluster, tmp_path, name, how):
    daemon = talking(cluster, tmp_path)
    job, home = start(daemon)
    launcher, pids = daemon.launcher(job), daemon.workers(job)
    daemon.kill()
    DEEDS[how](home / name)
    until("launcher and ranks end", lambda: not any(alive(p) for p in [launcher, *pids]))
    daemon.start()
    goes_on(daemon, job, name, how)


def test_log_of_events_removed_after_the_launcher_was_killed_is_named(daemon):
    job, home = start(daemon)
    launcher = daemon.launcher(job)
    daemon.kill()
    os.kill(launcher, signal.SIGKILL)
    until("the launcher is gone", lambda: not alive(launcher))
    remove(home / "events.log")
    daemon.start()
    goes_on(daemon, job, "events.log", "removed")


@pytest.mark.parametrize("name", ["metrics.0.seg", "err.0.log"])
def test_job_with_lost_bytes_does_not_succeed(cluster, tmp_path, name):
    """All was trained, then the file went before the daemon had seen what was in it."""
    daemon = talking(cluster, tmp_path)
    job = daemon.submit(LONG, "trainer.max_steps=1000")
    daemon.wait_step(job, 5)
    launcher = daemon.launcher(job)
    daemon.kill()
    home = daemon.state_dir / "attempts" / job / "a1"
    until("the launcher ends", lambda: not alive(launcher))
    size = (home / name).stat().st_size
    assert b'"outcome":"done"' in (home / "events.log").read_bytes()
    if name == "err.0.log":  # a part of it: what had been taken stays
        assert size > 0
    remove(home / name)
    daemon.start()
    now = until("it ends", lambda: (lambda j: j.State.Name(j.state) in ("FAILED", "SUCCEEDED") and j)(daemon.job(job)))
    taken = sum(len(r.data) for r in daemon.logs(job, rank=0, err_only=True)) if name == "err.0.log" else 0
    if name == "err.0.log" and taken == size:
        assert now.State.Name(now.state) == "SUCCEEDED"  # all of it was here before
    else:
        assert now.State.Name(now.state) == "FAILED" and now.attempt == 1, now
        assert name in now.failure.message and f"of its {size} bytes" in now.failure.message
        assert any(name in n for n in now.notes)
    until("nothing of it is kept", lambda: not home.exists())
