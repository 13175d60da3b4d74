"""Real daemons for tests: start, find, kill, and see that nothing is left over."""
import contextlib
import datetime
import fnmatch
import importlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("TRAIND_BUILD", ROOT / "build")).resolve()
BIN = BUILD / "bin"
# The Python that has torch, Lightning and transformers: `make rivals` makes it.
RIVAL = os.environ.get("TORCH") or str(BUILD / "venv-rivals/bin/python")
TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")

# The smallest job that trains: synthetic data, a few hundred steps, one rank.
SPEC = """
name: small
seed_everything: 1
stages: [fit, test]
model: {name: mlp, layers: [16, 32, 4], activation: relu}
data: {name: synthetic, samples: 512, features: 16, classes: 4, batch_size: 16, shuffle: true}
optimizer: {name: adamw, lr: 0.01, weight_decay: 0.01}
lr_scheduler: {name: constant}
trainer: {accelerator: cpu, strategy: auto, devices: 1, precision: 32-true, max_epochs: 3, log_every_n_steps: 1}
checkpoint: {every_n_epochs: 1, save_top_k: -1}
"""
# Where daemons of tests find slow_synthetic: those on loopback, unless they are told what they allow.
PLUGINS = BUILD / "tests/plugins"
# A job whose steps take a millisecond, so that it can be disturbed: it ends only when it is asked to, or with an override
# such as trainer.max_steps=200. Restarts do not wait. A checkpoint every 50 steps. It waits for its data rather than
# compute, so that cores stay free for other tests.
LONG = f"""
name: long
seed_everything: 1
stages: [fit]
plugins: [{PLUGINS}/dataset-slow_synthetic.so]
model: {{name: mlp, layers: [128, 256, 8], activation: relu}}
data: {{name: plugin, dataset: slow_synthetic, batch_size: 16, shuffle: true}}
optimizer: {{name: adamw, lr: 0.001, weight_decay: 0.01}}
trainer: {{accelerator: cpu, strategy: auto, devices: 1, max_epochs: -1, log_every_n_steps: 1, limit_val_batches: 0}}
checkpoint: {{every_n_train_steps: 50, save_top_k: 1}}
restart: {{max: 3, backoff: [0]}}
"""
# The same, but it computes for a millisecond.
BUSY = """
name: busy
seed_everything: 1
stages: [fit]
model: {name: mlp, layers: [128, 512, 512, 8], activation: relu}
data: {name: synthetic, samples: 8192, features: 128, classes: 8, batch_size: 128, shuffle: true}
""" + LONG[LONG.index("optimizer:"):]


def until(what, condition, deadline_s=30.0):
    """Polls a condition; fails with `what` when the deadline passes. Returns its truthy value."""
    end, pause = time.monotonic() + deadline_s, 0.01
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(pause)
        pause = min(1.1 * pause, 0.03)  # a question takes time from what it waits for


