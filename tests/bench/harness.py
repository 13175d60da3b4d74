"""What the parts of the bench share: arguments, rows and their table, workers, rivals, quiet moments.

A row is one figure of traind, beside the rival's where there is one, with the spread of both and with
what issue and README ask of it. It is printed at once as a JSON line; table() prints all of them again
for people. Commands are run in turn, several rounds, so that a disturbance hits both alike; what other
processes used of the cores meanwhile is measured, and is in the row (others, in cores, the worst
run of it): above 0.1 its figures are worth little.

A row that fails or hangs ends neither its part nor the table (guard.py). It says `failed: why`, and so does one of
whose rounds only some gave a figure.

Both sides are held to one CPU level (--level, else the machine's own): ours by TRAIND_CPU_ISA, which holds
oneDNN with it, torch by RIVAL_LEVELS. At `generic` there is no torch: MKL heeds its variable on some processors
only, so its products would be of another level; the part `products` compares with plain loops instead.
"""
import argparse
import json
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def parse():
    p = argparse.ArgumentParser(description="figures of traind beside its rivals")
    p.add_argument("--build", default="build")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", default="", help="parts to run, by comma: each a piece of a part's name")
    p.add_argument("--torch", default="", help="a python that has torch (default BUILD/venv-rivals)")
    p.add_argument("--level", default="", help="CPU level of both sides (default: the machine's own)")
    p.add_argument("--threads", type=int, default=2, help="of traind and of the rival")
    p.add_argument("--wait", type=int, default=5, help="before each run, seconds at most for quiet")
    return p.parse_args()


A = parse()
os.environ["TRAIND_BUILD"] = str(pathlib.Path(A.build).resolve())
import guard  # noqa: E402
import levels  # noqa: E402
import support  # noqa: E402  (it reads TRAIND_BUILD)
from guard import Guard  # noqa: E402

TORCH = A.torch or str(support.BUILD / "venv-rivals/bin/python")
# torch at its best (rivals/README.md); the worker's as the launcher sets it (daemon/launcher).
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000",
          "MALLOC_TOP_PAD_": "100000000"}
OPENMP = {"OMP_NUM_THREADS": str(A.threads), "OMP_PROC_BIND": "false", "GOMP_SPINCOUNT": "1000"}
WORKER_S, RUN_S = 90, 300  # of one run, of a worker and of anything else
ROW_S = 600                # of a row, or of one round of it; its runs end before
ROWS = []
NO_BF16 = ("generic", "avx2", "avx512")  # levels without instructions for it
MACHINE = levels.of_machine(support.BUILD)
LEVEL = A.level or MACHINE
# What holds torch to a level: its own kernels, oneDNN (two names of one variable) and MKL.
RIVAL_LEVELS = {
    "avx2": ("avx2", "AVX2", "AVX2"),
    "avx512": ("avx512", "AVX512_CORE", "AVX512"),
    "avx512_bf16": ("avx512", "AVX512_CORE_BF16", "AVX512"),
}


def rival_level():
    """Of the rival's environment. Nothing at the machine's own level: there it chooses its best."""
    if LEVEL == MACHINE or LEVEL not in RIVAL_LEVELS:
        return {}
    own, onednn, mkl = RIVAL_LEVELS[LEVEL]
    return {"ATEN_CPU_CAPABILITY": own, "ONEDNN_MAX_CPU_ISA": onednn, "DNNL_MAX_CPU_ISA": onednn,
            "MKL_ENABLE_INSTRUCTIONS": mkl}


def hold_level():
    """Every process of ours that starts from now on has the level; fails where this machine has not got it."""
    if LEVEL not in (*levels.below(MACHINE), MACHINE):
        sys.exit(f"--level {LEVEL}: this machine has {', '.join((*levels.below(MACHINE), MACHINE))}")
    os.environ["TRAIND_CPU_ISA"] = LEVEL


class Cluster(support.Cluster):
    """Daemons that hold their ranks to the level, wherever they listen."""

    plugins = {}

    def env(self, **more):
        return super().env(TRAIND_CPU_ISA=LEVEL, **more)


def chosen(part):
    """--only names the part, or a part of it."""
    return not A.only or any(part.startswith(o) or o.startswith(part) for o in A.only.split(","))


