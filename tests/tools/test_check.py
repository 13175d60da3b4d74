"""The test runner itself: what counts as passed, failed and skipped. A runner that overlooks a
failure makes every other test worthless, so its judgement has tests of its own."""

import os
import stat
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import check  # noqa: E402


def run(tmp_path, script):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return check.run_program("program", program, dict(os.environ))


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    "script, passed, failed, skipped, text",
    [
        ("echo 1..2; echo ok 1 - a; echo ok 2 - b", 2, 0, 0, ""),
        ("echo 1..2; echo ok 1 - a; echo not ok 2 - b; exit 1", 1, 1, 0, "b"),
        ("echo 1..2; echo ok 1 - a; exit 0", 1, 1, 0, "only 1 of 2"),
        ("echo 1..1; echo ok 1 - a; exit 3", 1, 1, 0, "exit status 3"),
        ("echo 1..1; echo ok 1 - a; kill -SEGV $$", 1, 1, 0, "SIGSEGV"),
        ("echo nothing of the kind", 0, 1, 0, "no TAP plan"),
        ("echo 1..1; echo '# skip: no GPU'; echo 'not ok 1 # SKIP a'", 0, 0, 1, "no GPU"),
        ("echo 1..1; echo '# skip: too lazy'; echo 'ok 1 # SKIP a'", 0, 1, 0, "too lazy"),
        ("echo 1..1; echo 'ok 1 # SKIP a'", 0, 1, 0, "not allowed"),
        ("echo 1..1; echo ok 1 - a; echo 1..1; echo ok 1 - b", 2, 0, 0, ""),
        ("echo 1..1; echo 'not ok 1 - a Could not run test: setup failed'; exit 1", 0, 1, 0, "a"),
    ],
)
def test_program_is_judged_when_it_ends(tmp_path, script, passed, failed, skipped, text):
    result = run(tmp_path, script)
    assert (result.passed, len(result.failures), len(result.skips)) == (passed, failed, skipped)
    assert text in "".join(result.failures + result.skips)


def test_program_and_its_children_are_killed_when_it_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "PROGRAM_TIMEOUT_S", 0.5)
    result = run(tmp_path, "echo 1..1; sleep 100 & echo $!; wait")
    assert "no end within" in result.failures[0]
    child = int(result.output.split()[-1])
    deadline = time.monotonic() + 10
    while is_alive(child):
        assert time.monotonic() < deadline


def test_program_fails_when_it_is_not_built(tmp_path):
    result = check.run_program("x", tmp_path / "x", {})
    assert "not built" in result.failures[0]


@pytest.mark.parametrize(
    "output, code, passed, failed, skipped",
    [
        ("ok   cpu mlp sgd  loss 1e-7\nok   cpu mlp adam\nparity: 2 cases, 0 out of bounds", 0, 2, 0, 0),
        ("ok   cpu mlp sgd\nFAIL cpu mlp adam  out of bounds: loss at 3", 1, 1, 1, 0),
        ("no rival: No module named 'torch' (build/venv-rivals/bin/python)", 0, 0, 0, 1),
        ("", 0, 0, 1, 0),
        ("ok   cpu mlp sgd\nTraceback", 1, 1, 1, 0),
    ],
)
def test_parity_is_judged_by_its_lines(monkeypatch, output, code, passed, failed, skipped):
    monkeypatch.setattr(check, "ALLOWED_SKIPS", [r"no Python package"])  # as where CI is not set
    result = check.Result("parity", output=output)
    check.judge_parity(result, code)
    assert (result.passed, len(result.failures), len(result.skips)) == (passed, failed, skipped)
