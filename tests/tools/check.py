#!/usr/bin/env python3
"""Runs the tests that are built and says how many passed, failed and were skipped.

  check.py --build DIR [--only unit] [--match TEXT] [--full]
  check.py --build DIR --match TEXT --list      names the C programs that this would run

C programs (tests/{unit,conform,sim}, cmocka, TAP on stdout) run two at a time, each with a deadline,
and, unless --only unit, those of AT_LEVELS again at CPU levels below the machine's own, by the name
avx2/conform/conform_ops. Then processes of pytest share every folder of tests/ that holds test_*.py: two more than
there are cores, because a scenario waits more than half of its time.
Its tests that are marked `alone` come last, by themselves. All get TRAIND_BUILD, the build folder.
--match narrows to programs whose name contains TEXT, that define a test whose name contains it, or whose
header comment has it as a tag ("// Tags: tsan").

--full puts before it what takes long, and everything counts in one line: the C programs again under
address and undefined sanitizers (DIR-asan) and those tagged tsan under the thread sanitizer (DIR-tsan),
conformance at each CPU level's code of the sanitized build and of clang's (DIR-asan, DIR-clang), every entry of tests/fuzz under libFuzzer (DIR-fuzz, FUZZ_S seconds each), those of lib/base, graph and
operators for aarch64 under qemu (DIR-arm64, where DIR/arm64 could be made), conformance with many
threads, tests/parity, where a python with torch is (DIR/venv-rivals, or TORCH), and, when these have ended, build, unit
tests and demo in a Debian 13 (debian13.sh, DIR-debian13). What was not built for it is a failure. Of lower CPU
levels it runs every one, and every program of tests/conform that opens an accelerator.

A program that crashes, hangs, ends early or exits non-zero without a failed case counts as one
failure. A skip must state an allowed reason (cmocka cannot: the program prints "# skip: REASON"
first; tests/unit/test.h has TD_SKIP); any other skip is a failure. Nothing matched is a failure.
The time of each part comes before what failed. The last line is exactly "N passed, N failed, N skipped"; the exit status is 1 if any failed.
"""

import argparse
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import levels  # noqa: E402

PROGRAM_TIMEOUT_S = 300
PYTEST_TIMEOUT_S = 1500
PYTEST_FULL_TIMEOUT_S = 3300
PARITY_TIMEOUT_S = 1500
DEBIAN13_TIMEOUT_S = 3000
TAIL_LINES = 40
FULL = bool(os.environ.get("TD_FULL"))
# What runs again at a CPU level below the machine's own: f32 and 16 bits, op by op, and whole steps.
AT_LEVELS = {level: ("conform_ops", "conform_ops_nn", "conform_ops_optim", "conform_steps")
             for level in ("generic", "avx2")}
NO_ACCELERATOR = "conform_collective"  # what these programs are called, or begin with
# Of the builds that check-full makes besides: the levels that run again. Newer ones have avx512's code.
BUILD_LEVELS = {"asan": ("generic", "avx2"), "clang": ("generic", "avx2", "avx512")}
BUILD_PROGRAMS = ("conform_ops", "conform_ops_nn", "conform_ops_optim")

ALLOWED_SKIPS = [r"no GPU", r"no PJRT plugin", r"no arm64 root", r"no Debian 13 root", r"no libgloo",
                 r"no systemd-(analyze|nspawn)", r"no packaging tools"]
if not FULL:
    ALLOWED_SKIPS += [r"only in check-full", r"only where torch is", r"no network namespace"]
if not os.environ.get("CI"):
    ALLOWED_SKIPS += [r"could not import '", r"no Python package"]


def skip_is_allowed(reason):
    reason = reason.removeprefix("Skipped: ").strip()
    return any(re.match(allowed, reason) for allowed in ALLOWED_SKIPS)


