"""CPU levels (lib/base/cpu_level.h), for the runner, the bench and tests: their names, and those of this machine.

Nothing here asks the processor: `traind-worker probe` names the machine's own level in the build of its cpu
accelerator. TRAIND_CPU_ISA, where it is set, makes the machine as old as that, so that all of `make check` and
`make bench` can be run as an older machine would run it.
"""
import json
import os
import re
import subprocess

NAMES = ("generic", "avx2", "avx512", "avx512_bf16", "amx")  # each has all of those before it


def of_machine(build):
    """The highest level that programs of a build folder use here."""
    env = {k: v for k, v in os.environ.items() if k != "TRAIND_CPU_ISA"}
    lines = subprocess.run([build / "bin/traind-worker", "probe"], env=env, capture_output=True, text=True,
                           timeout=60).stdout.splitlines()
    builds = [x.get("build", "") for x in map(json.loads, lines) if x["accelerator"] == "cpu"]
    found = [n for n in NAMES for b in builds if n in re.split(r"[^a-z0-9_]+", b)]
    assert len(found) == 1, f"`traind-worker probe` names no CPU level of the cpu accelerator: {lines}"
    held = os.environ.get("TRAIND_CPU_ISA", "")
    return min(found[0], held, key=NAMES.index) if held in NAMES else found[0]


def below(level):
    """The levels that a machine of this level has besides, lowest first."""
    return NAMES[:NAMES.index(level)]
