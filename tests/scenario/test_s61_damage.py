"""Damaged checkpoints, seen through the daemon: skipped with a reason, the one before is used."""
import os
import shutil

import pytest

from support import LONG


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "flipped byte": (lambda d: flip(d / "model.safetensors"), "digest"),
    "missing manifest": (lambda d: (d / "manifest.json").unlink(), "manifest"),
    "half-written directory": (lambda d: [os.truncate(d / "model.safetensors", 100), (d / "manifest.json").unlink()],
                               "manifest"),
    "directory gone": (shutil.rmtree, "manifest"),
}


STEPS = 1000  # many more than train between seeing step 110 and the pause


def paused(daemon):
    job = daemon.submit(LONG, f"trainer.max_steps={STEPS}", "checkpoint.save_top_k=-1")
    daemon.wait_step(job, 110)
    daemon.steer("Pause", job)
    daemon.wait_state(job, "PAUSED")
    return job, daemon.checkpoints(job)


def directory(daemon, checkpoint):
    found = [p for p in daemon.state_dir.rglob(checkpoint.path.split("/")[-1]) if checkpoint.job in str(p)]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("what", DAMAGE)
def test_the_checkpoint_before_a_damaged_one_is_used(daemon, what):
    damage, reason = DAMAGE[what]
    job, (newest, before, *_) = paused(daemon)
    damage(directory(daemon, newest))
    daemon.steer("Resume", job)
    done = daemon.finish(job)
    assert any(newest.path in n and reason in n for n in done.notes), done.notes
    listed = {c.path: c for c in daemon.checkpoints(job)}
    assert listed[newest.path].State.Name(listed[newest.path].state) == "DAMAGED"
    assert reason in listed[newest.path].note and not listed[before.path].note
    assert {c.path for c in listed.values() if c.state == c.DAMAGED} == {newest.path}
    lines = daemon.ctl("checkpoint", "list", job, check=0).stdout.splitlines()
    assert ["DAMAGED" in line for line in lines] == [newest.path in line for line in lines]
    assert min(p.step for p in daemon.points(job) if p.attempt == 2) == before.step + 1
    daemon.losses(job, STEPS)


def test_job_fails_clearly_when_no_checkpoint_is_left(daemon):
    job, all_of_them = paused(daemon)
    for c in all_of_them:
        flip(directory(daemon, c) / "model.safetensors")
    daemon.steer("Resume", job)
    failed = daemon.wait_state(job, "FAILED")
    assert getattr(failed.failure, "class") == "data" and failed.failure.code == "DATA_LOSS"
    assert failed.attempt == 2
