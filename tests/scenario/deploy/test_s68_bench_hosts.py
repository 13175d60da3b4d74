"""The bench's part `hosts` gives a figure for each of its rows. How large they are is the bench's to judge, on a quiet
machine; only what is counted is looked at here. `make check` runs one row, check-full all."""
import json
import subprocess
import sys

import pytest

import hosts as net
from marks import full_only
from support import BUILD, ROOT

ROWS = {"first": ["CreateJob to the first step"],
        "all_reduce": ["all_reduce of 43 MB", "all_reduce of 1 MB", "all_reduce of 16 KB"],
        "bytes": ["bytes that a node sends"],
        "exposed": ["exposed communication of a gpt 10.8M step at 1 Gbit/s", "exposed communication"],
        "idle": ["CPU of an idle node session"],
        "killed": ["SIGKILL to a peer to the attempt's end", "SIGKILL to a peer to the next", "SIGKILL to all of a host to the attempt's",
                   "SIGKILL to all of a host to the next"]}


@pytest.fixture(autouse=True)
def namespaces():
    """Skips where there are none."""
    net.Network().close()


@pytest.mark.alone
@pytest.mark.parametrize("part", [p if p == "first" else pytest.param(p, marks=full_only) for p in ROWS])
def test_each_row_has_a_figure(part, request):
    torch = request.getfixturevalue("torch_python") if part == "all_reduce" else "none"
    done = subprocess.run([sys.executable, ROOT / "tests/bench/bench.py", "--build", BUILD, "--only", f"hosts-{part}", "--rounds", "1",
                           "--wait", "0", "--torch", torch], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == len(ROWS[part]), done.stdout
    for row, name in zip(rows, ROWS[part]):
        assert row["name"].startswith(f"hosts: {name}") and row["n"] >= 1 and row["median"] > 0, row
        assert not str(row["verdict"]).startswith("failed"), row
    if part == "all_reduce":
        assert all(row["rival_median"] > 0 for row in rows), rows
    if part == "bytes":
        assert 0.98 <= rows[0]["median"] <= 1.02, rows
