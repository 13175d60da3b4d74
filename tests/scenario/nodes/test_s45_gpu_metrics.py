"""Metrics of the GPUs that a job has: real daemons with a double of the NVIDIA driver (gpu_nodes.py). It lists GPUs for
programs, and the devices of the test accelerator far as GPUs for trainings."""
import csv
import json

import pytest

from far_plugin import far, mine  # noqa: F401 (mine is a fixture)
from gpu_nodes import GIB, Driver, gpu_node, gpus, until_listed
from support import until

TWO = [f"gpu far-{i} NVIDIA_H100 {80 * GIB} {0x10 + i:x} 0 9 0" for i in range(2)]
VALUES = ["memory", "power", "temperature", "throttled", "utilization"]


def spec_of(mine, **more):
    """A job on both devices that trains until it is asked to stop."""
    return json.dumps({
        "name": "far", "seed_everything": 3, "plugins": [str(mine)],
        "model": {"name": "mlp", "layers": [16, 32, 4]},
        "data": {"name": "synthetic", "samples": 256, "features": 16, "classes": 4, "batch_size": 16},
        "optimizer": {"name": "adamw", "lr": 0.01},
        "trainer": {"accelerator": far(delay_us=5000), "devices": 2, "max_steps": 1000000, "max_epochs": -1,
                    "log_every_n_steps": 10},
        **more})


def use(device, percent, watts=300):
    return f"use far-{device} {12 * GIB} {percent} {watts * 1000} 61"


@pytest.fixture
def driver(tmp_path):
    made = Driver(tmp_path, "driver")
    made.says(*TWO, use(0, 97), use(1, 40), "throttle far-0 4", "throttle far-1 1")
    return made


def start(cluster, driver, mine, *args):
    """Samples come twice a second."""
    daemon = cluster.make("--slots", 4, "--plugin-dirs", mine, "--name", "one", "--gpu-timeout-ms", 500, *args)
    daemon.bin = driver.bin
    return daemon.start()


def series(daemon, job):
    """The points of each series that is of a device."""
    answer = daemon.stub("Metric").QueryMetrics(daemon.cluster.stubs.metric.QueryMetricsRequest(job=job), timeout=20)
    return {s.name: list(s.points) for s in answer.series if s.name.startswith("gpu")}


def until_last(daemon, job, name, value):
    """A point of this value that is newer than those of now."""
    before = len(series(daemon, job).get(name, []))

    def came():
        points = series(daemon, job).get(name, [])
        return len(points) > before and points[-1].value == value

    until(f"{name} of {job} is {value}: {series(daemon, job).get(name)}", came)


def test_devices_of_a_job_are_its_metrics_and_shown_where_it_is(cluster, driver, mine):
    daemon = start(cluster, driver, mine)
    job = daemon.submit(spec_of(mine))
    until_last(daemon, job, "gpu1.utilization", 40)
    found = series(daemon, job)
    assert sorted(found) == [f"gpu{i}.{v}" for i in (0, 1) for v in VALUES]
    last = {name: points[-1] for name, points in found.items()}
    assert {n: p.value for n, p in last.items() if n.startswith("gpu0")} == {
        "gpu0.utilization": 97, "gpu0.memory": 12 * GIB, "gpu0.power": 300, "gpu0.temperature": 61, "gpu0.throttled": 1}
    assert last["gpu1.throttled"].value == 0, "it is idle, and nothing holds it back"
    assert {p.n_ranks for points in found.values() for p in points} == {1}
    driver.says(*TWO, use(0, 97), use(1, 75))
    until_last(daemon, job, "gpu1.utilization", 75)
    now = daemon.job(job)
    assert not [name for name in now.metrics if name.startswith("gpu")], "no names that the job's own would lack"
    steps = [p.step for p in series(daemon, job)["gpu1.utilization"]]
    assert steps == sorted(steps) and steps[-1] <= now.global_step
    # what people see
    shown = daemon.ctl("describe", job, check=0).stdout
    assert "gpu1           75 %, 12.0 GiB, 300 W, 61 C; far-1 of node one" in shown.splitlines(), shown
    page = daemon.ctl("top", "--once", check=0).stdout
    assert "GPUS" in page and "86% of 2" in page, page
    assert "gpu1.utilization" in daemon.ctl("metrics", job, check=0).stdout
    plot = daemon.ctl("metrics", job, "gpu0.utilization", "gpu1.utilization", "--plot", check=0).stdout
    assert "gpu1.utilization" in plot and "97" in plot, plot
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")
    assert series(daemon, job)["gpu1.utilization"][-1].value == 75
    assert "gpu1" not in daemon.ctl("describe", job, check=0).stdout


