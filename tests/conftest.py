"""Fixtures of every Python test: a daemon of one's own, stubs of a stranger's client, a clean end.

TRAIND_BUILD names the build folder (the Makefile gives it). Nothing here knows ports or sleeps for a
fixed time: a daemon says where it listens by its `address` file, and waits have deadlines.
"""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = map(str, [HERE, *sorted(HERE.glob("scenario/*/"))])  # scenarios share fixtures
import support  # noqa: E402
from sharing import pytest_addoption, pytest_configure  # noqa: E402, F401

# What a shell without job control starts with "&" ignores SIGINT, and all its programs inherit that:
# a trainctl under nohup leaves it ignored on purpose. Tests of Ctrl-C want what a terminal gives.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# OpenMP's threads spin for each other, beyond bounds where other tests keep the cores busy. A launcher says it, too.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

KINDS = ("accelerator", "collective", "comm_hook", "precision", "strategy")


@pytest.fixture(scope="session")
def build():
    return support.BUILD


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    """Modules generated from the protos, as a user of another language would make them."""
    return support.generate_stubs(tmp_path_factory.mktemp("stubs"))


def pytest_runtest_setup(item):
    """Which implementations a case goes over, for tests/tools/conformance.py: parameters that have a kind's name."""
    params = getattr(item, "callspec", None)
    for kind in KINDS:
        name = params and params.params.get(kind)
        if isinstance(name, str) and name:
            item.user_properties.append(("over", f"{kind} {name}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.failed = report.failed
    return report


@pytest.fixture
def cluster(tmp_path, stubs, request):
    """Starts daemons; at the end jobs are cancelled, daemons stopped, and nothing of theirs may be left: no process, no
    half-written file, no directory of an attempt."""
    made = support.Cluster(tmp_path, stubs)
    yield made
    if getattr(request.node, "failed", True):
        for d in made.daemons:
            print(f"---- {d.log.name}\n{d.tail(60)}")
    made.close()


@pytest.fixture
def daemon(cluster):
    """One `traind` in its embedded default, 2 slots."""
    return cluster.start("--slots", "2")


@pytest.fixture
def coordinator(cluster):
    """A coordinator without a node, which tests play (fake_node.py)."""
    return cluster.start("--role", "coordinator", "--heartbeat-ms", "5000", "--lease-ms", "20000", name="c")


@pytest.fixture(scope="session")
def torch_python():
    """The Python that has torch, where there is one: torch has some GB, so `make check` does not fetch it."""
    probe = [support.RIVAL, "-c", "import torch"]
    if not os.path.exists(support.RIVAL) or subprocess.run(probe, capture_output=True).returncode:
        why = f"({support.RIVAL} has none; `make rivals`, or TORCH names another)"
        pytest.skip(f"no Python package torch {why}" if os.environ.get("TD_FULL") else f"only where torch is {why}")
    return support.RIVAL


@pytest.fixture(scope="session")
def full():
    if not os.environ.get("TD_FULL"):
        pytest.skip("only in check-full")
