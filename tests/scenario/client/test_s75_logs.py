"""What a rank says of itself in its log, and the last lines of logs."""
import base64
import json
import re
import subprocess

import pytest

from support import BIN, LONG, SPEC, until

OK, USAGE = 0, 2


def said(text):
    """The lines of a rank without the time and what the thread adds."""
    return [re.fullmatch(r"\S+ info (.*) rank=\d+", line)[1] for line in text.splitlines()]


def test_rank_says_what_it_does(daemon):
    job = daemon.submit(SPEC, "trainer.devices=2")
    daemon.finish(job)
    first, other = said(daemon.output(job, 0)), said(daemon.output(job, 1))
    assert re.fullmatch(r"rank starts world_size=2 .* pid=\d+ host=\S+", first[0])
    assert "plan epochs=3 steps=48 batches_per_epoch=16 batch_size=16 strategy=ddp precision=32-true accumulate=batches" in first
    for epoch in range(3):
        assert f"epoch begins epoch={epoch} step={16 * epoch} batch=0 of 16" in first
        assert any(re.fullmatch(rf"epoch ends epoch={epoch} step={16 * (epoch + 1)} loss=\S+ seconds=\S+", x) for x in first)
        assert any(x.startswith(f"checkpoint is saved path=a1/step-{16 * (epoch + 1)} bytes=") for x in first)
    assert first.index("stage begins stage=fit") < first.index("stage ends stage=fit") < first.index("stage begins stage=test")
    assert first[-1] == other[-1] == "rank ends outcome=done step=48"
    assert sum(x.startswith("epoch ends") for x in other) == 3


def test_rank_says_that_it_was_asked_to_stop_and_where_it_goes_on(daemon):
    job = daemon.submit(LONG)
    daemon.wait_step(job, 5)
    daemon.steer("Pause", job)
    at = daemon.wait_state(job, "PAUSED").global_step
    text = until("its log is here", lambda: b"".join(r.data for r in daemon.logs(job, attempt=1)).decode())
    assert any(re.fullmatch(rf"stops as asked epoch=\d+ step={at}, with a checkpoint", x) for x in said(text)), text
    daemon.steer("Resume", job)
    daemon.wait_step(job, at + 1)
    text = lambda: b"".join(r.data for r in daemon.logs(job, attempt=2)).decode()
    until("it says where it goes on", lambda: re.search(rf"continues from a checkpoint epoch=\d+ step={at} ", text()))
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


def test_epochs_of_milliseconds_do_not_fill_the_log(daemon):
    job = daemon.submit(SPEC, "trainer.max_epochs=1500", "trainer.limit_train_batches=1", "trainer.limit_val_batches=0",
                        "checkpoint.save_top_k=0", "stages=[fit]")
    daemon.finish(job)
    n = sum(x.startswith("epoch ends") for x in said(daemon.output(job)))
    assert 100 <= n < 300, "each of the first hundred, then one a second"


# ---- --tail ------------------------------------------------------------------------------------

def shell(script):
    return json.dumps({"kind": "command", "command": ["/bin/sh", "-c", script]})


@pytest.fixture
def talk(daemon):
    """A job of a command that prints 5000 numbered lines on stdout, two on stderr, and an open one at the end."""
    job = daemon.submit(shell("seq 1 5000; echo oops >&2; echo again >&2; printf open"))
    daemon.finish(job)
    daemon.output(job)  # all of it has come
    return job


def test_tail_shows_the_last_lines_of_each_stream(daemon, talk):
    lines = lambda *more: daemon.ctl("logs", talk, "--rank", "0", *more, check=OK).stdout.splitlines()
    assert lines("--tail", "3", "--out-only") == ["4999", "5000", "open"]
    assert lines("--tail", "1", "--err-only") == ["again"]
    assert lines("--tail", "0", "--out-only") == []
    assert lines("--tail", "4500", "--out-only") == [str(n) for n in range(502, 5001)] + ["open"], "asks for more"
    assert lines("--tail", "9000", "--out-only") == [str(n) for n in range(1, 5001)] + ["open"]
    both = daemon.ctl("logs", talk, "--tail", "1", check=OK).stdout.splitlines()
    assert both == ["[rank 0] open", "[rank 0] again"] or both == ["[rank 0] openagain"]
    piece, = daemon.ctl("logs", talk, "--tail", "1", "--err-only", "-o", "jsonl", check=OK).stdout.splitlines()
    assert base64.b64decode(json.loads(piece)["data"]) == b"again\n" and json.loads(piece)["offset"] == "5"


def test_tail_then_follow_shows_each_line_once(daemon, tmp_path):
    gate = tmp_path / "gate"
    script = f"seq 1 100; while [ ! -e {gate} ]; do sleep 0.05; done; seq 101 200"
    job = daemon.submit(shell(script))
    until("it has printed", lambda: b"\n100\n" in b"".join(r.data for r in daemon.logs(job)))
    env = dict(daemon.env, TRAIND_STATE_DIR=str(daemon.state_dir))
    command = [BIN / "trainctl", "logs", job, "--rank", "0", "--out-only", "--tail", "2", "-f"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as follower:
        assert [follower.stdout.readline() for _ in range(2)] == ["99\n", "100\n"]
        gate.touch()
        rest = follower.communicate(timeout=60)[0].split()
    assert follower.returncode == OK and rest == [str(n) for n in range(101, 201)]


def test_tail_that_makes_no_sense_is_refused(daemon):
    assert daemon.ctl("logs", "x", "--tail", "few", check=USAGE).stderr.startswith("trainctl logs: --tail takes a whole number")
    more = ["--offset", "1", "--rank", "0", "--out-only", "--tail", "1"]
    daemon.ctl("list", check=OK)
    job = daemon.submit(SPEC, "trainer.max_steps=1")
    daemon.finish(job)
    assert "exclude each other" in daemon.ctl("logs", job, *more, check=USAGE).stderr
