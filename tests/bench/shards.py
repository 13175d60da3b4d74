"""Rows of checkpoint bytes: PutShard and ReadShard through the coordinator's own accept loop and its guard, beside a stock
server with gRPC's own listener that does the same with them (listener.py). One client in Python, so that it is the same
for both; what it cannot do, neither shows.
"""
import contextlib
import os
import pathlib
import subprocess
import sys
import time

import grpc

from fake_node import FakeNode, digest
from harness import A, ROW_S, Cluster, Row, emit, support

BYTES, PIECE = 256 << 20, 256 << 10


def mb_per_s(act):
    start = time.perf_counter()
    act()
    return BYTES / 1e6 / (time.perf_counter() - start)


class Own:
    """A coordinator with a job whose attempt streams a checkpoint per round."""

    def __init__(self, folder):
        (folder / "stubs").mkdir()
        self.cluster = Cluster(folder, support.generate_stubs(folder / "stubs"))
        daemon = self.cluster.start("--role", "coordinator", "--heartbeat-ms", "600000", "--lease-ms", "3600000")
        self.node = FakeNode(daemon, session_s=3600)
        self.job = daemon.submit(support.SPEC, "checkpoint.save_top_k=1")
        self.attempt = self.node.attempt()
        self.attempt.begin()
        self.stub, self.m, self.step = daemon.stub("Checkpoint"), self.cluster.stubs.checkpoint, 0

    def put(self, data):
        self.step += 10
        self.attempt.checkpoint(self.step, {"model.safetensors": data})
        self.attempt.put(self.step, "manifest.json", b'{"format":1}')
        hashed = digest(data)
        return mb_per_s(lambda: self.attempt.put(self.step, "model.safetensors", data, claim=hashed))

    def read(self):
        request = self.m.ReadShardRequest(job=self.job, path=f"a1/step-{self.step}", file="model.safetensors")
        return mb_per_s(lambda: check(self.stub.ReadShard(request)))


class Plain:
    def __init__(self, folder, own):
        (folder / "plain").mkdir()
        script = pathlib.Path(__file__).with_name("listener.py")
        self.child = subprocess.Popen([sys.executable, script, folder / "stubs", folder / "plain"], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.own = own
        channel = grpc.insecure_channel(f"127.0.0.1:{self.child.stdout.readline().strip()}")
        self.put_stub = own.cluster.stubs.node_grpc.NodeServiceStub(channel)
        self.read_stub = own.cluster.stubs.checkpoint_grpc.CheckpointServiceStub(channel)

    def put(self, data):
        node, hashed = self.own.node.m, digest(data)
        chunk = lambda at: node.ShardChunk(id=self.own.attempt.id, file="x", file_bytes=len(data), digest=hashed, offset=at,
                                           data=data[at:at + PIECE])
        return mb_per_s(lambda: self.put_stub.PutShard(chunk(at) for at in range(0, len(data), PIECE)))

    def read(self):
        return mb_per_s(lambda: check(self.read_stub.ReadShard(self.own.m.ReadShardRequest())))

    def close(self):
        self.child.stdin.close()
        self.child.wait(30)


def check(pieces):
    assert sum(len(p.data) for p in pieces) == BYTES


def shards(folder, torch):
    """A file of 256 MiB to the coordinator and back, in turn with gRPC's own listener."""
    with Row("PutShard and ReadShard of 256 MiB", "MB/s", ROW_S * A.rounds):
        data, rows = os.urandom(BYTES), {}
        own = Own(folder)
        with contextlib.closing(own.cluster), contextlib.closing(Plain(folder, own)) as plain:
            for _ in range(2 * A.rounds + 1):
                for name, side in (("own", own), ("plain", plain)):
                    rows.setdefault(("PutShard", name), []).append(side.put(data))
                    rows.setdefault(("ReadShard", name), []).append(side.read())
        for call in ("PutShard", "ReadShard"):
            emit(f"{call} of 256 MiB, beside gRPC's own listener", rows[call, "own"][1:], "MB/s", rows[call, "plain"][1:],
                 asked=0.9, rival_is="a grpcio server that writes, hashes, syncs and reads the same")
