"""Rows of a long queue: what thousands of jobs that wait add to a create, to a job's end and to a look at them.

The daemon is a coordinator; its node is a few lines of Python with one slot (fake_node.py), so nothing trains. It sends
what a node daemon sends: the end with the final state of the logs as one message, a launcher that lives with its rank
that is ready, answers to Reconcile with what follows. CPU is all threads' of the daemon, read around batches. A create
costs what its call, the check of its spec and its commit cost, whatever waits; what the queue adds to it is the
difference to a short queue. Creates are 50 at a time; jobs that end are one at a time, each waiting for the start of the
next, and once more 50 at a time on a node of 50 slots.
"""
import pathlib
import statistics
import time

import grpc

from fake_node import FakeNode
from daemons import rss_mb
from harness import Cluster, Row, emit, support
from terminals import on_terminal

LENGTHS = (100, 1000, 10000)
BATCHES, CREATES, ENDS, IN_FLIGHT, WATCHES, PER_CHANNEL = 5, 200, 60, 50, 300, 90


def cpu_ms(pid):
    """Of all threads, by the scheduler's count, which is finer than ticks."""
    return sum(int(p.read_text().split()[0]) for p in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


class Crowd:
    def __init__(self, folder, slots=1):
        made = folder / "stubs"
        made.mkdir(parents=True)
        self.cluster = Cluster(folder, support.generate_stubs(made))
        self.daemon = self.cluster.start("--role", "coordinator", "--heartbeat-ms", "600000", "--lease-ms", "3600000")
        self.node = FakeNode(self.daemon, slots=slots, session_s=3600, batches=True, reconciles=True)
        self.messages, self.stub = self.cluster.stubs.job, self.daemon.stub("Job")
        self.ids = []
        self.create(slots)
        self.running = self.started(slots)

    def create(self, n):
        request = self.messages.CreateJobRequest(spec=support.SPEC)
        for at in range(0, n, IN_FLIGHT):
            calls = [self.stub.CreateJob.future(request) for _ in range(min(IN_FLIGHT, n - at))]
            self.ids += [c.result().id for c in calls]

    def waiting(self):
        return self.daemon.stub("Admin").GetClusterInfo(self.cluster.stubs.admin.GetClusterInfoRequest()).jobs_queued

    def started(self, n):
        """The next n attempts, all of whose ranks are ready; what the node says of them is one message."""
        attempts = [self.node.attempt() for _ in range(n)]
        self.node.kept.clear()
        with self.node.together():
            for attempt in attempts:
                attempt.begin()
        return attempts

    def end(self, n):
        """n jobs, as many at a time as the node has slots."""
        for _ in range(0, n, len(self.running)):
            with self.node.together():
                for attempt in self.running:
                    attempt.end()
            self.running = self.started(len(self.running))

    def cost(self, act, n):
        """ms of CPU for each of n, by batches."""
        figures = []
        for _ in range(BATCHES):
            before = cpu_ms(self.daemon.process.pid)
            act(n)
            figures.append((cpu_ms(self.daemon.process.pid) - before) / n)
        return figures

    def watch(self, n):
        """Watches of the newest jobs; a connection carries a hundred at most."""
        channels, watches = [], []
        for i, job in enumerate(self.ids[-n:]):
            if i % PER_CHANNEL == 0:
                options = [("grpc.use_local_subchannel_pool", 1)]
                channel = grpc.insecure_channel(self.daemon.address, options)
                channels.append(channel)
                stub = self.cluster.stubs.job_grpc.JobServiceStub(
                    grpc.intercept_channel(channel, support.Token(self.daemon.token)))
            watches.append(stub.WatchJob(self.messages.WatchJobRequest(id=job)))
        for w in watches:
            next(w)
        return channels

    def waits(self, call, times=20):
        took = []
        for _ in range(times):
            start = time.perf_counter()
            call()
            took.append(1e3 * (time.perf_counter() - start))
        return took


def queue(folder, torch):
    """CPU of the daemon per create and per job that ends; list and describe, as calls and as a person sees them. By the number of jobs that wait."""
    crowd = Crowd(folder)
    first = {}
    try:
        for n in LENGTHS:
            with Row(f"queue of {n:,}", "ms"):
                crowd.create(n - crowd.waiting())
                costs(crowd, n, first)
    finally:
        crowd.cluster.close()
    with Row(f"queue of {LENGTHS[-1]:,}, {IN_FLIGHT} at a time", "ms"):
        crowd = Crowd(folder / "wide", IN_FLIGHT)
        try:
            crowd.create(LENGTHS[-1])
            emit(f"queue of {LENGTHS[-1]:,}: CPU of a job that ends, {IN_FLIGHT} at a time",
                 crowd.cost(crowd.end, 4 * IN_FLIGHT), "ms", better="less", asked=0.2)
        finally:
            crowd.cluster.close()


def costs(crowd, n, first):
    """The rows of one length; first: what each cost with the shortest."""
    for what, act, each in (("a create", crowd.create, CREATES), ("a job that ends", crowd.end, ENDS)):
        figures = crowd.cost(act, each)
        first.setdefault(what, statistics.median(figures))
        emit(f"queue of {n:,}: CPU of {what}", figures, "ms", better="less", asked=0.2)
        if n == LENGTHS[-1]:
            added = [f - first[what] for f in figures]
            emit(f"queue of {n:,}: CPU that it adds to {what}", added, "ms", better="less", asked=0.2,
                 beside=f"a queue of {LENGTHS[0]}")
    emit(f"queue of {n:,}: resident memory", [rss_mb(crowd.daemon.process.pid)], "MiB", better="less")
    channels = crowd.watch(min(WATCHES, n))
    emit(f"queue of {n:,}: CPU of a job that ends, {min(WATCHES, n)} watches", crowd.cost(crowd.end, ENDS), "ms",
         better="less")
    for channel in channels:
        channel.close()
    page = crowd.messages.ListJobsRequest(page_size=100)
    emit(f"queue of {n:,}: list, a page of 100", crowd.waits(lambda: crowd.stub.ListJobs(page)), "ms",
         better="less", asked=30)
    one = crowd.messages.GetJobRequest(id=crowd.ids[-1], spec_changes=True)
    emit(f"queue of {n:,}: describe", crowd.waits(lambda: crowd.stub.GetJob(one)), "ms", better="less", asked=30)
    for args in (["list"], ["list", "--limit", "0"], ["list", "--state", "running"], ["describe", crowd.ids[-1]]):
        emit(f"queue of {n:,}: trainctl {' '.join(args[:1] if args[0] == 'describe' else args)} on a terminal",
             crowd.waits(lambda a=args: on_terminal(crowd.daemon, *a, columns=120, rows=40, TERM="xterm")), "ms",
             better="less", asked=30)
