"""make bench: the figures of traind as JSON lines and a table, its rivals beside it in the same run.

    python3 tests/bench/bench.py --build build [--rounds 3] [--only throughput-mlp,start] [--torch PYTHON]

Parts, in order: fma, throughput, products, fabric, ddp, lightning, contended, predicted, start, spawn, checkpoint,
latency, command, queue, shards, hosts, idle, programs. `throughput`, `predicted`, `fabric`, `ddp` and `hosts` have
parts of their own, such as throughput-gpt-bf16, ddp-mlp or hosts-first; `throughput` brings the rows of `predicted`
along, which runs without a rival and only when it is named. Where the rival is not installed its column says "no
rival". --level holds both sides to a CPU level (harness.py). A row that fails or hangs says `failed: why`, and the
others follow (guard.py). Nothing here passes or fails: the exit status is 0 unless the bench itself breaks. All of it
takes some 20 minutes on two quiet cores; figures of a machine that does anything else are worth little (column
`others`).
"""
import os
import pathlib
import resource
import signal
import statistics
import sys
import tempfile

import harness
from harness import A, chosen, emit, support

PROGRAM_S = 500
PART_S = 3600  # a round
PROGRAMS_OF_PARTS = ("bench_fma", "bench_products", "bench_fabric", "bench_hosts", "bench_spawn")


def fma(folder, torch):
    """What shares of the peak are shares of: multiply-adds on registers alone."""
    with harness.Row("fma_peak", "GFLOP/s"):
        found = [harness.peaks() for _ in range(A.rounds)]
        for precision, threads in sorted(found[0], reverse=True):
            if precision == "bf16" and harness.LEVEL in harness.NO_BF16:
                continue  # it is fp32's
            figures = [f[precision, threads] / 1e9 for f in found if (precision, threads) in f]
            emit(f"fma_peak {precision}, {threads} thread{'s' * (threads > 1)}", figures, "GFLOP/s")


def products(folder, torch):
    """Products of one thread, beside three plain loops of this build's compiler at the same level."""
    peak = harness.peaks().get(("fp32", 1))
    with harness.Row("products, beside plain loops"):
        lines = harness.Ran([support.BUILD / "tests/bench/bench_products"], dict(os.environ, **harness.OPENMP), folder,
                            PROGRAM_S, quiet=False).lines
        for x in lines:
            emit(f"{x['name']}, beside plain loops", x["ours"], x["unit"], x["plain"], rival_is="plain loops, gcc -O3",
                 share=peak and round(statistics.median(x["ours"]) * 1e9 / peak, 3), threads=1,
                 shape=[x["m"], x["n"], x["k"]])


def programs(folder, torch):
    """C programs of tests/bench print their own lines: step, collective, metrics, peak."""
    for program in sorted((support.BUILD / "tests/bench").glob("bench_*")):
        if os.access(program, os.X_OK) and program.suffix == "" and program.name not in PROGRAMS_OF_PARTS:
            with harness.Row(program.name):
                for line in harness.Ran([program], dict(os.environ, **harness.OPENMP), folder, PROGRAM_S,
                                        quiet=False).lines:
                    harness.show({k: v for k, v in line.items() if k not in ("at", "clock_s")})


def parts():
    import crowd
    import daemons
    import moments
    import over_hosts
    import shards
    import training

    return {"fma": fma, "throughput": training.throughput, "products": products, "fabric": training.fabric, "ddp": training.ddp,
            "lightning": training.lightning, "contended": training.contended, "predicted": training.predicted,
            "start": moments.start, "spawn": moments.spawn,
            "checkpoint": moments.checkpoint, "latency": daemons.latency, "command": daemons.command,
            "queue": crowd.queue, "shards": shards.shards, "hosts": over_hosts.hosts, "idle": daemons.idle, "programs": programs}


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    harness.hold_level()
    torch = harness.have("torch")
    with tempfile.TemporaryDirectory(dir=support.BUILD) as scratch:  # on the disk, not in memory
        harness.guard.SCRATCH = scratch
        for name, part in parts().items():
            if chosen(name):
                folder = pathlib.Path(scratch) / name
                folder.mkdir()
                with harness.Row(name, deadline_s=PART_S * A.rounds):  # of what is in no row of its own
                    part(folder, torch)
    harness.table()


if __name__ == "__main__":
    main()
