"""Hostile and unlucky connections: floods of HTTP/2 frames, sockets that idle or never read, no descriptors left. Each
ends within seconds, the daemon's memory and descriptors stay bounded, and the next client is served.

Raw sockets speak just enough HTTP/2 by hand: a stock client cannot be made to misbehave so.
"""
import contextlib
import os
import re
import resource
import socket
import struct

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import support
from fake_node import FakeNode
from support import SPEC, under_limit, until
from test_s01_rpc import RAW, TOKEN, Server

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5)
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
ENHANCE_YOUR_CALM = 11


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def opening(stream, method, token=None):
    """The beginning of a call, with headers that no table compresses."""
    block = b"\x83\x86" + literal(b":path", method) + literal(b":authority", b"x") + literal(b"te", b"trailers")
    block += literal(b"content-type", b"application/grpc")
    if token:
        block += literal(b"authorization", b"Bearer " + token)
    return frame(HEADERS, 4, stream, block)


def request(stream, method, body=b"", token=None):
    """A whole unary call."""
    return opening(stream, method, token) + frame(DATA, 1, stream, b"\0" + struct.pack(">I", len(body)) + body)


def dial(address, hello=HELLO):
    s = socket.create_connection(address.rsplit(":", 1), timeout=20)
    s.sendall(hello)
    return s


def rest(s):
    """What comes until the other side has closed."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while piece := s.recv(65536):
            got += piece
    return got


def answer_of(s):
    got = b""
    while b"grpc-status" not in got:
        piece = s.recv(65536)
        assert piece, got
        got += piece
    return got


def send_until_cut(s, piece, most):
    """Sends it again and again; the bytes that went out before the connection was cut."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < most:
            s.sendall(piece)
            sent += len(piece)
    return sent


def reading(process, field):
    text = open(f"/proc/{process.pid}/status").read()
    return int(re.search(rf"{field}:\s+(\d+)", text)[1])


def cpu_s(process):
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def n_descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


