#!/usr/bin/env python3
"""Checks what a tool can check of docs/architecture.md and CONVENTIONS.md.

Layers (who may include whom), circles of includes and of calls, names that mean two things, headers that a folder keeps
to itself, homes of third-party headers, banned functions, include guards, file and function length, the essay
at the top of each file, the story of each folder, names of plugins in the engine, what each op and each event
needs, pages that a program prints, length and words of the docs' sentences. Prints file:line: what, and exits 1
if there is anything. The tables below are the rules; change them in the commit that changes the design.
"""

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import braces
import circles
import devices
import names
import opens
import ops
import prose
import rooms
import said
import spelled

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
LONG_FUNCTIONS = {"engine/train/loop/fit.c": 120}
ESSAY_LINES = 3
TEST_ESSAY_LINES = 1

# Columns of code, and of tables: .def files, and what is between clang-format off and on.
CODE_COLUMNS, TABLE_COLUMNS = 100, 120

# Folder -> the folders it may include besides itself; the longest folder that fits a file counts.
# "pb" stands for generated messages (*.pb-c.h). tests/ may include anything. Rooms of one folder stand in
# their order, from the floor up; where a folder and its room are in each other's row, the room stands on some
# files of the folder, and others of them stand on the room.
BASE = ["include", "lib/base", "lib/base/machine", "lib/base/floats", "lib/base/files"]
PLUGIN = [*BASE, "lib/plugin"]
TRAIN = [*BASE, "lib/attempt", "lib/job", "engine/train/config"]
RANK = ["engine/train/rank", *(f"engine/train/rank/{r}" for r in ("group", "data", "programs", "state", "scores"))]
CORE = [*BASE, "lib/attempt", "lib/job", "lib/spec", "lib/version", "pb"]
DAEMON = [*CORE, "lib/topology", "lib/pattern", "lib/tls", "lib/loop", "lib/rpc"]
COORDINATOR = [f"daemon/coordinator/core/{r}" for r in ("model", "catalog", "attempt", "plans", "nodes", "queue")]
SHELL = [f"daemon/coordinator/shell/{r}" for r in ("disk", "databases", "access")]
CPU = ["accelerators/cpu/kernels", "accelerators/cpu/kernels/matmul", "accelerators/cpu/kernels/optim"]
CLIENT = [f"client/{r}" for r in ("screen", "session", "metrics", "logs", "jobs", "checkpoints", "nodes", "access")]


def floors(rooms, *below):
    """Each room may include what is below all of them, and the rooms before it."""
    return {room: [*below, *rooms[:i]] for i, room in enumerate(rooms)}


