"""Circles of includes, for lint.py.

A unit is a .c file with the header of its name in the same folder (either may be alone), or a table with
its readers of that name (knobs.def, knobs.c, knobs.h). Units are joined where a file of one includes a file of
the other. Units that reach each other are a circle: none of them can be read, tested or replaced alone. Whoever
finds one moves what both sides need below both of them.
"""

import re
from pathlib import PurePosixPath

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)


def unit_of(path):
    return str(PurePosixPath(path).with_suffix(""))


def joined(files):
    """files: path -> text. Unit -> unit -> (file, line) of the first include between them."""
    units = {}
    for path, text in sorted(files.items()):
        here = units.setdefault(unit_of(path), {})
        for m in INCLUDE.finditer(text):
            header = f"include/{m[1]}" if m[1].startswith("traind/") else m[1]
            if header in files and unit_of(header) != unit_of(path):
                here.setdefault(unit_of(header), (path, text.count("\n", 0, m.start()) + 1))
    return units


def circles(units):
    """Sets of units that reach each other (Tarjan 1972), without recursion, each as a sorted tuple."""
    number, lowest, path, on_path, found = {}, {}, [], set(), []
    for root in sorted(units):
        if root in number:
            continue
        work = [(root, iter(sorted(units[root])))]
        number[root] = lowest[root] = len(number)
        path.append(root)
        on_path.add(root)
        while work:
            unit, rest = work[-1]
            for other in rest:
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    path.append(other)
                    on_path.add(other)
                    work.append((other, iter(sorted(units[other]))))
                    break
                if other in on_path:
                    lowest[unit] = min(lowest[unit], number[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[unit])
                if lowest[unit] == number[unit]:
                    at = path.index(unit)
                    if len(path) - at > 1:
                        found.append(tuple(sorted(path[at:])))
                    on_path.difference_update(path[at:])
                    del path[at:]
    return sorted(found)


def way_round(units, circle):
    """A shortest way from the circle's first unit back to it: (file, line, unit) of each include."""
    first, inside = circle[0], set(circle)
    came, queue = {}, [first]
    while first not in came:
        unit = queue.pop(0)
        for other in sorted(units[unit]):
            if other in inside and other not in came:
                came[other] = unit
                queue.append(other)
    way, at = [], first
    while not way or at != first:
        way.append((*units[came[at]][at], at))
        at = came[at]
    return way[::-1]


def check(files, known, problem):
    """Calls problem(path, line, text) for each circle that is not inside a known one, and for each known
    one of which nothing is left."""
    units = joined(files)
    found = circles(units)
    for circle in found:
        if any(set(circle) <= set(k) for k in known):
            continue
        way = way_round(units, circle)
        names = " -> ".join([circle[0]] + [unit for *_, unit in way])
        problem(way[0][0], way[0][1], f"a circle of includes: {names}")
    for k in known:
        if not any(set(circle) <= set(k) for circle in found):
            problem("tests/tools/lint.py", 1, f"KNOWN_CIRCLES: {', '.join(k)} is no circle any more, take it out")
