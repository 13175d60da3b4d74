"""Rows of several hosts, which are network namespaces of this machine (wires.py), their rivals in the same ones.

The coordinator is on the first host and speaks TLS; each host has a node. Times of steps are those that the points of
train_loss_step bear. A host's end is SIGKILL to all that it runs, at once. How long a node may be silent is set lower
than its default, which leaves a daemon time to start again.
"""
import contextlib
import datetime
import json
import os
import signal
import statistics
import subprocess
import time

import wires
from crowd import cpu_ms
from daemons import stubs
from harness import A, HERE, ROW_S, TORCH, Cluster, Row, chosen, emit, note, support

SECONDS, STARTS, RUN_S, IDLE_S = 2, 5, 120, 30
EXPOSED_STEPS = 6
GPT_STEPS = (2, 8)
SIZES = {43376640: ("43 MB", 1.0, 1.2), 1 << 20: ("1 MB", 1.5, None), 16 << 10: ("16 KB", 1.5, None)}
SILENCE = ("--heartbeat-ms", 200, "--lease-ms", 1000, "--lost-after-ms", 1000)


def hosts(folder, torch):
    rounds = ROW_S * A.rounds
    for part, row, unit, limit_s, run in (
            ("all_reduce", "all_reduce", "ms", rounds, lambda: all_reduce(folder, torch)),
            ("first", "CreateJob to the first step of 4 ranks", "s", rounds, lambda: first_collective(folder, torch)),
            ("bytes", "bytes of a gpt step, of its gradients", "share", ROW_S, lambda: step_bytes(folder)),
            ("exposed", "exposed communication of a gpt step at 1 Gbit/s", "ms", rounds, lambda: exposed(folder)),
            ("idle", "idle node session", "share", ROW_S, lambda: idle_session(folder)),
            ("killed", "SIGKILL", "s", rounds, lambda: killed(folder))):
        if chosen(f"hosts-{part}"):
            with Row(f"hosts: {row}", unit, limit_s):
                run()


# ---- programs on several hosts ------------------------------------------------------------------
def all_of(net, commands, envs, rival=False):
    """JSON lines of one command a host, all at once."""
    running = [net.popen(i, command, env=env, cwd=HERE / "rivals", text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, start_new_session=True) for i, (command, env) in enumerate(zip(commands, envs))]
    outs = []
    try:
        for p in running:
            out, errors = p.communicate(timeout=RUN_S)
            outs.append([json.loads(line) for line in out.splitlines() if line.startswith("{")])
            if p.returncode:
                note(f"status {p.returncode}: {errors[-300:]}", rival)
    except subprocess.TimeoutExpired:
        note(f"no end within {RUN_S} s", rival)
    finally:
        for p in running:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)  # torchrun's ranks, too
                p.communicate()
    return outs


def torch_env(**more):
    return dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="eth0", **more)


def all_reduce(folder, torch):
    """One rank a host. A figure is the median of a run of some seconds; the sides take turns."""
    ours, rival = {}, {}
    with wires.Hosts(2) as net:
        for i in range(2 * A.rounds + 1):
            meet = folder / f"meet{i}"
            meet.mkdir()
            own = [[support.BUILD / "tests/bench/bench_hosts", h, net.address(h), meet, SECONDS] for h in range(2)]
            for x in all_of(net, own, [dict(os.environ)] * 2)[0]:
                ours.setdefault(int(x["name"].split()[1]), []).append(statistics.median(x["ms"]))
            envs = [torch_env(RANK=str(h), WORLD_SIZE="2", MASTER_ADDR=net.address(0), MASTER_PORT="29500")
                    for h in range(2)]
            theirs = [[TORCH, "allreduce.py", "--seconds", SECONDS]] * 2
            for x in all_of(net, theirs, envs, True)[0] if torch else ():
                rival.setdefault(int(x["name"].split()[1]), []).append(x["median"])
    for size, (name, asked, aim) in SIZES.items():
        emit(f"hosts: all_reduce of {name} between 2", ours.get(size, []), "ms", rival.get(size, []), better="less",
             asked=asked, aim=aim, rival_is="torch's gloo over the same veth")