def generate_stubs(folder):
    from grpc_tools import protoc

    protos = sorted(str(p) for p in (ROOT / "proto/traind/v1").glob("*.proto"))
    args = ["protoc", f"-I{ROOT / 'proto'}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    assert protoc.main(args + protos) == 0
    sys.path.insert(0, str(folder))
    return Stubs()


class Stubs:
    """stubs.job, stubs.job_grpc, ..."""

    def __getattr__(self, name):
        base, _, kind = name.partition("_")
        return importlib.import_module(f"traind.v1.{base}_pb2" + ("_grpc" if kind else ""))


def audit(daemon, **wanted):
    """Lines of its audit log. They are written soon after the call was answered: who wants one waits for it. The last may be
    half written."""
    path = daemon.state_dir / "audit.log"
    lines = [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []
    return [x for x in lines if all(x.get(k) == v for k, v in wanted.items())]


def processes_of(state_dir):
    """Every process whose command line names the state directory, zombies not counted."""
    found = {}
    for p in pathlib.Path("/proc").iterdir():
        if p.name.isdigit() and int(p.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = p.joinpath("cmdline").read_bytes().split(b"\0")
                if any(str(state_dir).encode() in w for w in words):
                    found[int(p.name)] = b" ".join(words).decode(errors="replace")
    return found


def alive(pid):
    """A zombie has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def under_limit(folder, limit):
    """A folder of programs whose daemon begins with `ulimit <limit>`."""
    folder.mkdir()
    (folder / "traind").write_text(f"#!/bin/bash\nulimit {limit}\nexec {BIN}/traind \"$@\"\n")
    (folder / "traind").chmod(0o755)
    return folder


def with_worker(folder, script, verb="run"):
    """A folder of programs whose worker is a bash script when it is to do that; `exec` the real one in it."""
    folder.mkdir()
    for program in ("traind", "traind-launcher"):
        shutil.copy(BIN / program, folder)
    worker = folder / "traind-worker"
    worker.write_text(f"#!/bin/bash\n[ \"$1\" = {verb} ] || exec {BIN}/traind-worker \"$@\"\n{script}\n")
    worker.chmod(0o755)
    return folder


def below(folder, pattern="*"):
    """What is below a folder that somebody is at work in: what vanishes meanwhile is passed over, where rglob would fail."""
    return [pathlib.Path(at) / name for at, folders, files in os.walk(folder)
            for name in fnmatch.filter(folders + files, pattern)]


def total_bytes(paths):
    """Of the files that are still there."""
    total = 0
    for p in paths:
        with contextlib.suppress(FileNotFoundError):
            total += p.stat().st_size
    return total


def half_written(folder):
    return [p for p in below(folder) if ".tmp" in p.name or p.name.endswith(".part")]


class Daemon:
    popen = subprocess.Popen

    def __init__(self, cluster, state_dir, args, env):
        self.cluster, self.state_dir, self.args, self.env = cluster, state_dir, args, env
        self.process = self.channel = None
        self.bin = BIN
        self.listened = None  # nodes of their own know the address: a coordinator keeps it
        self.log = state_dir.parent / f"{state_dir.name}.log"

    def start(self, wait=True):
        self.drop_channel()
        self.state_dir.mkdir(parents=True, exist_ok=True)
        (self.state_dir / "address").unlink(missing_ok=True)
        listen = ["--listen", self.listened] if self.listened else []
        with open(self.log, "ab") as log:
            self.process = self.popen(
                self.command(self.bin / "traind", "--state-dir", self.state_dir, *self.args, *listen),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
        if wait:
            until("traind is ready", self.ready, 20)
        return self

    def command(self, *words):
        """The command line that runs a program where the daemon is."""
        return words

    def restart(self, sig=signal.SIGKILL):
        self.kill(sig)
        return self.start()

    def ready(self):
        """It has written its address, and the node inside it has registered."""
        assert self.process.poll() is None, f"traind ended {self.process.returncode}:\n{self.tail()}"
        if "node" in self.args:
            return True
        return (self.state_dir / "address").exists() and ("coordinator" in self.args or self.nodes("READY"))

    def tail(self, n=30):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-n:]) if self.log.exists() else ""

    def logged_at(self, pattern, deadline_s=30):
        """When it wrote the first line of its log that fits, in seconds of time.time(): what a test that polls, and a
        machine with much to do, add to a time is not in it."""
        fits = lambda: next((line for line in self.log.read_text(errors="replace").splitlines() if re.search(pattern, line)), None)
        return datetime.datetime.fromisoformat(until(f"{pattern} is logged", fits, deadline_s).split()[0]).timestamp()

    def attempt_ended_at(self, job):
        """When the job left its first attempt: it waits for another, or has ended."""
        return self.logged_at(f"job moved job={job} from=RUNNING ")

    @property
    def node_name(self):
        return self.args[self.args.index("--name") + 1] if "--name" in self.args else socket.gethostname()

    def attempts(self):
        """What is left of attempts on this node's disk: the folder of a job goes with its last attempt."""
        return sorted(map(str, self.state_dir.glob("attempts/*")))

    @property
    def address(self):
        return (self.state_dir / "address").read_text().strip()

    @property
    def token(self):
        return (self.state_dir / "token").read_text().strip()

    def kill(self, sig=signal.SIGKILL):
        """Sends a signal and waits for the end; the exit code."""
        self.drop_channel()
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.process.wait(60)

    def drop_channel(self):
        if self.channel:
            self.channel.close()
            self.channel = None

    def dial(self):
        import grpc

        return grpc.insecure_channel(self.address)

    def stub(self, service):
        """A service's stub whose calls carry the token: daemon.stub("Job").GetJob(...)."""
        import grpc

        if not self.channel:
            self.channel = grpc.intercept_channel(self.dial(), Token(self.token))
        home = {"NodeAdmin": "admin", "Admin": "admin"}.get(service, service.lower())
        return getattr(getattr(self.cluster.stubs, home + "_grpc"), service + "ServiceStub")(self.channel)

    # ---- what most tests do -------------------------------------------------------------------
    def submit(self, spec=SPEC, *overrides, request_id=""):
        request = self.cluster.stubs.job.CreateJobRequest(spec=spec, overrides=overrides, request_id=request_id)
        return self.stub("Job").CreateJob(request, timeout=20).id

    def validated(self, spec, directory="/"):
        """The canonical spec of one that was typed in a directory of this machine."""
        m = self.cluster.stubs.job
        place = m.ClientPlace(directory=str(directory), boot_id=pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        return self.stub("Job").ValidateJob(m.ValidateJobRequest(spec=spec, client=place), timeout=10).spec_json

    def job(self, job):
        return self.stub("Job").GetJob(self.cluster.stubs.job.GetJobRequest(id=job), timeout=20)

    def state(self, job):
        found = self.job(job)
        return found.State.Name(found.state)

    def wait_state(self, job, *states, deadline_s=60):
        def reached():
            now = self.state(job)
            assert now in states or now not in TERMINAL, f"{now} instead of {states}: {self.job(job)}\n{self.tail()}"
            return now in states

        until(f"{job} is {states}", reached, deadline_s)
        return self.job(job)

    def wait_step(self, job, step, deadline_s=60):
        def reached():
            now = self.job(job)
            assert now.State.Name(now.state) not in TERMINAL, f"{now}\n{self.tail()}"
            return now.global_step >= step

        until(f"{job} reaches step {step}", reached, deadline_s)
        return self.job(job)

    def wait_checkpoint(self, job, deadline_s=60):
        """The path of one that is whole: a step's point says nothing of it, since a thread writes it while steps go on."""
        return until(f"a checkpoint of {job} is known", lambda: self.job(job).checkpoint, deadline_s)

    def finish(self, job, deadline_s=60):
        return self.wait_state(job, "SUCCEEDED", deadline_s=deadline_s)

    def steer(self, verb, job):
        request = getattr(self.cluster.stubs.job, verb + "JobRequest")(id=job)
        return getattr(self.stub("Job"), verb + "Job")(request, timeout=20)

    def nodes(self, state=None):
        found = self.stub("NodeAdmin").ListNodes(self.cluster.stubs.admin.ListNodesRequest(), timeout=20).nodes
        return [n for n in found if state in (None, n.State.Name(n.state))]

    def points(self, job, name="train_loss_step"):
        points, token = [], None
        while token != "":
            request = self.cluster.stubs.metric.QueryMetricsRequest(job=job, names=[name], page_token=token or "")
            answer = self.stub("Metric").QueryMetrics(request, timeout=20)
            assert len(answer.series) == 1 and answer.series[0].dropped == 0, answer.series
            points += answer.series[0].points
            token = answer.next_page_token
        return points

    def hurry(self, job):
        """Points wait up to a second for more before they are written, and an attempt waits for its points. Who asks
        for points ends the waiting."""
        with contextlib.suppress(Exception):  # a node, or a coordinator that does not know the job
            request = self.cluster.stubs.metric.QueryMetricsRequest(job=job, max_points=1)
            self.stub("Metric").QueryMetrics(request, timeout=5)

    def losses(self, job, last, n_ranks=1, first=1):
        """Training losses by step, after checking that all ranks of each step came exactly once."""
        points = self.points(job)
        assert [p.step for p in points] == list(range(first, last + 1))
        assert {p.n_ranks for p in points} == {n_ranks}
        return {p.step: p.value for p in points}

    def logs(self, job, **more):
        request = self.cluster.stubs.log.ReadLogsRequest(job=job, **{"rank": -1, **more})
        return list(self.stub("Log").ReadLogs(request, timeout=30))

    def output(self, job, rank=0, **more):
        """All that a rank of a job that has ended has said. Last bytes may come after the end, so it is followed."""
        return b"".join(r.data for r in self.logs(job, rank=rank, follow=True, **more)).decode()

    def checkpoints(self, job):
        request = self.cluster.stubs.checkpoint.ListCheckpointsRequest(job=job)
        return list(self.stub("Checkpoint").ListCheckpoints(request, timeout=20).checkpoints)

    def weights(self, job, path=""):
        """Bytes of the shards of a checkpoint, by file name, as the coordinator hands them out."""
        m, stub = self.cluster.stubs.checkpoint, self.stub("Checkpoint")
        found = stub.GetCheckpoint(m.GetCheckpointRequest(job=job, path=path), timeout=20)
        read = lambda f: b"".join(r.data for r in stub.ReadShard(
            m.ReadShardRequest(job=job, path=found.path, file=f.name), timeout=30))
        return {f.name: read(f) for f in found.files if f.name.endswith(".safetensors")}

    def _pids(self, program, job):
        """Processes of a program that run for a job, by pid."""
        mine = {pid: line for pid, line in processes_of(self.state_dir).items() if job in line}
        return {pid: line for pid, line in mine.items() if line.split()[0].endswith(program) and " run " in line}

    def workers(self, job):
        """Pids of its ranks, rank 0 first."""
        found = {int(line.split("--rank ")[1].split()[0]): pid
                 for pid, line in self._pids("traind-worker", job).items()}
        return [found[rank] for rank in sorted(found)]

    def launcher(self, job):
        pids = list(self._pids("traind-launcher", job))
        return pids[0] if pids else None

    def ctl(self, *args, check=None, stdin=None, timeout=120, env=None):
        """Runs trainctl against this daemon."""
        done = subprocess.run(self.command(BIN / "trainctl", *map(str, args)), input=stdin, text=True, timeout=timeout,
                              capture_output=True, env={**self.env, "TRAIND_STATE_DIR": str(self.state_dir), **(env or {})})
        if check is not None:
            assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.tail()}"
        return done

    def ctl_json(self, *args):
        return json.loads(self.ctl(*args, "-o", "json", check=0).stdout)


def spec_file(tmp_path, text=SPEC):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return path


class Cluster:
    """The daemons of one test, their directories, and the check that they leave nothing."""

    plugins = {"TRAIND_PLUGIN_DIRS": str(PLUGINS)}

    def __init__(self, folder, stubs):
        self.folder, self.stubs, self.daemons = folder, stubs, []
        self.runtime = pathlib.Path(tempfile.mkdtemp(prefix="td-"))  # sockets need a short path

    def env(self, **more):
        keep = {k: v for k, v in os.environ.items()
                if (k == "TRAIND_CPU_ISA" or not k.startswith("TRAIND_")) and "proxy" not in k.lower()}
        return dict(keep, TRAIND_RUNTIME_DIR=str(self.runtime), **more)

    def make(self, *args, name=None):
        state_dir = self.folder / (name or f"state{len(self.daemons)}")
        # Who says what a node allows says so of plugins, too.
        found = {} if {"--allow", "--plugin-dirs"} & set(args) else self.plugins
        made = Daemon(self, state_dir, list(map(str, args)), self.env(**found))
        self.daemons.append(made)
        return made

    def start(self, *args, name=None):
        return self.make(*args, name=name).start()

    def node(self, coordinator, slots, name, *args):
        """A node of its own that dials the coordinator."""
        coordinator.listened = coordinator.address
        made = self.make("--role", "node", "--coordinator", coordinator.address, "--slots", slots,
                         "--token-file", coordinator.state_dir / "token", "--name", name, *args, name=name)
        return made.start()

    def unended(self):
        """Jobs that still run or wait, as far as a coordinator answers: (daemon, job)."""
        m, found = self.stubs.job, []
        states = [v for name, v in m.Job.State.items() if name not in (*TERMINAL, "STATE_UNSPECIFIED")]
        for d in self.daemons:
            with contextlib.suppress(Exception):  # stopped, killed, or a node: it knows no jobs
                request, more = m.ListJobsRequest(states=states, page_size=1000), True
                while more:
                    page = d.stub("Job").ListJobs(request, timeout=5)
                    found += [(d, j) for j in page.jobs]
                    request.page_token = more = page.next_page_token
        return found

    def end_jobs(self):
        """Cancels what still runs and gives it time to end, so that nothing of an attempt has a right to stay. Newest
        first: nothing that waited begins. What does not end is found by who looks for litter."""
        running = self.unended()
        for d, job in running:
            with contextlib.suppress(Exception):  # it has ended meanwhile, or the test has broken the coordinator
                d.steer("Cancel", job.id)
        living = [d for d in self.daemons if d.process and d.process.poll() is None]
        names = {d.node_name for d in living}  # a job of a node that is away, or that the test plays, does not end
        runs = lambda: running and any(names & set(job.nodes) for _, job in self.unended())

        def forgotten():
            left = {pathlib.Path(a).name for d in living for a in d.attempts()}
            for d, job in itertools.product(living, left):
                d.hurry(job)
            return not left and not runs()

        with contextlib.suppress(AssertionError):
            until("attempts end and are forgotten", forgotten, 20)
        return {job.id for _, job in running}

    def close(self):
        running = self.end_jobs()
        stopped = [d for d in self.daemons if d.process and d.process.poll() is None]
        for d in self.daemons:
            d.drop_channel()
        for d in stopped:
            d.process.send_signal(signal.SIGTERM)
        for d in self.daemons:
            if d.process:
                try:
                    d.process.wait(30)
                except subprocess.TimeoutExpired:
                    d.process.kill()
                    d.process.wait()
                    raise AssertionError(f"traind did not end within 30 s of SIGTERM:\n{d.tail()}") from None
        left = self.left()
        for pid in left:  # launchers that a killed daemon left, by design: the test is over for them too
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        until(f"processes end: {left}", lambda: not self.left(), 30)
        litter = [str(p) for d in self.daemons for p in half_written(d.state_dir)
                  if not self.is_cut_off(p, running)]
        litter += [path for d in self.daemons for path in d.attempts()]  # of those that the test killed, too
        litter += [str(p) for p in below(self.runtime) if p.is_socket() and not left]
        said = "\n".join(f"{d.log.name}:\n{d.tail()}" for d in self.daemons)
        shutil.rmtree(self.runtime, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        assert not litter, f"left over: {litter}\n{said}"
        assert all(d.process.returncode == 0 for d in stopped), [d.process.returncode for d in stopped]

    def is_cut_off(self, path, running):
        """A transfer to a coordinator that the end of the test cut off: it is kept, to go on from its offset. Only of a
        job that has not ended, and only where its checkpoints lie."""
        homes = [d.state_dir / "checkpoints" / job for d in self.daemons for job in running]
        return path.suffix == ".part" and any(path.parent.parent.parent == home for home in homes)

    def left(self):
        return {pid: line for d in self.daemons for pid, line in processes_of(d.state_dir).items()}


class Token:
    """Client interceptor: adds the credential to every call."""

    def __new__(cls, token):
        import grpc

        class Interceptor(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor,
                          grpc.StreamUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
            def _with(self, details):
                metadata = list(details.metadata or []) + [("authorization", f"Bearer {token}")]
                return details._replace(metadata=metadata)

            def intercept_unary_unary(self, call, details, request):
                return call(self._with(details), request)

            intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = intercept_unary_unary

        return Interceptor()
