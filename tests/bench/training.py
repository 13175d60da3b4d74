"""Rows of training: throughput beside torch in its best mode, share of peak, memory, Lightning, a busy
neighbour, and what the plan had foretold.

The jobs are those of rivals/fashion.py and rivals/gpt.py: same model, global batch, optimizer and data.
A figure is a window of steps, the first of which is warm-up; a run gives the median of the others."""
import json
import os
import statistics
import subprocess
import sys

import harness
from harness import A, chosen, emit, run_rival, run_worker

FASHION = "/usr/share/datasets/fashion-mnist"
TEXT = "/usr/share/dictd/gcide.dict.dz"
CONVNET = [{"name": "conv", "channels": 32, "kernel": 3, "padding": 1}, "relu", {"name": "max_pool", "kernel": 2},
           {"name": "conv", "channels": 64, "kernel": 3, "padding": 1}, "relu", {"name": "max_pool", "kernel": 2},
           "flatten", {"name": "linear", "features": 128}, "relu", {"name": "linear", "features": 10}]
IDX = {"name": "idx", "path": FASHION, "batch_size": 128, "shuffle": True, "drop_last": True}
ADAMW = {"name": "adamw", "lr": 0.001, "weight_decay": 0.01}
# steps in all, steps of a window, rows that a sample is, the rival's command
JOBS = {
    "mlp": dict(model={"name": "mlp", "layers": [784, 512, 512, 10]}, data=IDX, optimizer=ADAMW,
                steps=1404, window=468, rows=1, unit="samples/s", rival=["fashion.py", "--job", "mlp", "--epochs", 3]),
    "convnet": dict(model={"name": "convnet", "layers": CONVNET}, data=IDX, optimizer=ADAMW,
                    steps=208, window=52, rows=1, unit="img/s",
                    rival=["fashion.py", "--job", "convnet", "--channels-last", "--steps", 208]),
    "gpt": dict(model={"name": "gpt", "n_layer": 6, "n_head": 6, "n_embd": 384},
                data={"name": "text", "path": TEXT, "block_size": 256, "batch_size": 16, "shuffle": True,
                      "drop_last": True, "limit_bytes": 4 << 20},
                optimizer=ADAMW | {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1},
                trainer={"gradient_clip_val": 1.0}, steps=8, window=2, rows=256, unit="tokens/s",
                rival=["gpt.py"]),
}
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed"}
ASKED = {("mlp", "fp32"): (1.3, 1.43), ("mlp", "bf16"): (1.5, 1.8), ("convnet", "fp32"): (1.6, 2.1),
         ("convnet", "bf16"): (1.5, 1.85), ("gpt", "fp32"): (1.2, 1.32), ("gpt", "bf16"): (1.3, 1.45)}


def plan_of(folder, job, precision="fp32", checkpoint=None, **trainer):
    """A job as a plan for one rank; its choices are measured once and kept in a cache that all share."""
    j = JOBS[job]
    folder.mkdir(exist_ok=True)
    plan = {
        "format": 1, "name": job, "stages": ["fit"], "seed_everything": 1,
        "model": j["model"], "data": j["data"], "optimizer": j["optimizer"],
        "trainer": {"accelerator": "cpu", "precision": PRECISIONS[precision], "max_steps": j["steps"],
                    "log_every_n_steps": j["window"], "num_sanity_val_steps": 0, "limit_val_batches": 0}
        | j.get("trainer", {}) | trainer,
        "run": {"job": job, "threads_per_rank": A.threads, "cache_dir": str(folder.parent / "cache")},
    }
    if checkpoint:
        plan["checkpoint"] = checkpoint
        plan["run"]["checkpoint_dir"] = str(folder / "checkpoints")
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    return path


def rate_of(ran, job):
    """Samples or tokens a second of one run of a worker: the median of its warm windows; [] if it failed."""
    warm = ran.values("samples_per_s")[1:]
    return [statistics.median(warm) * JOBS[job]["rows"]] if warm and ran.code == 0 else []


