"""Metrics as a person follows, exports and draws them."""
import csv
import io
import json
import os
import re
import subprocess
import threading

import pytest

from support import BIN, LONG, SPEC, until
from terminals import on_terminal

OK, USAGE, NOT_FOUND = 0, 2, 3
UTF8, ASCII = {"LC_ALL": "C.UTF-8"}, {"LC_ALL": "C"}


@pytest.fixture
def done(daemon):
    job = daemon.submit(SPEC)
    daemon.finish(job)
    return job


def start(daemon, *args, **more):
    env = dict(daemon.env, TRAIND_STATE_DIR=str(daemon.state_dir))
    return subprocess.Popen([BIN / "trainctl", *args], env=env, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **more)


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


# ---- -f ----------------------------------------------------------------------------------------

def test_follow_shows_each_point_once_and_ends_with_the_job(daemon):
    job = daemon.submit(LONG, "trainer.max_steps=300", "trainer.devices=2")
    follower = start(daemon, "metrics", job, "train_loss_step", "lr", "-f", "-o", "csv")
    out, err = follower.communicate(timeout=120)
    assert follower.returncode == OK, err
    assert daemon.state(job) == "SUCCEEDED"
    points = {p.step: p.value for p in daemon.points(job)}
    seen = [r for r in rows(out) if r["name"] == "train_loss_step"]
    assert [int(r["step"]) for r in seen] == list(range(1, 301))
    assert all(float(r["value"]) == points[int(r["step"])] and r["n_ranks"] == "2" for r in seen)
    assert [int(r["step"]) for r in rows(out) if r["name"] == "lr"] == list(range(1, 301))


def test_follow_comes_while_the_job_runs_and_leaves_it_alone_at_ctrl_c(daemon):
    job = daemon.submit(LONG)
    follower = start(daemon, "metrics", job, "train_loss_step", "-f")
    assert follower.stdout.readline().split() == ["NAME", "STEP", "EPOCH", "ATTEMPT", "VALUE", "RANKS"]
    steps = [int(follower.stdout.readline().split()[1]) for _ in range(20)]
    assert steps == list(range(1, 21))
    follower.send_signal(2)
    follower.communicate(timeout=20)
    assert follower.returncode in (-2, 130)
    at = daemon.wait_step(job, 1).global_step
    daemon.wait_step(job, at + 5)
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


def test_follow_without_names_shows_the_newest_of_each_series(daemon, done):
    lines = daemon.ctl("metrics", done, "-f", check=OK).stdout.splitlines()[1:]
    table = daemon.ctl("metrics", done, check=OK).stdout.splitlines()[1:]
    assert [line.split()[:3] for line in lines] == [line.split()[:3] for line in table]
    series = [json.loads(line) for line in daemon.ctl("metrics", done, "-f", "-o", "jsonl", check=OK).stdout.splitlines()]
    assert {s["name"]: len(s["points"]) for s in series}["train_loss_step"] == 96


def test_follow_of_a_second_attempt_shows_the_steps_that_it_repeats(daemon):
    job = daemon.submit(LONG, "trainer.max_steps=2000")
    follower = start(daemon, "metrics", job, "train_loss_step", "-f", "-o", "csv")
    daemon.wait_step(job, 120)
    os.kill(daemon.workers(job)[0], 9)
    out, err = follower.communicate(timeout=200)
    assert follower.returncode == OK, err
    attempts = {int(r["attempt"]) for r in rows(out)}
    assert attempts == {1, 2} and int(rows(out)[-1]["step"]) == 2000
    second = [int(r["step"]) for r in rows(out) if r["attempt"] == "2"]
    assert second == list(range(second[0], 2001)), "none is left out"


@pytest.mark.parametrize("more", [["-f", "-o", "json"], ["-f", "--points", "5"], ["--plot", "-f"], ["--plot", "-o", "csv"]])
def test_metrics_that_exclude_each_other_are_refused(daemon, done, more):
    assert "--points" in daemon.ctl("metrics", done, *more, check=USAGE).stderr


def test_follow_of_no_job_is_not_found(daemon):
    ran = daemon.ctl("metrics", "j-000000000000", "-f", check=NOT_FOUND)
    assert ran.stdout == ""


# ---- csv ---------------------------------------------------------------------------------------

def test_csv_has_every_point_with_all_digits(daemon, done):
    found = rows(daemon.ctl("metrics", done, "-o", "csv", check=OK).stdout)
    assert set(found[0]) == {"name", "step", "epoch", "attempt", "value", "n_ranks", "time"}
    losses = {int(r["step"]): float(r["value"]) for r in found if r["name"] == "train_loss_step"}
    assert losses == {p.step: p.value for p in daemon.points(done)}
    picture = rows(daemon.ctl("metrics", done, "train_loss_step", "--points", "4", "-o", "csv", check=OK).stdout)
    assert len(picture) == 4 and sum(int(r["n_points"]) for r in picture) == 96
    assert all(float(r["min"]) <= float(r["mean"]) <= float(r["max"]) for r in picture)
    assert "not 'csv'" in daemon.ctl("list", "-o", "csv", check=USAGE).stderr


# ---- --plot ------------------------------------------------------------------------------------

