"""Fixtures of every Python test: a daemon of one's own, stubs of a stranger's client, a clean end.

TRAIND_BUILD names the build folder (the Makefile gives it). Nothing here knows ports or sleeps for a
fixed time: a daemon says where it listens by its `address` file, and waits have deadlines.
"""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import support  # noqa: E402


@pytest.fixture(scope="session")
def build():
    return support.BUILD


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    """Modules generated from the protos, as a user of another language would make them."""
    return support.generate_stubs(tmp_path_factory.mktemp("stubs"))


@pytest.fixture
def cluster(tmp_path, stubs):
    """Starts daemons; at the end all are stopped and nothing of theirs may be left."""
    made = support.Cluster(tmp_path, stubs)
    yield made
    made.close()


@pytest.fixture
def daemon(cluster):
    """One `traind` in its embedded default, 2 slots."""
    return cluster.start("--slots", "2")


@pytest.fixture(scope="session")
def full():
    if not os.environ.get("TD_FULL"):
        pytest.skip("only in check-full")
