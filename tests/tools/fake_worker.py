#!/usr/bin/env python3
"""A rank that does what its plan says, one word after the other: for tests of launcher and node.

It speaks the contract of lib/attempt/rank_page.h and lib/attempt/events.def without an engine: page on --page-fd, events on
--events-fd. The plan is {"fake": {"RANK": [["step", 5], ["wait"], ["exit", 0]]}} ("*": any rank).
"""
import json
import mmap
import os
import signal
import struct
import sys
import time

PAGE, PHASE, EPOCH, STEP, TOTAL = 4096, 64, 68, 72, 80
STOP, SAVE, ABORT, FATAL = 128, 132, 136, 192
ENDED = 6  # of enum td_rank_phase
RING_HEADER, RING_HEAD, RECORD = 192, 64, 64


def main():
    args = dict(zip(sys.argv[2::2], sys.argv[3::2]))
    rank = args["--rank"]
    page = mmap.mmap(int(args["--page-fd"]), 0)
    events = int(args["--events-fd"])
    script = json.load(open(args["--plan"]))["fake"]
    read = lambda at: struct.unpack_from("<i", page, at)[0]
    saved = read(SAVE)

    def event(name, **more):
        os.write(events, json.dumps({"event": name, **more}).encode())

    def metric(step, value):
        head, = struct.unpack_from("<Q", page, PAGE + RING_HEAD)
        at = PAGE + RING_HEADER + head % 8192 * RECORD
        struct.pack_into("<24siiddqII", page, at, b"train_loss", step, 0, value, 1.0, time.time_ns(), 1, 0)
        struct.pack_into("<Q", page, PAGE + RING_HEAD, head + 1)

    def wait(*until, deadline_s=60):
        """Until the launcher asks for something: stop, save or abort; says what."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            asked = {"stop": read(STOP), "abort": read(ABORT), "save": read(SAVE) - saved}
            for word in until or ("stop", "abort"):
                if asked[word]:
                    return word
            time.sleep(0.002)
        sys.exit(70)

    event("ready", pid=os.getpid())
    for verb, *values in script.get(rank, script.get("*", [])):
        if verb == "step":
            struct.pack_into("<q", page, STEP, values[0])
            metric(values[0], 1.0 / values[0])
        elif verb == "event":
            event(values[0], **values[1])
        elif verb == "raw":
            os.write(events, values[0].encode())
        elif verb == "out":
            sys.stdout.write(values[0] * (values[1] if len(values) > 1 else 1))
            sys.stdout.flush()
        elif verb == "err":
            sys.stderr.write(values[0])
            sys.stderr.flush()
        elif verb == "env":
            print(json.dumps(dict(os.environ, device=args.get("--device"), cores=sorted(os.sched_getaffinity(0)), sid=os.getsid(0))), flush=True)
        elif verb == "words":
            text = values[0].encode()
            struct.pack_into(f"<{len(text) + 1}s", page, FATAL + 4, text + b"\0")
        elif verb == "spawn":  # a child that outlives its parent unless somebody cleans up
            os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "600")
        elif verb == "wait":
            asked = wait(*values)
            if asked == "stop":
                event("end", outcome="stopped", step=struct.unpack_from("<q", page, STEP)[0])
                sys.exit(10)
            if asked == "abort":
                sys.exit(31)
            saved += 1
            event("note", text="asked to save")
        elif verb == "until":
            wait(*values)
        elif verb == "asked":
            event("note", text=f"stop {read(STOP)}, abort {read(ABORT)}")
        elif verb == "hang":
            time.sleep(600)
        elif verb == "signal":
            os.kill(os.getpid(), getattr(signal, values[0]))
        elif verb == "phase":
            struct.pack_into("<i", page, PHASE, values[0])
        elif verb == "total":
            struct.pack_into("<q", page, TOTAL, values[0])
        elif verb == "close":  # what a program does that wants to be a daemon
            os.closerange(0, 64)
        elif verb == "exit":
            if values[0] == 0:
                struct.pack_into("<i", page, PHASE, ENDED)
            os._exit(values[0])
        elif verb == "leave":  # as code of a plugin does: without a word
            os._exit(values[0])
        else:
            sys.exit(f"no verb {verb}")


main()
