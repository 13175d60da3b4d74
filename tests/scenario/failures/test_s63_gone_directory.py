"""The state directory is deleted, moved or replaced under a daemon: what is written there is lost, so nothing is
acknowledged and nothing starts, and all goes on when it is back."""
import contextlib
import shutil
import time

import pytest

from fake_node import refused
from marks import some
from support import SPEC, until


def health(daemon):
    """Whether it says SERVING; its address is read now, while it can be."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    stub = health_pb2_grpc.HealthStub(daemon.dial())
    return lambda: stub.Check(health_pb2.HealthCheckRequest(), timeout=10).status == health_pb2.HealthCheckResponse.SERVING


def move(path):
    path.rename(path.with_name(path.name + ".away"))


def replace(path):
    move(path)
    shutil.copytree(path.with_name(path.name + ".away"), path)


def unlink_log(path):
    (path / "state.db-wal").unlink()


@contextlib.contextmanager
def put_back(path):
    yield
    away = path.with_name(path.name + ".away")
    if away.exists():
        if path.exists():
            shutil.rmtree(path)
        away.rename(path)


@pytest.mark.parametrize("deed, words", [(move, "is gone"), (replace, "was replaced by another"), (unlink_log, "is gone"),
                                         (lambda p: (p / "state.db").unlink(), "is gone")],
                         ids=["moved", "replaced", "log unlinked", "file unlinked"])
def test_changes_were_acknowledged_into_files_that_were_gone(cluster, deed, words):
    daemon = cluster.start("--role", "coordinator")
    kept, serving = daemon.submit(), health(daemon)
    with put_back(daemon.state_dir):
        deed(daemon.state_dir)
        # At once: what it wrote went to a file that is not there.
        refused("UNAVAILABLE", daemon.submit, "cannot write its disk (state.db: '", words, "put it back")
        refused("UNAVAILABLE", daemon.submit, "changed nothing")
        until("health says so", lambda: not serving(), 2)
        assert words in daemon.job(kept).unsaved
    if deed not in (move, replace):
        daemon.kill()  # nothing can bring that file back
        return
    again = until("it is written again", lambda: serving() and daemon.submit())
    daemon.restart()
    assert daemon.state(kept) == "QUEUED" and daemon.state(again) == "QUEUED"


def test_idle_daemon_noticed_nothing_until_somebody_wrote(cluster):
    daemon = cluster.start("--role", "coordinator")
    daemon.submit()
    serving = health(daemon)
    with put_back(daemon.state_dir):
        move(daemon.state_dir)
        began = time.monotonic()
        until("health says so", lambda: not serving(), 2)
        assert time.monotonic() - began < 1.5  # a look each 0.4 s, on a machine that may be busy
    until("health says so", serving)


@pytest.mark.parametrize("what", some(["state"], ["state", "runtime"]))
def test_node_without_its_directory_took_jobs_and_made_it_again(cluster, what):
    coordinator = cluster.start("--role", "coordinator", "--heartbeat-ms", "200", name="c")
    runtime = cluster.folder / "run-n"
    node = cluster.node(coordinator, 1, "n", "--runtime-dir", runtime)
    until("it is ready", lambda: coordinator.nodes("READY"))
    place = node.state_dir if what == "state" else runtime
    with put_back(place):
        move(place)
        until("it gets no jobs", lambda: coordinator.nodes("TROUBLED"), 3)
        job = coordinator.submit(SPEC)
        until("the job says so", lambda: "directory" in coordinator.job(job).reason.text and "is gone" in coordinator.job(job).reason.text)
        assert f"the node's {what} directory" in coordinator.ctl("node", "list", check=0).stdout
        assert not place.exists() and "put it back, or start traind again" in node.tail()
    assert coordinator.finish(job)
