"""Cores of a machine with SMT, which hwloc is told of: a daemon and `trainctl run` count each core once."""
import os
import subprocess

import pytest

from support import BIN, LONG, SPEC


@pytest.fixture
def one_core(monkeypatch):
    """All CPUs of this process are siblings; returns them."""
    cpus = sorted(os.sched_getaffinity(0))
    assert len(cpus) > 1, "siblings need two CPUs that this process may use"
    indexes = ",".join(map(str, cpus))
    monkeypatch.setenv("HWLOC_SYNTHETIC", f"pack:1 core:1 pu:{len(cpus)}(indexes={indexes})")
    return cpus


def test_node_has_one_slot_and_pins_its_rank_when_all_cpus_are_siblings(cluster, one_core):
    daemon = cluster.start()
    node, = daemon.nodes()
    assert (node.cores, node.slots) == (1, 1)
    job = daemon.submit(LONG)
    daemon.wait_step(job, 1)
    rank, = daemon.workers(job)
    assert os.sched_getaffinity(rank) == {one_core[0]}
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


def test_run_refuses_two_ranks_when_all_cpus_are_siblings(tmp_path, one_core):
    (tmp_path / "spec.yaml").write_text(SPEC)
    ran = subprocess.run([BIN / "trainctl", "run", "spec.yaml", "--set", "trainer.devices=2"], cwd=tmp_path,
                         capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1 and "need 2 cores, this machine gives 1" in ran.stderr, ran.stderr
