#!/usr/bin/env python3
"""Breaks what docs/lightning.md says, one place at a time, and sees that its tests notice.

  mutations.py --build DIR [--match WORD] [--sample N]
  mutations.py --build DIR [--match WORD] --list         the C programs that this would run

tests/conform/mutations.txt has the mutations, for each who has to notice, a name, a file, and the text that is
replaced. Who has to notice is a contract, by its marked tests; a row of a table of methods, by the tests in its last
cell; or a program of C tests, such as the simulator. The work is done in a copy of the tree and of what is built, so
each mutation compiles one file. Before the first one the tests have to pass. "caught": one of them failed. Exit status
1 if a mutation was missed, does not apply or does not compile. A number as WORD is a contract, another word a part of a
name, of a row, or of a program. --sample takes N of them, others of each commit.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import conformance  # noqa: E402
import lightning_page  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
NAME = "tests/conform/mutations.txt"
TABLE = ROOT / NAME
BUILD_S, TESTS_S, CASE_S = 300, 400, 120
HEAD = re.compile(r"(contract \d+|row [^/]+/.+|program tests/\S+): (\w+) in (\S+)")


@dataclass
class Mutation:
    judge: str  # who has to notice: "contract 4", "row 004 Fabric/save", "program tests/sim/test_x"
    name: str
    path: str
    old: str = ""
    new: str = ""

    def applied_to(self, root):
        """The file's text with the mutation in it."""
        path = root / self.path
        text = path.read_text() if path.is_file() else ""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.path} has its old text {text.count(self.old)} times, not once; "
                             f"correct {NAME}")
        return text.replace(self.old, self.new)


def read(text):
    """The mutations of a table: a head, then lines that begin with "-" (old) and "+" (new)."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if m := HEAD.fullmatch(line):
            found.append(Mutation(m[1], m[2], m[3]))
        elif line[0] in "-+" and found:
            side = "old" if line[0] == "-" else "new"
            setattr(found[-1], side, getattr(found[-1], side) + line[1:] + "\n")
        else:
            raise ValueError(f"line {number} is no head, '-' or '+': {line}")
    names = [m.name for m in found]
    for m in found:
        if not m.old or m.old == m.new or names.count(m.name) > 1:
            raise ValueError(f"{m.name}: needs old text, other new text, and a name of its own")
    return found


def matches(mutation, word):
    kind, _, of = mutation.judge.partition(" ")
    if word.isdigit():
        return kind == "contract" and int(of) == int(word)
    return word in mutation.name or (kind != "contract" and word in of)


def cases_of(judge):
    """What conformance.py is told to run, and the files of these tests; of a program: it is run whole."""
    kind, _, of = judge.partition(" ")
    if kind == "program":
        return None, [ROOT / f"{of}.c"]
    if kind == "contract":
        return ["--only", of], list(conformance.marks(int(of)))
    cases = lightning_page.tests_of(of, lightning_page.PAGE.read_text())
    return ["--case", *cases], list(conformance.named(cases))


def programs_of(mutations):
    """The C programs of their tests: their sources."""
    return sorted({s for judge in {m.judge for m in mutations} for s in cases_of(judge)[1] if s.suffix == ".c"})


def run(command, cwd, limit_s):
    """(status, output); a command that takes too long is ended with all that it started, and has the status 124."""
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", start_new_session=True) as p:
        try:
            out = p.communicate(timeout=limit_s)[0]
            return p.returncode, out
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            return 124, p.communicate()[0]


class Copy:
    """The tree and its build in another directory. What is unchanged keeps its time, so make leaves it alone."""

    def __init__(self, root, build, programs):
        self.root, self.build = root, build
        names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                               check=True, timeout=60).stdout.splitlines()
        shutil.copytree(ROOT / build, root / build, symlinks=True, copy_function=shutil.copy2,
                        ignore=lambda at, _: ["venv", "venv-rivals", "tests"] if Path(at) == ROOT / build else [])
        (root / build / "venv").symlink_to(ROOT / build / "venv")
        built = [build / "tests/plugins/accelerator-far.so"]
        for source in [*programs, *ROOT.glob("tests/scenario/*.c")]:
            program = build / source.relative_to(ROOT).with_suffix("")
            built += [program, Path(f"{program}.d")]
        self.take([*names, "config.mk", *built])

    def take(self, names):
        for name in names:
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)

    def make(self, judge):
        """Builds what its tests need. Text: why it did not."""
        sources = cases_of(judge)[1]
        goals = [str(self.build / s.relative_to(ROOT).with_suffix("")) for s in sources if s.suffix == ".c"]
        goals += ["all", "helpers"] if any(s.suffix == ".py" for s in sources) else []
        status, out = run(["make", f"B={self.build}", *goals], self.root, BUILD_S)
        return "" if status == 0 else f"make ended with {status}:\n{out[-2000:]}"

    def cases(self, judge):
        """Case -> how it did; {}: the tests did not end in time."""
        what, sources = cases_of(judge)
        if not what:
            program = sources[0].relative_to(ROOT).with_suffix("")
            status, _ = run([str(self.build / program)], self.root, TESTS_S)
            return {} if status == 124 else {str(program): "fail" if status else "pass"}
        status, out = run([sys.executable, "tests/tools/conformance.py", "--build", str(self.build), "--timeout",
                           str(CASE_S), *what], self.root, TESTS_S)
        rows = re.findall(r"^ +\w+  (\w+) +(\w+::\w+)", out, re.M)
        return {} if status == 124 else {case: how for how, case in rows}


def try_one(copy, mutation):
    """"caught", "MISSED" or what went wrong; and the tests that noticed."""
    path = copy.root / mutation.path
    before = path.read_text()
    path.write_text(mutation.applied_to(copy.root))
    try:
        why = copy.make(mutation.judge)
        if why:
            return "BROKEN", why
        cases = copy.cases(mutation.judge)
    finally:
        path.write_text(before)
    noticed = sorted(case for case, how in cases.items() if how == "fail")
    if not cases:
        return "caught", "by a deadline"
    return ("caught", ", ".join(noticed)) if noticed else ("MISSED", "by all of " + ", ".join(sorted(cases)))


def sample(mutations, n):
    """n of them, in their order; the commit says which."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    drawn = random.Random(commit).sample(range(len(mutations)), min(n, len(mutations)))
    return [mutations[i] for i in sorted(drawn)]


