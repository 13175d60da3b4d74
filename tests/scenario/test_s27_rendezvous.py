"""The rendezvous store: ranks leave each other values before they have a connection of their own (traind/store.h)."""
import json

from support import BUILD

PROGRAM = BUILD / "tests/scenario/program"


def spec(*argv, **more):
    return json.dumps({"kind": "program", "command": [str(a) for a in argv], "restart": {"max": 0}, **more})


def output(daemon, job, rank):
    return b"".join(m.data for m in daemon.logs(job, rank=rank)).decode()


def test_ranks_of_one_node_exchange_values(daemon):
    job = daemon.submit(spec(PROGRAM, "store", 0, trainer={"devices": 2}, resources={"threads": 1}))
    plans = list(daemon.state_dir.glob("attempts/*/*/plan.json"))
    print(plans, [p.read_text() for p in plans])
    done = daemon.finish(job)
    print(done)
    for rank in range(2):
        said = output(daemon, job, rank)
        assert f"first/{1 - rank} is of rank {1 - rank}\n" in said and f"second/{1 - rank} is of rank {1 - rank}\n" in said, said