LAYERS = {
    "include": [],
    "lib/base": ["include", "lib/base/machine"],
    **floors(["lib/base/floats", "lib/base/files", "lib/base/machine"], "include", "lib/base"),
    "lib/plugin": BASE,
    "lib/attempt": BASE,
    "lib/nvml": [*BASE, "lib/attempt"],
    "lib/job": BASE, "lib/version": [], "lib/tls": BASE, "lib/topology": BASE, "lib/loop": BASE,
    "lib/spec": [*BASE, "lib/job"],
    "lib/pattern": [*BASE, "lib/attempt"],
    "lib/rpc/front": [*BASE, "lib/tls", "lib/loop", "lib/rpc"],
    "lib/rpc": [*BASE, "lib/spec", "lib/tls", "lib/loop", "lib/rpc/front", "pb"],
    # the structure is below the rules, the builder and the pipeline above them (graph.h)
    "engine/graph": [*BASE, "engine/graph/rules", "engine/graph/passes"],
    "engine/graph/rules": [*BASE, "engine/graph"],
    "engine/graph/passes": [*BASE, "engine/graph", "engine/graph/rules"],
    # from the floor up
    "engine/train/config": [*BASE, "lib/attempt", "lib/job"],
    "engine/train/events": TRAIN,
    "engine/train/checkpoint": [*TRAIN, "lib/plugin", "engine/train/events"],
    **floors(RANK[1:], *TRAIN, "lib/plugin", "engine/train/events", "engine/train/checkpoint", "engine/graph", RANK[0]),
    RANK[0]: [*TRAIN, "lib/plugin", "engine/train/events", "engine/train/checkpoint", "engine/graph", *RANK[1:]],
    "engine/train/plan": [*TRAIN, "lib/plugin", *RANK, "engine/graph", "engine/graph/rules"],
    "engine/train/loop": [*TRAIN, "engine/train/events", *RANK],
    "engine/train": [*TRAIN, "lib/plugin", "engine/train/events", "engine/train/checkpoint", *RANK,
                     "engine/train/plan", "engine/train/loop"],
    "accelerators/queue": BASE,
    "accelerators": [*PLUGIN, "accelerators/queue"],
    "accelerators/cpu": [*PLUGIN, "accelerators", *CPU],
    **floors(CPU[1:], *PLUGIN, "accelerators", "accelerators/cpu", CPU[0]),
    CPU[0]: [*PLUGIN, "accelerators", "accelerators/cpu", *CPU[1:]],
    "strategies": PLUGIN, "collectives": PLUGIN, "comm_hooks": PLUGIN, "precisions": PLUGIN, "workloads": PLUGIN,
    # it holds the static table of in-tree plugins, and checks plans with the one validator
    "fabric": [*PLUGIN, "lib/attempt", "lib/spec", "fabric/signals", "fabric/configure",
               "engine/train", "engine/train/config", "engine/train/events", "engine/train/checkpoint", *RANK,
               "engine/train/plan", "engine/train/loop",
               "accelerators", "strategies", "collectives", "comm_hooks", "precisions", "workloads"],
    **floors(["fabric/signals", "fabric/configure", "fabric/spawn"], *PLUGIN, "lib/attempt", "lib/spec", "fabric",
             "engine/train", "engine/train/config", "engine/train/checkpoint", *RANK, "engine/train/plan",
             "engine/train/loop"),
    "daemon/worker": [*PLUGIN, "lib/attempt", "lib/spec", "lib/version", "lib/nvml", "fabric", "fabric/configure",
                      "fabric/signals", "daemon/worker/reports", "engine/train", "engine/train/config", "engine/train/checkpoint", *RANK, "engine/train/plan"],
    # it trains nothing, and serves scripts that do
    "daemon/worker/reports": [*BASE, "lib/attempt", "lib/loop", "lib/pattern"],
    **floors([f"daemon/launcher/{r}" for r in ("loggers", "command", "watchdog", "reports")],
             *BASE, "lib/attempt", "lib/job", "lib/version", "pb", "daemon/launcher"),
    "daemon/launcher": [*BASE, "lib/attempt", "lib/job", "lib/version", "pb", "daemon/launcher/loggers",
                        "daemon/launcher/command", "daemon/launcher/watchdog", "daemon/launcher/reports"],
    **floors(COORDINATOR, *CORE),
    "daemon/coordinator/core": [*CORE, *COORDINATOR],
    **floors(SHELL, *DAEMON, "daemon/coordinator/core", *COORDINATOR, "daemon/coordinator/shell"),
    "daemon/coordinator/shell": [*DAEMON, "daemon/coordinator/core", *COORDINATOR, *SHELL],
    "daemon/coordinator/api": [*DAEMON, "daemon/coordinator/core", *COORDINATOR, "daemon/coordinator/shell", *SHELL],
    "daemon/coordinator": [*DAEMON, "daemon/coordinator/core", *COORDINATOR, "daemon/coordinator/shell", *SHELL,
                           "daemon/coordinator/api"],
    # the brain knows messages, and no file, socket or clock
    "daemon/node/core": [*BASE, "lib/topology", "lib/attempt", "pb"],
    **floors([f"daemon/node/shell/{r}" for r in ("assignment", "shards", "attempts", "planner", "gpus")],
             *DAEMON, "daemon/node/core", "daemon/node/shell"),
    "daemon/node/shell": [*DAEMON, "lib/plugin", "daemon/node/core", "daemon/node/shell/assignment",
                          "daemon/node/shell/shards", "daemon/node/shell/attempts", "daemon/node/shell/planner", "daemon/node/shell/gpus"],
    "daemon/node": [*DAEMON, "daemon/node/core", "daemon/node/shell", "daemon/node/shell/assignment",
                    "daemon/node/shell/attempts", "daemon/node/shell/planner", "daemon/node/shell/gpus"],
    # how a node reaches its coordinator is chosen above both
    "daemon": [*DAEMON, "daemon/coordinator", "daemon/node", "daemon/node/shell", "daemon/node/shell/planner",
               "daemon/node/shell/gpus"],
    **floors(CLIENT, *DAEMON, "client"),
    "client/run": [*DAEMON, "client", *CLIENT],
    "client": [*DAEMON, *CLIENT],
    "examples": ["include"],
}

