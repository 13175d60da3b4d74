"""Damaged checkpoints, seen through the daemon: skipped with a reason, the one before is used."""
import os
import shutil

import pytest

from marks import some
from support import LONG, below, until


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
    found = [p for p in below(daemon.state_dir, checkpoint.path.split("/")[-1]) if checkpoint.job in str(p)]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("what", some(["half-written directory"], DAMAGE))
def test_the_checkpoint_before_a_damaged_one_is_used(daemon, what):
    damage, reason = DAMAGE[what]
    job, (newest, before, *_) = paused(daemon)
    damage(directory(daemon, newest))
    daemon.steer("Resume", job)
    done = daemon.finish(job)
    assert any(newest.path in n and reason in n for n in done.notes), done.notes
    listed = {c.path: c for c in daemon.checkpoints(job)}
    assert listed[newest.path].State.Name(listed[newest.path].state) == "DAMAGED"
    note = listed[newest.path].note  # of who saw it first: the rank, or its node, which looks at lengths
    assert any(why in note for why in (reason, "has 100 bytes", "is gone")) and not listed[before.path].note
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


# ---- checkpoints that the coordinator has, too ---------------------------------------------------
@pytest.fixture
def streaming(cluster):
    """Coordinator and node as processes of their own: checkpoints are at both."""
    coordinator = cluster.start("--role", "coordinator", name="c")
    node = cluster.node(coordinator, 2, name="n")
    until("the node is ready", lambda: coordinator.nodes("READY"))
    job, listed = paused(coordinator)
    return coordinator, node, job, listed


def change_manifest(d):
    text = (d / "manifest.json").read_text()
    assert '"step":' in text
    (d / "manifest.json").write_text(text.replace('"step":', '"step":1', 1))


# With the file that is named; None: what has no manifest is no copy.
COPIES = {
    "flipped byte": (DAMAGE["flipped byte"][0], "model.safetensors"),
    "truncated file": (lambda d: os.truncate(d / "optimizer.safetensors", 100), "optimizer.safetensors"),
    "another manifest": (change_manifest, "manifest.json"),
    "missing manifest": (DAMAGE["missing manifest"][0], None),
    "directory gone": (shutil.rmtree, None),
}


@pytest.mark.parametrize("what", some(["flipped byte", "missing manifest"], COPIES))
def test_damaged_copy_of_a_streamed_checkpoint_is_fetched_again(streaming, what):
    coordinator, node, job, (newest, *_) = streaming
    copy = directory(node, newest)
    damage, file = COPIES[what]
    damage(copy)
    coordinator.steer("Resume", job)
    done = coordinator.finish(job)
    assert min(p.step for p in coordinator.points(job) if p.attempt == 2) == newest.step + 1
    assert not [n for n in done.notes if "skipped" in n], done.notes
    log = node.tail(200)
    assert f"checkpoint fetched job={job} path={newest.path}" in log
    found = f"copy of a checkpoint is damaged job={job} path={newest.path} why=\"{file}: "
    assert (found in log) == (file is not None), log
    whole = coordinator.weights(job, newest.path)
    assert {f: (copy / f).read_bytes() for f in whole} == whole
    assert {c.path: c.State.Name(c.state) for c in coordinator.checkpoints(job)}[newest.path] == "COMMITTED"
    coordinator.losses(job, STEPS)


def test_the_one_before_is_used_when_both_copies_are_damaged(streaming):
    coordinator, node, job, (newest, before, *_) = streaming
    flip(directory(node, newest) / "model.safetensors")
    flip(directory(coordinator, newest) / "model.safetensors")
    coordinator.steer("Resume", job)
    done = coordinator.finish(job)
    assert min(p.step for p in coordinator.points(job) if p.attempt == 2) == before.step + 1
    assert any(newest.path in n and "digest" in n for n in done.notes), done.notes
    until("the catalog says so", lambda: {c.path for c in coordinator.checkpoints(job) if c.state == c.DAMAGED} == {newest.path})
    coordinator.losses(job, STEPS)


def test_sound_copy_of_a_streamed_checkpoint_is_not_fetched(streaming):
    coordinator, node, job, (newest, *_) = streaming
    coordinator.steer("Resume", job)
    coordinator.finish(job)
    assert min(p.step for p in coordinator.points(job) if p.attempt == 2) == newest.step + 1
    assert "checkpoint fetched" not in node.tail(200) and "damaged" not in node.tail(200)
