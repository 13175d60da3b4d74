"""Rows of a long queue: what thousands of jobs that wait add to a create, to a job's end and to a look at them.

The daemon is a coordinator; its node is a few lines of Python with one slot (fake_node.py), so nothing trains. CPU is
all threads' of the daemon, read around batches. A create costs what its call, the check of its spec and its commit
cost, whatever waits; what the queue adds to it is the difference to a short queue.
"""
import pathlib
import statistics
import time

import grpc

from fake_node import FakeNode
from harness import Cluster, emit, support

LENGTHS = (100, 1000, 10000)
BATCHES, CREATES, ENDS, IN_FLIGHT, WATCHES, PER_CHANNEL = 5, 200, 60, 50, 300, 90


def cpu_ms(pid):
    """Of all threads, by the scheduler's count, which is finer than ticks."""
    return sum(int(p.read_text().split()[0]) for p in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


class Crowd:
    def __init__(self, folder):
        made = folder / "stubs"
        made.mkdir()
        self.cluster = Cluster(folder, support.generate_stubs(made))
        self.daemon = self.cluster.start("--role", "coordinator", "--heartbeat-ms", "600000", "--lease-ms", "3600000")
        self.node = FakeNode(self.daemon, slots=1, session_s=3600, batches=True, reconciles=True)
        self.messages, self.stub = self.cluster.stubs.job, self.daemon.stub("Job")
        self.ids = []
        self.create(1)
        self.running = self.node.attempt()
        self.running.begin()

    def create(self, n):
        request = self.messages.CreateJobRequest(spec=support.SPEC)
        for at in range(0, n, IN_FLIGHT):
            calls = [self.stub.CreateJob.future(request) for _ in range(min(IN_FLIGHT, n - at))]
            self.ids += [c.result().id for c in calls]

    def waiting(self):
        return self.daemon.stub("Admin").GetClusterInfo(self.cluster.stubs.admin.GetClusterInfoRequest()).jobs_queued

    def end(self, n):
        for _ in range(n):
            self.running.end()
            self.running = self.node.attempt()
            self.running.begin()

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
    """CPU of the daemon per create and per job that ends; list and describe. By the number of jobs that wait."""
    crowd = Crowd(folder)
    first = {}
    try:
        for n in LENGTHS:
            crowd.create(n - crowd.waiting())
            for what, act, each in (("a create", crowd.create, CREATES), ("a job that ends", crowd.end, ENDS)):
                figures = crowd.cost(act, each)
                first.setdefault(what, statistics.median(figures))
                emit(f"queue of {n:,}: CPU of {what}", figures, "ms", better="less")
                if n == LENGTHS[-1]:
                    added = [f - first[what] for f in figures]
                    emit(f"queue of {n:,}: CPU that it adds to {what}", added, "ms", better="less", asked=0.2,
                         beside=f"a queue of {LENGTHS[0]}")
            channels = crowd.watch(min(WATCHES, n))
            emit(f"queue of {n:,}: CPU of a job that ends, {min(WATCHES, n)} watches", crowd.cost(crowd.end, ENDS), "ms",
                 better="less")
            for channel in channels:
                channel.close()
            page = crowd.messages.ListJobsRequest(page_size=100)
            emit(f"queue of {n:,}: list, a page of 100", crowd.waits(lambda: crowd.stub.ListJobs(page)), "ms",
                 better="less", asked=30)
            one = crowd.messages.GetJobRequest(id=crowd.ids[-1])
            emit(f"queue of {n:,}: describe", crowd.waits(lambda: crowd.stub.GetJob(one)), "ms", better="less", asked=30)
    finally:
        crowd.cluster.close()
