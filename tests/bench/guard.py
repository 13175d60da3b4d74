"""A row that fails or hangs ends itself, and not the table.

    with Guard("gpt fp32", 600) as row: ...

An exception in the block, or the end of its deadline, ends the block alone. What it had started is killed, also what a
daemon had started for it, and `why` says what happened in one line. Blocks may be in blocks: the deadline of an outer
one passes through the inner. The deadline is an alarm, so all of this is for the main thread.
"""
import os
import pathlib
import signal
import sys
import time
import traceback

import support

WHY_MAX = 160
KILL_S = 10
STACK = []
SCRATCH = None  # the folder of this run: every daemon and worker has it, or a folder in it, on its command line


class Late(Exception):
    def __init__(self, guard):
        super().__init__(f"no end within {guard.deadline_s:g} s")
        self.guard = guard


def current():
    """The innermost block; None outside of all."""
    return STACK[-1] if STACK else None


def one_line(text):
    text = " ".join(str(text).split())
    return text if len(text) <= WHY_MAX else text[:WHY_MAX - 3] + "..."


def parents():
    """Process -> its parent, of all that have not ended."""
    found = {}
    for p in pathlib.Path("/proc").iterdir():
        if p.name.isdigit():
            try:
                state, parent = (p / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            except OSError:
                continue  # it ended meanwhile
            if state not in "ZX":
                found[int(p.name)] = int(parent)
    return found


def ours():
    """Every process below this one, and those that left it but name the scratch folder, with all below them."""
    parent, found = parents(), {os.getpid(), *(support.processes_of(SCRATCH) if SCRATCH else ())}
    while more := {p for p, above in parent.items() if above in found} - found:
        found |= more
    return found - {os.getpid()}


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def reap(pids):
    """Those that are our own children; subprocess bears that it comes second."""
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass


def kill_strays(before):
    """Everything of ours that was not there before; returns those that are still alive after KILL_S."""
    end, killed = time.monotonic() + KILL_S, set()
    while (left := ours() - before) and time.monotonic() < end:
        kill(left)
        killed |= left
        reap(killed)
        time.sleep(0.01)
    reap(killed)
    return left


def arm():
    """The alarm of the block whose deadline comes first; again and again, for an end may hang as well."""
    first = min((g.end for g in STACK), default=None)
    signal.setitimer(signal.ITIMER_REAL, max(first - time.monotonic(), 0.001) if first else 0, KILL_S if first else 0)


def on_alarm(*_):
    for g in STACK:  # the outermost that is over
        if g.end <= time.monotonic():
            raise Late(g)


class Guard:
    def __init__(self, name, deadline_s):
        self.name, self.deadline_s = name, deadline_s
        self.why = self.rival_why = None

    def failed(self, why):
        """The first reason counts."""
        self.why = self.why or one_line(why)

    def __enter__(self):
        signal.signal(signal.SIGALRM, on_alarm)
        self.before, self.end = ours(), time.monotonic() + self.deadline_s
        STACK.append(self)
        arm()
        return self

    def __exit__(self, kind, error, trace):
        STACK.remove(self)
        arm()
        if error is None:
            return False
        left = kill_strays(self.before)
        if not isinstance(error, Exception) or (isinstance(error, Late) and error.guard in STACK):
            return False  # the end of the bench, or of a block around this one
        # an alarm may come while something fails, and then the first error is the reason
        self.failed(f"{type(error).__name__}: {error}" if not isinstance(error, Late) else error)
        if left:
            self.why += f"; still alive: {sorted(left)}"
        print(f"{self.name}: {''.join(traceback.format_exception(kind, error, trace))}", file=sys.stderr, flush=True)
        return True