def test_plot_is_80_columns_of_braille_without_a_terminal(daemon, done):
    lines = daemon.ctl("metrics", done, "train_loss_step", "--plot", check=OK, env=UTF8).stdout.splitlines()
    assert lines[0] == "train_loss_step" and max(map(len, lines)) == 80
    assert re.search("[\u2801-\u28ff]", "".join(lines)) and "\x1b" not in "".join(lines)
    values = [p.value for p in daemon.points(done)]
    assert lines[1].split()[0] == f"{max(values):.4g}" and lines[-1].split() == ["1", "96"]


def test_plot_is_ascii_where_the_locale_is_no_utf8(daemon, done):
    text = daemon.ctl("metrics", done, "train_loss_step", "val_loss", "--plot", check=OK, env=ASCII).stdout
    assert text.isascii() and text.startswith("* train_loss_step  + val_loss\n") and text.count("+") > 10
    by_itself = daemon.ctl("metrics", done, "--plot", check=OK, env=ASCII).stdout
    assert by_itself.startswith("* train_loss_epoch  + train_loss_step  o val_loss\n")


def drawn(daemon, columns, *args, **env):
    return on_terminal(daemon, *args, columns=columns, **{"TERM": "xterm", "NO_COLOR": "", **env}).decode()


@pytest.mark.parametrize("columns", [20, 40, 133])
def test_plot_is_as_wide_as_the_terminal_and_colored(daemon, done, columns):
    text = drawn(daemon, columns, "metrics", done, "train_loss_step", "val_loss", "--plot", **UTF8)
    assert "\x1b[36m" in text and "\x1b[33m" in text
    plain = re.sub("\x1b\\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines()[1:])) == columns
    assert "\x1b" not in drawn(daemon, columns, "metrics", done, "--plot", NO_COLOR="1", **UTF8)


def test_plot_of_nothing_says_so(daemon):
    job = daemon.submit(SPEC, "stages=[test]", "trainer.limit_test_batches=0")
    daemon.finish(job)
    ran = daemon.ctl("metrics", job, "train_loss_step", "--plot", check=OK)
    assert ran.stdout == "" and "there are no points" in ran.stderr


# ---- a daemon that goes away -------------------------------------------------------------------

class Follower:
    """A verb that follows, and what it has said on stderr so far."""

    def __init__(self, daemon, *args):
        self.process, self.said = start(daemon, *args), ""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.out = ""
        self.drain = threading.Thread(target=self.read_out)
        self.drain.start()

    def read(self):
        while more := os.read(self.process.stderr.fileno(), 4096):
            self.said += more.decode()

    def read_out(self):
        while more := os.read(self.process.stdout.fileno(), 65536):
            self.out += more.decode()

    def end(self, timeout=120):
        code = self.process.wait(timeout)
        self.reader.join()
        self.drain.join()
        return code


# `wait` without --follow is the same but for what it shows; nothing says when it has begun.
VERBS = [["wait", "JOB", "--follow"], ["watch", "JOB"], ["logs", "JOB", "-f"],
         ["metrics", "JOB", "-f"]]


def test_followers_say_that_they_reconnect_and_that_they_are_back(daemon, tmp_path):
    (tmp_path / "spec.yaml").write_text(LONG)
    job = daemon.submit(LONG, "name=followed")
    daemon.wait_step(job, 5)
    followers = [Follower(daemon, *[job if word == "JOB" else word for word in verb]) for verb in VERBS]
    until("they follow", lambda: all(f.out for f in followers[1:]) and followers[0].said)
    daemon.kill()
    until("they say it", lambda: all("reconnecting for up to 10 min. The job goes on without it" in f.said for f in followers))
    assert all(f.process.poll() is None for f in followers)
    daemon.start()
    until("they are back", lambda: all("connected again" in f.said for f in followers))
    daemon.steer("Cancel", job)
    assert [f.end() for f in followers] == [1, 1, 0, 0]
    for f in followers:
        assert f.said.count("reconnecting") == f.said.count("connected again") == 1, f.said


def test_submit_that_follows_reconnects_too(daemon, tmp_path):
    (tmp_path / "spec.yaml").write_text(LONG)
    follower = Follower(daemon, "submit", str(tmp_path / "spec.yaml"), "--set", "trainer.max_steps=1500", "--follow")
    until("it runs", lambda: "RUNNING" in follower.said)
    daemon.restart()
    assert follower.end() == OK and "SUCCEEDED: step 1500" in follower.out
    assert follower.said.count("reconnecting") == follower.said.count("connected again") == 1


def test_followers_give_up_when_the_daemon_stays_away(daemon):
    job = daemon.submit(LONG)
    daemon.wait_step(job, 5)
    verbs = [[job if word == "JOB" else word for word in verb] + ["--reconnect", "1s"] for verb in VERBS]
    followers = [Follower(daemon, *verb) for verb in verbs]
    until("they follow", lambda: all(f.out for f in followers[1:]) and followers[0].said)
    daemon.kill()
    assert [f.end() for f in followers] == [5] * 4
    for f in followers:
        assert "gave up after 1 s (--reconnect); the job goes on without the daemon" in f.said, f.said
        assert f.said.count("reconnecting") == 1 and "connected again" not in f.said
    daemon.start()
    at = daemon.job(job).global_step
    daemon.wait_step(job, at + 5)  # it went on
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


def test_reconnect_takes_a_span(daemon):
    for bad in ("soon", "0s", "-1s", "10", "2000d"):
        assert "--reconnect takes a span" in daemon.ctl("wait", "x", "--reconnect", bad, check=USAGE).stderr
