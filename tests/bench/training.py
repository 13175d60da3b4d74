"""Rows of training: throughput beside torch in its best mode, share of the FMA peak, memory, what the plan
predicts, Lightning, and a busy neighbour.

The jobs are those of rivals/fashion.py and rivals/gpt.py: same model, global batch, optimizer and data.
A figure is a window of steps, the first of which is warm-up; a run gives the median of the others. Who is slow
(bf16 where nobody has instructions for it) runs fewer steps: before the rounds, a few steps of each side say how
many fit RUN_S, and the rival's row says what was left out of it (rival_steps, rival_batch)."""
import json
import os
import statistics
import subprocess
import sys

import harness
from harness import A, ROW_S, Guard, Row, chosen, emit, run_rival, run_worker

FASHION = "/usr/share/datasets/fashion-mnist"
TEXT = "/usr/share/dictd/gcide.dict.dz"
CONVNET = [{"name": "conv", "channels": 32, "kernel": 3, "padding": 1}, "relu", {"name": "max_pool", "kernel": 2},
           {"name": "conv", "channels": 64, "kernel": 3, "padding": 1}, "relu", {"name": "max_pool", "kernel": 2},
           "flatten", {"name": "linear", "features": 128}, "relu", {"name": "linear", "features": 10}]
IDX = {"name": "idx", "path": FASHION, "batch_size": 128, "shuffle": True, "drop_last": True}
ADAMW = {"name": "adamw", "lr": 0.001, "weight_decay": 0.01}
BLOCKS = {"name": "residual", "blocks": 2}
RESNET18 = [{"name": "conv", "channels": 64, "kernel": 3, "padding": 1, "bias": False}, "batch_norm", "relu",
            BLOCKS | {"channels": 64}, BLOCKS | {"channels": 128, "stride": 2}, BLOCKS | {"channels": 256, "stride": 2},
            BLOCKS | {"channels": 512, "stride": 2}, "global_avg_pool", {"name": "linear", "features": 10, "as": "fc"}]
# steps in all, steps of a window, rows that a sample is, the rival's command
JOBS = {
    "mlp": dict(model={"name": "mlp", "layers": [784, 512, 512, 10]}, data=IDX, optimizer=ADAMW,
                steps=1404, window=468, rows=1, unit="samples/s", rival=["fashion.py", "--job", "mlp"]),
    "convnet": dict(model={"name": "convnet", "layers": CONVNET}, data=IDX, optimizer=ADAMW,
                    steps=208, window=52, rows=1, unit="img/s",
                    rival=["fashion.py", "--job", "convnet", "--channels-last"]),
    # examples/resnet18.yaml with a smaller batch
    "resnet18": dict(model={"name": "convnet", "init": "he", "layers": RESNET18}, data=IDX | {"batch_size": 32},
                     optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0005},
                     steps=32, window=8, rows=1, unit="img/s",
                     rival=["fashion.py", "--job", "resnet18", "--channels-last", "--batch", 32]),
    "gpt": dict(model={"name": "gpt", "n_layer": 6, "n_head": 6, "n_embd": 384},
                data={"name": "text", "path": TEXT, "block_size": 256, "batch_size": 16, "shuffle": True,
                      "drop_last": True, "limit_bytes": 4 << 20},
                optimizer=ADAMW | {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1},
                trainer={"gradient_clip_val": 1.0}, steps=8, window=2, rows=256, unit="tokens/s",
                rival=["gpt.py"]),
    # examples/plugins/gan.c; a batch makes two steps
    "gan": dict(model={"name": "plugin", "module": "gan", "knobs": {"latent": 64, "hidden": 128}}, data=IDX,
                optimizer={"name": "sgd"}, plugin="gan",
                optimizers=[{"name": name, "match": f"{name}.*",
                             "optimizer": {"name": "adam", "lr": lr, "betas": [0.5, 0.999]}}
                            for name, lr in (("disc", 0.0002), ("gen", 0.0004))],
                steps=1872, window=468, rows=1, unit="samples/s", rival=["gan.py"]),
}
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed"}
# At least, and aim, of the ratio to torch by level; None: printed without. A bf16 job where there are no
# instructions aims at a share of our own fp32 instead.
OF_FP32 = 0.9
WITH_BF16 = {("mlp", "fp32"): (1.3, 1.43), ("mlp", "bf16"): (1.5, 1.8), ("convnet", "fp32"): (1.6, 2.1),
             ("convnet", "bf16"): (1.5, 1.85), ("gpt", "fp32"): (1.2, 1.32), ("gpt", "bf16"): (1.3, 1.45),
             ("resnet18", "fp32"): (1.2, 1.5), ("gan", "fp32"): (1.3, None)}