@dataclass
class Result:
    name: str
    passed: int = 0
    failures: list = field(default_factory=list)  # texts
    skips: list = field(default_factory=list)  # texts
    output: str = ""
    seconds: float = 0.0
    folders: dict = field(default_factory=dict)  # of pytest: seconds by folder

    def add_skip(self, case, reason):
        if skip_is_allowed(reason):
            self.skips.append(f"{case}: {reason}")
        else:
            self.failures.append(f"{case}: skipped for a reason that is not allowed: '{reason}'")


# ---- C programs -------------------------------------------------------------------------------------
def matches(source, text):
    if not text or text in str(source.relative_to(ROOT)):
        return True
    code = source.read_text(errors="replace")
    tags = re.findall(r"^// Tags: (.*)$", code, re.M)
    cases = re.findall(r"\btest_\w+", code)
    return any(text in t.split() for t in tags) or any(text in c for c in cases)


def find_programs(build, text):
    """(name, path) of every program whose source is still there; a missing program is an error."""
    sources = sorted(
        s
        for pattern in ("unit/**/test_*.c", "conform/conform_*.c", "sim/test_*.c")
        for s in (ROOT / "tests").glob(pattern)
    )
    for source in sources:
        if matches(source, text):
            name = str(source.relative_to(ROOT / "tests").with_suffix(""))
            yield name, build / "tests" / name


def parse_tap(result):
    """Counts cases; returns (announced, seen)."""
    announced = seen = 0
    reason = ""
    for line in result.output.splitlines():
        if plan := re.fullmatch(r"1\.\.(\d+)", line):
            announced += int(plan[1])
        elif line.startswith("# skip: "):
            reason = line.removeprefix("# skip: ")
        elif skipped := re.match(r"(?:not )?ok \d+ # SKIP (.*)", line):
            seen += 1
            result.add_skip(skipped[1], reason)
            reason = ""
        elif case := re.match(r"(not )?ok \d+ - (.*)", line):
            seen += 1
            if case[1]:
                result.failures.append(case[2])
            else:
                result.passed += 1
    return announced, seen


def run_program(name, path, env, runner=()):
    # Sanitizers and emulators make everything several times as slow.
    timeout_s = PROGRAM_TIMEOUT_S * (4 if name.startswith(("asan/", "tsan/", "arm64/")) else 1)
    # Threads that spin for each other are slow beyond bounds on cores that others keep busy.
    env = {"OMP_WAIT_POLICY": "passive", **env}
    result = Result(name)
    started = time.monotonic()
    if not path.exists():
        result.failures.append(f"{path} is not built")
        return result
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            [*runner, str(path)], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            cwd=ROOT, env=env, start_new_session=True,
        )
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        kill_group(child)
        out.seek(0)
        result.output = out.read(1 << 20).decode(errors="replace")
    result.seconds = time.monotonic() - started
    announced, seen = parse_tap(result)
    if code is None:
        result.failures.append(f"no end within {timeout_s} s")
    elif code < 0:
        result.failures.append(f"killed by {signal.Signals(-code).name}")
    elif announced == 0:
        result.failures.append("it printed no TAP plan")
    elif seen < announced:
        result.failures.append(f"only {seen} of {announced} cases were reported")
    elif code != 0 and not result.failures and not result.skips:
        result.failures.append(f"exit status {code} without a failed case")
    return result


def kill_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def report(result):
    mark = "FAIL" if result.failures else "ok"
    skipped = f", {len(result.skips)} skipped" if result.skips else ""
    print(f"{mark:4} {result.name}: {result.passed} passed{skipped} ({result.seconds:.1f} s)")
    for text in result.skips:
        print(f"     skipped {text}")
    for text in result.failures:
        print(f"     FAILED {text}")
    if result.failures and result.output:
        tail = result.output.splitlines()[-TAIL_LINES:]
        print("\n".join(f"     | {line}" for line in tail))
    sys.stdout.flush()