def planned(plan, folder):
    ran = run_worker(plan, folder, verb="plan", quiet=False)
    return ran.lines[0] if ran.lines and ran.code == 0 else {}


def measure(job, precision, plan, torch, found):
    """One round of one row, into found; plan None: traind cannot run it."""
    f = found.setdefault((job, precision), dict(ours=[], theirs=[], rss=[], rival_rss=[], others=[]))
    if torch:
        ran = run_rival(*JOBS[job]["rival"], "--precision", precision, "--threads", A.threads)
        f["theirs"] += [x["median"] for x in ran.lines]
        f["rival_rss"] += [ran.rss_mb] * bool(ran.lines)
        f["others"].append(ran.others)
    if not plan:
        return
    ran = run_worker(plan, plan.parent)
    rate = rate_of(ran, job)
    f["ours"] += rate
    f["rss"] += [ran.rss_mb] * bool(rate)
    f["others"].append(ran.others)


def throughput(folder, torch):
    """Section 7's table: each job in each precision, in turn, with the peak measured every round."""
    wanted = [k for k in ASKED if chosen(f"throughput-{k[0]}-{k[1]}")]
    plans = {k: plan_of(folder / "-".join(k), *k) for k in wanted}
    # The first start of all measures choices and decodes data, which the cache keeps.
    works = {k: run_worker(plan, plan.parent, quiet=False).code == 0 for k, plan in plans.items()}
    peaks, found = [], {}
    for _ in range(A.rounds):
        peaks.append(harness.peaks())
        for k in wanted:
            measure(*k, plans[k] if works[k] else None, torch, found)
    for k in wanted:
        job, precision = k
        f, facts = found[k], planned(plans[k], plans[k].parent)
        peak = [p[precision] for p in peaks if p.get(precision)]
        per_row = facts.get("flops_per_step", 0) / (JOBS[job]["data"]["batch_size"] * JOBS[job]["rows"])
        share = statistics.median(f["ours"]) * per_row / statistics.median(peak) if f["ours"] and peak else None
        emit(f"{job} {precision}", f["ours"], JOBS[job]["unit"], f["theirs"], asked=ASKED[k][0], aim=ASKED[k][1],
             share=share and round(share, 3), peak_gflops=peak and round(statistics.median(peak) / 1e9, 1),
             others=max(f["others"], default=None), threads=A.threads)
        # "at most 70 % of torch's" is a ratio of at least 1 / 0.7
        emit(f"{job} {precision} peak memory", f["rss"], "MiB", f["rival_rss"], better="less",
             asked=round(1 / 0.7, 3) if k == ("gpt", "fp32") else None)
    if ("gpt", "fp32") in wanted:
        recompute(folder, found[("gpt", "fp32")])


def recompute(folder, plain):
    """The gpt job with everything computed twice: what it saves, and its price."""
    plan = plan_of(folder / "recompute", "gpt", recompute="full")
    works = run_worker(plan, plan.parent, quiet=False).code == 0
    runs = [run_worker(plan, plan.parent) for _ in range(A.rounds * works)]
    rates, rss = [r for x in runs for r in rate_of(x, "gpt")], [x.rss_mb for x in runs if x.code == 0]
    emit("gpt fp32 recompute: full", rates, "tokens/s",
         price=rates and plain["ours"] and round(1 - statistics.median(rates) / statistics.median(plain["ours"]), 3))
    emit("gpt fp32 recompute: full, peak memory", rss, "MiB", plain["rival_rss"], better="less", asked=2.5)


def whole_epochs(ran, epochs):
    """Samples a second from the end of the first epoch to that of the last, checkpoints and all."""
    ends = {}
    for x in ran.lines:
        if x.get("name") == "samples_per_s":
            ends[x["epoch"]] = x["time_ns"]
    return [468 * 128 * 1e9 * (epochs - 1) / (ends[epochs - 1] - ends[0])] if len(ends) == epochs else []


