"""The rendezvous store: ranks leave each other values before they have a connection of their own (traind/store.h)."""
import json
import queue
import signal
import threading
import types
from concurrent import futures

import grpc
import pytest

from fake_node import FakeNode
from support import BUILD, until

PROGRAM = BUILD / "tests/scenario/program"
JOB, EPOCH = "j-000000000001", 7


def spec(*argv, **more):
    return json.dumps({"kind": "program", "command": [str(a) for a in argv], "restart": {"max": 0}, **more})


def test_ranks_of_one_node_exchange_values(daemon):
    job = daemon.submit(spec(PROGRAM, "store", 0, trainer={"devices": 2}, resources={"threads": 1}))
    daemon.finish(job)
    for rank in range(2):
        said = daemon.output(job, rank)
        assert f"first/{1 - rank} is of rank {1 - rank}\n" in said and f"second/{1 - rank} is of rank {1 - rank}\n" in said, said


# ---- two nodes ----------------------------------------------------------------------------------
class FakeCoordinator:
    """Sessions of two nodes, whose launchers it gives one rank each, and the store between them. It forgets it when it is
    started again, as a coordinator does."""

    def __init__(self, stubs, plan_json, port=0):
        self.m, self.plan_json, self.lock = stubs.node, plan_json, threading.Lock()
        self.values, self.wanted, self.sets, self.ended, self.registered, self.out = {}, set(), [], set(), {}, {}
        self.stale = {}  # what each node dropped, by its heartbeats
        self.server = grpc.server(futures.ThreadPoolExecutor(16))
        played = {name: getattr(self, name) for name in ("Session", "PutLog", "PutShard")}  # no test calls the others
        service = type("Service", (stubs.node_grpc.NodeServiceServicer,), {})()
        service.__dict__.update(played)
        stubs.node_grpc.add_NodeServiceServicer_to_server(service, self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        assert self.port
        self.server.start()

    def stop(self):
        for out in list(self.out.values()):
            out.put(None)
        self.server.stop(None).wait(20)

    def id(self, epoch=EPOCH):
        return self.m.AttemptId(job=JOB, attempt=1, epoch=epoch)

    def send(self, node, **body):
        self.out[node].put(self.m.CoordinatorMessage(incarnation=5, **body))

    def assign(self, node, rank):
        self.send(node, assign=self.m.Assign(id=self.id(), plan_json=self.plan_json, world_size=2, first_rank=rank, n_ranks=1,
                                             slots_per_rank=1, threads_per_rank=1))

    def give(self, key, value, epoch=EPOCH):
        """As if a rank had set it."""
        with self.lock:
            for node in self.out:
                self.send(node, store_value=self.m.StoreValue(id=self.id(epoch), key=key, value=value))

    def Session(self, messages, context):
        out = queue.Queue()
        threading.Thread(target=self.read, args=(messages, out), daemon=True).start()
        yield from iter(out.get, None)

    def PutLog(self, chunks, context):
        return self.m.PutReply(offset=max(c.offset + len(c.data) for c in chunks))

    def PutShard(self, chunks, context):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "no checkpoint is streamed here")

    def read(self, messages, out):
        node = None
        try:
            for message in messages:
                body = message.WhichOneof("body")
                if body == "register":
                    node = message.register.name
                with self.lock:
                    getattr(self, "on_" + body, lambda *_: None)(node, getattr(message, body), out)
        except grpc.RpcError:
            pass  # the node was killed
        out.put(None)

    def on_register(self, node, m, out):
        self.out[node] = out
        self.wanted = {w for w in self.wanted if w[0] != node}
        held = [a.id for a in m.attempts]
        self.send(node, registered=self.m.Registered(heartbeat_ms=1000, lease_ms=10000,
                                                     adopt=[self.m.AttemptCursor(id=i) for i in held]))
        self.registered[node] = held

    def on_heartbeat(self, node, m, out):
        self.stale[node] = m.stale_messages

    def on_segment(self, node, m, out):
        self.send(node, segment_ack=self.m.SegmentAck(id=m.id, kind=m.kind, rank=m.rank, offset=m.offset + len(m.data)))
        if b'"launcher_end"' in m.data:
            self.ended.add(node)

    def on_store_set(self, node, m, out):
        assert m.id == self.id()
        self.sets.append((node, m.key))
        self.values[m.key] = m.value
        self.send(node, store_done=self.m.StoreDone(id=m.id, key=m.key))
        self.serve()

    def on_store_want(self, node, m, out):
        self.wanted.add((node, m.key))
        self.serve()

    def serve(self):
        for node, key in [w for w in self.wanted if w[1] in self.values]:
            self.wanted.discard((node, key))
            self.send(node, store_value=self.m.StoreValue(id=self.id(), key=key, value=self.values[key]))