def run_two_at_a_time(jobs):
    """jobs: (function, arguments...) that each give a Result."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        running = [pool.submit(*job) for job in jobs]
        for job in concurrent.futures.as_completed(running):
            report(job.result())
    return [job.result() for job in running]


def given(result):
    """A job whose result is known."""
    return (lambda: result,)


def program_env(build, env):
    env = dict(env, CMOCKA_MESSAGE_OUTPUT="TAP", TRAIND_BUILD=str(build))
    # gcc 12's sanitizer reads a bogus header before a plugin's thread-local block, and its leak
    # check then dies on it, by chance of the heap's layout.
    env.setdefault("ASAN_OPTIONS", "intercept_tls_get_addr=0")
    return env


def programs(build, text, env, prefix=""):
    env = program_env(build, env)
    return [(run_program, prefix + n, p, env) for n, p in find_programs(build, text)]


def runs_at(level, name):
    folder, program = name.rsplit("/", 1)
    if FULL:
        return folder == "conform" and not program.startswith(NO_ACCELERATOR)
    return folder == "conform" and program in AT_LEVELS.get(level, ())


def machine_level(build):
    """(level, []), or (None, jobs) where it is not known."""
    try:
        return levels.of_machine(build), []
    except (AssertionError, OSError, subprocess.SubprocessError) as e:
        return None, [given(Result("levels", failures=[f"this machine's CPU level is not known: {e}"]))]


def at_levels(build, text, env):
    """Conformance at the levels below this machine's own, each program a process that is held to it."""
    machine, failed = machine_level(build)
    if failed:
        return failed
    lower = levels.below(machine)
    env, found = program_env(build, env), list(find_programs(build, ""))
    sources = dict(find_programs(build, text))
    return [(run_program, f"{level}/{n}", p, dict(env, TRAIND_CPU_ISA=level))
            for level in lower for n, p in found
            if runs_at(level, n) and (n in sources or text in f"{level}/{n}")]


# ---- what only --full does --------------------------------------------------------------------------
def levels_of_build(kind, machine):
    """The levels that a build runs at, of those that the machine has. The sanitized one ran at the machine's own."""
    there = [*levels.below(machine), *([machine] if kind != "asan" else [])]
    for level in BUILD_LEVELS[kind]:
        if level not in (*levels.below(machine), machine):
            print(f"{kind}: not run at CPU level {level}, which this machine does not have")
    return [level for level in BUILD_LEVELS[kind] if level in there]


def build_at_levels(build, kind, env):
    """Conformance of the build DIR-KIND, each program a process that is held to a level."""
    machine, failed = machine_level(build)
    if failed:
        return failed
    other = Path(f"{build}-{kind}")
    env, found = program_env(other, env), {n.split("/")[1]: (n, p) for n, p in find_programs(other, "conform/")}
    return [(run_program, f"{kind}/{level}/{n}", p, dict(env, TRAIND_CPU_ISA=level))
            for level in levels_of_build(kind, machine)
            for n, p in map(found.get, BUILD_PROGRAMS)]


def run_judged(name, command, env, timeout_s, judge):
    """A command whose output judge(result, output, status) turns into counts."""
    result, started = Result(name), time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT, cwd=ROOT, env=env, start_new_session=True)
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
            result.failures.append(f"no end within {timeout_s} s")
        kill_group(child)
        out.seek(0)
        result.output = out.read(1 << 20).decode(errors="replace")
    result.seconds = time.monotonic() - started
    if code is not None:
        judge(result, code)
    return result


def judge_fuzz(result, code):
    if code == 0:
        result.passed = 1
    else:
        result.failures.append(f"exit status {code}")