# Header -> who may include it: what a folder keeps to itself.
PRIVATE = {
    "engine/graph/graph.h": ["engine/graph"],
    "engine/graph/builder.h": ["engine/graph"],
    "engine/graph/edit.h": ["engine/graph"],
    "engine/graph/state.h": ["engine/graph"],
    "engine/graph/verify.h": ["engine/graph"],
    "engine/graph/passes/passes.h": ["engine/graph"],
    "engine/graph/rules/shape.h": ["engine/graph/rules"],
    "engine/graph/rules/gradient.h": ["engine/graph/rules", "engine/graph/passes/autodiff.c"],
    "engine/train/rank/state/init_loops.h": ["engine/train/rank"],
    "lib/base/floats/half_loops.h": ["lib/base"],
    "lib/base/rng_loops.h": ["lib/base", "engine/graph/random.c"],
    "lib/spec/check.h": ["lib/spec"],
    "lib/spec/knobs.h": ["lib/spec"],
    "lib/nvml/calls.h": ["lib/nvml"], "lib/nvml/state.h": ["lib/nvml"],
    "lib/tls/error.h": ["lib/tls"], "lib/tls/x509.h": ["lib/tls"],
}

# Accelerators do not include each other, but for the specification's loops; all that far computes is the
# specification's.
SHARED_LOOPS = ["accelerators/reference/node.h", "accelerators/reference/reference.h"]

# A path from the root, whole: not a pattern, nor the end of a longer one.
PATH = re.compile(r"(?<![\w/.<>-])((?:engine|lib|accelerators|strategies|collectives|comm_hooks|precisions|workloads|fabric|daemon|client|include|proto"
                  r"|examples|docs|tests|deploy)/[\w/-]+\.(?:c|h|def|py|md|yaml|sh|proto))(?![\w*<])")

# Third-party header -> where it may stand, and in how many .c files at most (None: any number).
HOMES = [
    (r"protobuf-c/", ["lib/base", "lib/rpc", "daemon", "client"], None),
    (r"grpc/", ["lib/rpc"], None),
    (r"event2/", ["lib/loop"], 1),
    (r"sqlite3\.h", ["daemon/coordinator/shell"], 3),
    (r"oneapi/|dnnl\.h", ["accelerators/cpu/onednn"], None),
    (r"omp\.h", ["accelerators/cpu"], None),
    (r"jansson\.h", ["lib/base"], 1),
    (r"zlib\.h", ["lib/base"], 1),
    (r"xxhash\.h", ["lib/base"], 1),
    (r"yaml\.h", ["lib/spec"], 2),
    (r"openssl/", ["lib/tls"], None),
    (r"hwloc", ["lib/topology"], None),
    (r"re2/", ["lib/pattern"], 1),
    (r"dlfcn\.h", ["lib/plugin/registry.c", "fabric/signals/symbol.c", "lib/nvml/calls.c", "accelerators"], None),
    (r"cuda|cublas|cudnn", ["accelerators/cuda"], None), (r"nvml", ["lib/nvml"], None),
    (r"gloo/|mpi\.h|nccl", ["collectives"], None),
    (r"argp\.h", ["daemon", "client"], None), (r"libsmartcols/", ["client"], 1),
]

