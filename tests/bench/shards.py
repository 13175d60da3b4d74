"""Rows of checkpoint bytes: PutShard and ReadShard of 256 MiB through the coordinator's own accept loop and its guard, in
turn with a stock server with gRPC's own listener (transfers.py). Once over loopback, once with TLS, for which the
coordinator is on a host of its own (tests/hosts.py).
"""
import contextlib
import json
import statistics
import subprocess
import sys

import hosts as net
from daemons import stubs
from harness import A, HERE, ROW_S, Cluster, Row, emit
from transfers import OPTIONS, Own, Stock, in_turn

RIVAL = "a grpcio server that writes, hashes, syncs and reads the same"


# made: the stubs, which are in the folder `where`
def loopback(folder, made, where):
    cluster = Cluster(folder, made)
    with contextlib.closing(cluster):
        own = Own(cluster.start("--role", "coordinator", *OPTIONS))
        with contextlib.closing(Stock(own, where, folder / "stock")) as stock:
            return in_turn(own, stock, 2 * A.rounds)


def tls(folder, made, where):
    cluster, network = Cluster(folder, made), net.Network()
    with contextlib.closing(network), contextlib.closing(cluster):
        daemon, = net.Hosts(network, cluster).start(options=OPTIONS)
        daemon.drop_channel()
        inside = daemon.host.inside(sys.executable, HERE / "transfers.py", daemon.state_dir, where, folder / "stock",
                                    2 * A.rounds)
        return json.loads(subprocess.run(inside, check=True, stdout=subprocess.PIPE, timeout=ROW_S * A.rounds).stdout)


def shards(folder, torch):
    made, plain = stubs(folder), {}
    for words, run, asked in (("", loopback, 0.9), (", TLS", tls, 0.8)):
        with Row(f"PutShard and ReadShard of 256 MiB{words}", "MB/s", ROW_S * A.rounds):
            (folder / run.__name__).mkdir()
            rows = run(folder / run.__name__, made, folder / "stubs")
            for call in ("PutShard", "ReadShard"):
                ours = rows[f"{call} own"]
                emit(f"{call} of 256 MiB{words}, beside gRPC's own listener", ours, "MB/s", rows[f"{call} stock"],
                     asked=asked, rival_is=RIVAL, without_tls=plain.get(call))
                plain[call] = round(statistics.median(ours), 1)
