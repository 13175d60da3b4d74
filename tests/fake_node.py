"""A node that is a few lines of Python: the Session of a node daemon, and attempts whose launcher is the test."""
import contextlib
import ctypes
import functools
import json
import queue
import struct
import subprocess

import grpc
import pytest

from support import BIN, SPEC

SLOTS = 4


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def digest(data):
    lib = ctypes.CDLL("libxxhash.so.0")
    lib.XXH3_128bits.restype, lib.XXH3_128bits.argtypes = Hash128, [ctypes.c_char_p, ctypes.c_size_t]
    h = lib.XXH3_128bits(data, len(data))
    return f"{h.high:016x}{h.low:016x}"


def record(name, step, total, count):
    return struct.pack("<24siiddqII", name.encode(), step, 0, total, count, 1, 1, 0)


@functools.cache
def own_build():
    """Fields of Register by which a node is of the build under test."""
    said = dict(line.split() for line in subprocess.run([BIN / "traind", "--dump-languages"], check=True, text=True,
                                                        capture_output=True).stdout.splitlines())
    return {"launcher_major": int(said["launchers"].split(".")[0]), "ranks_language": int(said["ranks"]),
            "plan_language": said["plans"]}


OLDER_BUILD = {"version": "0.0.9", "ranks_language": 0, "plan_language": ""}


class FakeNode:
    """A Session client. What the coordinator sends is kept by kind; requests for plans are answered.

    batches: it sends and receives several messages as one, as a node daemon does. Without it is of an older build.
    reconciles: it answers that nothing is on its disk but what the catalog says.
    build: more fields of Register, or other ones. OLDER_BUILD makes it a node of a build that does not say what plans
    its ranks read; {"launcher_major": 99} one that the coordinator refuses."""

    def __init__(self, daemon, slots=SLOTS, name="fake", held=(), cpu_level="", session_s=60, keyed=False, batches=False,
                 reconciles=False, build=None):
        self.daemon, self.m = daemon, daemon.cluster.stubs.node
        self.out, self.kept, self.incarnation = queue.Queue(), [], 0
        self.batches, self.reconciles, self.unsent, self.holds = False, reconciles, [], False
        self.stub = daemon.stub("Node")
        self.session = self.stub.Session(iter(self.out.get, None), timeout=session_s)
        fields = dict(node_id=name, boot_id="boot", name=name, version="t", cores=slots, slots=slots, memory_bytes=1 << 34,
                      attempts=held, cpu_level=cpu_level, cpu_level_held=cpu_level, keyed=keyed, batches=batches)
        self.send(register=self.m.Register(**{**fields, **own_build(), **(build or {})}))
        self.registered = self.get("registered")
        self.batches = batches and self.registered.batches

    def send(self, later=False, **body):
        """later: with the next message, where they go together."""
        self.unsent.append(self.m.NodeMessage(incarnation=self.incarnation, **body))
        if not self.batches or not (later or self.holds):
            self.flush()

    def flush(self):
        if not self.unsent:
            return
        batch = [x.SerializeToString() for x in self.unsent]
        self.out.put(self.m.NodeMessage(batch=batch) if len(batch) > 1 else self.unsent[0])
        self.unsent = []

    @contextlib.contextmanager
    def together(self):
        """What is sent meanwhile goes as one message."""
        self.holds = True
        yield
        self.holds = False
        self.flush()

    def get(self, kind, wanted=lambda body: True):
        """The next message of a kind; others are kept for later."""
        for i, (k, body) in enumerate(self.kept):
            if k == kind and wanted(body):
                del self.kept[i]
                return body
        for message in self.session:
            found = None
            for one in [self.m.CoordinatorMessage.FromString(x) for x in message.batch] or [message]:
                got, body = self.take(one)
                if found is None and got == kind and wanted(body):
                    found = body
                else:
                    self.kept.append((got, body))
            if found is not None:
                return found
        raise AssertionError(f"the session ended before {kind}")

    def take(self, message):
        self.incarnation = message.incarnation
        got = message.WhichOneof("body")
        body = getattr(message, got)
        if got == "plan_request":
            self.send(plan_result=self.m.PlanResult(request=body.request, result_json=json.dumps(
                {"state_bytes": 1000, "arena_bytes": 24, "shared_bytes": 4096, "total_steps": 30, "steps_per_epoch": 10,
                 "read": []})))
        if got == "reconcile" and self.reconciles:
            self.send(later=True, reconciled=self.m.Reconciled(request=body.request, job=body.job))
        return got, body

    def attempt(self):
        return Attempt(self, self.get("assign"))

    def close(self):
        self.out.put(None)
        list(self.session)