def test_points_go_on_when_the_daemon_was_started_again(cluster, driver, mine):
    daemon = start(cluster, driver, mine)
    job = daemon.submit(spec_of(mine))
    until_last(daemon, job, "gpu0.utilization", 97)
    launcher = daemon.launcher(job)
    driver.says(*TWO, use(0, 12), use(1, 40))
    daemon.restart()
    until_last(daemon, job, "gpu0.utilization", 12)
    now = daemon.job(job)
    assert now.attempt == 1 and daemon.launcher(job) == launcher
    assert not [name for name in now.metrics if name.startswith("gpu")]


def test_job_says_which_device_did_nothing_once(cluster, driver, mine):
    driver.says(*TWO, use(0, 97), use(1, 0))
    daemon = start(cluster, driver, mine, "--gpu-idle-after-ms", 1200)
    job = daemon.submit(spec_of(mine))
    noted = lambda: [n for n in daemon.job(job).notes if "done nothing since" in n]
    until("it is noted", noted)
    assert noted()[0].startswith("gpu1 (far-1) of node one has done nothing since 2"), noted()
    until_last(daemon, job, "gpu1.utilization", 0)
    assert len(noted()) == 1
    driver.says(*TWO, use(0, 97), use(1, 50))
    until_last(daemon, job, "gpu1.utilization", 50)
    driver.says(*TWO, use(0, 97), use(1, 0))
    until("the next time, too", lambda: len(noted()) == 2)


def test_gpus_of_a_command_on_two_nodes_are_counted_over_both(cluster, tmp_path):
    coordinator = cluster.start("--role", "coordinator", name="coordinator")
    coordinator.listened = coordinator.address
    nodes = {}
    for name, prefix, percent in (("one", "a", 10), ("two", "b", 20)):
        driver = Driver(tmp_path, name)
        driver.says(*gpus(prefix, 2), *(f"use GPU-{prefix}{i} {GIB} {percent + i} 100000 50" for i in range(2)))
        nodes[name] = gpu_node(cluster, coordinator, driver, name, "--gpu-timeout-ms", 500, "--collective-interface", "lo")
        until_listed(coordinator, name, lambda l: len(l.gpus) == 2)
    job = coordinator.submit(json.dumps({"kind": "command", "command": ["sleep", "600"], "resources": {"gpus_per_rank": 2},
                                         "trainer": {"devices": 1, "num_nodes": 2}}))
    utilization = lambda: {n: [p.value for p in points] for n, points in series(coordinator, job).items() if "utilization" in n}
    until("all four have points", lambda: len(utilization()) == 4)
    of = {g.number: g for g in coordinator.job(job).gpus}
    assert sorted(of) == [0, 1, 2, 3] and {of[0].node, of[2].node} == {"one", "two"}
    for number, values in ((int(name[3]), values) for name, values in utilization().items()):
        assert set(values) == {of[number].measured["utilization"]}, (number, values, of)
    # it names no step, so its samples are counted; a node's daemon that comes back goes on with it
    steps = lambda: [p.step for p in series(coordinator, job)[f"gpu{0 if of[0].node == 'one' else 2}.power"]]
    nodes["one"].restart()
    before = len(steps())
    until("samples go on", lambda: len(steps()) > before + 1)
    assert steps() == list(range(len(steps())))
    assert coordinator.job(job).attempt == 1
    coordinator.steer("Cancel", job)
    coordinator.wait_state(job, "CANCELLED")


def test_job_has_none_where_the_driver_does_not_know_its_devices(cluster, tmp_path, mine):
    other = Driver(tmp_path, "other")
    other.says(f"gpu GPU-a NVIDIA_H100 {80 * GIB} 10 0 9 0", f"use GPU-a {GIB} 5 60000 40")
    daemon = start(cluster, other, mine)
    until("it is sampled", lambda: [g for n in daemon.nodes() for g in n.gpus.gpus if g.measured])
    job = daemon.submit(spec_of(mine, trainer={"accelerator": far(), "devices": 2, "max_steps": 12}))
    daemon.finish(job)
    assert not series(daemon, job) and not daemon.job(job).gpus
    assert "GPUS" not in daemon.ctl("top", "--once", check=0).stdout


def test_files_of_loggers_have_them_beside_what_the_ranks_say(cluster, driver, mine, tmp_path):
    daemon = start(cluster, driver, mine)
    job = daemon.submit(spec_of(mine, loggers=[{"name": "csv", "dir": str(tmp_path)}]))
    file = tmp_path / f"far-{job}" / "metrics.csv"
    rows = lambda: list(csv.DictReader(file.open())) if file.exists() else []
    row = until("a row has a device", lambda: [r for r in rows() if r.get("gpu0.power") and r.get("gpu1.memory")])[0]
    assert float(row["gpu0.power"]) == 300 and float(row["gpu1.memory"]) == 12 * GIB
    steps = [int(r["step"]) for r in rows()]
    assert len(steps) == len(set(steps)), "a step has one row"
    assert {int(r["step"]) for r in rows() if r["train_loss_step"]} >= {10, 20}