# Banned functions, and the files where they may be called nevertheless.
TESTS_MAY = r"tests/.*"
BANNED = {
    "strcpy": None, "strcat": None, "sprintf": None, "strtok": None, "atoi": None, "atol": None,
    "gets": None, "alloca": None, "rand": None, "assert": None,
    "system": None, "popen": None,
    "usleep": None, "sleep": None, "nanosleep": r"tests/plugins/slow_synthetic\.c",  # which is there to be slow
    "clock_nanosleep": None, "time": TESTS_MAY,
    "fork": TESTS_MAY, "vfork": TESTS_MAY, "pthread_timedjoin_np": r"lib/base/clock\.c", "sem_timedwait": TESTS_MAY,
    "exit": r"tests/.*|examples/.*|.*/main\.c|.*_main\.c",
    # a module records by the typed builders of traind/build.h
    "td_graph_op": r"(?!workloads/).*",
    # base.c reads a switch that only tests set
    "getenv": r"tests/.*|.*/config\.c|lib/base/base\.c",
}

# Page of the docs -> the flag of traind that prints it.
PRINTED_DOCS = {"docs/job-spec.md": "--dump-spec", "docs/events.md": "--dump-events"}

# Who writes and reads a row of events.def, and where. What people read has no code.
EVENTS = "lib/attempt/events.def"
EVENT_PARTIES = {
    "RANK": "engine/train",
    "LAUNCHER": "daemon/launcher",
    "NODE": "daemon/node",
    "COORDINATOR": "daemon/coordinator",
    "RUN": "client/run",
    "PEOPLE": None,
}
# Parties whose table of handlers is made of the rows: there the compiler checks that each has one.
EVENT_TABLES = ["COORDINATOR", "RUN"]

# Where an integer, which was never a pointer to const, becomes a pointer; elsewhere it is td_unconst().
INTEGERS_TO_POINTERS = ["include/traind/buffer.h", "engine/graph/state.c", "lib/base/base.h"]
# Whose sentences, paragraphs and words are counted (prose.py). docs/job-spec.md is printed by the program.
PROSE = ["README.md", "CONVENTIONS.md", "deploy/slurm/README.md", "docs/access.md", "docs/architecture.md", "docs/cheat-sheet.md", "docs/cluster.md", "docs/commands.md", "docs/engine.md",
         "docs/extending.md", "docs/fabric.md", "docs/figures.md", "docs/gpus.md", "docs/lightning.md", "docs/measurements.md", "docs/operations.md", "docs/plugins.md", "docs/recipes.md", "docs/troubleshooting.md", "docs/watching.md", "examples/init/README.md", "tests/bench/rivals/README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/tutorials/*.md"))]

problems = []


def problem(path, line, text):
    problems.append(f"{path}:{line}: {text}")


def longest_prefix(path, folders):
    fitting = [f for f in folders if path == f or path.startswith(f + "/")]
    return max(fitting, key=len, default=None)


def line_of(code, position):
    return code.count("\n", 0, position) + 1


def blank(match):
    """Replaces text but keeps its line ends, so that line numbers stay."""
    return re.sub(r"[^\n]", " ", match[0])


def without_comments(code):
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
                  lambda m: m[0] if m[0][0] in "\"'" else blank(m), code, flags=re.S)


