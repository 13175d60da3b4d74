"""A small launcher for tests of the worker: it makes rank pages, rings and the group's mapping, starts
one worker per rank, receives their events and reads their metrics, as lib/attempt/rank_page.h says.

Like the real one it reports to the other ranks when one has died. Every wait has a deadline, and close()
leaves no process.
"""
import ctypes
import json
import mmap
import os
import pathlib
import platform
import selectors
import signal
import socket
import struct
import subprocess
import time

import support

WORKER = pathlib.Path(support.BUILD) / "bin" / "traind-worker"
PAGE_BYTES, RING_RECORDS, RECORD_BYTES, RING_HEADER = 4096, 8192, 64, 192
OFFSET = {"phase": 64, "epoch": 68, "step": 72, "total_steps": 80, "samples": 88, "stop": 128, "checkpoint": 132,
          "abort": 136, "drain_asked": 116, "drain_done": 140, "signal": 192, "last_words": 196}
STOP_CHECKPOINT, STOP_NOW = 1, 2
SYS_FUTEX, FUTEX_WAKE = {"x86_64": 202, "aarch64": 98}[platform.machine()], 1
LIBC = ctypes.CDLL(None)
EXIT = {"done": 0, "stopped": 10, "bad_spec": 20, "abi": 21, "resource": 30, "collective": 31,
        "disk": 32, "data": 40, "numeric": 41, "user_code": 42, "bug": 70}


class Rank:
    """One worker process and what a launcher holds of it."""

    def __init__(self, plan_file, rank, world, group_fd, env=None, preexec=None, args=()):
        size = PAGE_BYTES + RING_HEADER + RING_RECORDS * RECORD_BYTES
        self.rank, self.events, self.metrics = rank, [], []
        self.page_fd = os.memfd_create(f"page-{rank}")
        os.ftruncate(self.page_fd, size)
        self.page = mmap.mmap(self.page_fd, size)
        self.page[0:16] = struct.pack("<IIii", 0x54525031, 2, rank, world)
        self.page[PAGE_BYTES:PAGE_BYTES + 16] = struct.pack("<IIII", 0x474E5254, RECORD_BYTES,
                                                            RING_RECORDS, 0)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        fds = [self.page_fd, theirs.fileno()]
        argv = [WORKER, "run", "--plan", plan_file, "--rank", str(rank), "--world-size", str(world),
                "--page-fd", str(fds[0]), "--events-fd", str(fds[1]), *args]
        level = os.environ.get("TRAIND_CPU_ISA")
        if level and "TRAIND_CPU_ISA" not in (env or {}):  # as a launcher says it
            argv += ["--cpu-level", level]
        if group_fd is not None:
            argv += ["--group-fd", str(group_fd)]
            fds.append(group_fd)
        self.process = subprocess.Popen(argv, pass_fds=fds, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, env=env or {}, preexec_fn=preexec)
        theirs.close()

    def word(self, name, fmt="<i"):
        return struct.unpack_from(fmt, self.page, OFFSET[name])[0]

    def set_word(self, name, value):
        struct.pack_into("<i", self.page, OFFSET[name], value)

    def answer_drain(self, asked):
        """All that any rank pushed before it asked was read: its checkpoint may be committed."""
        if self.word("drain_done") == asked:
            return
        self.set_word("drain_done", asked)
        word = ctypes.c_int.from_buffer(self.page, OFFSET["drain_done"])
        LIBC.syscall(SYS_FUTEX, ctypes.byref(word), FUTEX_WAKE, 1, None, None, 0)

    @property
    def step(self):
        return self.word("step", "<q")

    def drain(self):
        """Takes waiting events and metric records."""
        while True:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                break
            if not data:
                break
            self.events.append(json.loads(data))
        base = PAGE_BYTES
        head, = struct.unpack_from("<Q", self.page, base + 64)
        tail, = struct.unpack_from("<Q", self.page, base + 128)
        for i in range(tail, head):
            at = base + RING_HEADER + (i % RING_RECORDS) * RECORD_BYTES
            name, step, epoch, total, count, _, flags, _ = struct.unpack_from("<24siiddqII",
                                                                              self.page, at)
            self.metrics.append({"name": name.rstrip(b"\0").decode(), "step": step, "epoch": epoch,
                                 "sum": total, "count": count, "flags": flags})
        struct.pack_into("<Q", self.page, base + 128, head)

    def event(self, kind):
        return [e for e in self.events if e["event"] == kind]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self.process.stderr.close()
        self.socket.close()
        self.page.close()
        os.close(self.page_fd)


class Attempt:
    """The ranks of one attempt. `args_of`: more arguments of a rank, by its number."""

    def __init__(self, tmp_path, plan, world=1, env=None, preexec=None, args_of=lambda rank: ()):
        self.plan_file = pathlib.Path(tmp_path) / f"plan-{time.monotonic_ns()}.json"
        self.plan_file.write_text(json.dumps(plan))
        self.group_fd = None
        self.commits = True  # False: checkpoints are written and not committed, so the writer stays busy
        if world > 1:
            self.group_fd = os.memfd_create("group")
            os.ftruncate(self.group_fd, sizes(self.plan_file, world, args_of(0))["shared_bytes"])
        self.ranks = [Rank(self.plan_file, r, world, self.group_fd, env, preexec, args_of(r))
                      for r in range(world)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for r in self.ranks:
            r.close()
        if self.group_fd is not None:
            os.close(self.group_fd)

    def stop(self, how=STOP_CHECKPOINT, ranks=None):
        for r in ranks or self.ranks:
            r.set_word("stop", how)

    def kill(self, rank=0):
        self.ranks[rank].process.send_signal(signal.SIGKILL)

    def until(self, condition, timeout_s=30):
        """Serves the ranks until condition(self) holds."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for r in self.ranks:
                selector.register(r.socket, selectors.EVENT_READ)
            while True:
                self.serve()
                if condition(self):
                    return
                assert time.monotonic() < deadline, self.story()
                selector.select(0.002)

    def serve(self):
        asked = [r.word("drain_asked") for r in self.ranks]
        for r in self.ranks:
            code = r.process.poll()
            r.drain()
            if code not in (None, EXIT["done"], EXIT["stopped"]):
                for other in self.ranks:
                    other.set_word("abort", 1)
        for r, ticket in zip(self.ranks, asked):
            if self.commits:
                r.answer_drain(ticket)

    def wait(self, timeout_s=30):
        """Exit codes of all ranks."""
        self.until(lambda a: all(r.process.poll() is not None for r in a.ranks), timeout_s)
        self.serve()
        return [r.process.returncode for r in self.ranks]

    def story(self):
        return "\n".join(f"rank {r.rank} exit {r.process.poll()} step {r.step} events {r.events}"
                         for r in self.ranks)


def sizes(plan_file, world=1, args=()):
    """What `traind-worker plan` says."""
    out = subprocess.run([WORKER, "plan", "--plan", plan_file, "--world-size", str(world), *args],
                         capture_output=True, timeout=60)
    assert out.returncode == 0, out.stdout + out.stderr
    return json.loads(out.stdout)


def run_by_hand(tmp_path, plan, timeout_s=60, **kwargs):
    """Runs a plan without a launcher: exit code and the parsed lines of stdout."""
    plan_file = pathlib.Path(tmp_path) / f"plan-{time.monotonic_ns()}.json"
    plan_file.write_text(json.dumps(plan))
    out = subprocess.run([WORKER, "run", "--plan", plan_file], capture_output=True,
                         timeout=timeout_s, **kwargs)
    return out.returncode, [json.loads(line) for line in out.stdout.splitlines()]
