"""The storm: for minutes every process is killed, stopped for a while or asked to end at random moments, and jobs are
paused, resumed and cancelled. Afterwards every job has the bits of one that nobody disturbed, and every file, row and
process has an owner.

    make storm MINUTES=30 SEED=7

The seed decides what is done and in which order; when it hits depends on the machine. check-full runs a short form.
"""
import contextlib
import os
import random
import re
import signal
import sqlite3
import time
from collections import Counter

import pytest

from marks import full_only
from support import LONG, TERMINAL, processes_of, until

MINUTES = float(os.environ.get("TD_STORM_MINUTES", "0.8"))
SEED = int(os.environ.get("TD_STORM_SEED", "1"))
pytestmark = full_only

# One thread for each rank: a node of one slot would give it two, and other bits.
COMMON = ["resources.threads=1", "restart.max=1000"]
SHAPES = {
    "one": [*COMMON, "trainer.devices=1", "trainer.max_steps=400"],
    "two": [*COMMON, "trainer.devices=2", "trainer.max_steps=300"],
    "best": [*COMMON, "trainer.devices=1", "trainer.max_epochs=5", "trainer.limit_val_batches=4",
             "checkpoint.monitor=val_loss", "checkpoint.save_top_k=2"],
}
RANKS = {"one": 1, "two": 2, "best": 1}
AT_ONCE = 3
# A launcher that is stopped for longer lets the rings of its ranks overflow, as it should.
LONGEST_STOP_S = 0.6


@contextlib.contextmanager
def not_now():
    """A coordinator that is stopped, or has just been killed, does not answer; a job may have ended meanwhile."""
    import grpc

    try:
        yield
    except grpc.RpcError as failed:
        if failed.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED,
                                 grpc.StatusCode.FAILED_PRECONDITION):
            raise


