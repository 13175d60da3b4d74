"""The launcher by itself: a fake rank as its child, a fake daemon beside it.

What is written stays written, ranks never outlive it, every stop ends in time.
"""
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import time

import pytest

from support import BIN, ROOT, until

WORKER = ROOT / "tests/tools/fake_worker.py"
HELLO, STATUS, STOP, SAVE = 1, 2, 3, 4
CHECKPOINT, NOW, KILL, ABORT = 1, 2, 3, 4


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Launcher:
    def __init__(self, folder, script, ranks=1, socket_path=None, wait=True, **more):
        self.dir = folder / "a1"
        self.dir.mkdir(exist_ok=True)
        (self.dir / "plan.json").write_text(json.dumps({"fake": script}))
        self.socket = socket_path or folder / "l.sock"
        options = {"dir": self.dir, "plan": self.dir / "plan.json", "job": "j-000000000001", "attempt": 1,
                   "epoch": 7, "world": ranks, "ranks": ranks, "worker": WORKER, "socket": self.socket}
        options.update({k.replace("_", "-"): v for k, v in more.items()})
        ours, theirs = os.pipe()
        argv = [BIN / "traind-launcher", "run", f"--ack-fd={theirs}"]
        argv += [f"--{k}" if v is True else f"--{k}={v}" for k, v in options.items()]
        env = dict(os.environ, NOT_FOR_RANKS="1")
        with open(self.dir / "launcher.log", "ab") as log:
            self.process = subprocess.Popen(argv, pass_fds=[theirs], stderr=log, start_new_session=True, env=env)
        os.close(theirs)
        with os.fdopen(ours) as ack:
            self.ack = json.loads(ack.readline())

    @property
    def events(self):
        return [json.loads(line) for line in (self.dir / "events.log").read_text().splitlines()]

    def event(self, name, deadline_s=20):
        find = lambda: next((e for e in self.events if e["event"] == name), None)
        return until(f"event {name} in {self.dir}", find, deadline_s)

    def ranks(self):
        return [e["pid"] for e in self.events if e["event"] == "ready"]

    def wait(self, timeout=30):
        assert self.process.wait(timeout) == 0
        return self.events[-1]

    def attach(self, stubs):
        return Daemon(json.loads((self.dir / "record.json").read_text())["socket"], stubs)


