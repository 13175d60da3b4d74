"""The bench's harness: a row that fails or hangs says why, leaves no process, and the rows after it follow."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"
sys.path.insert(0, str(BENCH.parent))
import support  # noqa: E402

# Parts of a bench of its own; `left` lists the processes that must not outlive their row.
SCRIPT = r'''
import subprocess, sys, time
build, left = sys.argv[1:3]
sys.argv = ["bench.py", "--build", build, "--rounds", "1", "--wait", "0"]
sys.path.insert(0, {bench!r})
import bench, guard, harness
from harness import Row, emit

def good(folder, torch):
    with Row("good", "s"):
        emit("good", [1.0], "s")

def raises(folder, torch):
    with Row("raises", "s"):
        emit("raises first", [1.0], "s")
        subprocess.Popen(["sh", "-c", "echo $$ >> %s; sleep 600" % left])
        time.sleep(0.3)
        raise ValueError("no such thing,\nhere")
    good(folder, torch)

def hangs(folder, torch):
    with Row("hangs", "s", 1):
        # a session of its own, whose parent has ended: only the folder on its command line says whose it is
        subprocess.run(["sh", "-c", "setsid sh -c 'echo $$ >> %s; sleep 600' %s/state > /dev/null &" % (left, folder)])
        subprocess.run(["sleep", "600"])
    good(folder, torch)

def runs(folder, torch):
    with Row("status", "s"):
        ran = harness.Ran(["sh", "-c", "echo broken pipe >&2; exit 3"], None, folder, quiet=False)
        emit("status", ran.values("x"), "s")
    with Row("slow", "s"):
        ran = harness.Ran(["sh", "-c", "echo $$ >> %s; sleep 600" % left], None, folder, 0.5, quiet=False)
        emit("slow", ran.values("x"), "s")
    with Row("rival", "s"):
        harness.Ran(["sh", "-c", "exit 4"], None, folder, quiet=False, rival=True)
        emit("rival", [2.0], "s", [])
    good(folder, torch)

def rounds(folder, torch):
    row = guard.Guard("rounds", 1)
    with row:
        figures = [1.0]
    with row:
        time.sleep(600)
    with row:
        emit("rounds", figures, "s")

def outside(folder, torch):
    raise RuntimeError("nothing to measure")

bench.parts = lambda: dict(raises=raises, hangs=hangs, runs=runs, rounds=rounds, outside=outside, good=good)
bench.main()
'''


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(rows in order, the table, processes that the rows had started)"""
    folder = tmp_path_factory.mktemp("bench")
    worker = folder / "build/bin/traind-worker"
    worker.parent.mkdir(parents=True)
    worker.write_text('#!/bin/sh\necho \'{"accelerator":"cpu","build":"oneDNN 2.6.3, avx2, caches 32"}\'\n')
    worker.chmod(0o755)
    left = folder / "left"
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRAIND_")}
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", SCRIPT.replace("{bench!r}", repr(str(BENCH))), folder / "build", left],
                          capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 60
    rows, _, table = done.stdout.partition("\n\n")
    return [json.loads(x) for x in rows.splitlines()], table.splitlines(), [int(x) for x in left.read_text().split()]


def of(ran, name):
    found = [r for r in ran[0] if r["name"] == name]
    assert len(found) == 1, ran[0]
    return found[0]


@pytest.mark.parametrize("name, why", [
    ("raises", "failed: ValueError: no such thing, here"),
    ("hangs", "failed: no end within 1 s"),
    ("status", "failed: sh -c: status 3: broken pipe"),
    ("slow", "failed: sh -c: no end within 0.5 s"),
    ("rounds", "failed: no end within 1 s"),
    ("outside", "failed: RuntimeError: nothing to measure"),
])
def test_row_says_why_when_it_fails_or_hangs(ran, name, why):
    assert of(ran, name)["verdict"] == why
    assert [line for line in ran[1] if line.startswith(f"{name} ") and line.endswith(why)], ran[1]


def test_rows_follow_when_one_before_them_failed(ran):
    assert [r["name"] for r in ran[0]] == ["raises first", "raises", "good", "hangs", "good", "status", "slow", "rival", "good",
                                           "rounds", "outside", "good"]
    assert [r["median"] for r in ran[0] if r["name"] == "good"] == [1.0] * 4
    assert all(r["machine"].startswith(f"{os.cpu_count()} ") for r in ran[0])


def test_figures_of_the_rounds_before_are_kept_when_a_later_round_hangs(ran):
    assert of(ran, "rounds")["median"] == 1.0


def test_rival_that_fails_is_distinguished_from_one_that_is_not_there(ran):
    row = of(ran, "rival")
    assert row["rival_median"] == "failed" and "status 4" in row["rival_why"] and row["median"] == 2.0
    assert not row["verdict"].startswith("failed")


def test_nothing_that_a_row_started_outlives_it_when_it_fails(ran):
    assert len(ran[2]) == 3
    assert [pid for pid in ran[2] if support.alive(pid)] == []
