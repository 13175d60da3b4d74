#!/usr/bin/env python3
"""Runs the tests that are marked with a contract of docs/lightning.md, and prints how each contract did.

  conformance.py --build DIR [--only CONTRACT] [--timeout SECONDS]
  conformance.py --build DIR --case PATH::CASE...   these cases alone, of whatever contract

A mark is the line before a case: "// Contract 12: what it says" in C, "# Contract 12: ..." in Python. A C program
runs whole, once; of its cases the marked ones count. A contract without a marked test is "later". Exit status 1 if
a marked case failed, or did not run. A program that does not end in time is killed with what it started, and its
cases failed. A C case that goes over implementations writes "# over collective shm" after each that passed. A Python
case says so by parameters of such a name (tests/conftest.py). The last column has these, and those of the same kind
that the worker has and the case did not go over; "-": the case names none.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"^(?://|#) Contract (\d+): (.+)\n(?:(?://|#|@).*\n)*(?:static void|def)\s+(test_\w+)\(", re.M)
CONTRACTS = 46


def marks_of(text):
    """(contract, case) of a file; one case may have one mark."""
    return [(int(m[1]), m[3]) for m in MARK.finditer(text)]


def marks(only=None):
    """Source -> its marks; of one contract, or of all."""
    sources = [*ROOT.glob("tests/**/*.c"), *ROOT.glob("tests/**/test_*.py")]
    return {s: found for s in sorted(sources)
            if (found := [m for m in marks_of(s.read_text()) if only in (None, m[0])])}


def named(cases):
    """The same of cases that are named "path::case", of no contract."""
    found = {}
    for path, _, case in (c.partition("::") for c in cases):
        found.setdefault(ROOT / path, []).append(("case", case))
    return found


def run(command, env, timeout_s):
    """What it wrote on stdout."""
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          errors="replace", start_new_session=True) as p:
        try:
            return p.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            return p.communicate()[0]


def run_c(build, source, timeout_s):
    """Case -> "pass", "fail" or "skip", as the program said, and the implementations that it passed."""
    program = build / source.relative_to(ROOT).with_suffix("")
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", TRAIND_BUILD=str(build))
    out = run([program], env, timeout_s)
    return read_tap(out)


def read_tap(text):
    """What is said to be gone over comes before the line of its case."""
    results, over = {}, []
    for line in text.splitlines():
        if m := re.match(r"# over (\w+ \w+)$", line):
            over.append(m[1])
        elif m := re.match(r"(not )?ok \d+ (?:- |# SKIP )(\w+)( # SKIP)?", line):
            results[m[2]] = "fail" if m[1] else "skip" if m[3] else "pass", over
            over = []
    return results


def registered(kind):
    """The implementations of a kind that the worker has built in."""
    return [f"{kind} {name}" for name in re.findall(rf"&td_{kind}_(\w+),", (ROOT / "fabric/plugins.c").read_text())]


def column(over):
    """Over which implementations a case passed, and over which of their kinds it did not go."""
    if not over:
        return ": -"
    kinds = list(dict.fromkeys(o.split()[0] for o in over))
    left = [name for kind in kinds for name in registered(kind) if name not in over]
    passed = sorted(dict.fromkeys(over), key=lambda o: kinds.index(o.split()[0]))
    return ": " + ", ".join(passed) + (f"; not over {', '.join(left)}" if left else "")


def run_python(build, source, cases, timeout_s):
    with tempfile.TemporaryDirectory() as scratch:
        xml = Path(scratch) / "junit.xml"
        run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={xml}", str(source),
             "-k", " or ".join(cases)], dict(os.environ, TRAIND_BUILD=str(build)), timeout_s)
        return read_junit(xml.read_text()) if xml.exists() else {}


def read_junit(text):
    """The same of a Python file. A case of several parameters failed if one of them did."""
    results = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = case.get("name").split("[")[0]
        bad = case.find("failure") is not None or case.find("error") is not None
        how = "fail" if bad else "skip" if case.find("skipped") is not None else "pass"
        before, over = results.get(name, ("", []))
        if how == "pass":
            over = over + [p.get("value") for p in case.iter("property") if p.get("name") == "over"]
        results[name] = "fail" if "fail" in (how, before) else how, over
    return results


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--build", required=True, type=Path)
    options.add_argument("--list", action="store_true", help="the C programs that are run")
    options.add_argument("--only", type=int, help="one contract")
    options.add_argument("--case", nargs="+", help="path::case")
    options.add_argument("--timeout", type=int, default=600, help="seconds that a file of tests has")
    args = options.parse_args()
    build, marked = args.build.resolve(), named(args.case) if args.case else marks(args.only)
    if args.list:
        print("\n".join(str(s.relative_to(ROOT / "tests").with_suffix("")) for s in marked if s.suffix == ".c"))
        return 0
    rows, failed = defaultdict(list), False
    for source, found in marked.items():
        results = (run_c(build, source, args.timeout) if source.suffix == ".c"
                   else run_python(build, source, [c for _, c in found], args.timeout))
        for contract, case in found:
            how, over = results.get(case, ("fail", []))
            failed |= how == "fail"
            rows[contract].append((how, f"{source.stem}::{case}", column(over)))
    print("contract  result  test, and over what it passed")
    contracts = ["case"] if args.case else [args.only] if args.only else range(1, CONTRACTS + 1)
    for contract in contracts:
        for how, case, over in rows[contract] or [("later", "", "")]:
            print(f"{contract:>8}  {how:6}  {case}{over}")
    counts = {how: sum(h == how for r in rows.values() for h, _, _ in r) for how in ("pass", "fail", "skip")}
    print(f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped; "
          f"{sum(1 for c in contracts if not rows[c])} contracts later")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