ASKED = {
    "generic": {k: (None, None) for k in WITH_BF16},
    "avx2": {("mlp", "fp32"): (1.2, 1.6), ("mlp", "bf16"): (8, None), ("convnet", "fp32"): (1.4, 1.8),
             ("convnet", "bf16"): (8, None), ("gpt", "fp32"): (1.25, 1.4), ("gpt", "bf16"): (3, None),
             ("resnet18", "fp32"): (1.2, 1.5), ("gan", "fp32"): (1.3, None)},
    "avx512": {k: v if k[1] == "fp32" else (None, None) for k, v in WITH_BF16.items()},
    "avx512_bf16": WITH_BF16,
    "amx": WITH_BF16,
}[harness.LEVEL]
RUN_S, LEAST_STEPS = 20, 4  # a run that is cut short; of its steps the first window is warm-up
WHOLE_S = 30                # a run that takes no longer is not cut
PROBE_STEPS = 4


def build_plugin(folder, name):
    """An example's module, in the directory that workers take plugins from (harness.run_worker)."""
    where = folder / "plugins"
    where.mkdir(exist_ok=True)
    if not (where / f"module-{name}.so").exists():
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-shared", "-fPIC",
                        f"-I{harness.support.ROOT}/include", harness.support.ROOT / f"examples/plugins/{name}.c",
                        "-o", where / f"module-{name}.so"], check=True)
        where.chmod(0o755)
    return where


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
    if "plugin" in j:
        plan |= {"optimizers": j["optimizers"], "plugins": [str(build_plugin(folder.parent, j["plugin"]))]}
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


