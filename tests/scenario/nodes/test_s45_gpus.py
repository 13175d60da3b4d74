"""GPUs of nodes, as the NVIDIA driver lists them: real daemons with a double of its library (tests/doubles/nvml.c), which a
file scripts. Nodes list theirs, a driver hangs and is well again, a card dies, and there may be no driver at all."""
import pathlib
import signal

import pytest

from gpu_nodes import GIB, Driver, all_linked, gpu_node, gpus, helpers, until_listed, uuids
from support import until


@pytest.fixture
def coordinator(cluster):
    c = cluster.start("--role", "coordinator", name="coordinator")
    c.listened = c.address
    return c


def test_eight_gpus_of_two_nodes_are_listed_with_what_the_driver_says(cluster, coordinator, tmp_path):
    one, two = Driver(tmp_path, "one"), Driver(tmp_path, "two")
    one.says(*gpus("a", 4), *all_linked("a", 4), f"use GPU-a1 {12 * GIB} 97 651500 61", f"process GPU-a1 4242 {12 * GIB}")
    two.says(*gpus("b", 2), *gpus("c", 2, "NVIDIA_A40", 0x40), f"mig GPU-b1 MIG-1 NVIDIA_H100_MIG_3g.40gb {40 * GIB}",
             f"mig GPU-b1 MIG-2 NVIDIA_H100_MIG_3g.40gb {40 * GIB}")
    gpu_node(cluster, coordinator, one, "one")
    gpu_node(cluster, coordinator, two, "two")
    found = until_listed(coordinator, "one", lambda l: len(l.gpus) == 4 and l.gpus[1].measured)
    assert uuids(found) == ["GPU-a0", "GPU-a1", "GPU-a2", "GPU-a3"] and found.driver == "550.54.15" and not found.why
    g = found.gpus[1]
    assert (g.name, g.memory_bytes, g.bus_id, g.compute_capability) == \
        ("NVIDIA H100 80GB HBM3", 80 * GIB, "00000000:11:00.0", "9.0")
    assert list(g.numa_nodes) == [0] and list(g.peers) == [0, 2, 3] and not g.health
    assert dict(g.measured) == {"used_bytes": 12 * GIB, "utilization": 97, "power_w": 651.5, "temperature_c": 61}
    assert [(p.pid, p.memory_bytes) for p in g.processes] == [(4242, 12 * GIB)]
    assert "power_w" not in found.gpus[0].measured, "what the driver does not say is absent"
    other = until_listed(coordinator, "two", lambda l: len(l.gpus) == 5)
    assert [(g.index, g.uuid, g.parent) for g in other.gpus] == [
        (0, "GPU-b0", ""), (1, "MIG-1", "GPU-b1"), (1, "MIG-2", "GPU-b1"), (2, "GPU-c0", ""), (3, "GPU-c1", "")]
    # what people see
    table = coordinator.ctl("node", "list", check=0).stdout
    assert "4 NVIDIA H100 80GB HBM3" in table and "2 NVIDIA H100 MIG 3g.40gb, 2 NVIDIA A40" in table, table
    wide = coordinator.ctl("node", "list", "-o", "wide", check=0).stdout
    row = next(line for line in wide.splitlines() if "GPU-a1" in line)
    assert all(word in row for word in ("80.0 GiB", "12.0 GiB", "00000000:11:00.0", "0, 2, 3", "ok")), row
    shown = coordinator.ctl("node", "show", "one", check=0).stdout
    for line in ("gpus               4", "gpu 1              GPU-a1", "gpu 1 busy         97 %", "gpu 1 NVLink to    0, 2, 3",
                 "gpu 1 process      pid 4242, 12.0 GiB", "gpu 1 health       ok", "name               one"):
        assert line in shown.splitlines(), (line, shown)
    by_id = next(n for n in coordinator.nodes() if n.name == "one").id
    assert coordinator.ctl_json("node", "show", by_id)["gpus"]["gpus"][1]["measured"]["utilization"] == 97
    assert "gpu 1/1            MIG-2" in coordinator.ctl("node", "show", "two", check=0).stdout
    missing = coordinator.ctl("node", "show", "three", check=3)
    assert "no node has the name or id 'three'" in missing.stderr


