"""Rows of the system around the training: from submit to a step, what a daemon costs when it idles."""
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from harness import A, ROW_S, Cluster, Row, emit, run_rival, support

import gpu_nodes

SAMPLES_S = 60


def stubs(folder):
    made = folder / "stubs"
    made.mkdir()
    return support.generate_stubs(made)


def submit_to(daemon, step, *sets):
    """Seconds from starting `trainctl submit` to the given step, by a watch that is already open."""
    start = time.perf_counter()
    job = daemon.ctl("submit", support.ROOT / "examples/fashion-mnist.yaml", "-o", "name",
                     *[x for s in sets for x in ("--set", s)], check=0).stdout.strip()
    request = daemon.cluster.stubs.job.WatchJobRequest(id=job)
    for r in daemon.stub("Job").WatchJob(request, timeout=300):
        if r.job.global_step >= step or (r.job.progress and r.job.progress.step >= step):
            break
        assert r.job.State.Name(r.job.state) not in ("FAILED", "CANCELLED"), r.job
    took = time.perf_counter() - start
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED", "SUCCEEDED")
    return took


def latency(folder, torch):
    """From `trainctl submit` on a warm daemon: first step (cold, then warm), end of epoch 1; CreateJob."""
    cluster = Cluster(folder, stubs(folder))
    try:
        daemon = cluster.start("--slots", "2")
        with Row("submit to first step, cold", "ms"):
            emit("submit to first step, cold", [1e3 * submit_to(daemon, 1)], "ms")
        with Row("submit to first step, warm", "ms"):
            emit("submit to first step, warm", [1e3 * submit_to(daemon, 1) for _ in range(20)], "ms", better="less",
                 asked=40)
        own_plan = "submit to first step, warm, each with a plan of its own"
        with Row(own_plan, "ms"):
            emit(own_plan, [1e3 * submit_to(daemon, 1, f"seed_everything={i}") for i in range(2, 22)], "ms",
                 better="less")
        with Row("submit to end of epoch 1", "s", ROW_S * A.rounds):
            first_epoch(daemon, torch)
        with Row("CreateJob serial", "ms"):
            create_job(folder, daemon)
    finally:
        cluster.close()


ENTERED = "import sys, time; open(sys.argv[1], 'w').write(str(time.monotonic_ns()) + '\\n')"


def entered_at(path):
    """When the script wrote that it runs, on this machine's monotonic clock."""
    text = support.until("the script is entered", lambda: path.exists() and path.read_text(), 30)
    assert text.endswith("\n")
    return int(text)


def enter(daemon, spec, out, **more):
    """ms from `trainctl submit` of a script to its first line."""
    spec.write_text(json.dumps({"kind": "command", "command": [sys.executable, "-c", ENTERED, str(out)], **more}))
    start = time.monotonic_ns()
    job = daemon.ctl("submit", spec, "-o", "name", check=0).stdout.strip()
    took = (entered_at(out) - start) / 1e6
    daemon.finish(job)
    return took


def command(folder, torch):
    """From `trainctl submit` on a warm daemon to the first line of a Python script, without GPUs and with 4 of a driver's
    double; beside it, the script alone."""
    cluster = Cluster(folder, stubs(folder))
    name = "command: submit to main of the script entered"
    try:
        driver = gpu_nodes.Driver(folder, "gpus")
        driver.says(*gpu_nodes.gpus("a", 4), *gpu_nodes.all_linked("a", 4))
        daemon = cluster.make("--slots", "2")
        daemon.bin = driver.bin
        daemon.start()
        support.until("its GPUs are listed", lambda: daemon.nodes()[0].gpus.gpus)
        spec, ours, with_gpus, bare = folder / "command.json", [], [], []
        with Row(name, "ms"):
            for i in range(20):
                ours.append(enter(daemon, spec, folder / f"entered-{i}"))
                with_gpus.append(enter(daemon, spec, folder / f"with-gpus-{i}", resources={"gpus_per_rank": 4}))
                out = folder / f"bare-{i}"
                start = time.monotonic_ns()
                subprocess.run([sys.executable, "-c", ENTERED, out], check=True)
                bare.append((entered_at(out) - start) / 1e6)
            emit(name, ours, "ms", better="less", asked=150)
            emit("the same with 4 GPUs", with_gpus, "ms", better="less", without=round(statistics.median(ours), 2))
            emit("the same script, fork and exec alone", bare, "ms", better="less")
    finally:
        cluster.close()