class Attempt:
    """What a launcher would have written, kept as bytes so that any part can be sent again."""

    def __init__(self, node, assign):
        self.node, self.assign, self.id, self.events = node, assign, assign.id, b""

    def line(self, event, later=False, **more):
        at = len(self.events)
        self.events += json.dumps({"event": event, "real_ns": 1, **more}).encode() + b"\n"
        self.segment(1, 0, at, self.events[at:], later)

    def segment(self, kind, rank, offset, data, later=False):
        segment = self.node.m.Segment(id=self.id, kind=kind, rank=rank, offset=offset, data=data)
        self.node.send(later=later, segment=segment)

    def acked(self, kind, rank, offset):
        self.node.get("segment_ack", lambda a: (a.kind, a.rank, a.offset) == (kind, rank, offset))

    def begin(self):
        self.line("launched", later=True, pid=1)
        for rank in range(self.assign.n_ranks):
            self.line("ready", rank=rank, pid=2)

    def end(self, outcome="done", metrics=0, out=0, err=0, **more):
        for rank in range(self.assign.n_ranks):
            self.node.send(later=True, log_state=self.node.m.LogState(id=self.id, rank=rank, metrics_bytes=metrics, out_bytes=out,
                                                                      err_bytes=err, final=True))
        self.line("launcher_end", outcome=outcome, **more)

    def checkpoint(self, step, files, manifest=b'{"format":1}'):
        self.line("checkpoint", rank=0, step=step, epoch=1, path=f"a{self.id.attempt}/step-{step}", manifest=digest(manifest),
                  bytes=sum(map(len, files.values())) + len(manifest), metrics={"val_loss": 0.5},
                  files=[{"name": n, "bytes": len(b), "digest": digest(b)} for n, b in files.items()])

    def put(self, step, name, data, first=0, chunks=None, claim=None, epoch=None):
        identity = self.node.m.AttemptId(job=self.id.job, attempt=self.id.attempt, epoch=epoch or self.id.epoch)
        chunk = lambda at: self.node.m.ShardChunk(
            id=identity, checkpoint=f"a{self.id.attempt}/step-{step}", file=name, file_bytes=len(data),
            digest=claim or digest(data), offset=at, data=data[at:at + 262144])
        offsets = range(first, max(len(data), first + 1), 262144)[:chunks]
        return self.node.stub.PutShard(iter([chunk(at) for at in offsets]), timeout=20).offset


# ---- calls of tests ---------------------------------------------------------------------------------
def refused(code, call, *texts):
    with pytest.raises(grpc.RpcError) as error:
        result = call()
        if hasattr(result, "__next__"):
            list(result)
    assert error.value.code() == getattr(grpc.StatusCode, code), error.value
    details = dict(error.value.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    for text in texts:
        assert text.encode() in details or text in error.value.details(), (text, error.value.details(), details)


def run_one(coordinator, *overrides):
    node = FakeNode(coordinator)
    job = coordinator.submit(SPEC, *overrides)
    attempt = node.attempt()
    attempt.begin()
    coordinator.wait_state(job, "RUNNING")
    return node, job, attempt
