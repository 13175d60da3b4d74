"""The pages of docs/tutorials, run as they are written: files are saved, commands typed into one shell, and what a page
shows of their output is there."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

import support

PAGES = sorted(p for p in (support.ROOT / "docs/tutorials").glob("*.md") if p.name != "README.md")
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
KINDS = {"sh", "text", "yaml", "python", "console"}  # console: installs packages, or needs a network


def blocks(page):
    return [m.groups() for m in BLOCK.finditer(page.read_text())]


def masked(line):
    """Numbers and ids are another machine's."""
    line = re.sub(r"\bj-[0-9a-f]{12}\b", "JOB", line.strip())
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?(ms|us|s|k|M|G)?\b", "N", re.sub(r"\s+", " ", line))


def is_shown(wanted, said):
    """Lines of the page, in their order; `...` is any number of them, also at the end of a line."""
    lines, at = [masked(line) for line in said.splitlines()], 0
    for line in filter(None, map(masked, wanted.splitlines())):
        if line == "...":
            continue
        fits = (lambda x: x.startswith(line[:-3])) if line.endswith("...") else (lambda x: x == line)
        at = next((i + 1 for i in range(at, len(lines)) if fits(lines[i])), None)
        if at is None:
            return False
    return True


def python_of(page):
    """A folder for PATH whose python3 has what the page imports."""
    wants = sorted(set(re.findall(r"^(?:import|from) (transformers|PIL|numpy|grpc)\b", page.read_text(), re.M)))
    for python in (sys.executable, support.RIVAL):
        probe = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"
        if os.path.exists(python) and not subprocess.run([python, "-c", probe, *wants]).returncode:
            return python
    if not os.environ.get("TD_FULL"):  # transformers comes with torch: check-full has both
        pytest.skip("only in check-full")
    pytest.skip(f"no Python package {' or '.join(wants)}")


def started_in(state):
    """The daemon of a page, whose command line names no directory, and what it started."""
    found = set(support.processes_of(state))
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"TRAIND_STATE_DIR={state}".encode() in p.joinpath("environ").read_bytes().split(b"\0"):
                found.add(int(p.name))
    return found


@pytest.fixture
def shell(tmp_path):
    """One bash in an empty folder, and the daemon that a page starts."""
    def run(script, python):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/python3").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        (tmp_path / "bin/python3").chmod(0o755)
        env = {**os.environ, "HOME": str(tmp_path), "TRAIND_STATE_DIR": str(tmp_path / "state"),
               "PROTO": str(support.ROOT / "proto"), "PATH": f"{tmp_path / 'bin'}:{support.BIN}:{os.environ['PATH']}",
               "TRAIND_RUNTIME_DIR": str(tmp_path / "run")}
        (tmp_path / "work").mkdir()
        with open(tmp_path / "said", "w") as said:  # a pipe would be held open by the daemon
            done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path / "work", env=env, stdin=subprocess.DEVNULL,
                                  stdout=said, stderr=said, timeout=400)
        out = (tmp_path / "said").read_text()
        assert done.returncode == 0, out
        return out

    yield run
    for pid in started_in(tmp_path / "state"):
        os.kill(pid, signal.SIGTERM)
    support.until("nothing is left", lambda: not started_in(tmp_path / "state"), 60)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_page_does_what_it_says(page, shell):
    python = python_of(page)
    script, shown = "", []
    for kind, name, text in blocks(page):
        assert kind in KINDS, kind
        if name:
            script += f"cat > {name} <<'END_OF_BLOCK'\n{text}END_OF_BLOCK\n"
        elif kind == "sh":
            script += f"echo; echo '=== {len(shown)}'\n{text}"
            shown.append(None)
        elif kind == "text":
            shown[-1] = text
    script += "echo; echo '=== end'\n"
    out = shell(script, python)
    assert not re.search(r"^(RUNNING|STARTING|QUEUED)\n\1$", out, re.M), out
    parts = re.split(r"^=== \S+$", out, flags=re.M)[1:]
    assert len(parts) == len(shown) + 1, out
    for said, wanted in zip(parts, shown):
        assert not wanted or is_shown(wanted, said), f"the page shows:\n{wanted}\nbut this came:\n{said}"


def test_output_that_a_page_shows_but_nobody_printed_is_found():
    said = "a 12 s\nloss 0.5\nb\n"
    assert is_shown("a 3 s\n...\nb\n", said) and is_shown("lo...\n", said)
    assert not is_shown("b\na 1 s\n", said) and not is_shown("loss\n", said) and not is_shown("c\n", said)


def test_every_tutorial_is_listed_and_leads_somewhere():
    index = (support.ROOT / "docs/tutorials/README.md").read_text()
    assert len(PAGES) == 5 and all(f"({p.name})" in index for p in PAGES)
    for page in [*PAGES, support.ROOT / "docs/tutorials/README.md"]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), (page.name, link)
