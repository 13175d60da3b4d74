"""Circles of includes and of calls, for lint.py.

Of includes, a unit is a .c file with the header of its name in the same folder (either may be alone), or a table
with its readers of that name (knobs.def, knobs.c, knobs.h). Units are joined where a file of one includes a file of
the other. Of calls, a unit is a file, joined with those whose functions it calls: a header that several files share
hides that they call each other. Units that reach each other are a circle: none of them can be read, tested or
replaced alone. To open one, move what both sides need below both of them, or have the upper one register what
the lower one calls.

A call is a name of a function with a parenthesis after it, inside braces. What stands in a macro's body, or goes
through a pointer, is not seen; nor what a .c file and the inline functions of its own header call of each other.
"""

import re
from pathlib import PurePosixPath

# Circles of calls that are there still, by the reason. What is in none any more leaves its row.
KNOWN_CALLS = {
    "rules.h asks the families, whose rejections name an op and print its shapes": [
        "engine/graph/anomaly.c", "engine/graph/builder.c", "engine/graph/graph_text.c", "engine/graph/rules/rules.c",
        "engine/graph/rules/shape.c", "engine/graph/rules/shape_attention.c", "engine/graph/rules/shape_basic.c",
        "engine/graph/rules/shape_conv.c", "engine/graph/rules/shape_elementwise.c", "engine/graph/rules/shape_nn.c",
        "engine/graph/rules/shape_optim.c", "engine/graph/rules/shape_tensor.c", "engine/graph/state.c",
        "include/traind/graph.h"],
    "a value of a document is a document again": [
        "lib/spec/document.c", "lib/spec/refused.c", "lib/spec/rules.c", "lib/spec/value.c"],
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
DEFINITION = re.compile(r"^(?!typedef)[A-Za-z_][^;{}()=]*?\b(td_\w+)\([^;{}]*\)\s*\{", re.M)
CALL_OR_BRACE = re.compile(r"[{}]|\b(td_\w+)\(")


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


def calls(text):
    """Names and places of what is called inside braces."""
    depth = 0
    for m in CALL_OR_BRACE.finditer(text):
        if m[1] and depth:
            yield m[1], m.start()
        depth += {"{": 1, "}": -1}.get(m[0], 0)


def joined_by_calls(files):
    """files: path -> text without comments and strings. As joined, by the first call. A name that several files
    define (of each plugin its own) joins nobody."""
    plain = {path: DIRECTIVE.sub(lambda m: "\n" * m[0].count("\n"), text).replace('extern " " {', "")
             for path, text in sorted(files.items())}
    homes = {}
    for path, text in plain.items():
        for m in DEFINITION.finditer(text):
            homes.setdefault(m[1], set()).add(path)
    units = {path: {} for path in plain}
    for path, text in plain.items():
        for name, position in calls(text):
            home = homes.get(name, ())
            if len(home) == 1 and unit_of(*home) != unit_of(path):
                units[path].setdefault(*home, (path, text.count("\n", 0, position) + 1))
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


def check(units, what, known, problem):
    """Calls problem(path, line, text) for each circle that is not inside a known one, and for each unit of a known
    one that is in no circle any more: the list only shrinks. known: reason -> units."""
    found = circles(units)
    for circle in found:
        if any(set(circle) <= set(k) for k in known.values()):
            continue
        way = way_round(units, circle)
        names = " -> ".join([circle[0]] + [unit for *_, unit in way])
        problem(way[0][0], way[0][1], f"a circle of {what}: {names}")
    for k in known.values():
        for unit in sorted(set(k) - {u for circle in found if set(circle) <= set(k) for u in circle}):
            problem("tests/tools/circles.py", 1, f"known circles of {what}: {unit} is in none any more, take it out")