def fuzz_entries(build, env):
    """Each fuzz entry, from the corpus that the unit tests' driver writes."""
    seconds, jobs = int(os.environ.get("FUZZ_S", "15")), []
    fuzz = Path(f"{build}-fuzz")
    for source in sorted((ROOT / "tests/fuzz").glob("*/fuzz_*.c")):
        entry = source.stem.removeprefix("fuzz_")
        seeds, corpus = fuzz / "seeds" / entry, fuzz / "corpus" / entry
        for folder in (seeds, corpus):
            folder.mkdir(parents=True, exist_ok=True)
        room = source.parent.name
        program = fuzz / "tests/fuzz" / room / source.stem
        script = ('TD_FUZZ_CORPUS="$1" "$2" > /dev/null 2>&1; '
                  'exec "$3" -max_total_time="$4" -timeout=10 -rss_limit_mb=2048 -max_len=8192 -verbosity=0 '
                  '-artifact_prefix="$5" "$6" "$1"')
        command = ["sh", "-c", script, "sh", seeds, build / "tests/unit/fuzz" / room / f"test_{source.stem}", program,
                   seconds, fuzz / f"{entry}-", corpus]
        jobs.append((run_judged, f"fuzz/{entry}", command, env, seconds + 180, judge_fuzz))
    return jobs


# What runs under an emulator of the processor alone: it starts no other program of the tree, whose
# file this machine's kernel would refuse, and takes minutes, not hours. Left out are
#   test_base        it runs itself again
#   conform_memory   the process's memory is the emulator's
#   conform_ops_nn, conform_steps   half a minute and ten seconds here, each about twenty times that there
ARM64 = re.compile(r"unit/[\w/]+/test_(arena|buf|build|clip|clock|convnet|cpu_\w+|digest|files|frame|gpt|graph\w*|gz|half|init"
                   r"|json|llama|log|loops|loss|machine|map|mlp|npy|ops|pass_\w+|precision|printable|random|rank_page"
                   r"|registry|ring|rng|sampler|state_dir|status|text"
                   r"|train_(manifest|optimizer|schedule|shard|weights)|types)"
                   r"|conform/conform_(gradients\w*|ops|ops_optim)")


def arm64_programs(build, env):
    root = build / "arm64"
    if not root.exists():
        result = Result("arm64")
        result.add_skip("all of it", "no arm64 root: see tests/tools/arm64.sh")
        return [given(result)]
    env = dict(env, CMOCKA_MESSAGE_OUTPUT="TAP", TRAIND_BUILD=f"{build}-arm64")
    runner = ("qemu-aarch64", "-L", str(root))
    return [(run_program, f"arm64/{n}", p, env, runner)
            for n, p in find_programs(Path(f"{build}-arm64"), "") if ARM64.fullmatch(n)]


def with_many_threads(build, env):
    """conformance with more threads than cores; conform_threads, in every check, has the other counts"""
    env = dict(env, CMOCKA_MESSAGE_OUTPUT="TAP", TRAIND_BUILD=str(build), TRAIND_TEST_THREADS="33")
    return [(run_program, f"33 threads/{n}", p, env) for n, p in find_programs(build, "")
            if n.startswith("conform/conform_ops")]


def judge_parity(result, code):
    for line in result.output.splitlines():
        if line.startswith("ok "):
            result.passed += 1
        elif line.startswith("FAIL "):
            result.failures.append(" ".join(line.split()))
        elif line.startswith("no rival"):
            result.add_skip("all of it", f"no Python package: {line}")
    if not result.passed and not result.skips and not result.failures:
        result.failures.append(f"no case was compared, exit status {code}")
    elif code != 0 and not result.failures:
        result.failures.append(f"exit status {code} without a failed case")


def parity_jobs(build, env):
    """Half the steps of `make parity`: what is wrong shows in the first ones."""
    torch = ["--torch", os.environ["TORCH"]] if os.environ.get("TORCH") else []
    return [(run_judged, f"parity/{job}",
             [sys.executable, "tests/parity/parity.py", "--build", build, "--steps", "25", "--only", f" {job} ", *torch],
             env, PARITY_TIMEOUT_S, judge_parity) for job in ("mlp", "convnet", "gpt")]


