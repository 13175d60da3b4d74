#!/usr/bin/env python3
"""Checks that every loop over a function of vmath.h is vectorized, in every object given.

  vectorized.py OBJECT...            objects of x86-64, compiled with -g

The compiler inlines vm_exp and its like into the loops that call them, and says in the debug information
which instruction stems from which call, and from which line of vmath.h. In a vectorized loop each line
became packed arithmetic and, for what is left over at the loop's end, scalar arithmetic too. In another
loop most lines are scalar alone, which is a finding. So is a function that is called instead of inlined,
vmath.h's own or libm's. vmath.h is for loops alone: what is computed once a row is <math.h>'s.

A finding is a line "OBJECT: FILE:LINE: what", and the exit status is 1 if there is any. An object without
debug information is a finding, or nothing would ever be found.
"""

import re
import subprocess
import sys
from dataclasses import dataclass, field

HEADER = "vmath.h"
OURS = "vm_"  # how the names of its functions begin
FUNCTION = re.compile(r"(\w+)(?:\.[\w.]+)?\(\):$")
PLACE = re.compile(r"(/.*|\S+\.[ch]):(\d+)(?: \(discriminator \d+\))?$")
INLINED = re.compile(r"inlined by (.*):(\d+)(?: \(discriminator \d+\))? \((\w+).*\)$")
INSTRUCTION = re.compile(r"\t(\w+)\b")
ARITHMETIC = re.compile(r"v?(?:(?:add|sub|mul|div|sqrt|min|max)|fn?m(?:add|sub)\d+)([ps])[sd]$")


@dataclass
class Call:
    """What one call of a function of the header became."""
    packed: set = field(default_factory=set)  # the header's lines that have packed arithmetic
    scalar: set = field(default_factory=set)
    leaves: bool = False  # for another function

    def is_scalar(self):
        return 2 * len(self.scalar - self.packed) > len(self.scalar)


def disassemble(path):
    command = ["objdump", "-d", "-l", "--inlines", "--no-show-raw-insn", "--no-addresses", path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def instructions(text):
    """(mnemonic, places) of each; a place is (function, file, line), the first one where the instruction
    stands, then where that was inlined, outwards."""
    function, here, outwards = "", None, []
    for line in text.splitlines():
        if found := FUNCTION.match(line):
            function = found[1]
        elif found := INLINED.match(line):
            outwards.append((found[3], found[1], int(found[2])))
        elif found := PLACE.match(line):
            here = (found[1], int(found[2]))
        elif found := INSTRUCTION.match(line):
            yield found[1], [(function, *here), *outwards] if here else []
            outwards = []
        elif line.startswith("Disassembly") or line.endswith(">:"):
            here = None


def short(place):
    name = place[1].replace("/./", "/")
    at = name.find("accelerators/")
    return f"{name[max(at, 0):]}:{place[2]}"


def findings(text):
    calls, lines = {}, 0
    for mnemonic, places in instructions(text):
        lines += bool(places)
        if not places or not places[0][0].startswith(OURS):
            continue
        callers = tuple(p for p in places if not p[0].startswith(OURS))
        call = calls.setdefault(callers, Call())
        if found := ARITHMETIC.match(mnemonic):
            (call.packed if found[1] == "p" else call.scalar).add(places[0][2])
        call.leaves |= mnemonic.startswith("call")
    if not lines:
        return ["no line numbers: compile with -g"]
    found = []
    for callers, call in calls.items():
        where = ", inlined at ".join(short(p) for p in callers) or HEADER
        if not callers and (call.packed or call.scalar):  # padding between loops has no caller
            found.append(f"{where}: a function was not inlined")
        elif call.leaves:
            found.append(f"{where}: a function of {HEADER} calls another one")
        elif call.is_scalar():
            found.append(f"{where}: the loop over a function of {HEADER} is scalar")
    return sorted(found)


def main(paths):
    found = [f"{path}: {text}" for path in paths for text in findings(disassemble(path))]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
