"""lib/rpc seen by a stock grpcio client: every kind of call, every limit, every end.

The server is rpc_server.c beside this file: nothing but lib/rpc and handlers that do as they are asked.
"""
import os
import queue
import signal
import socket
import subprocess
import threading
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import support

TOKEN = (("authorization", "Bearer secret"),)
RAW = dict(request_serializer=lambda b: b, response_deserializer=lambda b: b)
METHODS = ["/traind.v1.JobService/CreateJob", "/traind.v1.JobService/GetJob", "/traind.v1.JobService/WatchJob",
           "/traind.v1.NodeService/PutLog", "/traind.v1.NodeService/Session", "/grpc.health.v1.Health/List",
           "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
           "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"]


class Server:
    def __init__(self, *args):
        binary = support.BUILD / "tests" / "scenario" / "rpc_server"
        self.process = subprocess.Popen([binary, *map(str, args)], stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        self.channels = []
        self.asked = False
        self.channel = self.connect()

    def connect(self, **options):
        # A pool of its own: channels with equal options would share one connection.
        options = {"grpc.use_local_subchannel_pool": 1, "grpc.enable_http_proxy": 0, **options}
        self.channels.append(grpc.insecure_channel(self.address, list(options.items())))
        return self.channels[-1]

    def stats(self):
        reply = self.unary("/traind.v1.JobService/GetJob", b"", metadata=TOKEN, timeout=10)
        return dict(pair.split(b"=") for pair in reply[reply.index(b"reported"):].split())

    def unary(self, method, body, **kwargs):
        return self.channel.unary_unary(method, **RAW)(body, **kwargs)

    def terminate(self):
        if not self.asked:
            self.process.send_signal(signal.SIGTERM)
        self.asked = True

    def close(self):
        for channel in self.channels:
            channel.close()
        self.terminate()
        out = self.process.communicate(timeout=10)[0]
        assert self.process.returncode == 0, out  # as many on_done as on_call
        return out


@pytest.fixture
def start():
    servers = []

    def make(*args):
        servers.append(Server(*args))
        return servers[-1]

    yield make
    for server in servers:
        if server.process.returncode is None:
            server.close()


@pytest.fixture
def server(start):
    return start()


@pytest.fixture
def jobs(server, stubs):
    return stubs.job_grpc.JobServiceStub(server.channel)


def failure(call, *args, **kwargs):
    with pytest.raises(grpc.RpcError) as info:
        result = call(*args, **kwargs)
        if hasattr(result, "__next__"):
            list(result)
    return info.value


def trailers(error):
    return dict(error.trailing_metadata())


# ---- the kinds of call -----------------------------------------------------------------------------

def test_unary_answers_when_called(jobs, stubs):
    for text in ("echo", "later", "echo äöü"):
        assert jobs.CreateJob(stubs.job.CreateJobRequest(spec=text), metadata=TOKEN, timeout=5).name == text


def test_answer_bears_a_request_id_of_its_own(server):
    ids = set()
    for _ in range(3):
        _, call = server.channel.unary_unary(METHODS[1], **RAW).with_call(b"", metadata=TOKEN, timeout=5)
        ids.add(dict(call.initial_metadata())["x-request-id"])
        assert dict(call.trailing_metadata())["x-request-id"] in ids
    assert len(ids) == 3


def test_server_stream_delivers_all_when_it_is_longer_than_its_queue(jobs, stubs):
    request = stubs.job.WatchJobRequest(id="300 10000")  # 3 MB through a queue of 64 KiB
    got = list(jobs.WatchJob(request, metadata=TOKEN, timeout=30))
    assert len(got) == 300 and all(len(r.token) == 10000 for r in got)


def test_client_stream_is_summed(server, stubs):
    node = stubs.node_grpc.NodeServiceStub(server.channel)
    chunks = (stubs.node.LogChunk(data=b"x" * 100_000) for _ in range(100))
    assert node.PutLog(chunks, metadata=TOKEN, timeout=30).offset == 10_000_000


def test_bidi_echoes_in_order(server, stubs):
    node = stubs.node_grpc.NodeServiceStub(server.channel)
    sent = (stubs.node.NodeMessage(incarnation=i) for i in range(2000))
    assert [m.incarnation for m in node.Session(sent, metadata=TOKEN, timeout=30)] == list(range(2000))


# ---- errors ----------------------------------------------------------------------------------------

def test_error_carries_one_error_info_and_all_violations(jobs, stubs):
    error = failure(jobs.CreateJob, stubs.job.CreateJobRequest(spec="fail 3"), metadata=TOKEN, timeout=5)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and error.details() == "the spec has 3 errors"
    details = trailers(error)["grpc-status-details-bin"]
    for part in (b"google.rpc.ErrorInfo", b"FIELD_INVALID", b"traind", b"job.yaml", b"trainer.key_2"):
        assert part in details
    assert details.count(b"google.rpc.ErrorInfo") == 1
    assert trailers(error)["x-request-id"].encode() in details


def test_error_fits_a_stock_client_when_it_has_very_many_violations(jobs, stubs):
    error = failure(jobs.CreateJob, stubs.job.CreateJobRequest(spec="fail 64"), metadata=TOKEN, timeout=5)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert b"more" in trailers(error)["grpc-status-details-bin"]


# ---- credential --------------------------------------------------------------------------------------

@pytest.mark.parametrize("method", METHODS + ["/traind.v1.JobService/Nonsense", "/nonsense", "/a/b/c"])
@pytest.mark.parametrize("metadata", [(), (("authorization", "Bearer wrong"),), (("authorization", "secret"),),
                                      (("authorization", "Bearer "),), TOKEN + TOKEN])
def test_every_method_is_closed_when_the_token_is_missing_or_wrong(server, method, metadata):
    error = failure(server.unary, method, b"\xff\xff", metadata=metadata, timeout=5)
    assert error.code() == grpc.StatusCode.UNAUTHENTICATED
    assert server.stats()[b"reported"] == b"0"


def test_unknown_method_is_unimplemented_when_the_token_is_right(server):
    for method in ("/traind.v1.JobService/Nonsense", "/traind.v2.JobService/GetJob", "/x"):
        error = failure(server.unary, method, b"", metadata=TOKEN, timeout=5)
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED


# ---- bad bytes ---------------------------------------------------------------------------------------

def test_random_bytes_never_kill_the_server(server):
    import random
    rng = random.Random(1)
    allowed = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNIMPLEMENTED"}
    for i in range(400):
        method = METHODS[i % len(METHODS)]
        body = rng.randbytes(rng.choice([0, 1, 3, 17, 200, 5000]))
        try:
            server.unary(method, body, metadata=TOKEN, timeout=0.2)
        except grpc.RpcError as error:
            assert error.code().name in allowed or (method not in METHODS[:2]), error
    assert server.stats()


def test_message_is_refused_when_malformed(server):
    error = failure(server.unary, METHODS[0], b"\x0a\xff\xff\xff\xff\x0f", metadata=TOKEN, timeout=5)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert b"MALFORMED_MESSAGE" in trailers(error)["grpc-status-details-bin"]


def test_message_is_refused_when_a_string_is_not_utf8(server):
    error = failure(server.unary, METHODS[0], b"\x0a\x02\xc3\x28", metadata=TOKEN, timeout=5)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and "'spec'" in error.details()


@pytest.mark.parametrize("size", [4 * 2**20 + 100, 9 * 2**20])
def test_message_is_refused_when_oversize(server, size):
    error = failure(server.unary, METHODS[0], b"\x0a" + varint(size) + b"x" * size, metadata=TOKEN, timeout=10)
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    if size < 8 * 2**20:
        assert b"MESSAGE_TOO_LARGE" in trailers(error)["grpc-status-details-bin"]


def test_message_is_refused_when_decoding_takes_too_much_memory(server):
    body = b"\x12\x00" * (2**20)  # a million empty overrides in 2 MiB
    error = failure(server.unary, METHODS[0], body, metadata=TOKEN, timeout=10)
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert rss_kib(server.process.pid) < 120 * 1024


def test_compressed_message_is_refused(server):
    call = server.channel.unary_unary(METHODS[0], **RAW)
    error = failure(call, b"\x0a\x04echo" * 1000, metadata=TOKEN, timeout=5, compression=grpc.Compression.Gzip)
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def test_server_survives_bytes_that_are_no_http2(server):
    host, port = server.address.split(":")
    for junk in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(512)):
        with socket.create_connection((host, int(port)), timeout=5) as s:
            s.sendall(junk)
    assert server.stats()


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def rss_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


