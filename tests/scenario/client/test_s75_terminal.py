"""Tables on terminals of every width, real ones (a pty), and with none; output that is closed."""
import json
import os
import re
import signal
import subprocess

import pytest

from support import BIN, LONG, SPEC
from terminals import on_terminal, read_all, resize, terminal

OK, TIMEOUT, CONFLICT = 0, 6, 7
CONTROL = r"[\x00-\x09\x0b-\x1f\x7f-\x9f]"
LONG_NAME = "a-rather-long-name-of-a-job-that-somebody-gave-it"


def shown(daemon, columns, *args, **env):
    return on_terminal(daemon, *args, columns=columns, **{"TERM": "xterm", **env}).decode()


@pytest.fixture
def some(daemon):
    """A daemon with a job that has succeeded, and one that was cancelled for a long reason."""
    job = daemon.submit(SPEC, f"name={LONG_NAME}")
    daemon.finish(job)
    other = daemon.submit(LONG)
    daemon.ctl("cancel", other, "--reason", 20 * "the machine was wanted ", check=OK)
    daemon.wait_state(other, "CANCELLED")
    return daemon, job, other


TABLES = (["list"], ["node", "list"], ["checkpoint", "list", "JOB"], ["plugins"], ["token", "list"],
          ["metrics", "JOB"], ["metrics", "JOB", "train_loss_step", "--points", "4"], ["context", "list"])


def test_no_table_is_wider_than_its_terminal(some):
    daemon, job, _ = some
    for args in TABLES:
        args = [job if a == "JOB" else a for a in args]
        whole = daemon.ctl(*args, check=OK).stdout
        for columns in (20, 40, 0, 80, 200):
            room = columns or 80
            text = shown(daemon, columns, *args)
            assert not re.search(CONTROL, text), (args, text)
            lines = text.splitlines()
            least = len(job + LONG_NAME + "SUCCEEDED") + 4 if args == ["list"] else 0  # which stay whole
            assert max(map(len, lines)) <= max(room, least), (args, columns, text)
            assert len(lines) == len(whole.splitlines()), (args, columns)
            assert lines == [line.rstrip() for line in lines], (args, columns)
        assert shown(daemon, 40, *args, "-o", "wide") == daemon.ctl(*args, "-o", "wide", check=OK).stdout


def test_narrow_list_keeps_what_matters_and_marks_what_it_cuts(some):
    daemon, job, other = some
    narrow = shown(daemon, 40, "list", LC_ALL="C").splitlines()
    assert narrow[0].split() == ["ID", "NAME", "STATE"] and narrow[1].split() == [other, "long", "CANCELLED"]
    assert narrow[2].split() == [job, LONG_NAME, "SUCCEEDED"], "names and ids stay whole"
    middle = shown(daemon, 100, "list", LC_ALL="C.UTF-8").splitlines()
    assert "REASON" in middle[0] and middle[1].endswith("…") and "cancelled: the" in middle[1]
    assert LONG_NAME in middle[2] and job in middle[2]
    reason = daemon.ctl_json("describe", other)["reason"]["text"]
    for text in (daemon.ctl("list", check=OK).stdout, shown(daemon, 40, "list", "-o", "wide")):
        assert reason.strip() in text and LONG_NAME in text


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, {"TERM": ""}])
def test_plain_terminals_get_plain_text(some, env):
    daemon, job, _ = some
    for args in (["list"], ["describe", job], ["wait", job]):
        assert not re.search(CONTROL, shown(daemon, 80, *args, **env)), args


def test_table_of_a_terminal_that_was_resized_has_its_new_width(some):
    daemon, job, _ = some
    env = {**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir)}
    with terminal(200) as (ours, theirs):
        for columns in (200, 60):
            resize(theirs, columns)
            subprocess.run([BIN / "trainctl", "checkpoint", "list", job], stdout=theirs, check=True, env=env, timeout=30)
            widest = max(map(len, os.read(ours, 65536).decode().splitlines()))
            assert (60 if columns == 200 else 30) < widest <= columns