def try_all(chosen, build):
    """How many were not caught."""
    bad = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as scratch:
        copy = Copy(Path(scratch), build, programs_of(chosen))
        for judge in dict.fromkeys(m.judge for m in chosen):
            why = copy.make(judge)
            cases = copy.cases(judge)
            if why or not cases or "fail" in cases.values():
                sys.exit(f"{judge} does not hold without a mutation: {why or cases or 'no test ended'}")
        print(f"{'what has to notice':35}  {'mutation':35}  result  by", flush=True)
        for m in chosen:
            result, by = try_one(copy, m)
            bad += result != "caught"
            print(f"{m.judge:35}  {m.name:35}  {result}  {by}", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} mutations caught")
    return bad


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--build", required=True, type=Path)
    options.add_argument("--match", default="")
    options.add_argument("--sample", type=int)
    options.add_argument("--list", action="store_true")
    args = options.parse_args()
    if not args.build.resolve().is_relative_to(ROOT):
        sys.exit(f"{args.build} is not in {ROOT}: mutations are built in a copy of the tree, with its build folder; "
                 "give B a folder of the tree")
    build = args.build.resolve().relative_to(ROOT)
    chosen = [m for m in read(TABLE.read_text()) if matches(m, args.match)]
    if not chosen:
        sys.exit(f"no mutation has '{args.match}' as its contract or in its name: see {NAME}")
    chosen = sample(chosen, args.sample) if args.sample else chosen
    try:
        programs = programs_of(chosen)
        for m in chosen:
            m.applied_to(ROOT)
    except ValueError as wrong:
        sys.exit(str(wrong))
    if args.list:
        print("\n".join(str(s.relative_to(ROOT / "tests").with_suffix("")) for s in programs))
        return 0
    return 1 if try_all(chosen, build) else 0


if __name__ == "__main__":
    sys.exit(main())
