"""`trainctl top`: once, and on a terminal that it takes and gives back."""
import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest

from support import BIN, LONG, SPEC, spec_file, until
from terminals import resize

OK, UNAVAILABLE = 0, 5
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture
def job(daemon):
    job = daemon.submit(LONG, "name=busy")
    daemon.wait_step(job, 20)
    yield job
    if daemon.process.poll() is None:
        daemon.steer("Cancel", job)
        daemon.wait_state(job, "CANCELLED")


def rows_of(text, heading):
    """Lines below a heading, as lists of words."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(heading))
    below = lines[at + 1:]
    return [line.split() for line in below[:below.index("") if "" in below else None]]


# ---- once --------------------------------------------------------------------------------------

def test_page_shows_nodes_and_jobs_that_run(daemon, job, tmp_path):
    daemon.wait_step(job, 20)
    until("its speed is known", lambda: daemon.job(job).progress.samples_per_s > 0)
    text = daemon.ctl("top", check=OK).stdout  # no terminal: once
    node, = rows_of(text, "NODE")
    slots = daemon.nodes()[0]
    planned = daemon.ctl_json("plan", spec_file(tmp_path, LONG))["memory_bytes"]
    assert slots.memory_used_bytes >= int(planned) > 1 << 20
    assert re.fullmatch(rf"{slots.memory_used_bytes / 2**20:.1f} MiB/[0-9.]+ GiB", " ".join(node[4:]))
    assert node[:4] == [slots.name[:20], "READY", f"{slots.slots_used}/{slots.slots}", "1"] and "iB" in text
    shown, = rows_of(text, "JOB")
    id, name, state, used, epoch, step, loss, rate = shown[:8]
    assert (id, name, state, used) == (job, "busy", "RUNNING", "1")
    assert int(step) >= 20 and float(loss) > 0 and re.fullmatch(r"[\d.]+[kMG]?", rate)
    assert re.match(r"traind \S+ at 127.0.0.1:\d+, up [\d:]+: 1 running, 0 queued, slots 1 of \d+\n", text)
    assert "\x1b" not in text


def test_page_has_only_jobs_with_ranks_and_says_how_many_wait(daemon, job):
    done = daemon.submit(SPEC, "trainer.max_steps=2")
    daemon.finish(done)
    slots = daemon.nodes()[0].slots
    waits = daemon.submit(LONG, f"trainer.devices={slots}")
    text = daemon.ctl("top", "--once", check=OK).stdout
    assert [row[0] for row in rows_of(text, "JOB")] == [job] and "1 running, 1 queued" in text
    assert daemon.ctl("top", "-o", "name", check=OK).stdout == f"{job}\n"
    found = daemon.ctl_json("top")
    assert [j["id"] for j in found["jobs"]["jobs"]] == [job] and found["nodes"]["nodes"][0]["state"] == "READY"
    assert found["cluster"]["jobs_queued"] == 1
    daemon.steer("Cancel", waits)
    daemon.wait_state(waits, "CANCELLED")


def test_top_without_a_daemon_takes_no_terminal(daemon):
    daemon.kill(signal.SIGTERM)
    with Screen(daemon) as screen:
        assert screen.end() == UNAVAILABLE and ENTER not in screen.seen and "traind &" in screen.seen
    daemon.start()


# ---- a terminal --------------------------------------------------------------------------------

class Screen:
    """trainctl top on a terminal of its own, and what it has written there."""

    def __init__(self, daemon, *args, columns=110, rows=24, term="xterm"):
        self.ours, self.theirs = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.theirs)
        env = {**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir), "TERM": term}
        # A session whose terminal it is, so that keys are signals.
        self.process = subprocess.Popen(
            [BIN / "trainctl", "top", *args], env=env, stdin=self.theirs, stdout=self.theirs, stderr=self.theirs,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)

    def resize(self, columns, rows):
        resize(self.theirs, columns, rows)

    def read(self, wait_s=0.05):
        while select.select([self.ours], [], [], wait_s)[0]:
            with contextlib.suppress(OSError):
                self.seen += os.read(self.ours, 65536).decode()
            wait_s = 0
        return self.seen

    def frames(self):
        """Whole frames, without what clears the screen."""
        parts = self.read().split("\x1b[H")[1:]
        return [p.split("\x1b[J")[0].replace("\x1b[K", "").replace("\r\n", "\n") for p in parts if "\x1b[J" in p]

    def until(self, what, condition):
        return until(what, lambda: condition(self.frames()))

    def key(self, key):
        os.write(self.ours, key)

    def end(self):
        deadline = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
        self.process.wait(1)
        self.read()
        return self.process.returncode

    def is_given_back(self):
        """The last thing it did was to leave the alternate screen, and modes are as they were."""
        modes = termios.tcgetattr(self.theirs)
        return self.seen.count(ENTER) == self.seen.count(LEAVE) >= 1 and self.seen.rindex(LEAVE) > self.seen.rindex(ENTER) \
            and "\x1b[?25h" in self.seen[self.seen.rindex("\x1b[?25l"):] and modes[:4] == self.before[:4]


def steps(frames):
    return [int(rows_of(f, "JOB")[0][5]) for f in frames if rows_of(f, "JOB")]


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_page_moves_until_a_key_ends_it(daemon, job, key):
    with Screen(daemon) as screen:
        found = screen.until("steps move", lambda frames: len(set(steps(frames))) > 2 and steps(frames))
        assert found == sorted(found)
        assert not termios.tcgetattr(screen.theirs)[3] & (termios.ICANON | termios.ECHO)
        screen.key(key)
        assert screen.end() == OK and screen.is_given_back()


def test_terminal_is_given_back_at_sigterm(daemon, job):
    with Screen(daemon) as screen:
        screen.until("it is drawn", bool)
        screen.process.send_signal(signal.SIGTERM)
        assert screen.end() == -signal.SIGTERM and screen.is_given_back()


def test_terminal_is_given_back_while_it_is_stopped(daemon, job):
    state = lambda: pathlib.Path(f"/proc/{screen.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    with Screen(daemon) as screen:
        screen.until("it is drawn", bool)
        screen.key(b"\x1a")
        until("it is stopped", lambda: screen.read() and state() == "T")
        screen.read()
        assert screen.is_given_back()
        drawn = len(screen.frames())
        screen.process.send_signal(signal.SIGCONT)
        screen.until("it is drawn again", lambda frames: len(frames) > drawn + 1)
        assert screen.seen.count(ENTER) == 2
        screen.key(b"q")
        assert screen.end() == OK and screen.is_given_back()


def test_page_follows_the_size_of_the_terminal(daemon, job):
    with Screen(daemon, columns=40, rows=8) as screen:
        frame, *_ = screen.until("it is drawn", lambda frames: frames)
        assert max(map(len, frame.splitlines())) <= 40 and len(frame.splitlines()) <= 8
        (shown_id, step, loss), = rows_of(frame, "JOB")
        assert shown_id == job and step.isdecimal() and float(loss) > 0 and "JOB                      STEP  STEP LOSS" in frame
        screen.resize(120, 24)
        screen.process.send_signal(signal.SIGWINCH)
        screen.until("it is wide", lambda frames: "SAMPLES/S" in frames[-1] and "ETA" in frames[-1])
        screen.key(b"q")
        assert screen.end() == OK and screen.is_given_back()


def test_terminal_that_obeys_no_control_characters_gets_one_page(daemon, job):
    with Screen(daemon, term="dumb", columns=60) as screen:
        assert screen.end() == OK and "\x1b" not in screen.seen and job in screen.seen
        assert max(map(len, screen.seen.replace("\r", "").splitlines())) <= 60


def test_last_page_stays_while_the_daemon_is_away(daemon, job):
    with Screen(daemon) as screen:
        screen.until("it is drawn", lambda frames: steps(frames))
        daemon.kill()
        screen.until("it says so", lambda frames: "does not answer since" in frames[-1] and job in frames[-1])
        daemon.start()
        screen.until("it is back", lambda frames: "does not answer" not in frames[-1])
        screen.key(b"q")
        assert screen.end() == OK and screen.is_given_back()


def test_it_gives_up_when_the_daemon_stays_away(daemon, job):
    with Screen(daemon, "--reconnect", "1s") as screen:
        screen.until("it is drawn", bool)
        daemon.kill()
        assert screen.end() == UNAVAILABLE and screen.is_given_back()
        assert "gave up after 1 s (--reconnect)" in screen.seen[screen.seen.rindex(LEAVE):], "where it can be read"
    daemon.start()
