"""Both sides of the part `shards`, and their turns: a coordinator that somebody started, and a stock grpcio server that does
the same with the bytes (listener.py). One client in Python, so that it is the same for both; what it cannot do, neither
shows.

    python3 tests/bench/transfers.py STATE_DIR STUBS FOLDER ROUNDS      with TLS, from inside the coordinator's network;
                                                                        prints the figures of each as JSON
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
import types

import grpc

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import support  # noqa: E402
from fake_node import FakeNode, digest  # noqa: E402

BYTES, PIECE = 256 << 20, 256 << 10
OPTIONS = ["--heartbeat-ms", "600000", "--lease-ms", "3600000"]  # of the coordinator: the fake node is silent meanwhile


def mb_per_s(act):
    start = time.perf_counter()
    act()
    return BYTES / 1e6 / (time.perf_counter() - start)


def check(pieces):
    assert sum(len(p.data) for p in pieces) == BYTES


class Own:
    """A coordinator with a job whose attempt streams a checkpoint per round."""

    def __init__(self, daemon):
        self.stubs = daemon.cluster.stubs
        self.node = FakeNode(daemon, session_s=3600)
        self.job = daemon.submit(support.SPEC, "checkpoint.save_top_k=1")
        self.attempt = self.node.attempt()
        self.attempt.begin()
        self.stub, self.m, self.step = daemon.stub("Checkpoint"), self.stubs.checkpoint, 0

    def put(self, data):
        self.step += 10
        self.attempt.checkpoint(self.step, {"model.safetensors": data})
        self.attempt.put(self.step, "manifest.json", b'{"format":1}')
        hashed = digest(data)
        return mb_per_s(lambda: self.attempt.put(self.step, "model.safetensors", data, claim=hashed))

    def read(self):
        request = self.m.ReadShardRequest(job=self.job, path=f"a1/step-{self.step}", file="model.safetensors")
        return mb_per_s(lambda: check(self.stub.ReadShard(request)))


class Stock:
    """gRPC's own listener. tls: its address, and the folder of the CA and of a certificate for it."""

    def __init__(self, own, stubs, folder, tls=()):
        folder.mkdir()
        self.child = subprocess.Popen([sys.executable, HERE / "listener.py", stubs, folder, *tls], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.own = own
        address = self.child.stdout.readline().strip()
        channel = grpc.insecure_channel(address)
        if tls:
            ca = grpc.ssl_channel_credentials((tls[1] / "ca.pem").read_bytes())
            channel = grpc.secure_channel(address, ca)
        self.put_stub = own.stubs.node_grpc.NodeServiceStub(channel)
        self.read_stub = own.stubs.checkpoint_grpc.CheckpointServiceStub(channel)

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


def in_turn(own, stock, rounds):
    """MB/s by call and side. The first round is not counted."""
    data, rows = os.urandom(BYTES), {}
    for _ in range(rounds + 1):
        for name, side in (("own", own), ("stock", stock)):
            rows.setdefault(f"PutShard {name}", []).append(side.put(data))
            rows.setdefault(f"ReadShard {name}", []).append(side.read())
    return {name: figures[1:] for name, figures in rows.items()}


class Beside(support.Daemon):
    """A daemon of this network, which somebody else started."""

    def dial(self):
        ca = (self.state_dir / "tls/ca.pem").read_bytes()
        return grpc.secure_channel(self.address, grpc.ssl_channel_credentials(ca))


def main():
    state_dir, stubs, folder = map(pathlib.Path, sys.argv[1:4])
    sys.path.insert(0, str(stubs))
    cluster = types.SimpleNamespace(stubs=support.Stubs())
    daemon = Beside(cluster, state_dir, [], {})
    own = Own(daemon)
    with contextlib.closing(Stock(own, stubs, folder, (daemon.address.rsplit(":", 1)[0], state_dir / "tls"))) as stock:
        print(json.dumps(in_turn(own, stock, int(sys.argv[4]))))


if __name__ == "__main__":
    main()