def test_list_comes_again_when_the_coordinator_was_started_again(cluster, coordinator, tmp_path):
    driver = Driver(tmp_path, "one")
    driver.says(*gpus("a", 2))
    gpu_node(cluster, coordinator, driver, "one")
    until_listed(coordinator, "one", lambda l: len(l.gpus) == 2)
    coordinator.restart()
    until_listed(coordinator, "one", lambda l: len(l.gpus) == 2 and not l.why)


def test_last_list_stays_when_the_driver_hangs_and_is_whole_when_it_is_well_again(cluster, coordinator, tmp_path):
    driver = Driver(tmp_path, "one")
    driver.says(*gpus("a", 2))
    node = gpu_node(cluster, coordinator, driver, "one", "--gpu-timeout-ms", 400)
    until_listed(coordinator, "one", lambda l: len(l.gpus) == 2)
    first = helpers(node)
    assert len(first) == 1
    driver.adds("hang nvmlDeviceGetMemoryInfo")
    found = until_listed(coordinator, "one", lambda l: "does not answer" in l.why)
    assert found.stale and uuids(found) == ["GPU-a0", "GPU-a1"]
    assert "(last list)" in coordinator.ctl("node", "list", check=0).stdout
    assert "GPUs of one: the NVIDIA driver does not answer" in coordinator.ctl("node", "list", "-o", "wide", check=0).stdout
    until("the one that hangs was killed", lambda: first[0] not in helpers(node))
    job = coordinator.submit("{name: other, kind: command, command: [sh, -c, exit 0]}")
    assert coordinator.finish(job), "a job is not touched by a driver that hangs"
    driver.says(*gpus("a", 3))
    found = until_listed(coordinator, "one", lambda l: len(l.gpus) == 3)
    assert not found.why and not found.stale
    assert node.log.read_text().count("does not answer") == 1, "a reason is logged once"
    assert "GPUs are listed again" in node.log.read_text()


def test_no_gpus_with_the_reason_when_the_driver_hangs_from_the_start(cluster, coordinator, tmp_path):
    driver = Driver(tmp_path, "one")
    driver.says(*gpus("a", 2), "hang nvmlInit 60")  # it answers after a minute
    node = gpu_node(cluster, coordinator, driver, "one", "--gpu-timeout-ms", 300)
    found = until_listed(coordinator, "one", lambda l: "does not answer" in l.why)
    assert not found.gpus and not found.stale
    assert coordinator.nodes("READY")
    driver.says(*gpus("a", 2))
    until_listed(coordinator, "one", lambda l: len(l.gpus) == 2 and not l.why)


@pytest.mark.parametrize("library, lines, words, over", [
    ("none_such.so", [], "no NVIDIA driver is installed here", True),
    ("nvml_other.so", [], "another major version of NVML", True),
    ("nvml.so", ["fail nvmlInit 18"], "of different versions, as after an update", False),
    ("nvml.so", ["fail nvmlInit 9"], "the NVIDIA driver is not loaded", False),
    ("nvml.so", ["fail nvmlDeviceGetCount 28"], "no GPU is here", False)])
def test_no_gpus_with_the_reason_when_there_is_no_driver_or_another(cluster, coordinator, tmp_path, library, lines, words, over):
    driver = Driver(tmp_path, "one", library)
    driver.says(*gpus("a", 2), *lines)
    node = gpu_node(cluster, coordinator, driver, "one")
    found = until_listed(coordinator, "one", lambda l: words in l.why)
    assert not found.gpus and coordinator.nodes("READY")
    assert node.log.read_text().count(words) == 1
    assert (" info no GPUs why=" in node.log.read_text()) == over, "a machine without is nothing to warn of"
    until("it has ended", lambda: not helpers(node))
    shown = coordinator.ctl("node", "show", "one", check=0).stdout
    assert "gpus               0" in shown and words in shown
    if not over:
        driver.says(*gpus("a", 2))  # it is loaded after the daemon was started
        until_listed(coordinator, "one", lambda l: len(l.gpus) == 2 and not l.why)