class Storm:
    def __init__(self, cluster, roles, seed):
        self.rng = random.Random(seed)
        self.stopped = []  # (when it goes on, pid)
        self.jobs = {}  # id: shape
        self.done = Counter()
        if roles == "embedded":
            self.head = cluster.start("--slots", "2")
            self.daemons = [self.head]
        else:
            self.head = cluster.start("--role", "coordinator", "--heartbeat-ms", "200", "--lease-ms", "2000",
                                      "--lost-after-ms", "2000", name="c")
            self.daemons = [self.head, cluster.node(self.head, 2, "a"), cluster.node(self.head, 1, "b")]
            until("both nodes are ready", lambda: len(self.head.nodes("READY")) == 2)
        self.whole = {}
        for shape, overrides in SHAPES.items():
            job = self.head.submit(LONG, *overrides, f"name={shape}-whole")
            self.head.finish(job)
            self.whole[shape] = self.result(job, shape)
            self.jobs[job] = shape

    # ---- what is done ---------------------------------------------------------------------------
    def pids(self, program):
        found = {}
        for daemon in self.daemons:
            found |= processes_of(daemon.state_dir)
        return sorted(pid for pid, line in found.items() if line.split()[0].endswith(program))

    def signal(self, pids, sig):
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.rng.choice(pids), sig)

    def kill_worker(self):
        self.signal(self.pids("traind-worker"), signal.SIGKILL)  # a planner, too

    def kill_launcher(self):
        self.signal(self.pids("traind-launcher"), signal.SIGKILL)

    # A rank makes its attempt save and stop, a launcher all its ranks: the job is queued, no failure is counted.
    def end_worker(self):
        self.signal(self.pids("traind-worker"), signal.SIGTERM)

    def end_launcher(self):
        self.signal(self.pids("traind-launcher"), signal.SIGTERM)

    def kill_daemon(self):
        self.rng.choice(self.daemons).restart(signal.SIGKILL)

    def end_daemon(self):
        self.go_on(time.monotonic() + 60)  # it waits for what is stopped
        self.rng.choice(self.daemons).restart(signal.SIGTERM)

    def stop_process(self):
        pids = self.pids(self.rng.choice(["traind-worker", "traind-launcher", "traind"]))
        if pids:
            pid = self.rng.choice(pids)
            self.stopped.append((time.monotonic() + self.rng.uniform(0.05, LONGEST_STOP_S), pid))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def steer(self, verb, states):
        jobs = [j.id for j in self.listed() if j.State.Name(j.state) in states]
        if jobs:
            self.head.steer(verb, self.rng.choice(jobs))

    def pause(self):
        self.steer("Pause", ("QUEUED", "STARTING", "RUNNING", "RECOVERING"))

    def resume(self):
        self.steer("Resume", ("PAUSED",))

    def cancel(self):
        self.steer("Cancel", ("QUEUED", "STARTING", "RUNNING", "RECOVERING", "PAUSED"))

    def submit(self):
        if sum(j.State.Name(j.state) not in TERMINAL for j in self.listed()) < AT_ONCE:
            shape = self.rng.choice(sorted(SHAPES))
            self.jobs[self.head.submit(LONG, *SHAPES[shape], f"name={shape}")] = shape

    WEIGHTS = {submit: 20, kill_worker: 22, kill_launcher: 10, end_worker: 10, end_launcher: 6, kill_daemon: 10,
               end_daemon: 4, stop_process: 12, pause: 8, resume: 12, cancel: 2}

    def listed(self):
        return self.head.stub("Job").ListJobs(self.head.cluster.stubs.job.ListJobsRequest(page_size=1000), timeout=5).jobs

    def go_on(self, now):
        for when, pid in list(self.stopped):
            if when <= now:
                self.stopped.remove((when, pid))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def blow(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            act = self.rng.choices(list(self.WEIGHTS), list(self.WEIGHTS.values()))[0]
            with not_now():
                act(self)
                self.done[act.__name__] += 1
            pause_end = time.monotonic() + self.rng.uniform(0.02, 0.4)
            until("the next gust", lambda: self.go_on(time.monotonic()) or time.monotonic() >= pause_end)

    def calm(self):
        """Everybody goes on, and every job ends."""
        self.go_on(time.monotonic() + 60)
        for daemon in self.daemons:
            until(f"{daemon.state_dir.name} is ready", daemon.ready, 20)

        def ended():
            open_jobs = [j for j in self.listed() if j.State.Name(j.state) not in TERMINAL]
            for j in open_jobs:
                if j.State.Name(j.state) == "PAUSED":
                    self.head.steer("Resume", j.id)
            return not open_jobs

        until("every job ends", ended, 180)

    # ---- what must hold -------------------------------------------------------------------------
    def result(self, job, shape):
        last = self.head.job(job).global_step
        return self.head.losses(job, last, RANKS[shape]), self.head.weights(job)

    def check_jobs(self):
        ended = Counter()
        for listed in self.listed():
            job, state = listed.id, listed.State.Name(listed.state)
            ended[state] += 1
            shape = self.jobs.get(job)
            if shape is None:
                continue  # accepted, but the answer was lost with its coordinator
            assert state in ("SUCCEEDED", "CANCELLED"), self.head.job(job)
            if state == "SUCCEEDED":
                losses, weights = self.result(job, shape)
                assert losses == self.whole[shape][0], f"{job}: losses of {shape}"
                assert weights == self.whole[shape][1], f"{job}: weights of {shape}"
                assert not [n for n in self.head.job(job).notes if "exact" in n], self.head.job(job).notes
        assert self.jobs.keys() <= {j.id for j in self.listed()}, "a job that was accepted is gone"
        log = self.head.log.read_text(errors="replace")
        assert not (died := re.findall(r"rank \d+ died of signal 15.*", log)), died
        return ended

    def check_processes(self):
        mine = {daemon.process.pid for daemon in self.daemons}
        until("only daemons are left", lambda: {pid for d in self.daemons for pid in processes_of(d.state_dir)} == mine)
        assert all(node.slots_used == 0 for node in self.head.nodes())

    def check_checkpoints(self):
        """What the catalog has is on disk, what is on disk is in the catalog, and no more than was asked for."""
        def on_disk():
            return {f"{p.parent.parent.parent.name}/{p.parent.parent.name}/{p.parent.name}"
                    for d in self.daemons for p in d.state_dir.glob("checkpoints/*/a*/step-*/manifest.json")}

        def catalogued():
            return {f"{job}/{c.path}" for job in {j.id for j in self.listed()} for c in self.head.checkpoints(job)}

        until("catalog and disk agree", lambda: on_disk() == catalogued(), 20)
        kept = Counter(path.split("/")[0] for path in catalogued())
        for job, shape in self.jobs.items():
            most = 3 if shape == "best" else 1  # the best two and the newest
            assert kept[job] <= most, f"{job}: {[c.path for c in self.head.checkpoints(job)]}"
        steps = [p for d in self.daemons for p in d.state_dir.glob("checkpoints/*/a*/step-*")]
        assert all((p / "manifest.json").exists() for p in steps), "half a checkpoint"

    def check_rows(self):
        jobs = {j.id for j in self.listed()}
        state = self.head.state_dir
        with contextlib.closing(sqlite3.connect(f"file:{state}/state.db?mode=ro", uri=True)) as db:
            for table in ("jobs", "specs", "attempts", "checkpoints", "shards"):
                owners = {key.split("/")[0] for (key,) in db.execute(f"SELECT key FROM {table}")}
                if table != "specs":  # by digest
                    assert owners <= jobs, f"{table}: {owners - jobs}"
        with contextlib.closing(sqlite3.connect(f"file:{state}/metrics.db?mode=ro", uri=True)) as db:
            for table in ("series", "cursors"):
                owners = {job for (job,) in db.execute(f"SELECT DISTINCT job FROM {table}")}
                assert owners <= jobs, f"{table}: {owners - jobs}"
        logs = {p.name for p in (state / "logs").iterdir()} if (state / "logs").exists() else set()
        assert logs <= jobs, f"logs: {logs - jobs}"

    def check_attempts(self):
        left = lambda: [str(p) for d in self.daemons for p in d.state_dir.glob("attempts/*")]
        until("attempts are forgotten", lambda: not left(), 30)


@pytest.mark.alone
@pytest.mark.parametrize("roles", ["embedded", "split"])
def test_storm_leaves_equal_bits_and_nothing_without_an_owner(cluster, roles):
    storm = Storm(cluster, roles, SEED)
    storm.blow(MINUTES * 60 / 2)
    storm.calm()
    ended = storm.check_jobs()
    storm.check_processes()
    storm.check_attempts()
    storm.check_checkpoints()
    storm.check_rows()
    print(f"storm, {roles}, seed {SEED}: {dict(storm.done)}; jobs {dict(ended)}")
    assert ended["SUCCEEDED"] > len(SHAPES), "it was too short for a job to end in it"
