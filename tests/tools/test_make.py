"""The Makefile: one job server for all makes, as many jobs as the command line says, and what T builds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def dry(*words):
    """What make would do, as if from a shell."""
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return subprocess.run(["make", "-n", *words, f"PYTHON={sys.executable}"], cwd=ROOT, env=env, capture_output=True,
                          text=True, check=True, timeout=120)


def test_make_below_make_says_nothing_of_its_job_server():
    done = dry("demo")
    assert "demo.sh" in done.stdout
    assert "jobserver" not in done.stderr and "forced" not in done.stderr, done.stderr


@pytest.mark.parametrize("words, jobs", [((), None), (("-j3",), 3), (("-j", "5"), 5), (("--jobs=4",), 4)])
def test_number_of_jobs_is_the_command_line_s_when_it_says_one(tmp_path, words, jobs):
    (tmp_path / "Makefile").write_text(f"include {ROOT}/Makefile\nshown:\n\t@+echo $(MAKEFLAGS)\n")
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    shown = subprocess.run(["make", "-C", str(tmp_path), *words, "shown"], env=env, capture_output=True, text=True,
                           timeout=120)
    jobs = jobs or int(subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout)
    assert f"-j{jobs} " in shown.stdout + " ", shown


def test_unit_builds_what_it_runs_when_it_is_narrowed():
    built = dry("unit", "T=test_arena", "B=build-that-is-not-there").stdout
    assert "tests/unit/base/test_arena.c" in built and "tests/unit/base/test_buf.c" not in built


def test_package_is_built_with_all_that_the_makefile_needs():
    """A newer one was not among them."""
    needed = re.search(r"^deps_build := (.*(?:(?<=\\)\n.*)*)$", (ROOT / "Makefile").read_text(), re.M)[1]
    wanted = {name for name in needed.replace("\\", "").split() if re.fullmatch(r"lib\w+-dev|zlib\w+-dev", name)} - {"libc6-dev"}
    given = re.search(r"^Build-Depends: (.*(?:\n .*)*)$", (ROOT / "deploy/debian/control").read_text(), re.M)[1]
    assert len(wanted) > 8 and not wanted - set(re.findall(r"[\w-]+", given))