class Daemon:
    """Speaks the launcher's frames."""

    def __init__(self, path, stubs):
        self.stubs = stubs.launcher
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)

    def exactly(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def receive(self):
        size, kind, major = struct.unpack("<IHH", self.exactly(8))
        assert major == 1
        body = self.exactly(size)
        return kind, {HELLO: self.stubs.LauncherHello, STATUS: self.stubs.LauncherStatus}[kind].FromString(body)

    def send(self, kind, body=b"", major=1):
        self.socket.sendall(struct.pack("<IHH", len(body), kind, major) + body)

    def stop(self, mode, grace_ms=20000):
        self.send(STOP, self.stubs.LauncherStop(mode=mode, grace_ms=grace_ms).SerializeToString())

    def status(self, condition):
        while True:
            kind, m = self.receive()
            if kind == STATUS and condition(m):
                return m


@pytest.fixture
def launch(tmp_path):
    made = []

    def make(script, *args, **more):
        made.append(Launcher(tmp_path, script, *args, **more))
        return made[-1]

    yield make
    for l in made:
        if l.process.poll() is None:
            l.process.kill()
            l.process.wait()
        until("ranks end", lambda: not any(alive(p) for p in l.ranks()) if (l.dir / "events.log").exists() else True)


def test_attempt_writes_everything_when_its_ranks_succeed(launch):
    l = launch({"*": [["out", "hello\n"], ["err", "oops\n"], ["step", 1], ["step", 2],
                      ["event", "end", {"outcome": "done", "step": 2}], ["exit", 0]]}, ranks=2)
    assert l.ack == {"ready": True}
    end = l.wait()
    assert (end["event"], end["outcome"], end["class"]) == ("launcher_end", "done", "none")
    names = [e["event"] for e in l.events]
    assert names[0] == "launched" and names.count("ready") == 2 and names.count("rank_exit") == 2
    for rank in (0, 1):
        assert (l.dir / f"out.{rank}.log").read_text() == "hello\n"
        assert (l.dir / f"err.{rank}.log").read_text() == "oops\n"
        data = (l.dir / f"metrics.{rank}.seg").read_bytes()
        assert len(data) == 128 and data.startswith(b"train_loss\0")
        assert {"rank": rank, "real_ns": 0}.keys() <= next(e for e in l.events if e.get("rank") == rank).keys()
    assert not l.socket.exists()


# Contract 15: each rank has its environment
def test_rank_sees_a_scrubbed_environment_and_its_own_cores(launch):
    l = launch({"*": [["env"], ["exit", 0]]}, cores="0", threads=3, shared_cores=True)
    l.wait()
    seen = json.loads((l.dir / "out.0.log").read_text())
    assert "NOT_FOR_RANKS" not in seen
    assert seen["cores"] == [0] and seen["sid"] == l.ranks()[0]
    assert seen["OMP_NUM_THREADS"] == "3" and seen["OMP_WAIT_POLICY"] == "passive"


def test_each_rank_has_the_device_of_its_place_in_the_list(launch):
    l = launch({"*": [["env"], ["exit", 0]]}, ranks=2, devices="far-1,far-0")
    l.wait()
    assert [json.loads((l.dir / f"out.{r}.log").read_text())["device"] for r in (0, 1)] == ["far-1", "far-0"]


def test_daemon_sees_hello_and_status_and_stops_the_ranks(launch, stubs):
    l = launch({"0": [["step", 5], ["wait", "save"], ["wait"]], "*": [["step", 5], ["wait"]]}, ranks=2)  # one is asked
    d = l.attach(stubs)
    kind, hello = d.receive()
    assert kind == HELLO and (hello.major, hello.job, hello.attempt, hello.epoch, hello.n_ranks) == \
        (1, "j-000000000001", 1, 7, 2)
    status = d.status(lambda m: all(r.step == 5 and r.metrics_bytes == 64 for r in m.ranks))
    assert len(status.ranks) == 2 and status.events_bytes > 0
    d.send(SAVE)
    l.event("note")
    d.stop(CHECKPOINT)
    d.status(lambda m: m.ended)
    end = l.wait()
    assert end["outcome"] == "stopped" and end["class"] == "none"
    stop = l.event("stop")
    assert (stop["mode"], stop["why"]) == ("checkpoint", "node")


# Contract 15: one failure ends all ranks
def test_peers_are_freed_when_a_rank_is_killed(launch):
    words = "last words of one" + 600 * "é"  # the page ends in the middle of the last letter
    l = launch({"0": [["step", 3], ["wait"]], "1": [["words", words], ["step", 3], ["wait"]]}, ranks=2)
    until("both run", lambda: len(l.ranks()) == 2)
    victim = next(e for e in l.events if e["event"] == "ready" and e["rank"] == 1)["pid"]
    until("rank 1 steps", lambda: (l.dir / "metrics.1.seg").stat().st_size == 64)
    os.kill(victim, signal.SIGKILL)
    end = l.wait()
    exits = {e["rank"]: e for e in l.events if e["event"] == "rank_exit"}
    assert exits[1]["signal"] == 9 and exits[1]["step"] == 3
    assert exits[1]["last_words"] == words[:17 + (1024 - 17) // 2] + "\ufffd"
    assert exits[0]["code"] == 31 and exits[0]["class"] == "collective"
    assert end["outcome"] == "failed" and end["rank"] == 1 and end["class"] == "killed"
    assert "signal 9" in end["message"] and "memory" in end["message"]


def test_first_error_is_the_ranks_own_word(launch):
    l = launch({"0": [["wait"]], "1": [["event", "end", {"outcome": "failed", "class": "data", "code": "DATA_LOSS",
                                                         "message": "t10k: truncated"}], ["exit", 40]]}, ranks=2)
    end = l.wait()
    assert (end["rank"], end["class"], end["code"], end["message"]) == (1, "data", "DATA_LOSS", "t10k: truncated")


@pytest.mark.parametrize("script, cls, text", [
    ([["exit", 32]], "disk", "exit code 32"),
    ([["exit", 3]], "internal", "exit code 3"),
    ([["signal", "SIGSEGV"]], "internal", "signal 11 (SEGV)"),
])
def test_silent_end_has_a_class(launch, script, cls, text):
    end = launch({"*": script}).wait()
    assert end["class"] == cls and text in end["message"]


STEPS = [["total", 128], ["step", 38]]
STOPPED = {"outcome": "stopped", "step": 38}


@pytest.mark.parametrize("script, outcome, words", [
    (STEPS + [["leave", 0]], "failed", "left at step 38 of 128 with code 0"),
    (STEPS + [["close"], ["leave", 0]], "failed", "left at step 38 of 128 with code 0"),
    (STEPS + [["leave", 10]], "failed", "left at step 38 of 128 with code 10"),
    ([["leave", 0]], "failed", "left at step 0 with code 0"),
    (STEPS + [["event", "end", {"outcome": "done", "step": 38}], ["leave", 0]], "done", ""),
    (STEPS + [["close"], ["phase", 6], ["leave", 0]], "done", ""),
    (STEPS + [["event", "end", STOPPED], ["leave", 10]], "stopped", ""),
], ids=["0", "0 without descriptors", "10", "0 at once", "the event", "the phase", "10 and the event"])
def test_worker_left_in_the_middle_with_code_0_and_the_job_had_succeeded(launch, script, outcome, words):
    end = launch({"*": script}).wait()
    assert (end["outcome"], end["class"]) == (outcome, "user_code" if words else "none") and words in end["message"]


def test_peer_of_a_worker_that_leaves_is_freed_and_not_blamed(launch):
    l = launch({"0": STEPS + [["wait"]], "1": STEPS + [["leave", 0]]}, ranks=2)
    end = l.wait()
    assert (end["rank"], end["class"]) == (1, "user_code")
    assert next(e for e in l.events if e["event"] == "rank_exit" and e["rank"] == 0)["class"] == "collective"


def test_code_10_after_a_stop_word_is_a_stop(launch, stubs):
    l = launch({"*": STEPS + [["until", "stop"], ["leave", 10]]})
    l.event("ready")
    l.attach(stubs).stop(CHECKPOINT)
    assert l.wait()["outcome"] == "stopped"


def test_rank_that_does_not_stop_is_killed_in_time(launch, stubs):
    l = launch({"*": [["hang"]]})
    l.event("ready")
    l.attach(stubs).stop(CHECKPOINT, grace_ms=300)  # received, although the daemon leaves at once
    end = l.wait()
    assert end["outcome"] == "killed" and end["class"] == "stuck"


def test_fenced_attempt_is_killed_at_once(launch, stubs):
    l = launch({"*": [["hang"]]}, ranks=2)
    l.event("ready")
    l.attach(stubs).stop(KILL)
    assert l.wait()["outcome"] == "killed"


# ---- the word that another part of the attempt has failed ---------------------------------------
def took_s(first, last):
    """By the launcher's own clock, between two of its lines."""
    return (last["real_ns"] - first["real_ns"]) / 1e9


def stops(l):
    return [e["mode"] for e in l.events if e["event"] == "stop"]


def test_abort_is_passed_on_at_once(launch, stubs):
    l = launch({"*": [["wait", "abort"]]}, ranks=2)
    until("both run", lambda: len(l.ranks()) == 2)
    l.attach(stubs).stop(ABORT)
    end = l.wait()
    exits = [e for e in l.events if e["event"] == "rank_exit"]
    assert [(e["code"], e["class"]) for e in exits] == [(31, "collective")] * 2
    assert (end["outcome"], end["class"]) == ("failed", "collective")
    assert stops(l) == ["abort"] and took_s(l.event("stop"), end) < 2, "of a grace of 20 s"


def test_rank_that_does_not_obey_an_abort_is_killed_after_its_grace(launch, stubs):
    l = launch({"0": [["wait", "abort"]], "1": [["hang"]]}, ranks=2)
    until("both run", lambda: len(l.ranks()) == 2)
    l.attach(stubs).stop(ABORT, grace_ms=500)
    l.wait()
    exits = {e["rank"]: e for e in l.events if e["event"] == "rank_exit"}
    assert exits[0]["code"] == 31 and exits[1]["signal"] == 9
    assert exits[1]["class"] == "collective" and "killed after a peer failed" in exits[1]["message"]
    assert 0.5 <= took_s(l.event("stop"), exits[1]) < 2


def test_weaker_stop_after_an_abort_changes_nothing(launch, stubs):
    l = launch({"*": [["wait", "save"], ["asked"], ["hang"]]})
    l.event("ready")
    d = l.attach(stubs)
    d.stop(ABORT, grace_ms=1000)
    d.stop(CHECKPOINT, grace_ms=0)
    d.stop(NOW, grace_ms=0)
    d.send(SAVE)  # frames are obeyed in their order: by then both stops were
    end = l.wait()
    assert [e["text"] for e in l.events if e["event"] == "note"][-1] == "stop 0, abort 1"
    assert stops(l) == ["abort"] and took_s(l.event("stop"), end) >= 1, "its grace is still that of the abort"
    assert (end["outcome"], end["class"]) == ("failed", "collective")


def test_abort_takes_over_from_a_weaker_stop(launch, stubs):
    l = launch({"*": [["wait", "save"], ["asked"], ["wait", "save"], ["asked"], ["hang"]]})
    l.event("ready")
    d = l.attach(stubs)
    d.stop(CHECKPOINT, grace_ms=20000)
    d.send(SAVE)
    asked = lambda n: [e["text"] for e in l.events if e["event"] == "note" and "abort" in e["text"]][n:]
    until("it has seen the first", lambda: asked(0))
    d.stop(ABORT, grace_ms=500)
    d.send(SAVE)
    end = l.wait()
    assert asked(0) == ["stop 1, abort 0", "stop 1, abort 1"]
    assert stops(l) == ["checkpoint", "abort"]
    abort = [e for e in l.events if e["event"] == "stop"][1]
    assert 0.5 <= took_s(abort, end) < 2, "of a grace of 20 s"
    assert (end["outcome"], end["class"]) == ("failed", "collective")


@pytest.mark.parametrize("comes", [True, False])
def test_abort_holds_for_a_rank_that_is_still_starting(launch, stubs, tmp_path, comes):
    go, slow = tmp_path / "go", tmp_path / "slow-worker"
    slow.write_text(f'#!/bin/bash\nwhile [ ! -e "{go}" ]; do sleep 0.01; done\nexec "{WORKER}" "$@"\n')
    slow.chmod(0o755)
    l = launch({"*": [["wait", "abort"]]}, worker=slow)
    l.attach(stubs).stop(ABORT, grace_ms=20000 if comes else 500)
    l.event("stop")
    assert not l.ranks()
    if comes:
        go.touch()
    end = l.wait()
    left = l.event("rank_exit")
    assert (left["code"], left["signal"]) == ((31, 0) if comes else (-1, 9)), left
    assert (end["outcome"], end["class"]) == ("failed", "collective")
    assert comes or took_s(l.event("stop"), end) < 2


def test_ranks_die_with_the_launcher(launch):
    l = launch({"*": [["hang"]]}, ranks=2)
    until("both run", lambda: len(l.ranks()) == 2)
    l.process.kill()
    l.process.wait()
    until("ranks die", lambda: not any(alive(p) for p in l.ranks()), 10)
    assert l.events[-1]["event"] != "launcher_end"


def test_children_of_a_rank_do_not_outlive_it(launch):
    l = launch({"*": [["spawn"], ["env"], ["exit", 0]]})
    l.wait()
    session = json.loads((l.dir / "out.0.log").read_text())["sid"]
    left = [p for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and alive(p.name)
            and p.joinpath("stat").read_text().rsplit(")", 1)[1].split()[3] == str(session)]
    assert not left


def test_daemon_may_come_back_or_be_replaced(launch, stubs):
    l = launch({"*": [["wait"]]})
    first = l.attach(stubs)
    assert first.receive()[0] == HELLO
    second = l.attach(stubs)
    assert second.receive()[0] == HELLO
    with pytest.raises(EOFError):
        while True:
            first.receive()
    second.socket.sendall(b"\xff" * 64)  # nonsense: dropped, the attempt goes on
    with pytest.raises((EOFError, ConnectionError)):
        while True:
            second.receive()
    third = l.attach(stubs)
    third.send(STOP, b"\xff\xff", major=1)
    third.send(STOP, b"", major=9)
    third.stop(NOW)
    assert l.wait()["outcome"] == "stopped"


def test_orphan_stops_with_a_checkpoint(launch):
    l = launch({"*": [["wait"]]}, orphan_timeout=1)
    assert l.wait()["outcome"] == "stopped"
    assert l.event("stop")["why"] == "orphan"


def test_sigterm_stops_with_a_checkpoint(launch):
    l = launch({"*": [["wait"]]})
    l.event("ready")
    l.process.send_signal(signal.SIGTERM)
    assert l.wait()["outcome"] == "stopped"


def test_output_beyond_the_cap_is_dropped_and_counted(launch):
    mib = 1 << 20
    l = launch({"*": [["out", "x" * 1023 + "\n", 60 * 1024], ["err", "y" * (8 * mib)], ["exit", 0]]})
    l.wait(60)
    out, err = ((l.dir / f"{name}.0.log").read_bytes() for name in ("out", "err"))
    dropped = l.event("rank_exit")["dropped_bytes"]
    assert 63.9 * mib < len(out) + len(err) <= 64 * mib and err.count(b"y") > 7.9 * mib
    assert abs(60 * mib - out.count(b"x\n") * 1024 - dropped) < 1024 and len(err) == 8 * mib  # a line was cut
    assert b"bytes past the log cap are left out here]\nxx" in out and out.endswith(b"x\n")


def test_bad_events_become_notes(launch):
    l = launch({"*": [["raw", "not json"], ["raw", "[1]"], ["raw", '{"event":"launcher_end","outcome":"done"}'],
                      ["raw", '{"event":"note","text":"fine"}'], ["exit", 3]]})
    assert l.wait()["outcome"] == "failed"
    assert [e["text"] for e in l.events if e["event"] == "note"][3] == "fine"
    assert [e["event"] for e in l.events].count("launcher_end") == 1, "a rank cannot say how it all ended"


def test_second_launcher_is_refused_naming_the_holder(launch):
    l = launch({"*": [["wait"]]})
    other = launch({"*": [["wait"]]})
    assert str(l.process.pid) in other.ack["message"] and other.process.wait(10) == 1
    assert l.process.poll() is None


def test_stale_socket_is_cleaned_and_a_long_path_shortened(launch, tmp_path):
    stale = tmp_path / "l.sock"
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(stale))
    s.close()
    l = launch({"*": [["wait"]]})
    assert l.ack == {"ready": True}
    l.process.send_signal(signal.SIGTERM)
    l.wait()
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    l = launch({"*": [["wait"]]}, socket_path=deep / "l.sock")
    used = json.loads((l.dir / "record.json").read_text())["socket"]
    assert len(used) < 108 and pathlib.Path(used).is_socket()
    l.process.send_signal(signal.SIGTERM)
    l.wait()
    assert not pathlib.Path(used).exists()


@pytest.mark.parametrize("more, text", [
    ({"shared_bytes": 1 << 30, "memory_limit": 1 << 20}, "shared memory alone"),
    ({"worker": "/nowhere/traind-worker"}, None),
    ({"cores": "0-x"}, "list of cores"),
    ({"threads": 0}, "--threads"),
    ({"devices": "far-0,far-1"}, "does not name one device for each of 1 ranks"),
    ({"devices": "far 0"}, "does not name one device"),
])
def test_what_cannot_start_says_why(launch, more, text):
    l = launch({"*": [["exit", 0]]}, **more)
    if text is None:  # found out by the rank itself, after the start
        assert l.wait()["class"] == "internal"
        assert "No such file" in (l.dir / "err.0.log").read_text()
    else:
        assert text in l.ack["message"] and l.process.wait(10) == 1


def test_launcher_stays_small(launch):
    l = launch({"*": [["out", "x" * 1024, 4096]] + [["step", i] for i in range(1, 3000)] + [["wait"]]}, ranks=2)
    until("metrics", lambda: (l.dir / "metrics.1.seg").stat().st_size == 2999 * 64)
    rss_kib = int(next(line for line in pathlib.Path(f"/proc/{l.process.pid}/status").read_text().splitlines()
                       if line.startswith("VmRSS")).split()[1])
    assert rss_kib <= 4096, rss_kib
