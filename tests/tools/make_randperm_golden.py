#!/usr/bin/env python3
"""Writes tests/golden/randperm.txt: what torch.randperm says, seeded as DistributedSampler does.

Run it once with real torch in a throw-away virtual environment; the file is committed, so tests
need no torch. Each line is one case:

    seed n digest first...

digest is the FNV-1a 64 of all indices (as little-endian int64); `first` are the first 16 indices.
"""

import sys
from pathlib import Path

import torch

FIRST = 16


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    out = Path(__file__).resolve().parents[1] / "golden" / "randperm.txt"
    with out.open("w") as f:
        f.write("# seed n digest first... (tests/tools/make_randperm_golden.py)\n")
        for seed in (0, 1, 42, 5489, 2**31, 2**32 - 1, 2**32 + 7, 2**63 - 1):
            for n in (0, 1, 2, 3, 10, 623, 624, 625, 60000):
                generator = torch.Generator()
                generator.manual_seed(seed)
                p = torch.randperm(n, generator=generator)
                digest = fnv1a(p.numpy().tobytes())
                first = "".join(f" {i}" for i in p[:FIRST].tolist())
                f.write(f"{seed} {n} {digest:016x}{first}\n")
    print(f"wrote {out} with torch {torch.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
