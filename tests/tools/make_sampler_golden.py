#!/usr/bin/env python3
"""Writes tests/golden/sampler.txt: what torch's DistributedSampler says.

Run it once with real torch in a throw-away virtual environment; the file is committed, so tests
need no torch. Each line is one case:

    n world shuffle drop_last seed epoch rank count digest first...

digest is the FNV-1a 64 of all indices (as little-endian int64) in the order of the rank; `first`
are the first 8 indices. Small cases print the whole list: then `first` has `count` entries.
"""
import struct
import sys
from pathlib import Path

from torch.utils.data import DistributedSampler

SMALL = 40


def fnv1a(indices):
    h = 0xCBF29CE484222325
    for b in b"".join(struct.pack("<q", i) for i in indices):
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def cases():
    for n in (1, 2, 3, 5, 7, 16, 37, 103):
        for world in (1, 2, 3, 4, 8):
            for shuffle in (False, True):
                for drop_last in (False, True):
                    for epoch in (0, 1, 5):
                        yield n, world, shuffle, drop_last, 1, epoch
    for n, world, epoch, seed in ((1000, 3, 0, 0), (10000, 4, 2, 42), (60000, 2, 0, 1),
                                  (60000, 7, 4, 1), (60000, 2, 1, 2**40 + 5), (100003, 5, 9, 7)):
        for shuffle in (False, True):
            for drop_last in (False, True):
                yield n, world, shuffle, drop_last, seed, epoch


def main():
    out = Path(__file__).resolve().parent.parent / "golden" / "sampler.txt"
    lines = ["# " + "n world shuffle drop_last seed epoch rank count digest first... "
             "(tests/tools/make_sampler_golden.py)"]
    for n, world, shuffle, drop_last, seed, epoch in cases():
        if drop_last and n < world:
            continue  # torch has no such epoch: its count is 0 or the assertion fails
        for rank in range(world):
            if n > SMALL and rank not in (0, world - 1):
                continue
            s = DistributedSampler(range(n), num_replicas=world, rank=rank, shuffle=shuffle,
                                   seed=seed, drop_last=drop_last)
            s.set_epoch(epoch)
            idx = list(s)
            first = idx if n <= SMALL else idx[:8]
            lines.append(" ".join(map(str, [n, world, int(shuffle), int(drop_last), seed, epoch,
                                            rank, len(idx), f"{fnv1a(idx):016x}", *first])))
    out.write_text("\n".join(lines) + "\n")
    print(f"{out}: {len(lines) - 1} cases", file=sys.stderr)


if __name__ == "__main__":
    main()