@contextlib.contextmanager
def files_limit(pid, soft):
    """The limit of descriptors of a running process."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def used_up(process):
    """A limit that leaves the process no descriptor: the lowest number that is free."""
    used = {int(n) for n in os.listdir(f"/proc/{process.pid}/fd")}
    return min(set(range(len(used) + 1)) - used)


@pytest.fixture
def many_files():
    with files_limit(0, resource.prlimit(0, resource.RLIMIT_NOFILE)[1]):
        yield


@pytest.fixture
def server():
    made = []

    def start(*args):
        made.append(Server(*args))
        return made[-1]

    yield start
    for s in made:
        if s.process.returncode is None:
            s.close()


def logged(daemon, text):
    """The thread that accepts reports to the one that logs: the line comes after the cut."""
    until(f"the log says '{text}'", lambda: text in daemon.log.read_text(), 20)


def is_served(daemon):
    """A client that nobody knows yet, on a connection of its own."""
    pool = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(daemon.address, pool) as channel:
        stub = daemon.cluster.stubs.job_grpc.JobServiceStub(grpc.intercept_channel(channel, support.Token(daemon.token)))
        stub.ListJobs(daemon.cluster.stubs.job.ListJobsRequest(), timeout=20)
    return True


# ---- many connections --------------------------------------------------------------------------------
def test_client_is_served_while_1500_connections_idle_without_a_token(daemon, many_files):
    fds, memory = n_descriptors(daemon.process), reading(daemon.process, "VmRSS")
    idle = [dial(daemon.address) for _ in range(1500)]
    assert is_served(daemon)
    assert n_descriptors(daemon.process) < fds + 3 * 300 and reading(daemon.process, "VmRSS") < memory + (64 << 10)
    logged(daemon, "showed no credential")
    job = daemon.submit()
    got = rest(idle[0])  # of those who gave way
    assert b"without a credential" in got
    for s in idle:
        s.close()
    daemon.finish(job)
    until("connections are gone", lambda: n_descriptors(daemon.process) < fds + 40, 20)


def test_stranger_gives_way_but_no_client_with_a_token(cluster):
    daemon = cluster.start("--slots", "1", "--max-strangers", "4", "--max-connections", "20")
    calls = daemon.stub("Job")
    calls.ListJobs(cluster.stubs.job.ListJobsRequest(), timeout=20)
    strangers = [dial(daemon.address) for _ in range(40)]
    assert b"without a credential" in rest(strangers[0])
    calls.ListJobs(cluster.stubs.job.ListJobsRequest(), timeout=20)  # the same connection: it was not cut
    assert is_served(daemon)
    for s in strangers:
        s.close()


def test_connection_above_the_cap_gets_the_reason(cluster):
    daemon = cluster.start("--slots", "1", "--max-source-connections", "4")
    token = daemon.token.encode()
    known = [dial(daemon.address) for _ in range(3)]  # and the one that waited for it to be ready
    for s in known:
        s.sendall(request(1, b"/traind.v1.JobService/ListJobs", token=token))
        answer_of(s)
    assert b"one source" in rest(dial(daemon.address))
    for s in known:
        s.close()
    until("there is room again", lambda: is_served_or_refused(daemon), 20)


class OwnConnection:
    """What a FakeNode wants of a daemon, over a connection that nobody shares."""

    def __init__(self, daemon):
        self.cluster = daemon.cluster
        self.channel = grpc.insecure_channel(daemon.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.made = self.cluster.stubs.node_grpc.NodeServiceStub(
            grpc.intercept_channel(self.channel, support.Token(daemon.token)))

    def stub(self, service):
        return self.made


def test_people_are_served_when_sessions_of_nodes_are_more_than_the_cap_of_connections(cluster):
    """1,024 nodes had 1,024 connections, which were all that there were."""
    daemon = cluster.start("--role", "coordinator", "--max-connections", "8", "--max-source-connections", "7", name="c")
    nodes = [FakeNode(OwnConnection(daemon), name=f"n{i}") for i in range(12)]
    until("all are there", lambda: len(daemon.nodes("READY")) == 12)
    daemon.ctl("node", "list", check=0)
    people, got = [], b""
    while b"grpc-status" in got or not people:
        assert len(people) < 8, "connections of people are bounded as ever"
        people.append(dial(daemon.address))
        with contextlib.suppress(ConnectionError):  # closed already
            people[-1].sendall(request(1, b"/traind.v1.JobService/ListJobs", token=daemon.token.encode()))
        got = first_of(people[-1])
    assert b"max-source-connections" in got
    assert len(daemon.nodes("READY")) == 12
    for node in nodes:
        node.close()
        node.daemon.channel.close()
    for s in people:
        s.close()


def first_of(s):
    """What comes until there is an answer or the connection is closed."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while b"grpc-status" not in got and (piece := s.recv(65536)):
            got += piece
    return got


def is_served_or_refused(daemon):
    try:
        return is_served(daemon)
    except grpc.RpcError:
        return False


# ---- no descriptors ------------------------------------------------------------------------------------
def test_accepting_goes_on_after_descriptors_were_used_up(server):
    """gRPC 1.51 by itself never accepts again (CVE-2023-4785)."""
    s = server()
    s.stats()
    with files_limit(s.process.pid, used_up(s.process)):
        for _ in range(30):
            with contextlib.suppress(ConnectionError):
                assert rest(dial(s.address)) == b""  # accepted and closed at once
    with s.connect() as channel:
        channel.unary_unary("/traind.v1.JobService/GetJob", **RAW)(b"", metadata=TOKEN, timeout=10)


def start_limited(cluster, tmp_path, limit):
    """A daemon under `ulimit <limit>`."""
    daemon = cluster.make("--slots", "1")
    daemon.bin = under_limit(tmp_path / "bin", limit)
    return daemon.start()


def test_daemon_with_few_descriptors_serves_while_connections_pile_up(cluster, tmp_path):
    daemon = start_limited(cluster, tmp_path, "-n 128")
    logged(daemon, "connections fit")
    idle = [dial(daemon.address, b"") for _ in range(300)]
    assert is_served(daemon)
    for s in idle:
        s.close()
    daemon.finish(daemon.submit())


def test_job_waits_when_no_descriptor_is_left_to_plan_and_launch_it(daemon):
    job = daemon.submit()
    daemon.finish(job)
    with files_limit(daemon.process.pid, used_up(daemon.process)):
        job = daemon.submit(SPEC, "optimizer.lr=0.02")
        until("its planner waits", lambda: "planner waits" in daemon.log.read_text(), 20)
    daemon.finish(job)


