"""make bench: the figures of traind as JSON lines, rivals beside them in the same run.

Each line has name, median, min, max, unit, n, machine facts, and where there is a rival: rival, and
ratio (traind / rival for rates, rival / traind for times: above 1 is better for traind). Commands are
run in turn, several rounds, so that a disturbance hits both alike. Without torch the rival's lines
say "no rival". Nothing here passes or fails.

    python3 tests/bench/bench.py --build build [--rounds 3] [--only throughput] [--torch PYTHON]

--torch names a Python that has torch; by default build/venv-rivals/bin/python, if it is there.
"""
import argparse
import json
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", default="", help="run only figures whose name contains this")
    p.add_argument("--torch", default="")
    return p.parse_args()


A = parse()
os.environ["TRAIND_BUILD"] = str(pathlib.Path(A.build).resolve())
import support  # noqa: E402  (it reads TRAIND_BUILD)

TORCH = A.torch or str(support.BUILD / "venv-rivals/bin/python")
EXAMPLE = (support.ROOT / "examples/fashion-mnist.yaml").read_text()
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000",
          "MALLOC_TOP_PAD_": "100000000"}


def cpu_model():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return f"{os.cpu_count()} x {line.split(':')[1].strip()}"
    return f"{os.cpu_count()} cores"


def emit(name, figures, unit, rival=None, better="more", **more):
    """One figure; rival: the rival's own figures, in the same unit."""
    if not figures:
        return
    line = dict(name=name, median=round(statistics.median(figures), 6), min=round(min(figures), 6),
                max=round(max(figures), 6), unit=unit, n=len(figures), machine=cpu_model(), **more)
    if rival is not None:
        if rival:
            line["rival"] = round(statistics.median(rival), 6)
            line["rival_min"], line["rival_max"] = round(min(rival), 6), round(max(rival), 6)
            ours, theirs = line["median"], line["rival"]
            line["ratio"] = round(ours / theirs if better == "more" else theirs / ours, 3)
        else:
            line["rival"] = "no rival"
    print(json.dumps(line), flush=True)


def others_busy(since):
    """Core-seconds other processes used between two readings of /proc/stat."""
    f = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    now = (sum(f) - f[3] - f[4]) / os.sysconf("SC_CLK_TCK")
    return now - since if since else now


def have_torch():
    try:
        return subprocess.run([TORCH, "-c", "import torch"], capture_output=True, timeout=120).returncode == 0
    except OSError:
        return False


def run_rival(script, *args):
    done = subprocess.run([TORCH, script, *args], cwd=HERE / "rivals", env=dict(os.environ, **MALLOC),
                          capture_output=True, text=True, timeout=900)
    lines = [json.loads(s) for s in done.stdout.splitlines() if s.startswith("{")]
    if not lines:
        print(f"rival {script} failed: {done.stderr[-500:]}", file=sys.stderr)
    return lines


def worker_plan(folder, stubs, epochs):
    """The example as one rank of two threads: the same global batch as the rival's two threads."""
    (folder / "plan").mkdir()
    cluster = support.Cluster(folder / "plan", stubs)
    try:
        made = cluster.start("--slots", "1")
        made.ctl("plan", support.ROOT / "examples/fashion-mnist.yaml", "-O", folder / "plan.json",
                 "--set", "trainer.devices=1", "--set", "trainer.strategy=auto", "--set", f"trainer.max_epochs={epochs}",
                 "--set", "resources.threads=2", "--set", "stages=[fit]", "--set", "checkpoint.every_n_epochs=0",
                 check=0)
    finally:
        cluster.close()
    return folder / "plan.json"


def throughput(folder, torch, stubs):
    """mlp fp32, samples a second: medians of epochs after the first, commands in turn."""
    plan, ours, theirs, accuracy = worker_plan(folder, stubs, 5), [], [], []
    env = dict(os.environ, OMP_NUM_THREADS="2", GOMP_SPINCOUNT="1000")
    for _ in range(A.rounds):
        if torch:
            for line in run_rival("fashion.py", "--job", "mlp"):
                theirs.append(line["median"])
                accuracy.append(line["accuracy"])
        done = subprocess.run([support.BIN / "traind-worker", "run", "--plan", plan], env=env, cwd=folder,
                              capture_output=True, text=True, timeout=600)
        points = [json.loads(s) for s in done.stdout.splitlines() if '"samples_per_s"' in s]
        warm = [p["value"] for p in points if p.get("name") == "samples_per_s" and p["epoch"] > 0]
        if warm:
            ours.append(statistics.median(warm))
        else:
            print(f"worker failed: {done.stderr[-500:]}", file=sys.stderr)
    emit("throughput mlp fp32", ours, "samples/s", theirs if torch else [], threads=2, batch=128)


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


def latency(folder, torch, stubs):
    """From `trainctl submit` on a warm daemon: first step (cold, then warm), end of epoch 1; CreateJob."""
    cluster = support.Cluster(folder, stubs)
    try:
        daemon = cluster.start("--slots", "2")
        emit("submit to first step, cold", [submit_to(daemon, 1)], "s")
        emit("submit to first step, warm", [submit_to(daemon, 1) for _ in range(20)], "s")
        one = ("trainer.devices=1", "trainer.strategy=auto", "resources.threads=2")
        ours, theirs = [], []
        for _ in range(A.rounds):
            ours.append(submit_to(daemon, 468, *one))
            if torch:
                theirs += [x["epoch1_at_s"] for x in run_rival("fashion.py", "--job", "mlp", "--epochs", "1")]
        emit("submit to end of epoch 1", ours, "s", theirs if torch else [], better="less")
        create_job(folder, daemon)
    finally:
        cluster.close()


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


def idle(folder, stubs):
    """An idle `traind` of role all: ready, resident memory, CPU in 30 s; and a launcher's memory."""
    ready = []
    for i in range(10):
        cluster = support.Cluster(folder / f"ready{i}", stubs)
        (folder / f"ready{i}").mkdir()
        start = time.perf_counter()
        cluster.start()
        ready.append(1e3 * (time.perf_counter() - start))
        cluster.close()
    emit("traind ready", ready, "ms")
    cluster = support.Cluster(folder, stubs)
    try:
        daemon = cluster.start("--slots", "2")
        pid, before = daemon.process.pid, cpu_s(daemon.process.pid)
        time.sleep(30)
        emit("traind idle, cpu in 30 s", [cpu_s(pid) - before], "s")
        emit("traind idle, resident", [rss_mb(pid)], "MiB")
        job = daemon.submit(support.LONG)
        daemon.wait_step(job, 10)
        launchers = [p for p, line in support.processes_of(daemon.state_dir).items() if "traind-launcher" in line]
        emit("launcher resident", [rss_mb(p) for p in launchers], "MiB")
        daemon.steer("Cancel", job)
        daemon.wait_state(job, "CANCELLED")
    finally:
        cluster.close()


def c_benches():
    """Programs of tests/bench print their own lines."""
    for program in sorted((support.BUILD / "tests/bench").glob("bench_*")):
        if os.access(program, os.X_OK) and program.suffix == "" and A.only in program.name:
            subprocess.run([program], timeout=600)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch = have_torch()
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        stubs = support.generate_stubs(folder)
        for name, figure in (("throughput", lambda d: throughput(d, torch, stubs)),
                             ("latency", lambda d: latency(d, torch, stubs)), ("idle", lambda d: idle(d, stubs))):
            if A.only in name:
                (folder / name).mkdir()
                figure(folder / name)
    c_benches()


if __name__ == "__main__":
    main()
