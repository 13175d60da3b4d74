"""Several processes of pytest beside each other over the same tests, which tests/tools/check.py starts. tests/conftest.py
loads this.

All collect everything and have the same folder, `--share DIR`. Each takes a file of tests and then the next: who makes
the file's entry in the folder first has it. A file stays together, so fixtures of a module are made once, and its tests
keep their order. Each process writes to collected-PID how many tests it has found, which check.py compares with what was
run, and to at-PID where it is.

Tests that measure time, or take all of the machine, are marked `alone`. check.py runs them when the others have ended.
Rejected: pytest-xdist (one more package, and it knows nothing of `alone`). Rejected: a list for each process (what takes
long on one machine does not on another).
"""
import collections
import itertools
import os
import pathlib
import sys
import time

import pytest

# Long: these go first, so that the processes end at about the same time.
LONG = ("test_s57_hosts", "test_s45_far", "test_s41_stop", "test_s26_fabric", "test_s56_several_nodes",
        "test_s24_commands", "test_s71_examples", "test_s70_trainctl", "test_s64_hostile", "test_s52_nodes", "test_s79_install", "test_s06_levels", "test_s08_resume",
        "test_s80_tutorials", "test_s51_failures", "test_s50_adoption", "test_s73_run")


def pytest_addoption(parser):
    parser.addoption("--share", metavar="DIR", help="run beside other processes that have the same DIR (tests/sharing.py)")


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: it measures time or takes all of the machine, so nothing runs beside it")
    folder = config.getoption("--share", None)
    if folder:
        config.pluginmanager.register(Share(folder, config.pluginmanager.getplugin("capturemanager")))


def order(file):
    """Of a file: those of LONG come first, in that order."""
    name = pathlib.Path(file).stem
    return LONG.index(name) if name in LONG else len(LONG)


class Share:
    """Which items this process runs, and a line for each file that it has run."""

    def __init__(self, folder, capture):
        self.folder, self.capture = pathlib.Path(folder), capture
        self.began, self.counts = 0.0, collections.Counter()

    def pytest_collection_finish(self, session):
        (self.folder / f"collected-{os.getpid()}").write_text(f"{len(session.items)}\n")

    def is_mine(self, number):
        try:
            os.close(os.open(self.folder / f"taken-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def taken(self, items):
        """The items of each file that this process takes. It takes the next one when it is asked for it."""
        files = {str(path): list(group) for path, group in itertools.groupby(items, lambda item: item.path)}
        for number, file in enumerate(sorted(files, key=order)):
            if self.is_mine(number):
                yield from files[file]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        if session.testsfailed:
            return None  # while it collected: pytest says so
        items = self.taken(session.items)
        item = next(items, None)
        while item:
            following = next(items, None)  # what it needs of this one's fixtures is kept
            if not self.counts:
                self.began = time.monotonic()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            if not following or following.path != item.path:
                self.say(item.path)
            item = following
        return True

    def pytest_runtest_logstart(self, nodeid):
        (self.folder / f"at-{os.getpid()}").write_text(nodeid)

    def pytest_runtest_logreport(self, report):
        if report.outcome != "passed" or report.when == "call":
            self.counts[report.outcome] += 1

    def say(self, path):
        """On stderr: check.py keeps stdout, which has all that pytest says, for the end."""
        words = ", ".join(f"{n} {outcome}" for outcome, n in sorted(self.counts.items()))
        mark = "FAIL" if self.counts["failed"] else "ok"
        with self.capture.global_and_fixture_disabled():
            print(f"{mark:4} {path.parent.name}/{path.stem}: {words} ({time.monotonic() - self.began:.1f} s)",
                  file=sys.stderr, flush=True)
        self.counts.clear()