def test_job_waits_when_its_node_has_no_descriptor_left_to_launch_it(cluster):
    coordinator = cluster.start("--role", "coordinator", name="c")
    node = cluster.node(coordinator, 1, "n1")
    coordinator.finish(coordinator.submit())  # its plan is kept: the same spec needs a launcher only
    with files_limit(node.process.pid, used_up(node.process)):
        job = coordinator.submit()
        logged(node, "launcher waits")
        logged(node, "Too many open files")
        assert coordinator.state(job) == "STARTING"
    done = coordinator.finish(job)
    assert done.attempt == 1 and done.restarts == 0 and not done.HasField("failure")


def test_soft_limit_of_descriptors_is_raised_at_start(cluster, tmp_path):
    daemon = start_limited(cluster, tmp_path, "-S -n 200")
    soft, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard > 200


# ---- floods --------------------------------------------------------------------------------------------
def test_memory_is_bounded_when_continuation_frames_never_end(daemon):
    memory = reading(daemon.process, "VmRSS")
    for _ in range(3):
        with dial(daemon.address) as s:
            s.sendall(frame(HEADERS, 0, 1, b"\x83\x86"))
            sent = send_until_cut(s, frame(CONTINUATION, 0, 1, literal(b"k" * 100, b"v" * 100) * 60) * 4, 64 << 20)
            assert sent < 16 << 20
    assert reading(daemon.process, "VmHWM") < memory + (32 << 10)
    logged(daemon, "header block")
    assert is_served(daemon)


@pytest.mark.parametrize("name, flood", [
    ("SETTINGS", frame(SETTINGS)), ("PING", frame(PING, 0, 0, bytes(8))), ("PRIORITY", frame(PRIORITY, 0, 3, bytes(5))),
    ("RST_STREAM", frame(RST_STREAM, 0, 1, bytes(4))),
    ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1")), ("empty DATA", frame(DATA, 0, 1)),
    ("unknown", frame(0x77))])
def test_connection_is_cut_when_it_floods(daemon, name, flood):
    memory = reading(daemon.process, "VmRSS")
    with dial(daemon.address) as s:
        assert send_until_cut(s, flood * 500, 64 << 20) < 32 << 20
    if name != "PING":  # gRPC, whose thread may be quicker, cuts after a few of these without a word
        logged(daemon, name)
    assert reading(daemon.process, "VmHWM") < memory + (32 << 10) and is_served(daemon)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0", HELLO[:24] + b"\xff" * 64,
                                     HELLO + frame(DATA, 0, 1, bytes(20000)), HELLO + frame(CONTINUATION, 4, 1, b"x")])
def test_connection_is_cut_when_it_speaks_something_else(daemon, garbage):
    with dial(daemon.address, garbage) as s:
        rest(s)  # comes to an end
    assert is_served(daemon)


# ---- slow ones -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("begin", [b"", HELLO[:10], HELLO, HELLO + frame(HEADERS, 0, 1, b"\x83")])
def test_connection_is_cut_when_its_first_request_is_late(cluster, begin):
    daemon = cluster.start("--slots", "1", "--first-request-ms", "300")
    with dial(daemon.address, begin) as s:
        rest(s)
    stub = daemon.stub("Job")
    for _ in range(2):
        stub.ListJobs(cluster.stubs.job.ListJobsRequest(), timeout=20)


def test_connection_is_closed_when_it_has_no_call_for_long(cluster):
    daemon = cluster.start("--slots", "1", "--idle-connection-ms", "300")
    with dial(daemon.address) as s:
        s.sendall(request(1, b"/traind.v1.JobService/ListJobs", token=daemon.token.encode()))
        assert b"grpc-status" in rest(s)
    assert is_served(daemon)


def test_client_that_never_reads_is_cut_off(server):
    """Requests whose answers nobody waits for: cut when an answer is stuck, or when the requests wait in their socket for as
    long as a first one may take (10 s)."""
    s = server(200)
    memory = reading(s.process, "VmRSS")
    with socket.socket() as c:
        # Before it connects: a window that shrinks later drops what acknowledges the requests, too.
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.settimeout(30)
        c.connect((s.address.rsplit(":", 1)[0], int(s.address.rsplit(":", 1)[1])))
        c.sendall(HELLO)
        sent, stream = 0, 1
        with contextlib.suppress(ConnectionError):
            while sent < 256 << 20:
                piece = b"".join(request(n, b"/traind.v1.JobService/GetJob") for n in range(stream, stream + 100, 2))
                stream += 100
                c.sendall(piece)
                sent += len(piece)
        assert sent < 256 << 20
    assert reading(s.process, "VmHWM") < memory + (64 << 10)
    s.stats()


