"""The test runner itself: what counts as passed, failed and skipped. A runner that overlooks a
failure makes every other test worthless, so its judgement has tests of its own."""

import os
import re
import stat
import subprocess
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


@pytest.mark.parametrize("text, named, other", [
    ("test_arena", "unit/base/test_arena", "unit/base/test_buf"),      # a name
    ("tsan", "unit/rpc/test_tsan_loop", "unit/base/test_arena"),      # a tag
    ("conform/", "conform/conform_ops", "unit/base/test_arena"),  # a folder
    ("test_no_such", None, "unit/base/test_arena"),
])
def test_make_builds_what_runs_when_it_is_narrowed(text, named, other):
    listed = subprocess.run([sys.executable, check.__file__, "--build", "b", "--match", text, "--list"],
                            check=True, capture_output=True, text=True).stdout.split()
    assert listed == [name for name, _ in check.find_programs(Path("b"), text)]
    assert named in listed if named else listed == []
    assert other not in listed


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


def fake_build(tmp_path, level):
    """A build folder whose worker names the level, and whose conformance programs say which they are held to."""
    worker = tmp_path / "bin/traind-worker"
    worker.parent.mkdir()
    worker.write_text('#!/bin/sh\necho \'{"accelerator":"cpu","build":"oneDNN 2.6.3, %s, caches 32"}\'\n' % level)
    programs = [tmp_path / "tests" / name for name, _ in check.find_programs(tmp_path, "conform/")]
    for program in programs:
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\necho 1..1; echo ok 1 - held to $TRAIND_CPU_ISA\n")
    for path in [worker, *programs]:
        path.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("level, full, match, expected", [
    ("generic", False, "", []),
    ("avx2", False, "conform_steps", ["generic/conform/conform_steps"]),
    ("avx512", False, "conform_steps", ["generic/conform/conform_steps", "avx2/conform/conform_steps"]),
    ("avx512_bf16", False, "conform_gradients", []),
    ("avx512_bf16", True, "conform_steps",
     ["generic/conform/conform_steps", "avx2/conform/conform_steps", "avx512/conform/conform_steps"]),
    ("avx512", True, "conform_collective", []),
    ("avx512", False, "avx2/conform/conform_ops_nn", ["avx2/conform/conform_ops_nn"]),
])
def test_lower_levels_run_again_when_the_machine_has_more(tmp_path, monkeypatch, level, full, match, expected):
    monkeypatch.setattr(check, "FULL", full)
    monkeypatch.delenv("TRAIND_CPU_ISA", raising=False)
    results = check.run_two_at_a_time(check.at_levels(fake_build(tmp_path, level), match, dict(os.environ)))
    assert [r.name for r in results] == expected
    for r in results:
        assert r.passed == 1 and f"held to {r.name.split('/')[0]}\n" in r.output


@pytest.mark.parametrize("kind, machine, expected, absent", [
    ("asan", "generic", [], ["avx2"]),
    ("asan", "avx2", ["generic"], []),
    ("asan", "amx", ["generic", "avx2"], []),
    ("clang", "avx2", ["generic", "avx2"], ["avx512"]),
    ("clang", "avx512_bf16", ["generic", "avx2", "avx512"], []),
])
def test_other_builds_run_at_each_level_the_machine_has(tmp_path, monkeypatch, capsys, kind, machine, expected, absent):
    monkeypatch.delenv("TRAIND_CPU_ISA", raising=False)
    build = tmp_path / "build"
    for folder in (build, tmp_path / f"build-{kind}"):
        folder.mkdir()
        fake_build(folder, machine)
    results = check.run_two_at_a_time(check.build_at_levels(build, kind, dict(os.environ)))
    assert [r.name for r in results] == [f"{kind}/{level}/conform/{p}" for level in expected
                                         for p in check.BUILD_PROGRAMS]
    for r in results:
        assert r.passed == 1 and f"held to {r.name.split('/')[1]}\n" in r.output
    assert re.findall(r"not run at CPU level (\w+)", capsys.readouterr().out) == absent


def test_other_build_fails_when_it_was_not_made(tmp_path, monkeypatch):
    monkeypatch.delenv("TRAIND_CPU_ISA", raising=False)
    build = tmp_path / "build"
    build.mkdir()
    results = check.run_two_at_a_time(check.build_at_levels(fake_build(build, "avx2"), "clang", dict(os.environ)))
    assert results and all("is not built" in r.failures[0] for r in results)


def test_levels_fail_when_the_machine_s_own_is_not_known(tmp_path):
    results = check.run_two_at_a_time(check.at_levels(fake_build(tmp_path, "sse9"), "", dict(os.environ)))
    assert len(results) == 1 and "not known" in results[0].failures[0]


def test_each_part_s_time_is_reported(tmp_path, capsys):
    clock = check.Clock()
    result = check.Result("pytest", folders={"tools": 1.5, "clients": 2})
    assert clock.run("pytest", lambda: [result]) == [result]
    assert clock.run("nothing", lambda: []) == []
    a, b, c = (check.Result(name, seconds=n) for n, name in enumerate("abc", 1))
    assert clock.share("programs", {"first": [check.given(a), check.given(b)], "second": [], "third": [check.given(c)]}) == [a, b, c]
    clock.report()
    lines = [line.split(" s  ") for line in capsys.readouterr().out.split("time of each part:\n")[1].splitlines()]
    assert [line[1] for line in lines] == ["pytest", "  tests/clients, test by test", "  tests/tools, test by test", "programs",
                                           "  first, program by program", "  second, program by program",
                                           "  third, program by program", "all"]
    assert [float(line[0]) for line in lines[1:3]] == [2.0, 1.5]
    assert [float(line[0]) for line in lines[4:7]] == [3.0, 0.0, 3.0]


