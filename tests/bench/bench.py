"""make bench: the figures of traind as JSON lines and a table, its rivals beside it in the same run.

    python3 tests/bench/bench.py --build build [--rounds 3] [--only throughput-mlp,start] [--torch PYTHON]

Parts, in order: throughput, lightning, contended, foretold, start, checkpoint, latency, idle, programs. `throughput` and
`foretold` have parts of their own, such as throughput-gpt-bf16. Where the rival is
not installed its column says "no rival". Nothing here passes or fails: the exit status is 0 unless the
bench itself breaks. All of it takes some 15 minutes on two quiet cores; figures of a machine that does
anything else are worth little (column `others`).
"""
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

import harness
from harness import chosen, support


def programs(folder, torch):
    """C programs of tests/bench print their own lines: step, collective, metrics, peak."""
    for program in sorted((support.BUILD / "tests/bench").glob("bench_*")):
        if os.access(program, os.X_OK) and program.suffix == "":
            subprocess.run([program], timeout=600, env=dict(os.environ, **harness.OPENMP))


def parts():
    import daemons
    import moments
    import training

    return {"throughput": training.throughput, "lightning": training.lightning, "contended": training.contended,
            "foretold": training.foretold, "start": moments.start, "checkpoint": moments.checkpoint,
            "latency": daemons.latency, "idle": daemons.idle, "programs": programs}


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch = harness.have("torch")
    with tempfile.TemporaryDirectory(dir=support.BUILD) as scratch:  # on the disk, not in memory
        for name, part in parts().items():
            if chosen(name):
                folder = pathlib.Path(scratch) / name
                folder.mkdir()
                part(folder, torch)
    harness.table()


if __name__ == "__main__":
    main()