def test_connection_ends_when_its_client_half_closes(daemon):
    fds = n_descriptors(daemon.process)
    for begin in (b"", HELLO, HELLO + frame(HEADERS, 0, 1, b"\x83")):
        with dial(daemon.address, begin) as s:
            s.shutdown(socket.SHUT_WR)
            rest(s)
    for _ in range(50):  # and those that are reset
        s = dial(daemon.address)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    until("descriptors are back", lambda: n_descriptors(daemon.process) <= fds, 20)


def test_people_are_served_when_strangers_hold_health_watches(daemon):
    with contextlib.ExitStack() as stack:
        held, refused = [], 0
        for _ in range(4):
            channel = stack.enter_context(grpc.insecure_channel(daemon.address, [("grpc.use_local_subchannel_pool", 1)]))
            for _ in range(50):
                watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=30)
                held.append(watch)
                try:
                    next(watch)
                except grpc.RpcError as e:
                    assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                    refused += 1
        assert refused == len(held) - 128
        assert is_served(daemon)


def test_checks_of_health_make_room_when_their_answers_are_not_taken(daemon):
    """Each was answered at once, and kept for as long as a reader may stall."""
    no_window = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
    with dial(daemon.address, HELLO + no_window + frame(SETTINGS, 1)) as s:
        for i in range(1, 2 * 80, 2):
            s.sendall(request(i, b"/grpc.health.v1.Health/Check"))
        s.settimeout(10)
        got = b""
        while got.count(b"made room") < 80 - 64:
            got += s.recv(65536)
        assert is_served(daemon)


# ---- who is it? ------------------------------------------------------------------------------------------
def name_of(s):
    return "%s:%d" % s.getsockname()


def test_requests_of_strangers_wait_in_their_sockets_when_they_are_many(daemon):
    """gRPC took in all of them, also those that were taken back at once, and answered nobody for half a minute."""
    taken_back = b"".join(opening(i, b"/traind.v1.AdminService/GetClusterInfo") + frame(RST_STREAM, 0, i, bytes(3) + b"\x08")
                          for i in range(1, 2 * 990, 2))
    info = lambda: daemon.stub("Admin").GetClusterInfo(daemon.cluster.stubs.admin.GetClusterInfoRequest(), timeout=20)
    info()
    before = cpu_s(daemon.process)
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            s = stack.enter_context(contextlib.closing(dial(daemon.address)))
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                s.send(taken_back)
        for _ in range(20):
            info()
    assert cpu_s(daemon.process) - before < 2  # 59,000 requests take 4 s and more


def test_connection_never_gets_the_name_of_the_one_before(server, stubs):
    """The kernel gives descriptor numbers out again: call, close, reconnect at once."""
    s = server()
    ask = stubs.job.CreateJobRequest(spec="peer").SerializeToString()
    for i in range(400):
        with dial(s.address) as c:
            c.sendall(request(1, b"/traind.v1.JobService/CreateJob", ask, b"secret"))
            if i % 3 == 0:
                continue  # closed while its call is on the way
            got = answer_of(c)
            assert re.findall(rb"127\.0\.0\.1:\d+", got) == [name_of(c).encode()]


# ---- does it answer? -------------------------------------------------------------------------------------
def test_listener_that_does_not_answer_is_noticed(cluster):
    daemon = cluster.start("--slots", "1", "--listener-check-ms", "200")
    health = health_pb2_grpc.HealthStub(daemon_channel := grpc.insecure_channel(daemon.address))
    status = lambda: health.Check(health_pb2.HealthCheckRequest(), timeout=10).status
    assert status() == health_pb2.HealthCheckResponse.SERVING
    with files_limit(daemon.process.pid, used_up(daemon.process)):
        until("it is in the log", lambda: "does not answer" in daemon.log.read_text(), 20)
        assert status() == health_pb2.HealthCheckResponse.NOT_SERVING
    until("it answers again", lambda: "answers again" in daemon.log.read_text(), 20)
    assert status() == health_pb2.HealthCheckResponse.SERVING
    daemon_channel.close()