def without_strings(code):
    return re.sub(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", blank, code)


# ---- includes ---------------------------------------------------------------------------------------
def check_layer(path, line, header):
    """A quoted include: one of ours, or a generated message."""
    own = longest_prefix(path, LAYERS)
    if own is None:
        return
    if header.endswith(".pb-c.h"):
        if "pb" not in LAYERS[own]:
            problem(path, line, f"{own} may not include generated messages ({header})")
        return
    target = f"include/{header}" if header.startswith("traind/") else header
    if "/" not in target:
        problem(path, line, f"include \"{header}\" by its path from the root")
        return
    theirs = longest_prefix(target, LAYERS)
    if theirs is None:
        problem(path, line, f"{header} is in no known folder")
    elif theirs != own and theirs not in LAYERS[own]:
        problem(path, line, f"{own} may not include {header} ({theirs})")
    elif own == "accelerators" and theirs == own:
        if target not in SHARED_LOOPS and path.split("/")[1] != target.split("/")[1]:
            problem(path, line, f"accelerators do not include each other ({header})")


def check_private(path, line, header):
    """A header that a folder keeps to itself, included from outside of it."""
    if header in PRIVATE and not longest_prefix(path, PRIVATE[header]):
        problem(path, line, f"{header} is for {', '.join(PRIVATE[header])} only")


def check_includes(path, code, users):
    for m in re.finditer(r"^[ \t]*#[ \t]*include[ \t]+([<\"])([^>\"]+)[>\"]", code, re.M):
        line, header = line_of(code, m.start()), m[2]
        if path.startswith("tests/"):
            continue
        if m[1] == '"':
            check_layer(path, line, header)
            check_private(path, line, header)
            continue
        for pattern, homes, most in HOMES:
            if not re.match(pattern, header):
                continue
            if not longest_prefix(path, homes):
                problem(path, line, f"<{header}> lives in {', '.join(homes)} only")
            elif most is not None:
                users[pattern, most].append((path, line))
            break


# ---- the rest ---------------------------------------------------------------------------------------
def check_banned(path, code):
    for m in re.finditer(rf"(?<![\w.])(?<!->)({'|'.join(BANNED)})\s*\(", code):
        if not re.fullmatch(BANNED[m[1]] or "", path):
            problem(path, line_of(code, m.start()), f"{m[1]}() is banned (CONVENTIONS.md)")


def check_one_way(path, code):
    """What could be done in three ways is done in one."""
    for m in re.finditer(r"\*\)\s*\(uintptr_t\)|\bunion\s*\{[^}]*\bconst\b[^}]*\}", code):
        if path not in INTEGERS_TO_POINTERS:
            problem(path, line_of(code, m.start()), "const is cast away by td_unconst() alone (lib/base/base.h)")
    for m in re.finditer(r"#[ \t]*define[ \t]+\w+_magic\b|\bconst\s+\w+\s+\w+_magic\s*=", code):
        problem(path, line_of(code, m.start()), "a magic number is written `enum { td_thing_magic = 0x... };`")


def check_nvml(path, code):
    """NVML is called in lib/nvml alone, which has what it needs of it in words of its own."""
    if path.startswith(("lib/nvml/", "tests/")):
        return
    for m in re.finditer(r"\bnvml[A-Z]\w*", code):
        problem(path, line_of(code, m.start()), f"{m[0]} of NVML is for lib/nvml alone (lib/nvml/nvml.h)")


def check_buffers(path, code):
    """A buffer that frees itself is made before anything can leave its function: else garbage is freed."""
    for m in re.finditer(r"\bTD_AUTO_BUF (\w+);\n(.*?)\n\}", code, flags=re.S):
        made = re.search(rf"&{m[1]}\b", m[2])
        left = re.search(r"\b(return|goto|break|continue|TD_TRY\w*)\b", m[2])
        if not made or left and left.start() < made.start():
            problem(path, line_of(code, m.start()), f"{m[1]} is declared before a way out and made after it")


def check_guard(path, code):
    name = path.removeprefix("include/traind/") if path.startswith("include/") else path
    guard = "TRAIND_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
    if not code.startswith(f"#ifndef {guard}\n#define {guard}\n"):
        problem(path, 1, f"the file must begin with its include guard, {guard}")


def essay_lines(code):
    """Comment lines at the top of a file, after its include guard."""
    lines = [x for x in code.splitlines() if x and not x.startswith(("#ifndef", "#define"))]
    return next((i for i, x in enumerate(lines) if not x.startswith("//")), len(lines))


def check_essay(path, code):
    """A .c file tells its story together with the header of its name."""
    wanted = TEST_ESSAY_LINES if path.startswith("tests/") else ESSAY_LINES
    header = Path(path).with_suffix(".h")
    beside = essay_lines(header.read_text()) if header.exists() else 0
    own = essay_lines(code)
    if own < 1 or own + beside < wanted:
        problem(path, 1, f"the file must open with an essay (with its header's: {wanted} comment lines)")


def check_prints(path, code):
    """Text of strangers reaches a terminal through client/screen/print.c alone."""
    if not path.startswith("client/") or path == "client/screen/print.c":
        return
    for m in re.finditer(r"(?<!\w)(printf|puts|fprintf|vprintf|vfprintf|putchar)\s*\(", code):
        problem(path, line_of(code, m.start()), f"{m[1]}() shows control characters as they are: use td_print")


def check_functions(path, code):
    limit = LONG_FUNCTIONS.get(path, MAX_FUNCTION_LINES)
    start, name = None, ""
    for number, line in enumerate(code.splitlines(), 1):
        if start is None:
            # clang-format puts a function's brace at the end of a line that begins in column 0,
            # or that continues its parameters
            if line.endswith(") {") and (m := re.match(r"[\w ].*?(\w*)\(", line)):
                start, name = number, m[1] or line.strip()
        elif line == "}":
            if number - start + 1 > limit:
                problem(path, start, f"{name} has {number - start + 1} lines, at most {limit}")
            start = None


def check_length(path, code):
    n_lines = code.count("\n")
    if n_lines > MAX_FILE_LINES:
        problem(path, n_lines, f"the file has {n_lines} lines, at most {MAX_FILE_LINES}")


def check_width(path, code):
    """clang-format breaks code, but no comment, no macro of a .def, and nothing where it is off."""
    off = False
    for number, line in enumerate(code.splitlines(), 1):
        off = "clang-format off" in line or off and "clang-format on" not in line
        most = TABLE_COLUMNS if off or path.endswith(".def") else CODE_COLUMNS
        longest = max((len(word) for word in line.split()), default=0)
        if len(line) > most and longest < most - 20:  # a name that long cannot be broken
            problem(path, number, f"the line has {len(line)} columns, at most {most}")


def check_circles_and_names(paths):
    files = {p: without_comments((ROOT / p).read_text(errors="replace")) for p in paths if not p.endswith(".py")}
    circles.check(circles.joined(files), "includes", {}, problem)
    product = {p: without_strings(text) for p, text in files.items() if not p.startswith("tests/")}
    circles.check(circles.joined_by_calls(product), "calls", circles.KNOWN_CALLS, problem)
    names.check(files, problem)


def check_paths(paths):
    """A file that a comment or the docs name by its path is there."""
    there = set(paths) | {p.removeprefix("include/") for p in paths}
    for path in paths:
        if path.startswith("tests/tools/"):
            continue  # its tests speak of files that never were
        for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1):
            for m in PATH.finditer(line):
                if m[1] not in there and not (ROOT / m[1]).exists():
                    problem(path, number, f"there is no {m[1]}")