# ---- rows -----------------------------------------------------------------------------------------
def cpu_model():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return f"{os.cpu_count()} x {line.split(':')[1].strip()}"
    return f"{os.cpu_count()} cores"


def spread(figures, prefix=""):
    return {prefix + k: round(f(figures), 6)
            for k, f in (("median", statistics.median), ("min", min), ("max", max))}


def emit(name, figures, unit, rival=None, better="more", **more):
    """One row. rival: the rival's own figures in the same unit, [] where it is not installed; ratio is
    above 1 when traind is better. asked, aim: of the ratio where there is a rival, else of the figure."""
    line = dict(name=name, unit=unit, n=len(figures), **(spread(figures) if figures else {}))
    if rival is not None:
        line |= spread(rival, "rival_") if rival else {"rival_median": "failed" if rival_why() else "no rival"}
        line |= {"rival_why": rival_why()} if rival_why() else {}
    if rival and figures:
        ours, theirs = line["median"], line["rival_median"]
        line["ratio"] = round(ours / theirs if better == "more" else theirs / ours, 3)
    line |= {k: v for k, v in more.items() if v is not None}
    line["verdict"] = verdict(line, rival is not None, better)
    show(line)


def show(line):
    """A JSON line; a row of the table too, if it has a figure."""
    line = dict(line, level=LEVEL, machine=cpu_model())
    if "unit" in line:
        ROWS.append(line)
    print(json.dumps(line), flush=True)


def rival_why():
    return guard.current().rival_why if guard.current() else None


class Row(Guard):
    """The block that measures one row, or the few of the same runs. Where it fails before it printed a row that
    says so, it prints one by its own name."""

    def __init__(self, name, unit="", deadline_s=ROW_S):
        super().__init__(name, deadline_s)
        self.unit, self.shown = unit, False

    def __exit__(self, *error):
        passed = super().__exit__(*error)
        if self.why and not self.shown:
            show(dict(name=self.name, unit=self.unit, n=0, verdict=f"failed: {self.why}"))
        return passed


def verdict(line, has_rival, better):
    value = line.get("ratio") if has_rival else line.get("median")
    row = guard.current()
    if row and row.why or "median" not in line:
        if row:
            row.shown = True
        return f"failed: {row.why if row and row.why else 'there is no figure'}"
    if value is None or not ("asked" in line or "aim" in line):
        return ""
    sign = 1 if has_rival or better == "more" else -1
    for word in ("aim", "asked"):
        if word in line and sign * value >= sign * line[word]:
            return "at least" if word == "asked" else word
    return "below" if "asked" in line else "below aim"


def short(x):
    if not isinstance(x, (int, float)):
        return str(x if x is not None else "")
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.1f}" if abs(x) >= 100 else f"{x:.3g}"


def between(line, prefix):
    if prefix + "min" not in line or line[prefix + "min"] == line[prefix + "max"]:
        return ""
    return f"{short(line[prefix + 'min'])}-{short(line[prefix + 'max'])}"


def table():
    """All rows for people; a row fits one line."""
    head = ("what", "level", "traind", "spread", "rival", "spread", "ratio", "at least", "aim", "", "of FMA peak",
            "others", "")
    rows = [(r["name"], r["level"], f"{short(r.get('median', 'failed'))} {r['unit']}", between(r, ""),
             short(r.get("rival_median")), between(r, "rival_"), short(r.get("ratio")), short(r.get("asked")),
             short(r.get("aim")), r.get("verdict", "").partition(":")[0],
             f"{r['share']:.0%}" if "share" in r else "", short(r.get("others")),
             r["verdict"] if r.get("verdict", "").startswith("failed") else "") for r in ROWS]
    widths = [max(len(x[i]) for x in [head, *rows]) for i in range(len(head))]
    print()
    for row in [head, *rows]:
        print("  ".join(x.ljust(w) for x, w in zip(row, widths)).rstrip())


# ---- quiet ----------------------------------------------------------------------------------------
def busy():
    """Core seconds that all processes used (and the host took), less those of our ended children."""
    f = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    mine = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (sum(f) - f[3] - f[4]) / os.sysconf("SC_CLK_TCK") - mine.ru_utime - mine.ru_stime