# ---- deadlines, cancellation, slow readers -----------------------------------------------------------

def test_call_ends_when_the_clients_deadline_passes(server, jobs, stubs):
    error = failure(jobs.CreateJob, stubs.job.CreateJobRequest(spec="never"), metadata=TOKEN, timeout=0.1)
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    support.until("on_done", lambda: server.stats()[b"done"] == b"1")


def test_call_ends_when_the_client_gives_no_deadline(start, stubs):
    server = start(0, 100)
    jobs = stubs.job_grpc.JobServiceStub(server.channel)
    error = failure(jobs.CreateJob, stubs.job.CreateJobRequest(spec="never"), metadata=TOKEN)
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED and "server's" in error.details()


def test_on_done_comes_when_the_client_cancels(server, jobs, stubs):
    watch = jobs.WatchJob(stubs.job.WatchJobRequest(id="forever"), metadata=TOKEN)
    support.until("open", lambda: server.stats()[b"reported"] == b"1")
    watch.cancel()
    support.until("on_done", lambda: server.stats()[b"done"] == b"1")


def test_on_done_comes_when_the_connection_breaks(server, stubs):
    channel = server.connect()
    node = stubs.node_grpc.NodeServiceStub(channel)

    over = threading.Event()

    def endless():
        yield stubs.node.LogChunk(data=b"x")
        over.wait(30)

    call = node.PutLog.future(endless(), metadata=TOKEN)
    support.until("open", lambda: server.stats()[b"reported"] == b"1")
    channel.close()
    support.until("on_done", lambda: server.stats()[b"done"] == b"1")
    assert call.done()
    over.set()