def cut(job, rate):
    """Steps in all and of a window, so that a run at this rate (rows a second) takes no longer than it should."""
    j = JOBS[job]
    step_s = j["data"]["batch_size"] * j["rows"] / rate
    if j["steps"] * step_s <= WHOLE_S:
        return j["steps"], j["window"]
    steps = max(LEAST_STEPS, int(RUN_S / step_s))
    return steps, min(j["window"], max(1, steps // 4))


def probe(job, precision, plan):
    """How a worker's runs are cut, from its first; which measures choices and decodes data, that the cache keeps.
    None: it does not run."""
    found = json.loads(plan.read_text())
    found["trainer"] |= {"max_steps": PROBE_STEPS, "log_every_n_steps": 1}
    first = plan.parent / "probe.json"
    first.write_text(json.dumps(found))
    ran = run_worker(first, plan.parent, quiet=False)
    times = ran.values("step_time_s")[1:]
    if ran.code != 0 or not times:
        return None
    return cut(job, JOBS[job]["data"]["batch_size"] * JOBS[job]["rows"] / statistics.median(times))


def rival_args(job, steps, window, rate=None):
    """What asks the rival's script for so many steps. gpt.py has figures of single steps, and where one takes too long,
    fewer samples in it: its rate is the same."""
    if job != "gpt":
        return ["--steps", steps, "--window", window, "--no-test"], {}
    if rate is None:
        return ["--warm", 1, "--steps", 1, "--batch", 1], {}
    if steps == JOBS[job]["steps"]:
        return [], {}
    batch = max(1, min(JOBS[job]["data"]["batch_size"], int(RUN_S / 3 * rate / JOBS[job]["rows"])))
    return ["--warm", 1, "--steps", 2, "--batch", batch], {"rival_batch": batch}


def probe_rival(job, precision):
    """The rival's arguments, and what they leave out for the row to say; None: it does not run."""
    args, _ = rival_args(job, PROBE_STEPS, 1)
    lines = run_rival(*JOBS[job]["rival"], *args, "--precision", precision, "--threads", A.threads, quiet=False,
                      timeout_s=300).lines
    if not lines:
        return None
    rate = lines[0]["median"]
    steps, window = cut(job, rate)
    args, less = rival_args(job, steps, window, rate)
    return args, less | ({} if steps == JOBS[job]["steps"] else {"rival_steps": int(args[args.index("--steps") + 1])})


def predict(f, facts, ran):
    """What `plan` said before any step ran, beside what then happened: bytes, and the step's time. A rank that knows
    its kernels holds less scratch than planned, because the plan has room for the ways that a first start compares."""
    parts = ("state_bytes", "arena_bytes", "scratch_bytes")
    held = [x for x in ran.lines if x.get("event") == "memory"]
    if facts and held:
        f["missing"].append(sum(max(0, held[0][p] - facts[p]) for p in parts))
        f["unused"].append(sum(max(0, facts[p] - held[0][p]) for p in parts) / sum(facts[p] for p in parts))
    times, predicted = ran.values("step_time_s")[1:], facts.get("step_seconds")
    if times and predicted:
        f["predicted"].append(1e3 * predicted)
        f["measured"].append(1e3 * statistics.median(times))


def measure(job, precision, plan, rival, f):
    """One round of one row, into f; plan or rival None: it does not run."""
    if rival:
        ran = run_rival(*JOBS[job]["rival"], *rival[0], "--precision", precision, "--threads", A.threads)
        f["theirs"] += [x["median"] for x in ran.lines]
        f["rival_rss"] += [ran.rss_mb] * bool(ran.lines)
        f["others"].append(ran.others)
    if not plan:
        return
    f["facts"] = planned(plan, plan.parent)
    ran = run_worker(plan, plan.parent)
    rate = rate_of(ran, job)
    f["ours"] += rate
    f["rss"] += [ran.rss_mb] * bool(rate)
    f["others"].append(ran.others)
    predict(f, f["facts"], ran)


def gather(folder, torch, part):
    """All rounds of all rows that are chosen, in turn, with the peak measured every round. A row that failed once
    has no more rounds."""
    wanted = [k for k in ASKED if chosen(f"{part}-{k[0]}-{k[1]}")]
    found = {k: dict(ours=[], theirs=[], rss=[], rival_rss=[], others=[], missing=[], unused=[], predicted=[],
                     measured=[], facts={}, peak=[], less={}, row=Guard(" ".join(k), ROW_S)) for k in wanted}
    plans, rivals = {}, {}
    for k in wanted:
        with found[k]["row"]:
            plan = plan_of(folder / "-".join(k), *k)
            steps = probe(*k, plan)
            plans[k] = steps and plan_of(folder / "-".join(k), *k, max_steps=steps[0], log_every_n_steps=steps[1])
            rivals[k] = probe_rival(*k) if torch else None
            found[k]["less"] = rivals[k][1] if rivals[k] else {}
    with Row("rates of this machine", "op/s"):
        for _ in range(6 if plans else 0):  # as an idle node measures them before plans come
            subprocess.run([harness.support.BIN / "traind-worker", "rates", "--choices-dir", folder / "cache",
                            "--threads", str(A.threads)], timeout=60)
    for _ in range(A.rounds):
        peaks = harness.peaks()
        for k in wanted:
            found[k]["peak"] += [peaks[k[1], A.threads]] if (k[1], A.threads) in peaks else []
            if not found[k]["row"].why:
                with found[k]["row"]:
                    measure(*k, plans[k], rivals[k], found[k])
    return found


def emit_predicted(name, f):
    emit(f"{name} bytes held beyond the plan's", f["missing"], "bytes", better="less", asked=0)
    emit(f"{name} bytes planned and not held", f["unused"], "share", better="less")
    ratios = [p / m for p, m in zip(f["predicted"], f["measured"])]
    emit(f"{name} predicted step time, off by", [abs(r - 1) for r in ratios], "share", better="less", asked=0.25,
         ratios=[round(r, 3) for r in ratios], predicted_ms=[round(x, 3) for x in f["predicted"]],
         measured_ms=[round(x, 3) for x in f["measured"]], others=max(f["others"], default=None))


def predicted(folder, torch):
    """What `plan` says of each job, without a rival; throughput shows the same, so only where this part is named."""
    if not A.only or chosen("throughput"):
        return
    for (job, precision), f in gather(folder, False, "predicted").items():
        with f["row"]:
            emit_predicted(f"{job} {precision}", f)


def emit_throughput(job, precision, f):
    name, (asked, aim) = f"{job} {precision}", ASKED[job, precision]
    per_row = f["facts"].get("flops_per_step", 0) / (JOBS[job]["data"]["batch_size"] * JOBS[job]["rows"])
    peak = statistics.median(f["peak"]) if f["peak"] else None
    share = round(statistics.median(f["ours"]) * per_row / peak, 3) if f["ours"] and peak else None
    emit(name, f["ours"], JOBS[job]["unit"], f["theirs"] if harness.LEVEL != "generic" else None, asked=asked,
         aim=aim, share=share, fma_peak_gflops=peak and round(peak / 1e9, 1), threads=A.threads,
         others=max(f["others"], default=None), **f["less"])
    # "at most 70 % of torch's" is a ratio of at least 1 / 0.7; of fewer samples a step torch needs less
    rival_rss = None if harness.LEVEL == "generic" or "rival_batch" in f["less"] else f["rival_rss"]
    emit(f"{name} peak memory", f["rss"], "MiB", rival_rss, better="less",
         asked=round(1 / 0.7, 3) if (job, precision) == ("gpt", "fp32") and rival_rss is not None else None)
    emit_predicted(name, f)


def throughput(folder, torch):
    """Each job in each precision beside torch: samples a second, largest resident set, and what the plan said."""
    found = gather(folder, torch, "throughput")
    for (job, precision), f in found.items():
        with f["row"]:
            emit_throughput(job, precision, f)
    for job, precision in found if harness.LEVEL in harness.NO_BF16 else ():
        if precision == "bf16" and (job, "fp32") in found:
            of_fp32 = [a / b for a, b in zip(found[job, precision]["ours"], found[job, "fp32"]["ours"])]
            with found[job, precision]["row"]:
                emit(f"{job} bf16, of our own fp32", of_fp32, "share", aim=OF_FP32)
    if ("gpt", "fp32") in found:
        with Row("gpt fp32 recompute: full", "tokens/s", ROW_S * A.rounds):
            recompute(folder, found[("gpt", "fp32")])


def recompute(folder, plain):
    """The gpt job with everything computed twice: what it saves, and its price."""
    plan = plan_of(folder / "recompute", "gpt", recompute="full")
    steps = probe("gpt", "fp32", plan)
    if steps:
        plan = plan_of(folder / "recompute", "gpt", recompute="full", max_steps=steps[0], log_every_n_steps=steps[1])
    runs = [run_worker(plan, plan.parent) for _ in range(A.rounds * bool(steps))]
    rates, rss = [r for x in runs for r in rate_of(x, "gpt")], [x.rss_mb for x in runs if x.code == 0]
    emit("gpt fp32 recompute: full", rates, "tokens/s",
         price=rates and plain["ours"] and round(1 - statistics.median(rates) / statistics.median(plain["ours"]), 3))
    emit("gpt fp32 recompute: full, peak memory", rss, "MiB",
         plain["rival_rss"] if harness.LEVEL != "generic" else None, better="less",
         asked=2.5 if plain["rival_rss"] else None)


def fabric_args(plan, window):
    """What bench_fabric takes of a plan: sections as JSON, which is YAML."""
    found = json.loads(plan.read_text())
    # what its options say, and what is its own loop's
    keys = ("accelerator", "precision", "max_steps", "log_every_n_steps", "num_sanity_val_steps", "limit_val_batches")
    trainer = {k: v for k, v in found["trainer"].items() if k not in keys}
    return [json.dumps(found["model"]), json.dumps(found["data"]), json.dumps(found["optimizer"]),
            json.dumps(trainer), found["trainer"]["precision"], A.threads, found["trainer"]["max_steps"], window,
            found["run"]["cache_dir"]]


def fabric(folder, torch):
    """The plain loop of a program beside the loop of a job: the same spec, and the same steps, in turn."""
    program = harness.support.BUILD / "tests/bench/bench_fabric"
    for job in ("mlp", "gpt"):
        if not chosen(f"fabric-{job}"):
            continue
        with Row(f"{job} fp32, the plain loop of Fabric", JOBS[job]["unit"], ROW_S * A.rounds):
            plan = plan_of(folder / job, job)
            cuts = probe(job, "fp32", plan)
            if not cuts:
                continue
            plan = plan_of(folder / job, job, max_steps=cuts[0], log_every_n_steps=cuts[1])
            own, job_own, others = [], [], []
            for _ in range(2 * A.rounds):
                ran = harness.Ran([program, *map(str, fabric_args(plan, cuts[1]))],
                                  dict(os.environ, **harness.OPENMP), folder, ROW_S, quiet=True)
                own += [statistics.median(ran.values("samples_per_s")[1:]) * JOBS[job]["rows"]]
                others.append(ran.others)
                job_own += rate_of(run_worker(plan, plan.parent), job)
            emit(f"{job} fp32, the plain loop of Fabric", own, JOBS[job]["unit"], job_own, rival_is="a job's loop",
                 asked=0.98, others=max(others), threads=A.threads)


def ranks_of(plan, world):
    """The ranks of a plan as a launcher starts them, each with one thread."""
    import ranks

    found = json.loads(plan.read_text())
    found["trainer"]["devices"] = world
    found["run"]["threads_per_rank"] = 1
    return ranks.Attempt(plan.parent, found, world, env=harness.OPENMP)


def rates_of_ranks(attempts, job):
    """Rows a second of all of them together, each the median of its warm windows."""
    for a in attempts:
        codes = a.wait(WAIT_S)
        if any(codes):
            raise RuntimeError(a.story()[-500:])
    own = [[m["sum"] / m["count"] for m in a.ranks[0].metrics if m["name"] == "samples_per_s"][1:] for a in attempts]
    return sum(statistics.median(x) for x in own) * JOBS[job]["rows"]


WAIT_S = 300
WARM_STEPS = 5
DDP = {"mlp": (0.90, "fashion.py", ["--job", "mlp", "--batch", 256]),
       "convnet": (0.95, "fashion.py", ["--job", "convnet", "--channels-last", "--batch", 256]),
       "gpt": (0.95, "gpt.py", ["--batch", 32])}


def lockstep(plan):
    """Two runs of one rank at the same time, if each step had waited for the slower of both: their rate of the rate that
    they had. No synchronous strategy gets more here, however fast its reduction is."""
    with ranks_of(plan, 1) as one, ranks_of(plan, 1) as other:
        for a in (one, other):
            if any(a.wait(WAIT_S)):
                raise RuntimeError(a.story()[-500:])
        steps = [[m["sum"] for m in a.ranks[0].metrics if m["name"] == "step_time_s" and m["count"] == 1][WARM_STEPS:]
                 for a in (one, other)]
    n = min(map(len, steps))
    apart = sum(n / sum(s[:n]) for s in steps)
    return 2 * n / sum(max(pair) for pair in zip(*steps)) / apart


def ddp(folder, torch):
    """Two ranks of ddp with a thread each, beside two runs of one rank at the same time with the same batch a rank; and
    beside torch's ddp over gloo."""
    for job, (asked, rival, args) in DDP.items():
        if not chosen(f"ddp-{job}"):
            continue
        name = f"{job} fp32, ddp of 2 ranks x 1 thread"
        with Row(name, JOBS[job]["unit"], 2 * ROW_S * A.rounds):
            cuts = probe(job, "fp32", plan_of(folder / job, job))
            if not cuts:
                continue
            plan = plan_of(folder / job, job, max_steps=cuts[0], log_every_n_steps=cuts[1])
            each = plan_of(folder / f"{job}-each", job, max_steps=cuts[0], log_every_n_steps=1)
            together, apart, bound, theirs = [], [], [], []
            for _ in range(2 * A.rounds):
                bound.append(lockstep(each))
                with ranks_of(plan, 2) as both:
                    together.append(rates_of_ranks([both], job))
                with ranks_of(plan, 1) as one, ranks_of(plan, 1) as other:
                    apart.append(rates_of_ranks([one, other], job))
                if torch:
                    steps = rival_args(job, cuts[0], min(cuts[1], 58))[0] if job != "gpt" else []  # gpt.py has its own
                    ran = run_rival("-m", "torch.distributed.run", "--nproc-per-node", 2, rival, *args, *steps,
                                    "--precision", "fp32", "--threads", 1)
                    theirs += [x["median"] for x in ran.lines]
            emit(name, together, JOBS[job]["unit"], apart, rival_is="two runs of one rank at once", asked=asked)
            emit(f"{name}: the two runs, if each step waited for the slower", bound, "of them")
            if theirs:
                emit(f"{name}, beside torch", together, JOBS[job]["unit"], theirs, rival_is="torch ddp over gloo")


def whole_epochs(ran, epochs):
    """Samples a second from the end of the first epoch to that of the last, checkpoints and all."""
    ends = {}
    for x in ran.lines:
        if x.get("name") == "samples_per_s":
            ends[x["epoch"]] = x["time_ns"]
    return [468 * 128 * 1e9 * (epochs - 1) / (ends[epochs - 1] - ends[0])] if len(ends) == epochs else []


def lightning(folder, torch):
    """Against Lightning's Trainer with logger, checkpoint and progress bar: the same here."""
    with Row("mlp fp32 with log and checkpoints, against Lightning", "samples/s", ROW_S * A.rounds):
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
        with Row(f"{job} fp32 with one core busy", "of undisturbed", ROW_S * A.rounds):
            contend(folder, torch, job, core)


def contend(folder, torch, job, core):
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
    # asked of the share itself, so the rival is beside it for information
    emit(f"{job} fp32 with one core busy", shares, "of undisturbed", asked=0.45,
         rival_share=rival_shares and round(statistics.median(rival_shares), 3) or None)
