"""One credential opens all that it can: watches, followers of logs, reflection streams, calls without a message. What others
need still works, and the places come back when it is revoked. The numbers are in daemon/coordinator/shell/access/caps.def."""
import contextlib
import threading

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import test_s64_hostile as raw
from support import Token, until
from test_s66_roles import Person, give, revoke

Code = grpc.StatusCode


class Eve:
    """Opens streams until one is refused, over as many connections as it takes."""

    def __init__(self, stubs, dial, job):
        self.stubs, self.dial, self.job, self.channels, self.streams = stubs, dial, job, [], []

    def close(self):
        for c in self.channels:
            c.close()

    def open(self, start):
        """How many were let in, and how the next was refused."""
        for n in range(2000):
            if n % 90 == 0:
                self.channels.append(self.dial())
            stream = start(self.channels[-1])
            try:
                next(stream)
            except grpc.RpcError as e:
                return n, e
            self.streams.append(stream)
        raise AssertionError("none was refused")

    def watch(self, channel):
        return self.stubs.job_grpc.JobServiceStub(channel).WatchJob(self.stubs.job.WatchJobRequest(id=self.job))

    def follow(self, channel):
        return self.stubs.log_grpc.LogServiceStub(channel).ReadLogs(
            self.stubs.log.ReadLogsRequest(job=self.job, rank=-1, follow=True))

    def reflect(self, channel):
        gate = threading.Event()

        def requests():
            yield reflection_pb2.ServerReflectionRequest(list_services="")
            gate.wait(60)

        return reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(requests())

    def open_all(self):
        """By reason: how many were let in."""
        return {reason_of(refused): n for n, refused in map(self.open, (self.watch, self.follow, self.reflect))}

    def ended_with(self, reason):
        for s in self.streams:
            with pytest.raises(grpc.RpcError) as error:
                for _ in s:
                    pass
            assert error.value.code() == Code.UNAUTHENTICATED and reason_of(error.value) == reason, error.value


def reason_of(error):
    packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    return next((r for r in ("LIMIT_WATCHES", "LIMIT_READERS", "LIMIT_REFLECTION", "LIMIT_CALLS", "TOKEN_REVOKED",
                             "CERTIFICATE_REVOKED") if r.encode() in packed), packed)


MOST = {"LIMIT_WATCHES": 64, "LIMIT_READERS": 64, "LIMIT_CALLS": 0}  # half of a quarter of 512, 512, and 1,024 in all


TALKS = "{kind: command, command: [sh, -c, 'echo ready; sleep 600'], name: talks}"


def dial(daemon, text):
    """A connection of its own; channels to one address share theirs otherwise, and its 100 streams."""
    channel = grpc.insecure_channel(daemon.address, [("grpc.use_local_subchannel_pool", 1)])
    return grpc.intercept_channel(channel, Token(text)) if text else channel


def talking(daemon):
    job = daemon.submit(TALKS)
    until("it prints", lambda: daemon.logs(job))
    return job


def others_work(daemon, job):
    """The owner's list, watch, logs; a submitter's submit."""
    m = daemon.cluster.stubs
    assert job in {j.id for j in daemon.stub("Job").ListJobs(m.job.ListJobsRequest(), timeout=20).jobs}
    watch = daemon.stub("Job").WatchJob(m.job.WatchJobRequest(id=job))
    assert next(watch).job.id == job
    watch.cancel()
    assert daemon.logs(job)
    sam = Person(daemon, "submitter", "sam")
    sam.steer("Cancel", sam.submit().id)


def test_one_viewer_opens_all_it_can_and_the_others_work(daemon):
    job, (text, token_id) = talking(daemon), give(daemon, "viewer", "eve")
    eve = Eve(daemon.cluster.stubs, lambda: dial(daemon, text), job)
    with contextlib.closing(eve):
        assert eve.open_all() == MOST
        n, refused = eve.open(eve.watch)
        assert n == 0 and refused.code() == Code.RESOURCE_EXHAUSTED
        assert refused.details() == ("'eve' holds 64 watches of jobs, as many as one name with the role viewer may; "
                                     "end some of them first")
        others_work(daemon, job)
        ann = Person(daemon, "viewer", "ann")  # of the same role
        assert ann.stub.GetJob(ann.m.GetJobRequest(id=job), timeout=20).id == job
        again = Person(daemon, "viewer", "eve")  # another credential of the same name
        with pytest.raises(grpc.RpcError) as error:
            again.stub.GetJob(again.m.GetJobRequest(id=job), timeout=20)
        assert reason_of(error.value) == "LIMIT_CALLS"
        revoke(daemon, token_id)
        eve.ended_with("TOKEN_REVOKED")
        again.stub.GetJob(again.m.GetJobRequest(id=job), timeout=20)  # the places came back


def test_health_and_revoke_answer_while_all_other_calls_are_open(coordinator):
    """Calls whose message does not come. The owner has no share, so they are all that there may be."""
    _, token_id = give(coordinator, "viewer", "ann")
    sockets, owner = [], coordinator.token.encode()

    def hold(path, n, token):
        """Connections stay below their bound of streams."""
        for i in range(n):
            if i % 90 == 0:
                sockets.append(raw.dial(coordinator.address))
            sockets[-1].sendall(raw.opening(1 + 2 * (i % 90), path, token))

    def refused():
        try:
            coordinator.stub("Job").ListJobs(coordinator.cluster.stubs.job.ListJobsRequest(), timeout=20)
        except grpc.RpcError as e:
            return reason_of(e) == "LIMIT_CALLS"

    def revoked():
        """The held calls may still be coming in: the newest of a kind drives out the oldest, which is told to call again."""
        try:
            return revoke(coordinator, token_id).revoke_time
        except grpc.RpcError as e:
            assert "call again" in e.details(), e

    try:
        hold(b"/traind.v1.JobService/GetJob", 1024, owner)
        until("all calls are in use", refused)
        hold(b"/grpc.health.v1.Health/Check", 80, None)
        hold(b"/traind.v1.AdminService/RevokeToken", 80, owner)
        with dial(coordinator, None) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
        assert answer.status == answer.SERVING
        assert until("the token is revoked", revoked)
        assert refused()
    finally:
        for s in sockets:
            s.close()