def wait_for_quiet():
    for _ in range(A.wait):
        before = busy()
        time.sleep(1)
        if busy() - before <= 0.1:
            return


# ---- what is run ----------------------------------------------------------------------------------
class Ran:
    """One command that has ended: its JSON lines (each with `at`, seconds since its start, and
    clock_s, the time of day), its largest
    resident set, and the cores that others used meanwhile. One that fails or takes longer than timeout_s is the
    failure of the row that is being measured, or of the rival in it."""

    def __init__(self, command, env, cwd, timeout_s=RUN_S, quiet=True, rival=False):
        command = [str(c) for c in command]
        if quiet:
            wait_for_quiet()
        began, start, self.lines = busy(), time.perf_counter(), []
        with tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen(command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=errors,
                                     start_new_session=True)
            late = threading.Event()
            end = threading.Timer(timeout_s, lambda: (late.set(), os.killpg(child.pid, signal.SIGKILL)))
            end.daemon = True  # a bench that is ended waits for no deadline
            try:
                end.start()
                for text in child.stdout:
                    if text.startswith("{"):
                        self.lines.append(dict(json.loads(text), at=time.perf_counter() - start, clock_s=time.time()))
            except BaseException:
                os.killpg(child.pid, signal.SIGKILL)
                raise
            finally:
                _, status, usage = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
                end.cancel()
            self.code, self.seconds = child.returncode, time.perf_counter() - start
            self.rss_mb = usage.ru_maxrss / 1024
            self.others = max(0.0, round((busy() - began) / self.seconds, 2))
            if self.code != 0:
                errors.seek(0)
                said = errors.read()[-600:]
                print(f"{' '.join(command)}: status {self.code}: {said}", file=sys.stderr)
                what = f"no end within {timeout_s} s" if late.is_set() else f"status {self.code}: {said}"
                note(f"{' '.join(command[:2])}: {what}".replace(f"{support.BUILD}/", ""), rival)

    def values(self, name):
        return [x["value"] for x in self.lines if x.get("name") == name]

    def when(self, event, **fields):
        """Seconds from the start to the first such event; None: there was none."""
        for x in self.lines:
            if x.get("event") == event and all(x.get(k) == v for k, v in fields.items()):
                return x["at"]
        return None


def note(why, rival):
    row = guard.current()
    if row and rival:
        row.rival_why = row.rival_why or guard.one_line(why)
    elif row:
        row.failed(why)


def run_worker(plan, folder, verb="run", **more):
    """A worker by hand, in the environment that its launcher would give it. Its jobs take seconds; one that
    takes minutes runs on plain loops, and is no figure."""
    more = dict(timeout_s=WORKER_S) | more
    plugins = plan.parent.parent / "plugins"
    dirs = ["--plugin-dirs", plugins] if plugins.exists() else []
    return Ran([support.BIN / "traind-worker", verb, "--plan", plan, *dirs], dict(os.environ, **OPENMP), folder, **more)


def run_rival(script, *args, **more):
    return Ran([TORCH, script, *args], dict(os.environ, **MALLOC, **rival_level()), HERE / "rivals", rival=True, **more)


def have(module):
    """The rival's python has the module, and can be held to the level."""
    if LEVEL == "generic":
        return False
    try:
        return subprocess.run([TORCH, "-c", f"import {module}"], capture_output=True, timeout=120).returncode == 0
    except OSError:
        return False


def peaks():
    """What the threads can do at best on registers alone: FLOP/s by precision, of one thread and of all. Where
    the level has no products of bf16, they are done in fp32; of tiles (amx) the peak is not known."""
    lines = Ran([support.BUILD / "tests/bench/bench_fma", A.threads], dict(os.environ), HERE, quiet=False).lines
    found = {(x["precision"], x["threads"]): x["gflops"] * 1e9 for x in lines}
    for threads in {1, A.threads} if LEVEL in NO_BF16 else ():
        found["bf16", threads] = found.get(("fp32", threads))
    return {k: v for k, v in found.items() if v and not (LEVEL == "amx" and k[0] == "bf16")}