def check_file(path, users):
    code = (ROOT / path).read_text(errors="replace")
    check_length(path, code)
    if path.endswith(".py"):
        return
    check_width(path, code)
    plain = without_comments(code)
    check_includes(path, plain, users)
    check_banned(path, without_strings(plain))
    opens.check(path, without_strings(plain), problem)
    check_prints(path, without_strings(plain))
    check_one_way(path, without_strings(plain))
    check_nvml(path, plain)
    check_buffers(path, plain)
    for check in (braces.check, prose.check_comments, said.check):
        check(path, code, problem)
    devices.check(path, plain, problem)
    spelled.check(path, plain, problem)
    if path.endswith(".h"):
        check_guard(path, code)
    if path.endswith(".c"):
        check_essay(path, code)
        check_functions(path, plain)


def code_of(pattern):
    """The code of the files of a pattern, without comments, by path."""
    return {str(p.relative_to(ROOT)): without_comments(p.read_text()) for p in sorted(ROOT.glob(pattern))}


def check_events():
    """Each row of events.def has a writer and a reader, and whoever it names has code for it, and nobody else."""
    text = (ROOT / EVENTS).read_text()
    kinds = {m[2]: (m[1], line_of(text, m.start())) for m in re.finditer(r"^TD_EVENT\((\w+), (\w+),", text, flags=re.M)}
    named = {"WRITER": defaultdict(set), "READER": defaultdict(set)}
    for m in re.finditer(r"^TD_(WRITER|READER)\((\w+), (\w+)\)", text, flags=re.M):
        named[m[1]][m[2]].add(m[3])
        if m[2] not in kinds or m[3] not in EVENT_PARTIES:
            problem(EVENTS, line_of(text, m.start()), f"TD_{m[1]} names {m[2]} or {m[3]}, which is none")
    code = {party: "\n".join(without_strings(without_comments(p.read_text())) for p in sorted((ROOT / folder).rglob("*.c")))
            for party, folder in EVENT_PARTIES.items() if folder}
    for event, (kind, line) in kinds.items():
        for what in named:
            if not named[what][event]:
                problem(EVENTS, line, f"{event} has no {what.lower()}")
        for party, source in code.items():
            writes, reads = party in named["WRITER"][event], party in named["READER"][event]
            is_used = re.search(rf"\bTD_EVENT_{kind}\b", source) is not None
            if (writes or reads and party not in EVENT_TABLES) and not is_used:
                problem(EVENTS, line, f"{EVENT_PARTIES[party]} has no TD_EVENT_{kind}, and {event} names {party}")
            if is_used and not (writes or reads):
                problem(EVENTS, line, f"{EVENT_PARTIES[party]} has a TD_EVENT_{kind}, and {event} does not name {party}")