@pytest.fixture
def two_nodes(cluster, stubs, tmp_path):
    """Two real nodes with a rank each, past the first exchange and waiting for the key `go`."""
    run = {"job": JOB, "attempt": 1, "threads_per_rank": 1}
    tree = {**json.loads(spec(PROGRAM, "store", 1)), "trainer": {"devices": 1, "num_nodes": 1}}
    tree.update(name="meet", env={}, workdir=None, ckpt_path=None, checkpoint={"store": "fs", "dir": None},
                resources={"threads": 1, "memory_bytes": "auto", "processes": "auto", "open_files": "auto"})
    made = [FakeCoordinator(stubs, json.dumps({"format": 1, **tree, "run": run}))]
    (tmp_path / "token").write_text("t" * 43)
    (tmp_path / "token").chmod(0o600)
    nodes = [cluster.make("--role", "node", "--coordinator", f"127.0.0.1:{made[0].port}", "--slots", 1, "--name", f"n{i}",
                          "--token-file", tmp_path / "token", "--allow", "programs", name=f"n{i}").start() for i in range(2)]
    until("both have registered", lambda: len(made[0].registered) == 2)
    for i in range(2):
        made[0].assign(f"n{i}", i)
    waits = lambda: made[-1].wanted == {("n0", "go"), ("n1", "go")}

    def again():
        """The coordinator is gone, and another one is there that knows nothing."""
        made[-1].stop()
        made.append(FakeCoordinator(stubs, made[0].plan_json, made[0].port))
        return made[-1]

    def finish(go=b"now"):
        before = dict(made[-1].stale)
        made[-1].give("go", b"stale", epoch=EPOCH + 1)
        until("both say that they dropped it",
              lambda: all(made[-1].stale.get(n, 0) > before.get(n, 0) for n in ("n0", "n1")))
        made[-1].give("go", go)
        until("both have ended", lambda: made[-1].ended == {"n0", "n1"})
        for i in range(2):
            said = (nodes[i].state_dir / f"attempts/{JOB}/a1/out.{i}.log").read_text().splitlines()
            assert said[1:] == [f"first/{1 - i} is of rank {1 - i}", f"go is {go.decode()}", f"second/{1 - i} is of rank {1 - i}"]

    yield types.SimpleNamespace(nodes=nodes, again=again, finish=finish, waits=waits, made=made)
    for i in range(2):
        made[-1].send(f"n{i}", forget=made[-1].m.Forget(id=made[-1].id()))
    until("its files are gone", lambda: not any(n.attempts() for n in nodes))
    for n in nodes:
        n.kill(signal.SIGTERM)
    made[-1].stop()


def test_ranks_of_two_nodes_exchange_values_by_way_of_the_coordinator(two_nodes):
    until("both wait", two_nodes.waits)
    assert sorted(two_nodes.made[0].sets) == [("n0", "first/0"), ("n1", "first/1")]
    two_nodes.finish()


def test_node_daemon_that_is_killed_meanwhile_costs_time_alone(two_nodes):
    until("both wait", two_nodes.waits)
    two_nodes.nodes[1].restart(signal.SIGKILL)
    until("both wait again", lambda: two_nodes.waits() and two_nodes.made[0].sets.count(("n1", "first/1")) == 2)
    two_nodes.finish()


def test_coordinator_that_is_gone_meanwhile_learns_all_again(two_nodes):
    until("both wait", two_nodes.waits)
    other = two_nodes.again()
    until("both wait again", two_nodes.waits)
    assert sorted(other.sets) == [("n0", "first/0"), ("n1", "first/1")]
    two_nodes.finish()


def test_both_are_gone_at_once(two_nodes):
    until("both wait", two_nodes.waits)
    two_nodes.nodes[0].kill(signal.SIGKILL)
    two_nodes.again()
    two_nodes.nodes[0].start()
    until("both wait again", two_nodes.waits)
    two_nodes.finish(go=b"at last")


# ---- the real coordinator -----------------------------------------------------------------------
def test_coordinator_keeps_the_store_of_an_attempt_and_learns_it_again_after_a_kill(coordinator):
    node = FakeNode(coordinator, batches=True)
    coordinator.submit()
    a = node.attempt()
    a.begin()
    m = node.m
    wrong = m.AttemptId(job=a.id.job, attempt=a.id.attempt, epoch=a.id.epoch + 1)

    def meet(node):
        node.send(store_want=m.StoreWant(id=a.id, key="k"))
        node.send(store_set=m.StoreSet(id=wrong, key="k", value=b"stale"))
        node.send(store_set=m.StoreSet(id=a.id, key="k", value=b"\0abc"))
        assert node.get("store_done").code == 0
        got = node.get("store_value")
        assert (got.id, got.key, got.value) == (a.id, "k", b"\0abc")
        node.send(store_taken=m.StoreTaken(values=1))
        node.send(store_set=m.StoreSet(id=a.id, key="k", value=b"other"))
        refused = node.get("store_done")
        assert refused.code == grpc.StatusCode.FAILED_PRECONDITION.value[0] and "key 'k'" in refused.message

    meet(node)
    coordinator.listened = coordinator.address
    coordinator.restart()  # SIGKILL
    held = m.AttemptHeld(id=a.id, alive=True, launcher_major=1, build="t")
    node = FakeNode(coordinator, held=[held], batches=True)
    assert [c.id for c in node.registered.adopt] == [a.id]
    meet(node)
    a.node = node
    a.end(outcome="failed")
    node.send(store_want=m.StoreWant(id=a.id, key="k"))
    coordinator.wait_state(a.id.job, "FAILED", "RECOVERING", "QUEUED")
    node.close()