def judge_debian13(result, code):
    """Cases count as those of the unit tests here; the demo is one."""
    for line in result.output.splitlines():
        if line.startswith("no Debian 13 root"):
            result.add_skip("all of it", line)
        elif counts := re.fullmatch(r"(\d+) passed, \d+ failed, \d+ skipped", line):
            result.passed += int(counts[1])
        elif case := re.match(r"     (FAILED|skipped) (.*)", line):
            (result.failures if case[1] == "FAILED" else result.skips).append(case[2])
        elif line == "debian13: demo passed":
            result.passed += 1
    if code != 0 and not result.failures:
        result.failures.append(f"exit status {code} without a failed case")
    elif not result.passed and not result.skips and not result.failures:
        result.failures.append("nothing was run")


def run_debian13(build, env):
    """oneDNN 3 and a newer compiler, where a Debian 13 can be made. It uses every core: alone."""
    command = [ROOT / "tests/tools/debian13.sh", f"{build}-debian13", "unit", "demo"]
    result = run_judged("debian13", command, env, DEBIAN13_TIMEOUT_S, judge_debian13)
    report(result)
    return [result]


def long_parts(build, env):
    """{what: jobs}, the longest jobs first: both processes that take them end at about the same time."""
    env = {k: v for k, v in env.items() if k != "TD_FULL"}  # as often as in `check`: it takes ten times as long
    tsan = dict(env, TSAN_OPTIONS=f"suppressions={ROOT}/tests/tools/tsan.supp")
    return {"parity": parity_jobs(build, env),
            "asan at CPU levels": build_at_levels(build, "asan", env),
            "clang at CPU levels": build_at_levels(build, "clang", env),
            "many threads": with_many_threads(build, env),
            "asan": programs(Path(f"{build}-asan"), "", env, "asan/"),
            "arm64": arm64_programs(build, env),
            "tsan": programs(Path(f"{build}-tsan"), "tsan", tsan, "tsan/"),
            "fuzz": fuzz_entries(build, env)}


# ---- pytest -----------------------------------------------------------------------------------------
def python_folders():
    """From tests/, as pytest is given them."""
    folders = {p.parent.relative_to(ROOT / "tests") for p in (ROOT / "tests").rglob("test_*.py")}
    # simplest first: what fails there explains what fails later
    order = {"scenario": 0, "clients": 1}
    return sorted(folders, key=lambda f: (order.get(f.parts[0], 2), f))


def parse_junit(path, result, found):
    """Counts cases, and adds their names to found."""
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        found.add(name)
        folder = next((str(f) for f in python_folders() if name.startswith(".".join(("tests", *f.parts, "test_")))), "?")
        result.folders[folder] = result.folders.get(folder, 0.0) + float(case.get("time") or 0)
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        if bad is not None:
            result.failures.append(f"{name}: {(bad.get('message') or '').splitlines()[:1]}")
        elif skipped is not None:
            result.add_skip(name, skipped.get("message") or "")
        else:
            result.passed += 1


def pytest_process(share, number, text, marks, env):
    """One of those that share the tests by a folder: (process, its output, its report)."""
    xml = share / f"junit-{number}.xml"
    out = open(share / f"output-{number}", "w+b")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--share={share}", "-m", marks,
               f"--junit-xml={xml}", *(["-k", text] if text else []), *(str(ROOT / "tests" / f) for f in python_folders())]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, cwd=ROOT, env=env, start_new_session=True)
    return child, out, xml


def judge_pytest(result, share, processes):
    """What the processes that have ended say. A test that was found and that none has run is a failure."""
    found = set()
    for child, out, xml in processes:
        if xml.exists():
            parse_junit(xml, result, found)
        out.seek(0)
        output = out.read().decode(errors="replace")
        if child.returncode not in (0, 5):  # 5: nothing was selected
            print(output, end="")
        at = share / f"at-{child.pid}"
        last = f", its last test: {at.read_text()}" if at.exists() else ""
        if child.returncode < 0 or child.returncode not in (0, 1, 5) and not result.failures:
            result.failures.append(f"pytest ended with status {child.returncode}{last}")
        elif not xml.exists():
            result.failures.append(f"pytest left no report{last}")
        out.close()
    collected = {int(p.read_text()) for p in share.glob("collected-*")}
    if not result.failures and collected != {len(found)}:
        result.failures.append(f"pytest found {sorted(collected)} tests and ran {len(found)}")


