"""Rows of single moments: a worker's start, that of spawned ranks, and a checkpoint."""
import os
import shutil
import statistics
import time

from harness import A, ROW_S, Ran, Row, emit, run_rival, run_worker, support
from training import plan_of

STARTS = 7  # a round
SAVE_EVERY, SAVE_STEPS = 4, 17


def start(folder, torch):
    """From exec of a worker to the start of its first step (and to its end), plan and data cached."""
    for job, limit in (("mlp", 60), ("convnet", None), ("gpt", 200)):
        with Row(f"{job} exec to start of first step", "ms", ROW_S * A.rounds):
            start_of(folder, job, limit)


def start_of(folder, job, limit):
    plan = plan_of(folder / job, job, max_steps=1)
    works = run_worker(plan, plan.parent, quiet=False).code == 0
    runs = [run_worker(plan, plan.parent, quiet=i == 0) for i in range(STARTS * A.rounds * works)]
    begun = [1e3 * t for t in (r.when("stage", stage="fit", state="start") for r in runs) if t]
    done = [1e3 * t for t in (r.when("step1") for r in runs) if t]
    emit(f"{job} exec to start of first step", begun, "ms", better="less", asked=limit,
         others=max((r.others for r in runs), default=None))
    emit(f"{job} exec to end of first step", done, "ms")


def spawn(folder, torch):
    """From the call that spawns 2 ranks to both of them in their function, and to the end of their first step."""
    name = "ddp_spawn start of 2 ranks"
    with Row(name, "ms", ROW_S * A.rounds):
        ours, rival, others = {"ms": [], "step_ms": []}, {"ms": [], "step_ms": []}, []
        for _ in range(A.rounds):
            ran = Ran([support.BUILD / "tests/bench/bench_spawn"], dict(os.environ), folder)
            others.append(ran.others)
            theirs = run_rival("spawn_start.py").lines[0] if torch else {}
            for what in ours:
                ours[what] += ran.lines[0][what]
                rival[what] += theirs.get(what, [])
        emit(f"{name}, to their function", ours["ms"], "ms", rival["ms"], better="less",
             rival_is="torch.multiprocessing.spawn", others=max(others))
        first = f"{name}, to the end of the first step, mlp under ddp"
        emit(first, ours["step_ms"], "ms", better="less", asked=100, others=max(others))
        emit(f"{first}, beside torch", ours["step_ms"], "ms", rival["step_ms"], better="less",
             rival_is="torch.multiprocessing.spawn, DDP over gloo", others=max(others))


def dd(folder, size):
    """Bytes a second of what `dd bs=1M conv=fsync` does to this disk."""
    path, block = folder / "dd", os.urandom(1 << 20)
    began = time.perf_counter()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for _ in range(size >> 20):
        os.write(fd, block)
    os.fsync(fd)
    os.close(fd)
    took = time.perf_counter() - began
    path.unlink()
    return (size >> 20 << 20) / took


def saves_of(ran):
    """Of each save that a step follows: ms that the loop was held, ms that the next step took longer than
    usual, bytes, bytes/s until it was durable."""
    times = {x["step"]: (x["value"], x["time_ns"]) for x in ran.lines if x.get("name") == "step_time_s"}
    quiet = [t for s, (t, _) in times.items() if s > 2 and (s - 1) % SAVE_EVERY]
    for x in ran.lines:
        if x.get("event") == "checkpoint" and x["step"] + 1 in times:
            yield (x["held_ns"] / 1e6, 1e3 * (times[x["step"] + 1][0] - statistics.median(quiet)), x["bytes"],
                   x["bytes"] / (x["clock_s"] - times[x["step"]][1] / 1e9))


def checkpoint(folder, torch):
    """The gpt job saves as it trains: how long the loop stalls, and how soon it is on the disk."""
    with Row("gpt checkpoint: the loop stalls", "ms", ROW_S * A.rounds):
        saves(folder, torch)


def saves(folder, torch):
    held, longer, speeds, disk, rival, others = [], [], [], [], [], []
    for _ in range(A.rounds):
        plan = plan_of(folder / "gpt", "gpt", max_steps=SAVE_STEPS, log_every_n_steps=1,
                       checkpoint={"every_n_train_steps": SAVE_EVERY, "save_top_k": 1})
        ran = run_worker(plan, plan.parent)
        for held_ms, longer_ms, size, speed in saves_of(ran):
            held.append(held_ms)
            longer.append(longer_ms)
            speeds.append(speed)
            disk.append(dd(folder, size))
        others.append(ran.others)
        shutil.rmtree(plan.parent / "checkpoints", ignore_errors=True)
        if torch:
            lines = run_rival("checkpoint.py", "--folder", folder, "--times", "3").lines
            rival += [x["median"] for x in lines if x["mode"] == "torch.save+fsync"]
    emit("gpt checkpoint: the loop stalls", held, "ms", better="less", asked=10, others=max(others),
         torch_save_ms=rival and round(statistics.median(rival), 1) or None)
    emit("gpt checkpoint: the next step is longer by", longer, "ms")
    emit("gpt checkpoint: durable, share of dd with fsync", [s / d for s, d in zip(speeds, disk)], "share",
         asked=0.8, ours_mb_s=speeds and round(statistics.median(speeds) / 1e6),
         dd_mb_s=disk and round(statistics.median(disk) / 1e6))