@pytest.mark.parametrize(
    "script, passed, failed, skipped, text",
    [
        ("echo '3 passed, 0 failed, 0 skipped'; echo debian13: unit passed; echo debian13: demo passed",
         4, 0, 0, ""),
        ("echo '     FAILED unit/test_a: b'; echo '3 passed, 1 failed, 0 skipped'; exit 2", 3, 1, 0, "b"),
        ("echo '     skipped a: no GPU'; echo '3 passed, 0 failed, 1 skipped'", 3, 0, 1, "no GPU"),
        ("echo cc1: error; exit 2", 0, 1, 0, "exit status 2"),
        ("echo 'no Debian 13 root: this needs root'", 0, 0, 1, "needs root"),
        ("true", 0, 1, 0, "nothing was run"),
    ],
)
def test_other_distribution_is_judged_by_its_counts(script, passed, failed, skipped, text):
    result = check.run_judged("debian13", ["sh", "-c", script], dict(os.environ), 10, check.judge_debian13)
    assert (result.passed, len(result.failures), len(result.skips)) == (passed, failed, skipped)
    assert text in "".join(result.failures + result.skips)


# ---- pytest -----------------------------------------------------------------------------------------
ANY = """
import os, pathlib, time
import pytest
HERE = pathlib.Path(__file__).parent

def ran(name):
    with open(HERE / "ran", "a") as f:
        f.write(f"{name} {os.getpid()}\\n")
"""
CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})
from sharing import pytest_addoption, pytest_configure
"""


def shared(folder, monkeypatch, capfd, **files):
    """What run_pytest says of a folder with these files, what ran as (test, process), and the output."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(ANY + text)
    monkeypatch.setattr(check, "python_folders", lambda: [folder])
    monkeypatch.setattr(check, "FULL", False)  # there one process runs all, for up to an hour
    results = check.run_pytest("", dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
    ran = [line.split() for line in (folder / "ran").read_text().splitlines()] if (folder / "ran").exists() else []
    counts = [sum(map(of, results)) for of in (lambda r: r.passed, lambda r: len(r.failures), lambda r: len(r.skips))]
    return counts, ran, " ".join(f for r in results for f in r.failures), capfd.readouterr()


def meets(other, name):
    """A file whose first test waits for the other file's: both run at once."""
    return f"""
def test_first():
    ran("{name}1")
    end = time.monotonic() + 60
    while not (HERE / "ran").exists() or "{other}1" not in (HERE / "ran").read_text():
        assert time.monotonic() < end
        time.sleep(0.01)

@pytest.mark.parametrize("i", range(2))
def test_more(i):
    ran("{name}2")

@pytest.mark.alone
def test_alone():
    ran("alone")
"""


def test_two_processes_run_each_test_once_and_keep_files_together(tmp_path, monkeypatch, capfd):
    counts, ran, why, said = shared(tmp_path, monkeypatch, capfd, a=meets("b", "a"), b=meets("a", "b"))
    assert counts == [8, 0, 0], why
    of = {name: [process for n, process in ran if n == name] for name, _ in ran}
    assert {name: len(p) for name, p in of.items()} == {"a1": 1, "a2": 2, "b1": 1, "b2": 2, "alone": 2}
    assert of["a2"] == 2 * of["a1"] and of["b2"] == 2 * of["b1"] and of["a1"] != of["b1"]
    assert [name for name, _ in ran][-2:] == ["alone", "alone"] and len({*of["a1"], *of["b1"], *of["alone"]}) == 3
    assert "test_a: 3 passed" in said.err and "test_b: 3 passed" in said.err


@pytest.mark.parametrize("text, counts, words", [
    ("def test_bad():\n    assert 1 == 2\ndef test_good(): pass", [1, 1, 0], "test_bad"),
    ("def test_odd(none): pass\ndef test_good(): pass", [1, 1, 0], "test_odd"),
    ("@pytest.mark.skip(reason='too lazy')\ndef test_idle(): pass", [0, 1, 0], "too lazy"),
    ("@pytest.mark.skip(reason='no GPU')\ndef test_idle(): pass", [0, 0, 1], ""),
    ("def test_dies():\n    os.kill(os.getpid(), 9)", [0, 1, 0], "pytest ended with status -9, its last test: ...test_it.py::test_dies"),
    ("def test_leaves():\n    os._exit(0)", [0, 1, 0], "pytest left no report, its last test: ...test_it.py::test_leaves"),
    ("def test_stops():\n    pytest.exit('enough', returncode=0)\ndef test_good(): pass", [1, 1, 0], "found [2] tests and ran 1"),
])
def test_pytest_is_judged_by_what_it_found_and_ran(tmp_path, monkeypatch, capfd, text, counts, words):
    found, _, why, said = shared(tmp_path, monkeypatch, capfd, it=text)
    # A test's name begins with a folder where this tree and tmp_path have one in common.
    assert (found, all(w in why for w in words.split("..."))) == (counts, True), (found, why)


def test_file_that_cannot_be_read_is_a_failure_of_all(tmp_path, monkeypatch, capfd):
    counts, _, why, said = shared(tmp_path, monkeypatch, capfd, a="def test_good(): pass", b="import nothing_of_the_kind")
    assert counts[0] == 0 and counts[1] and "nothing_of_the_kind" in said.out


def test_pytest_that_hangs_is_ended_and_said(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(check, "PYTEST_TIMEOUT_S", 2)
    counts, ran, why, said = shared(tmp_path, monkeypatch, capfd, a="def test_hangs():\n    ran('a')\n    time.sleep(600)")
    assert "no end within 2 s" in why and "its last test: " in why and "test_a.py::test_hangs" in why
    assert all(not is_alive(int(process)) for _, process in ran)
