"""One name, one thing, for lint.py.

A td_ name means one thing in the whole tree: a struct, union or enum is defined in one file, no type
has the tag of another, and a function is declared in one header. Whoever reads `struct td_loop` has not to ask
which. What a plugin's header leaves open (`struct td_module;` in include/traind) is its plugins' own: each of
them defines it for itself.

A word that once meant several things has one meaning, and its functions are declared where that is (WORDS).
"""

import re
from collections import defaultdict

PLUGINS = ("accelerators/", "strategies/", "collectives/", "comm_hooks/", "precisions/", "workloads/", "examples/", "tests/")
TAG = re.compile(r"^(?:struct|union|enum)\s+(td_\w+)\s*\{", re.M)
OPEN = re.compile(r"^struct\s+(td_\w+);", re.M)
TYPE = re.compile(r"^typedef\b[^;{]*?\b(td_\w+)\s*(?:\((?!\*)[^;]*\))?;", re.M)
FUNCTION = re.compile(r"^(?!typedef|static|return|#)\w[^;{}()=]*?\b(td_\w+)\(", re.M)

# td_<word>_...() -> the rooms that may declare it. CONVENTIONS.md says what each word means.
WORDS = {
    "place": ["lib/spec"],
    "match": ["daemon/coordinator/core/queue"],
    "capacity": ["daemon/coordinator/core/plans"],
    "fit": [],
    "clip": ["lib/base"],
    "store": ["lib/attempt", "daemon/launcher"],
    "databases": ["daemon/coordinator/shell/databases"],
    "retention": ["lib/attempt", "engine/train/checkpoint"],
    "retain": ["daemon/coordinator/core/catalog"],
    "expiry": ["daemon/coordinator/core/attempt"],
    "reconcile": ["daemon/coordinator/core/catalog"],
}


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def places(files, pattern, wanted=lambda path: True):
    """Name -> [(file, line)] of its definitions, one a file: a type may be spelled twice under #if."""
    found = defaultdict(dict)
    for path, text in sorted(files.items()):
        if wanted(path):
            for m in pattern.finditer(text):
                found[m[1]].setdefault(path, line_of(text, m.start(1)))
    return {name: sorted(by_file.items()) for name, by_file in found.items()}


def check(files, problem):
    """files: path -> text without comments. Calls problem(path, line, text) for each name that means two things."""
    left_open = set(places(files, OPEN, lambda path: path.startswith("include/")))
    tags = places(files, TAG)
    types = places(files, TYPE)
    functions = places(files, FUNCTION, lambda path: path.endswith(".h"))
    for name, at in sorted(tags.items()):
        if name in left_open and all(path.startswith(PLUGINS) for path, _ in at):
            continue
        for path, line in at[1:]:
            problem(path, line, f"{name} is another thing in {at[0][0]}: give one of them another name")
    for name, at in sorted(types.items()):
        for path, line in tags.get(name, []) + at[1:]:
            problem(path, line, f"{name} is a type in {at[0][0]}: give one of them another name")
    for name, at in sorted(functions.items()):
        for path, line in at[1:]:
            problem(path, line, f"{name}() is declared in {at[0][0]} too: give one of them another name")
    for name, at in sorted(functions.items()):
        word = name.split("_")[1]
        for path, line in at if word in WORDS else ():
            if path.rpartition("/")[0] not in WORDS[word]:
                problem(path, line, f"{name}(): \"{word}\" has another meaning ({', '.join(WORDS[word]) or 'a stage of a job'}; "
                        "CONVENTIONS.md, Words)")
