"""Ranks that do not beat: the job's reason says which one and since when, it is cleared when the rank goes on, and a
rank that stays silent ends its attempt, class stuck, with the stacks of those that can still answer."""
import os
import signal
import time

import pytest

from support import LONG, alive, processes_of, until

SILENT = ("--slots", "2", "--silent-after-ms", "500")


def reason(daemon, job):
    return daemon.job(job).reason


def stop(daemon, job, rank):
    pid = daemon.workers(job)[rank]
    os.kill(pid, signal.SIGSTOP)
    return pid


def test_stopped_rank_is_named_until_it_goes_on(cluster):
    daemon = cluster.start(*SILENT)
    job = daemon.submit(LONG, "trainer.devices=2", "restart.stuck_timeout=0")
    daemon.wait_step(job, 20)
    held = stop(daemon, job, 1)
    said = until("it is said", lambda: (lambda r: r.code == "RANK_SILENT" and r)(reason(daemon, job)))
    assert said.text.startswith("rank 1 is silent since 20") and "its process is stopped" in said.text
    assert daemon.state(job) == "RUNNING"
    daemon.restart()  # it is known to the next daemon as well
    until("it is known", lambda: reason(daemon, job).code == "RANK_SILENT")
    os.kill(held, signal.SIGCONT)
    until("it is over", lambda: not reason(daemon, job).code)
    now = daemon.wait_step(job, daemon.job(job).global_step + 10)
    assert now.attempt == 1


def test_rank_that_stays_silent_ends_as_stuck_with_the_stacks_of_the_others(cluster):
    daemon = cluster.start(*SILENT)
    job = daemon.submit(LONG, "trainer.devices=2", "restart.stuck_timeout=1", "restart.max=0")
    daemon.wait_step(job, 20)
    pids = daemon.workers(job)
    stop(daemon, job, 1)
    now = daemon.wait_state(job, "FAILED")
    failure = now.failure
    assert (getattr(failure, "class"), failure.rank, failure.code) == ("stuck", 1, "DEADLINE_EXCEEDED"), failure
    assert "its process is stopped" in failure.message and "stuck_timeout" in failure.message
    assert not any(alive(p) for p in pids)
    said = lambda rank: b"".join(r.data for r in daemon.logs(job, rank=rank, err_only=True))
    assert b"stack, phase 2" in until("rank 0 wrote its stack", lambda: said(0))
    assert b"stack, phase" not in said(1)


def test_pause_of_a_whole_machine_is_no_silence(cluster):
    daemon = cluster.start(*SILENT)
    job = daemon.submit(LONG, "restart.stuck_timeout=1", "restart.max=0")
    daemon.wait_step(job, 20)
    everybody = list(processes_of(daemon.state_dir))
    log = daemon.state_dir / "attempts" / job / "a1/events.log"
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    until("all are stopped for longer than the limits", lambda began=time.monotonic(): time.monotonic() > began + 2.5)
    for pid in everybody:
        os.kill(pid, signal.SIGCONT)
    daemon.drop_channel()
    now = daemon.wait_step(job, daemon.job(job).global_step + 10)
    assert now.attempt == 1 and b'"event":"silent"' not in log.read_bytes()