def test_reason_is_shown_when_the_driver_hangs_as_it_is_closed(cluster, coordinator, tmp_path):
    """It was closed before the reason was said, so the node had none but the silence that followed."""
    driver = Driver(tmp_path, "one")
    driver.says(*gpus("a", 2), "fail nvmlDeviceGetCount 999", "hang nvmlShutdown")
    gpu_node(cluster, coordinator, driver, "one")
    until_listed(coordinator, "one", lambda l: "NVML error 999" in l.why)


def test_node_lists_what_the_flag_and_the_variable_leave(cluster, coordinator, tmp_path):
    driver = Driver(tmp_path, "one")
    driver.says(*gpus("a", 4), f"mig GPU-a3 MIG-1 NVIDIA_H100_MIG {40 * GIB}")
    visible = lambda text: {"CUDA_VISIBLE_DEVICES": text}
    for name, args, env, left, why in [
            ("by-index", [], visible("2,0"), ["GPU-a0", "GPU-a2"], ""),
            ("by-uuid", [], visible("GPU-a1,GPU-x,GPU-a0"), ["GPU-a1"], "'GPU-x', which is not here"),
            ("empty", [], visible(""), [], "CUDA_VISIBLE_DEVICES of the daemon leaves none of 4"),
            ("named", ["--gpus", "GPU-a3,GPU-y"], visible("0"), ["MIG-1"], "--gpus names GPU-y, which is not here"),
            ("none", ["--gpus", "none"], {}, [], "--gpus none")]:
        node = gpu_node(cluster, coordinator, driver, name, *args, **env)
        found = until_listed(coordinator, name, lambda l: uuids(l) == left and (why in l.why if why else not l.why))
        assert why in found.why
        node.kill(signal.SIGTERM)


def test_gpus_that_no_rule_knows_are_refused_when_the_daemon_starts(cluster):
    refused = cluster.make("--gpus", "0,1", name="x")
    refused.start(wait=False)
    assert refused.process.wait(30) != 0
    assert "--gpus (TRAIND_GPUS): expected auto, none, or uuids of GPUs" in refused.tail()


def test_card_that_dies_stays_in_the_list_with_the_reason(cluster, coordinator, tmp_path):
    driver = Driver(tmp_path, "one")
    driver.says(*gpus("a", 2))
    node = gpu_node(cluster, coordinator, driver, "one", "--gpu-timeout-ms", 500)
    until_listed(coordinator, "one", lambda l: len(l.gpus) == 2)
    driver.adds("lost GPU-a1")
    found = until_listed(coordinator, "one", lambda l: l.gpus[1].health)
    assert "the GPU is lost" in found.gpus[1].health and not found.gpus[0].health
    assert "2 NVIDIA H100 80GB HBM3 (1 not well)" in coordinator.ctl("node", "list", check=0).stdout
    driver.adds("xid GPU-a1 79")
    until_listed(coordinator, "one", lambda l: l.exclusions)
    assert "2 NVIDIA H100 80GB HBM3 (1 excluded)" in coordinator.ctl("node", "list", check=0).stdout
    assert "GPU reports an error xid=79 uuid=GPU-a1 meaning=" in node.log.read_text()


def test_helper_ends_with_its_daemon(cluster, coordinator, tmp_path):
    driver = Driver(tmp_path, "one")
    driver.says(*gpus("a", 1))
    node = gpu_node(cluster, coordinator, driver, "one")
    until_listed(coordinator, "one", lambda l: len(l.gpus) == 1)
    pids = helpers(node)
    node.kill(signal.SIGKILL)
    until("it has ended", lambda: not any(pathlib.Path(f"/proc/{pid}/cmdline").exists() and
                                          b"devices" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids))