def lightning(folder, torch):
    """Against Lightning's Trainer with logger, checkpoint and progress bar: the same here."""
    ours, theirs, others = [], [], []
    installed = torch and harness.have("lightning")
    for i in range(A.rounds):
        plan = plan_of(folder / f"round{i}", "mlp", max_steps=-1, max_epochs=4, log_every_n_steps=50,
                       checkpoint={"every_n_epochs": 1, "save_top_k": -1})
        if installed:
            ran = run_rival("lightning_fit.py", "--job", "mlp", "--csv", "--checkpoint", "--bar",
                            "--threads", A.threads)
            theirs += [x["median"] for x in ran.lines]
            others.append(ran.others)
        ran = run_worker(plan, plan.parent)
        ours += whole_epochs(ran, 4)
        others.append(ran.others)
    emit("mlp fp32 with log and checkpoints, against Lightning", ours, "samples/s", theirs, asked=2.7,
         others=max(others))


def busy_neighbour(core):
    """A process that keeps one core busy until it is killed."""
    return subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"])


def contended(folder, torch):
    """Throughput while something else keeps one of the two cores busy, as a share of the undisturbed."""
    core = sorted(os.sched_getaffinity(0))[-1]
    for job in ("mlp", "gpt"):
        shares, rival_shares = [], []
        plan = plan_of(folder / job, job)
        for _ in range(A.rounds):
            rates = {"ours": [], "theirs": []}
            for disturbed in (False, True):
                neighbour = busy_neighbour(core) if disturbed else None
                try:
                    rates["ours"] += rate_of(run_worker(plan, plan.parent, quiet=not disturbed), job)
                    if torch and job == "mlp":
                        ran = run_rival("fashion.py", "--job", "mlp", "--steps", 400, "--window", 100,
                                        "--threads", A.threads, quiet=not disturbed)
                        rates["theirs"] += [x["median"] for x in ran.lines]
                finally:
                    if neighbour:
                        neighbour.kill()
                        neighbour.wait()
            shares += [b / a for a, b in [rates["ours"]] if a] if len(rates["ours"]) == 2 else []
            rival_shares += [b / a for a, b in [rates["theirs"]]] if len(rates["theirs"]) == 2 else []
        # asked of the share itself, so the rival stands beside it for information
        emit(f"{job} fp32 with one core busy", shares, "of undisturbed", asked=0.45,
             rival_share=rival_shares and round(statistics.median(rival_shares), 3) or None)


def foretold(folder, torch):
    """What `plan` says before any step ran, against what then happens: bytes to the last, the step's time.
    Each round plans and runs every job in turn, so that the two of a pair meet the same machine; a row for
    which either is missing says that it failed."""
    parts = ("state_bytes", "arena_bytes", "scratch_bytes")
    plans = {k: plan_of(folder / "-".join(k), *k) for k in ASKED if chosen(f"foretold-{k[0]}-{k[1]}")}
    for plan in plans.values():  # choices and decoded data, which the cache keeps
        run_worker(plan, plan.parent, quiet=False)
    found = {k: dict(bytes=[], off=[], predicted=[], measured=[], others=[]) for k in plans}
    for _ in range(A.rounds):
        for k, plan in plans.items():
            facts, ran, f = planned(plan, plan.parent), run_worker(plan, plan.parent), found[k]
            f["others"].append(ran.others)
            held = [x for x in ran.lines if x.get("event") == "memory"]
            f["bytes"] += [sum(abs(facts[p] - held[0][p]) for p in parts)] if facts and held else []
            times, predicted = ran.values("step_time_s")[1:], facts.get("step_seconds")
            if times and predicted:
                f["predicted"].append(1e3 * predicted)
                f["measured"].append(1e3 * statistics.median(times))
    for (job, precision), f in found.items():
        emit(f"{job} {precision} bytes foretold, off by", f["bytes"], "bytes", better="less", asked=0)
        ratios = [p / m for p, m in zip(f["predicted"], f["measured"])]
        emit(f"{job} {precision} step time foretold, off by", [abs(r - 1) for r in ratios], "share", better="less",
             asked=0.25, ratios=[round(r, 3) for r in ratios], predicted_ms=[round(x, 3) for x in f["predicted"]],
             measured_ms=[round(x, 3) for x in f["measured"]], others=max(f["others"], default=None))