def run_shared(name, n, text, marks, env):
    """The tests that have marks, by n processes of pytest that share them (tests/sharing.py)."""
    result, started = Result(name), time.monotonic()
    timeout_s = PYTEST_FULL_TIMEOUT_S if FULL else PYTEST_TIMEOUT_S
    with tempfile.TemporaryDirectory() as scratch:
        share = Path(scratch)
        processes = [pytest_process(share, i, text, marks, env) for i in range(n)]
        try:
            for child, _, _ in processes:
                child.wait(max(0.0, started + timeout_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            result.failures.append(f"no end within {timeout_s} s")
        except KeyboardInterrupt:
            for child, _, _ in processes:
                child.send_signal(signal.SIGINT)
            for child, _, _ in processes:
                child.wait(30)
            raise
        for child, _, _ in processes:
            kill_group(child)
        result.seconds = time.monotonic() - started
        judge_pytest(result, share, processes)
    report(result)
    return [result]


def run_pytest(text, env):
    """Some processes share what can run side by side; then one runs what is marked `alone`."""
    return [*run_shared("pytest", len(os.sched_getaffinity(0)) + 2, text, "not alone", env),
            *run_shared("pytest, alone", 1, text, "alone", env)]


class Clock:
    """How long each part took."""

    def __init__(self):
        self.started, self.parts = time.monotonic(), []

    def run(self, what, function, *args):
        """What function returns, which are results."""
        began = time.monotonic()
        results = function(*args)
        if results:
            self.parts.append((what, time.monotonic() - began))
            folders = sorted({f for r in results for f in r.folders})
            self.parts += [(f"  tests/{f}, test by test", sum(r.folders.get(f, 0) for r in results)) for f in folders]
        return results

    def share(self, what, parts):
        """The results of the jobs of all parts, which two processes share: one part ends while the next has begun."""
        began = time.monotonic()
        results = run_two_at_a_time([job for jobs in parts.values() for job in jobs])
        if results:
            self.parts.append((what, time.monotonic() - began))
        of_each = iter(results)
        for name, jobs in parts.items():
            self.parts.append((f"  {name}, program by program", sum(next(of_each).seconds for _ in jobs)))
        return results

    def report(self):
        print("time of each part:")
        for what, seconds in [*self.parts, ("all", time.monotonic() - self.started)]:
            print(f"  {seconds:7.1f} s  {what}")


# ---- main -------------------------------------------------------------------------------------------
def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--build", required=True, type=Path)
    options.add_argument("--only", choices=["unit"])
    options.add_argument("--match", default="")
    options.add_argument("--full", action="store_true")
    options.add_argument("--list", action="store_true")
    args = options.parse_args()
    build = args.build.resolve()
    env = dict(os.environ, TRAIND_BUILD=str(build), PYTHONDONTWRITEBYTECODE="1")
    if args.list:
        print("\n".join(name for name, _ in find_programs(build, args.match)))
        return 0

    clock = Clock()
    parts = long_parts(build, env) if args.full else {}
    parts["C programs"] = programs(build, args.match, env)
    if args.only != "unit":
        parts["C programs at lower CPU levels"] = at_levels(build, args.match, env)
    results = clock.share("programs", parts)
    if args.full:
        results += clock.run("debian13", run_debian13, build, env)
    if args.only != "unit":
        results += clock.run("pytest", run_pytest, args.match, env)
    passed = sum(r.passed for r in results)
    failed = sum(len(r.failures) for r in results)
    skipped = sum(len(r.skips) for r in results)
    if passed + failed + skipped == 0:
        print(f"no test matches '{args.match}'")
        failed = 1
    clock.report()
    if failed and len(results) > 1:
        print("failed:")
        for r in results:
            for text in r.failures:
                print(f"  {r.name}: {text}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