def test_a_terminal_shows_the_newest_100_and_says_how_to_see_all(daemon):
    jobs = [daemon.submit(LONG) for _ in range(102)][::-1]
    lines = shown(daemon, 120, "list").splitlines()
    assert lines[0] == "trainctl: only the first 100 are shown; --limit 0 shows all"
    assert [line.split()[0] for line in lines[2:]] == jobs[:100]
    assert len(shown(daemon, 120, "list", "--limit", "0").splitlines()) == 103
    assert len(daemon.ctl("list", check=OK).stdout.splitlines()) == 103
    few = daemon.ctl("list", "-o", "json", "--limit", "3", check=OK)
    assert [job["id"] for job in json.loads(few.stdout)["jobs"]] == jobs[:3] and json.loads(few.stdout)["next_page_token"]
    assert few.stderr == "trainctl: only the first 3 are shown; --limit 0 shows all\n"


def test_output_closed_in_the_middle_is_no_failure(some):
    """The exit code was 141, which `set -o pipefail` took for a failure."""
    daemon, job, _ = some
    env = {**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir)}
    for args in (["list"], ["describe", job], ["metrics", job, "train_loss_step"], ["list", "-o", "json"]):
        ours, theirs = os.pipe()
        os.close(ours)
        ran = subprocess.run([BIN / "trainctl", *args], stdout=theirs, stderr=subprocess.PIPE, env=env, timeout=30)
        os.close(theirs)
        assert (ran.returncode, ran.stderr) == (OK, b""), args


def test_follow_of_a_dumb_terminal_has_no_bar(daemon):
    job = daemon.submit(LONG)
    daemon.wait_step(job, 1)
    seen = on_terminal(daemon, "wait", job, "--follow", "--timeout", "2", exits=(TIMEOUT,), TERM="dumb").decode()
    assert "RUNNING" in seen and not re.search(CONTROL, seen), seen


def test_ctrl_c_on_a_terminal_leaves_the_job_and_a_clean_line(daemon):
    job = daemon.submit(LONG)
    daemon.wait_step(job, 1)
    env = {**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir), "TERM": "xterm", "NO_COLOR": "1"}
    with terminal(40) as (ours, theirs):
        ran = subprocess.Popen([BIN / "trainctl", "wait", job, "--follow"], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        seen = ""
        while "step" not in seen:
            seen += os.read(ours, 65536).decode()
        ran.send_signal(signal.SIGINT)
        seen += read_all(ours).decode()
        assert ran.wait(30) in (-signal.SIGINT, 130)
    assert f"{job} goes on" in seen
    bars = [bar for line in seen.split("\n") for bar in line.replace("\x1b[K", "").split("\r") if "loss" in bar]
    assert bars and max(map(len, bars)) < 40
    assert all(re.search(r"step \d+(/\d+)? loss \d+(\.\d+)?$", bar) for bar in bars), bars  # no number is cut
    assert json.loads(daemon.ctl("describe", job, "-o", "json", check=OK).stdout)["state"] == "RUNNING"


def test_delete_with_force_cancels_what_is_in_the_way(daemon):
    first = daemon.submit(SPEC)
    daemon.finish(first)
    path = daemon.ctl_json("checkpoint", "list", first)["checkpoints"][0]["directory"]
    follows = daemon.submit(SPEC, f"ckpt_path={path}", "trainer.max_epochs=-1", "checkpoint.save_top_k=1")
    daemon.wait_step(follows, 50)
    running = daemon.submit(LONG)
    daemon.wait_step(running, 1)
    refused = daemon.ctl("delete", running, check=CONFLICT).stderr
    assert running in refused and "--force" in refused
    in_use = daemon.ctl("delete", first, check=CONFLICT).stderr
    assert follows in in_use and "--force" in in_use
    assert "deleted" in daemon.ctl("delete", running, "--force", check=OK).stdout
    ran = daemon.ctl("delete", first, "--force", check=OK)
    assert f"{first} deleted" in ran.stdout and f"{follows} is cancelled" in ran.stderr
    assert daemon.state(follows) == "CANCELLED"
    assert daemon.ctl("list", "-o", "name", check=OK).stdout.split() == [follows]
    assert "deleted" in daemon.ctl("delete", follows, "--force", check=OK).stdout
