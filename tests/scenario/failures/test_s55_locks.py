"""Somebody else holds an attempt's lock for a moment when its launcher has died: the end of the attempt is recorded all
the same, and nothing that it did is lost."""
import contextlib
import fcntl
import os
import signal
import threading

from support import LONG, until

LAST = 400


def is_awaited(path):
    """Somebody waits in the kernel for its lock."""
    inode = f":{path.stat().st_ino} "
    with open("/proc/locks") as locks:
        return any("-> FLOCK" in line and inode in line for line in locks)


@contextlib.contextmanager
def launcher_dies_before(daemon, job):
    """The launcher is killed, and its lock goes to one who waited for it, before a daemon that runs can look."""
    runs = daemon.process.poll() is None
    path = daemon.state_dir / "attempts" / job / "a1/lock"
    with open(path, "r+") as lock:
        waits = threading.Thread(target=fcntl.flock, args=(lock, fcntl.LOCK_EX), daemon=True)
        waits.start()
        until("somebody waits for the lock", lambda: is_awaited(path))
        if runs:
            daemon.process.send_signal(signal.SIGSTOP)
        os.kill(daemon.launcher(job), signal.SIGKILL)
        waits.join(20)
        if runs:
            daemon.process.send_signal(signal.SIGCONT)
        assert not waits.is_alive()
        yield path


def goes_on(daemon, job):
    done = daemon.finish(job)
    assert (done.attempt, done.restarts) == (2, 1)
    assert min(p.step for p in daemon.points(job) if p.attempt == 2) > 50, "it went on from a checkpoint"
    daemon.losses(job, LAST)


def test_end_is_recorded_when_somebody_held_the_lock_of_a_killed_launcher(daemon):
    job = daemon.submit(LONG, f"trainer.max_steps={LAST}")
    daemon.wait_checkpoint(job)
    with launcher_dies_before(daemon, job):
        until("it tries again", lambda: "is not recorded, will try again" in daemon.tail(100))
        assert daemon.state(job) == "RUNNING"
    goes_on(daemon, job)


def test_attempt_is_taken_over_when_somebody_held_its_lock_as_the_daemon_started(daemon):
    job = daemon.submit(LONG, f"trainer.max_steps={LAST}")
    daemon.wait_checkpoint(job)
    daemon.kill()
    with launcher_dies_before(daemon, job) as lock:
        daemon.start(wait=False)
        until("it waits for the lock", lambda: is_awaited(lock))
    until("it is ready", daemon.ready, 20)
    assert "attempt left as it is" not in daemon.tail(100)
    goes_on(daemon, job)
