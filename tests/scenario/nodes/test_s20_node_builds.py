"""Attempts whose launcher is of another build: adopted when it speaks the same frames, else saved and begun again.

A launcher of another build is one whose record says so: what the node knows of it, it knows from there.
"""
import json

import pytest

from support import LONG


@pytest.mark.parametrize("build, major, attempts", [("0.0.9", 1, 1), ("9.0.0", 9, 2)])
def test_attempt_of_another_build(daemon, build, major, attempts):
    job = daemon.submit(LONG, "trainer.devices=2", "trainer.max_steps=400")
    daemon.wait_step(job, 20)
    daemon.kill()
    path = daemon.state_dir / "attempts" / job / "a1" / "record.json"
    record = json.loads(path.read_text())
    assert record["build"] and record["major"] == 1
    path.write_text(json.dumps(dict(record, build=build, major=major)))
    daemon.start()
    done = daemon.finish(job)
    assert done.attempt == attempts and done.restarts == 0
    daemon.losses(job, 400, 2)
    if attempts == 2:
        first = min(p.step for p in daemon.points(job) if p.attempt == 2)
        assert first > 20, "it went on from a checkpoint"
        assert any("build" in note or "version" in note for note in done.notes), done.notes