# ---- daemons on several hosts -------------------------------------------------------------------
class Several:
    """A coordinator and nodes n0, n1 ... on hosts of their own."""

    def __init__(self, net, cluster, n, slots, *settings):
        self.net, self.cluster, self.nodes = net, cluster, []
        state = cluster.folder / "c"
        subprocess.run([support.BIN / "traind", "init", "--state-dir", state, "--host", self.net.address(0)], check=True,
                       capture_output=True)
        self.coordinator = self.start(0, "c", "--role", "coordinator", "--listen", f"{self.net.address(0)}:0", *settings)
        self.access = ["--address", self.coordinator.address, "--token-file", state / "token", "--ca", state / "tls/ca.pem"]
        for host in range(n):
            self.nodes.append(self.start(
                host, f"n{host}", "--role", "node", "--coordinator", self.coordinator.address, "--token-file",
                state / "token", "--ca", state / "tls/ca.pem", "--slots", slots, "--name", f"n{host}",
                "--measure-after-ms", 0, "--collective-interface", "eth0"))
        support.until("all nodes are ready", lambda: self.ready() == n)

    def start(self, host, name, *args):
        with self.net.inside(host):
            return self.cluster.start(*args, name=name)

    def ctl(self, *args):
        with self.net.inside(0):
            return self.coordinator.ctl(*args, *self.access, check=0).stdout

    def ready(self):
        """How many nodes are."""
        return self.ctl("node", "list", "-o", "json").upper().count("READY")

    def submit(self, spec, *sets):
        path = self.cluster.folder / "spec.yaml"
        path.write_text(spec if isinstance(spec, str) else json.dumps(spec))
        return self.ctl("submit", path, "-o", "name", *[x for s in sets for x in ("--set", s)]).strip()

    def wait(self, job):
        self.ctl("wait", job, "--timeout", RUN_S)
        return self.points(job)

    def points(self, job):
        """(attempt, step, time of day) of each step so far."""
        found = json.loads(self.ctl("metrics", job, "train_loss_step", "-o", "json"))
        seconds = lambda t: datetime.datetime.fromisoformat(t).timestamp()
        return [(p.get("attempt", 0), p["step"], seconds(p["time"])) for s in found["series"] for p in s["points"]]

    def settle(self):
        support.until("attempts are forgotten", lambda: not any(n.attempts() for n in self.nodes), RUN_S)


@contextlib.contextmanager
def several(folder, n, *settings):
    folder.mkdir()
    with wires.Hosts(n) as net, contextlib.closing(Cluster(folder, stubs(folder))) as cluster:
        made = Several(net, cluster, n, *settings)
        yield made
        made.settle()


def first_collective(folder, torch):
    """The same job again and again, so that its plan and its kernels' choices are there."""
    ours, rival = [], []
    with several(folder / "first", 2, 2) as s:
        for i in range(STARTS * A.rounds + 1):
            began = time.time()
            job = s.submit(support.SPEC, "trainer.num_nodes=2", "trainer.devices=2", "trainer.max_steps=1")
            first = min(at for _, _, at in s.wait(job)) - began
            ours += [first] if i else []
        for i in range(A.rounds if torch else 0):
            began, host = time.time(), s.net.address(0)
            commands = [[TORCH, "-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend",
                         "c10d", "--rdzv-endpoint", f"{host}:29400", "--rdzv-id", f"r{i}", "--rdzv-conf", f"is_host={h == 0}", "--local-addr",
                         s.net.address(h), "rendezvous.py"] for h in range(2)]
            lines = sum(all_of(s.net, commands, [torch_env()] * 2, True), [])
            rival += [max(x["done_s"] for x in lines) - began] if lines else []
    emit("hosts: CreateJob to the first step of 4 ranks on 2 done", ours, "s", better="less", asked=1,
         torchrun_s=rival and round(statistics.median(rival), 3) or None,
         torchrun_is="from torchrun with c10d to the first all_reduce")


def gpt(batch_size):
    """The gpt of 10.8M parameters, one rank a host."""
    text = {"name": "text", "path": "/usr/share/dictd/gcide.dict.dz", "block_size": 256, "batch_size": batch_size,
            "shuffle": True, "drop_last": True, "limit_bytes": 1 << 20}
    return {"name": "gpt", "stages": ["fit"], "seed_everything": 1, "data": text,
            "model": {"name": "gpt", "n_layer": 6, "n_head": 6, "n_embd": 384}, "optimizer": {"name": "sgd", "lr": 0.01},
            "trainer": {"num_nodes": 2, "devices": 1, "limit_val_batches": 0, "num_sanity_val_steps": 0}}


def waits_of(path):
    """Milliseconds of each step in which the thread that computes did not: it reduced a bucket, or waited for one."""
    events = [e for e in json.loads(path.read_text()) if e.get("ph") == "X"]
    steps, end = [], 0
    own = {e["tid"] for e in events if e["name"] == "backward"}
    for e in sorted((e for e in events if e["tid"] in own), key=lambda e: e["ts"]):
        if e["name"] == "forward":
            steps.append(0)
        if e["name"].startswith("bucket") or e["name"].startswith("await bucket"):
            until = e["ts"] + e["dur"]
            steps[-1] += max(until - max(end, e["ts"]), 0) / 1000  # the last bucket is reduced within the wait
            end = max(end, until)
    return steps