def test_reader_is_cut_off_when_it_stops_reading(start, stubs):
    server = start(300)
    jobs = stubs.job_grpc.JobServiceStub(server.connect())
    watch = jobs.WatchJob(stubs.job.WatchJobRequest(id="100000 50000"), metadata=TOKEN)
    next(watch)
    support.until("cut off", lambda: server.stats()[b"done"] == b"1", 10)
    assert rss_kib(server.process.pid) < 60 * 1024
    error = failure(lambda: watch)
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "reading" in error.details()


def test_calls_are_refused_when_there_are_too_many(server, jobs, stubs):
    watches = [jobs.WatchJob(stubs.job.WatchJobRequest(id="forever"), metadata=TOKEN) for _ in range(63)]
    support.until("open", lambda: server.stats()[b"open"] == b"64")
    watches.append(jobs.WatchJob(stubs.job.WatchJobRequest(id="forever"), metadata=TOKEN))
    error = failure(jobs.CreateJob, stubs.job.CreateJobRequest(spec="x"), metadata=TOKEN, timeout=5)
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    for watch in watches:
        watch.cancel()


def test_streams_of_nodes_take_no_room_from_people(server, jobs, stubs):
    sessions = [queue.Queue() for _ in range(33)]
    node = stubs.node_grpc.NodeServiceStub(server.connect())
    calls = []
    for sent in sessions[:32]:
        sent.put(stubs.node.NodeMessage(incarnation=7))
        calls.append(node.Session(iter(sent.get, None), metadata=TOKEN, timeout=30))
        assert next(calls[-1]).incarnation == 7
    sessions[32].put(None)
    error = failure(lambda: node.Session(iter(sessions[32].get, None), metadata=TOKEN, timeout=5))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "NodeService/Session" in error.details()
    watches = [jobs.WatchJob(stubs.job.WatchJobRequest(id="forever"), metadata=TOKEN) for _ in range(63)]
    support.until("all 63 are open", lambda: server.stats()[b"open"] == b"96")  # and the one that asks
    for watch in watches:
        watch.cancel()
    for sent in sessions[:32]:
        sent.put(None)
    for call in calls:
        list(call)


# ---- drain -------------------------------------------------------------------------------------------

def test_open_watch_ends_when_the_drain_deadline_passes(start, stubs):
    server = start(0, 0, 200)
    jobs = stubs.job_grpc.JobServiceStub(server.channel)
    watch = jobs.WatchJob(stubs.job.WatchJobRequest(id="forever"), metadata=TOKEN)
    support.until("open", lambda: server.stats()[b"reported"] == b"1")
    begin = time.monotonic()
    server.terminate()
    error = failure(lambda: watch)
    assert error.code() == grpc.StatusCode.UNAVAILABLE
    assert b"DRAINING" in trailers(error)["grpc-status-details-bin"]
    assert 0.15 < time.monotonic() - begin < 2
    assert server.process.wait(5) == 0


def test_drain_is_quick_when_only_idle_connections_are_open(start):
    server = start(0, 0, 60_000)
    server.stats()
    begin = time.monotonic()
    server.terminate()
    assert server.process.wait(5) == 0 and time.monotonic() - begin < 2


# ---- health and reflection -----------------------------------------------------------------------------

def test_health_is_open_to_everyone(server):
    health = health_pb2_grpc.HealthStub(server.channel)
    for name in ("", "traind.v1.JobService"):
        reply = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    error = failure(health.Check, health_pb2.HealthCheckRequest(service="nobody"), timeout=5)
    assert error.code() == grpc.StatusCode.NOT_FOUND


def test_health_watch_tells_when_the_server_drains(start):
    server = start(0, 0, 300)
    health = health_pb2_grpc.HealthStub(server.channel)
    known = health.Watch(health_pb2.HealthCheckRequest(service=""))
    unknown = health.Watch(health_pb2.HealthCheckRequest(service="nobody"))
    assert next(known).status == health_pb2.HealthCheckResponse.SERVING
    assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    server.terminate()
    assert next(known).status == health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_describes_every_service(server, version):
    channel = grpc.intercept_channel(server.channel, WithToken(version))
    database = ProtoReflectionDescriptorDatabase(channel)
    services = set(database.get_services())
    assert {"traind.v1.JobService", "traind.v1.NodeService", "grpc.health.v1.Health"} <= services
    assert "traind.v1.LogService" not in services  # not in this server's table
    from google.protobuf.descriptor_pool import DescriptorPool
    pool = DescriptorPool(database)
    session = pool.FindServiceByName("traind.v1.NodeService").FindMethodByName("Session")
    assert session.client_streaming and session.server_streaming
    assert session.input_type.full_name == "traind.v1.NodeMessage"
    with pytest.raises(KeyError):
        pool.FindMessageTypeByName("traind.v1.Nonsense")


class WithToken(grpc.StreamStreamClientInterceptor):
    """Adds the token, and asks the other version of the service: their messages are the same."""

    def __init__(self, version):
        self.method = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"

    def intercept_stream_stream(self, continuation, details, requests):
        details = details._replace(metadata=TOKEN, method=self.method)
        return continuation(details, requests)