def check_printed_docs(traind):
    """A page that a program prints is what it prints: a knob, an event, a default that changed is in it."""
    for page, flag in PRINTED_DOCS.items():
        printed = subprocess.run([traind, flag], check=True, capture_output=True, text=True).stdout.splitlines()
        written = (ROOT / page).read_text().splitlines()
        differs = next(((i, a) for i, (a, b) in enumerate(zip(printed + [""], written + [""]), 1) if a != b), None)
        if differs:
            problem(page, differs[0], f"differs from `traind {flag}`, which says: {differs[1][:100]}")
        elif len(printed) != len(written):
            problem(page, min(len(printed), len(written)), f"is not as long as `traind {flag}`")
        prose.check_words(page, "\n".join(written), problem)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traind", required=True, help="the program whose pages the docs are held to")
    traind = parser.parse_args().traind
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h", "*.def", "*.py"], cwd=ROOT,
                            check=True, capture_output=True, text=True)
    users = defaultdict(list)
    paths = sorted(p for p in set(listed.stdout.split()) if (ROOT / p).exists())
    for path in paths:
        check_file(path, users)
    check_circles_and_names(paths)
    rooms.check(paths, problem)
    texts = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md", "*.sh", "Makefile"], cwd=ROOT,
                           check=True, capture_output=True, text=True).stdout.split()
    check_paths(paths + [p for p in texts if (ROOT / p).exists()])
    ops.check(code_of, problem)
    check_events()
    check_printed_docs(traind)
    for path in PROSE:
        prose.check(path, (ROOT / path).read_text(), problem)
    for (pattern, most), places in users.items():
        for path, line in places[most:]:
            problem(path, line, f"{pattern} has its home in {places[0][0]} already, one file may have it")
    print("\n".join(problems) if problems else f"lint: {len(paths)} files, nothing to say")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