def exposed(folder):
    """From ranks' timelines. The first step of a run is left out: nodes connect in it."""
    found = {True: [], False: []}
    with several(folder / "exposed", 2, 1) as s:
        s.net.limit("1gbit")
        for i in range(A.rounds):
            for overlap in (True, False):
                traces = folder / f"trace-{overlap}-{i}"
                traces.mkdir()
                s.wait(s.submit(gpt(16), f"trainer.max_steps={EXPOSED_STEPS}", f"trainer.trace_dir={traces}",
                                f"trainer.strategy={{name: ddp, overlap: {str(overlap).lower()}}}"))
                found[overlap] += waits_of(traces / "timeline-a1-rank0.json")[1:]
    name = "hosts: exposed communication of a gpt 10.8M step at 1 Gbit/s"
    without = statistics.median(found[False]) if found[False] else None
    emit(name, found[True], "ms", better="less", without_overlap=without and round(without, 1))
    emit(f"{name}, of that without overlap", [x / without for x in found[True]] if without else [], "share",
         better="less", asked=0.6)


def step_bytes(folder):
    """What the second host sends for a step more, headers too; small batches, which change no gradient."""
    spec, sent = gpt(1), {}
    with several(folder / "bytes", 2, 1) as s:
        for steps in (GPT_STEPS[0], *GPT_STEPS):  # the first run plans
            before = s.net.sent_bytes(1)
            s.wait(s.submit(spec, f"trainer.max_steps={steps}"))
            sent[steps] = s.net.sent_bytes(1) - before
        plan = json.loads(s.ctl("plan", s.cluster.folder / "spec.yaml", "-o", "json"))
    gradients = 4 * int(plan["parameters"])
    a_step = (sent[GPT_STEPS[1]] - sent[GPT_STEPS[0]]) / (GPT_STEPS[1] - GPT_STEPS[0])
    emit("hosts: bytes that a node sends in a gpt 10.8M step, of 2 (n-1)/n of the gradients", [a_step / gradients],
         "share", better="less", asked=1.02, gradient_bytes=gradients)


def idle_session(folder):
    with several(folder / "idle", 2, 1) as s:
        pid = s.nodes[1].process.pid
        time.sleep(5)  # of its start
        before, began = cpu_ms(pid), time.monotonic()
        time.sleep(IDLE_S)
        share = (cpu_ms(pid) - before) / 10 / (time.monotonic() - began)
    emit("hosts: CPU of an idle node session", [share], "% of a core", better="less", asked=0.1)


# ---- ends ---------------------------------------------------------------------------------------
def workers_of(node):
    lines = support.processes_of(node.state_dir)
    return [pid for pid, line in lines.items() if "traind-worker" in line and " run " in line]


def trains(s, job, attempt):
    return [at for n, _, at in s.points(job) if n == attempt]


def kill_one(s, job, attempt, everything):
    """Seconds to the end of the other host's ranks, and to the first step of the next attempt."""
    support.until("it trains", lambda: trains(s, job, attempt), RUN_S)
    used = [n for n in s.nodes if workers_of(n)]
    assert len(used) == 2, used
    stays, goes = used
    victims = [*support.processes_of(goes.state_dir)] if everything else workers_of(goes)
    watched, began, wall = workers_of(stays), time.monotonic(), time.time()
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    support.until("the other's ranks end", lambda: not any(support.alive(p) for p in watched), RUN_S)
    ended = time.monotonic() - began
    again = min(support.until("it trains again", lambda: trains(s, job, attempt + 1), RUN_S)) - wall
    if everything:
        goes.process.wait()
        with s.net.inside(s.nodes.index(goes)):
            goes.start()
        support.until("it is clean", lambda: s.ready() == 3 and not goes.attempts(), RUN_S)
    return ended, again


def killed(folder):
    figures = {True: [], False: []}
    with several(folder / "killed", 3, 1, *SILENCE) as s:
        for _ in range(A.rounds):
            for everything in (False, True):
                job = s.submit(support.BUSY, "trainer.num_nodes=2", "trainer.devices=1")
                figures[everything].append(kill_one(s, job, 1, everything))
                s.ctl("cancel", job)
                s.settle()
    for everything, what in ((False, "a peer"), (True, "all of a host")):
        ended, again = zip(*figures[everything])
        settings = " ".join(map(str, SILENCE)) if everything else None
        emit(f"hosts: SIGKILL to {what} to the attempt's end on the other", ended, "s", better="less", asked=2)
        emit(f"hosts: SIGKILL to {what} to the next attempt's first step, with a spare", again, "s", better="less",
             asked=5, settings=settings)