def first_epoch(daemon, torch):
    one = ("trainer.devices=1", "trainer.strategy=auto", "resources.threads=2")
    ours, theirs = [], []
    for _ in range(A.rounds):
        ours.append(submit_to(daemon, 468, *one))
        if torch:
            theirs += [x["epoch1_at_s"] for x in run_rival("fashion.py", "--job", "mlp", "--epochs", "1").lines]
    emit("submit to end of epoch 1", ours, "s", theirs if torch else [], better="less")


def create_job(folder, daemon):
    """CreateJob one after another, beside this disk's fdatasync in the same run."""
    took, sync = [], []
    spec = support.SPEC + "resources: {threads: 2}\n"
    stub, request = daemon.stub("Job"), daemon.cluster.stubs.job.CreateJobRequest(spec=spec)
    with open(folder / "probe", "wb") as f:
        for _ in range(200):
            start = time.perf_counter()
            stub.CreateJob(request)
            took.append(1e3 * (time.perf_counter() - start))
            f.write(b"x" * 4096)
            f.flush()
            start = time.perf_counter()
            os.fdatasync(f.fileno())
            sync.append(1e3 * (time.perf_counter() - start))
    emit("CreateJob serial", took, "ms", fdatasync_median=round(statistics.median(sync), 4))


def rss_mb(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_s(pid):
    f = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")


def idle(folder, torch):
    """An idle `traind` of role all: ready, resident memory, CPU in 30 s; and a launcher's memory."""
    made = stubs(folder)
    with Row("traind ready", "ms"):
        starts(folder, made)
    cluster = Cluster(folder, made)
    try:
        daemon = cluster.start("--slots", "2")
        with Row("traind idle, cpu in 30 s", "s"):
            pid, before = daemon.process.pid, cpu_s(daemon.process.pid)
            time.sleep(30)
            emit("traind idle, cpu in 30 s", [cpu_s(pid) - before], "s")
            emit("traind idle, resident", [rss_mb(pid)], "MiB")
        with Row("launcher resident", "MiB"):
            launcher(daemon)
        with Row("CPU of sampling 8 GPUs of a job", "% of a core"):
            samples(folder, made)
    finally:
        cluster.close()


def run_ms(pid):
    """Of all threads, by the scheduler's count, which is finer than ticks."""
    return sum(int(p.read_text().split()[0]) for p in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


def samples(folder, made):
    """A job that has 8 GPUs and does nothing: what the daemon, the one that asks the driver and the launcher compute for in
    a minute, less the same without GPUs."""
    driver = gpu_nodes.Driver(folder, "eight")
    driver.says(*gpu_nodes.gpus("a", 8), *gpu_nodes.all_linked("a", 8), *(f"use GPU-a{i} 1 50 300000 60" for i in range(8)),
                "fail nvmlEventSetCreate 3")  # the double waits for events by reading its script a hundred times a second
    took = {}
    for n_gpus in (0, 8):
        (folder / f"gpus-{n_gpus}").mkdir()
        with contextlib.closing(Cluster(folder / f"gpus-{n_gpus}", made)) as cluster:
            daemon = cluster.make("--slots", "2", "--gpus", "auto" if n_gpus else "none")
            daemon.bin = driver.bin
            daemon.start()
            if n_gpus:
                support.until("its GPUs are listed", lambda: daemon.nodes()[0].gpus.gpus)
            job = daemon.submit(json.dumps({"kind": "command", "command": ["sleep", "600"], "resources": {"gpus_per_rank": n_gpus}}))
            daemon.wait_state(job, "RUNNING")
            asks = gpu_nodes.helpers(daemon)
            pids = [daemon.process.pid, daemon.launcher(job), *asks]
            time.sleep(15)  # of its start
            before, began = [run_ms(p) for p in pids], time.monotonic()
            time.sleep(SAMPLES_S)
            took[n_gpus] = [(run_ms(p) - b) / 10 / (time.monotonic() - began) for p, b in zip(pids, before)]
            daemon.steer("Cancel", job)
    emit("CPU of sampling 8 GPUs of a job", [sum(took[8]) - sum(took[0])], "% of a core", better="less", asked=0.05,
         asks_the_driver=round(took[8][2], 4))


def starts(folder, made):
    ready = []
    for i in range(10):
        (folder / f"ready{i}").mkdir()
        with contextlib.closing(Cluster(folder / f"ready{i}", made)) as cluster:
            start = time.perf_counter()
            cluster.start()
            ready.append(1e3 * (time.perf_counter() - start))
    emit("traind ready", ready, "ms")


def launcher(daemon):
    job = daemon.submit(support.BUSY)
    daemon.wait_step(job, 10)
    launchers = [p for p, line in support.processes_of(daemon.state_dir).items() if "traind-launcher" in line]
    emit("launcher resident", [rss_mb(p) for p in launchers], "MiB")
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")
