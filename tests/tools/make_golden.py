#!/usr/bin/env python3
"""Writes the files of tests/golden whose numbers are those of torch, Lightning and transformers.

  make_golden.py NAME...           each of these
  make_golden.py --check NAME...   writes none: exit status 1 if one is not what it would write

Run it with the Python of `make rivals` (build/venv-rivals). The files are committed, so tests need none of the three.

early_stopping  checks: the arguments of Lightning's EarlyStopping, the values it receives and, after each of them,
                whether it asks for the end, its wait count and its best. fits: a Trainer's arguments, the callback's,
                and the optimizer steps, the epochs and the validations of a run over 8 batches whose metrics never
                change.
loop            time_interval: a clock shows `at[i]` seconds after the i-th step; `saved` are the steps at which
                ModelCheckpoint saves. debug_runs: a Trainer's arguments over 12 samples to train and 7 to validate and
                test on, in batches of 2; which samples each epoch of training, each validation, test and predict see,
                the optimizer steps, and how many checkpoints are left. splits: what torch.utils.data.random_split makes
                of n samples, for a count or a fraction to validate on.
losses          each loss that a model can minimize, in the problems of tests/problems.py: SGD with momentum over
                batches of 4 rows, 6 an epoch, then the loss and accuracy of all rows at once.
parity          the training problems of tests/problems.py, case by case. Last weights of all but the mlp are the bytes
                of fp32 little-endian values, in base64.
plateau         the arguments of ReduceLROnPlateau, the values it receives and, after each of them, the learning rate,
                the count of bad values and what is left of the cooldown.
randperm        what torch.randperm says, seeded as DistributedSampler does it. A line is a case:
                    seed n digest first...
                digest is the FNV-1a 64 of all indices (as little-endian int64); `first` are the first 16 of them.
sampler         what DistributedSampler says. A line is a case:
                    n world shuffle drop_last seed epoch rank count digest first...
                digest is that of the indices in the order of the rank; `first` are the first 8. Small cases have all.
schedules       lr_scheduler as in a job spec, with the optimizer's lr and the job's max_steps, and the rate of every
                optimizer step, of torch or transformers.
"""
import argparse
import base64
import json
import math
import random
import re
import sys
import tempfile
import warnings
from datetime import timedelta
from pathlib import Path
from unittest import mock

import lightning
import lightning.pytorch as pl
import numpy as np
import torch
import torch.nn.functional as F
import torch.optim.lr_scheduler as schedulers
import transformers
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split
from transformers.optimization import get_inverse_sqrt_schedule, get_wsd_schedule

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS), str(TESTS / "parity")]
import optimizers  # noqa: E402
import problems  # noqa: E402
from networks import MODELS, first_weights, samples  # noqa: E402
from problems import BATCH, ROWS, STEPS, TEXTS  # noqa: E402


# ---- what several have --------------------------------------------------------------------------------
def lines_of(cases):
    return ",\n".join(json.dumps(c) for c in cases)


def members(cases):
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(c)}" for name, c in cases.items()) + "\n}\n"


def fnv1a(indices):
    h = 0xCBF29CE484222325
    for b in np.asarray(indices, "<i8").tobytes():
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def text(value):
    """Neither NaN nor an infinity is JSON."""
    return value if math.isfinite(value) else str(value)


class Still(pl.LightningModule):
    """A model that stays as it is."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)


def quiet_trainer(root, callbacks, **arguments):
    return pl.Trainer(**arguments, callbacks=callbacks, logger=False, enable_progress_bar=False,
                      enable_model_summary=False, accelerator="cpu", devices=1, default_root_dir=root)


def still_optimizer(lr):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr)


# ---- parity -------------------------------------------------------------------------------------------
def rate(step, lr, cosine):
    if not cosine:
        return lr
    warmup, falling = cosine["warmup_steps"], cosine["total_steps"] - cosine["warmup_steps"]
    if step < warmup:
        return lr * (step + 1) / warmup
    done = min(step - warmup, falling) / falling
    return cosine["min_lr"] + (lr - cosine["min_lr"]) * 0.5 * (1 + math.cos(math.pi * done))


def windows(length):
    """Batches of each optimizer step: a window never crosses the end of an epoch."""
    while True:
        for at in range(0, ROWS // BATCH, length):
            yield range(at, min(at + length, ROWS // BATCH))


def optimizer_of(job, optimizer, w):
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    plain = [v for v in w.values() if job in TEXTS and v.dim() == 1]
    groups = [{"params": [v for v in w.values() if all(v is not p for p in plain)]}]
    groups += [{"params": plain, "weight_decay": 0.0}] if plain else []
    if optimizer["name"] in kind:
        return kind[optimizer["name"]](groups, **{k: v for k, v in optimizer.items() if k != "name"})
    hidden = [v for k, v in w.items() if v.dim() == 2 and not re.search("wte|wpe|embed|lm_head|fc2", k)]
    more = {"hidden": hidden} if optimizer["name"] == "muon" else {}
    return optimizers.kind_of(optimizer)(groups, optimizer["lr"], betas=(0.9, 0.999),
                                         eps=optimizer.get("adamw_eps", 1e-8), **more)


def train(job, optimizer, cosine, clip, window):
    x, y = samples(job)
    w = first_weights(job)
    # torch's Muon asks for (out, in), and GPT-2 stores (in, out).
    turned = [k for k in w if job == "gpt" and optimizer["name"] == "muon" and "c_" in k and k.endswith("weight")]
    w |= {k: w[k].detach().T.contiguous().requires_grad_() for k in turned}

    def stored():
        return {k: v.T if k in turned else v for k, v in w.items()}

    opt, losses, norms, each = optimizer_of(job, optimizer, w), [], [], windows(window)
    for step in range(STEPS):
        batches, total = next(each), 0.0
        for b in batches:
            rows = slice(b * BATCH, (b + 1) * BATCH)
            loss = F.cross_entropy(MODELS[job](stored(), x[rows]).flatten(0, -2), y[rows].flatten()) / len(batches)
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), clip or math.inf).item())
        losses.append(total)
        for group in opt.param_groups:
            group["lr"] = rate(step, optimizer["lr"], cosine)
        opt.step()
        opt.zero_grad()
    if job == "mlp":
        last = {k: [round(z, 9) for z in v.detach().flatten().tolist()] for k, v in w.items()}
    else:
        last = {k: base64.b64encode(v.detach().numpy().astype("<f4").tobytes()).decode() for k, v in stored().items()}
    return {"loss": [round(z, 9) for z in losses], "grad_norm": [round(z, 9) for z in norms], "last": last}


def parity():
    cases = {name: ("mlp", *case) for name, case in problems.CASES.items()} | problems.MORE
    return members({name: train(*case) for name, case in cases.items()})


# ---- losses -------------------------------------------------------------------------------------------
def loss_of(spec, z, y):
    if spec["name"] == "mse":
        return F.mse_loss(z, y.double())
    if spec["name"] == "bce":
        return F.binary_cross_entropy_with_logits(z, y.double())
    weights = spec.get("class_weights")
    return F.cross_entropy(z.flatten(0, -2), y.flatten(), label_smoothing=spec.get("label_smoothing", 0.0),
                           weight=torch.tensor(weights).double() if weights else None,
                           ignore_index=spec.get("ignore_index", -100))


def accuracy_of(spec, z, y):
    if spec["name"] == "mse":
        return None
    if spec["name"] == "bce":
        return ((z > 0) == (y > 0.5)).double().mean().item()
    counts = y != spec.get("ignore_index", -100)
    return ((z.argmax(-1) == y) & counts).sum().item() / counts.sum().item()


def minimize(job, spec, kind):
    x, y = samples(job) if job == "gpt" else (torch.from_numpy(a) for a in problems.arrays(kind))
    x = x if job == "gpt" else x.double()
    w, losses = first_weights(job), []
    opt = torch.optim.SGD(w.values(), lr=problems.LOSS_OPTIMIZER["lr"], momentum=problems.LOSS_OPTIMIZER["momentum"])
    for step in range(STEPS):
        at = step % (ROWS // BATCH) * BATCH
        loss = loss_of(spec, MODELS[job](w, x[at:at + BATCH]), y[at:at + BATCH])
        loss.backward()
        losses.append(round(loss.item(), 9))
        opt.step()
        opt.zero_grad()
    z = MODELS[job](w, x).detach()
    return {"loss": losses, "val_loss": round(loss_of(spec, z, y).item(), 9),
            "val_accuracy": accuracy_of(spec, z, y) if job == "mlp" else None,
            "norm": {k: round(v.norm().item(), 9) for k, v in w.items()},
            "outputs": [round(v, 7) for v in z.flatten().tolist()] if job == "mlp" else None}


def losses():
    return members({name: minimize(*case) for name, case in problems.LOSSES.items()})


# ---- early stopping -----------------------------------------------------------------------------------
CHECKS = [
    {},
    {"patience": 1},
    {"patience": 0},
    {"patience": 4, "min_delta": 0.05},
    {"mode": "max", "patience": 2},
    {"mode": "max", "patience": 2, "min_delta": 0.1},
    {"check_finite": False, "patience": 5},
    {"check_finite": False, "patience": 5, "mode": "max"},
    {"stopping_threshold": 0.3, "patience": 9},
    {"divergence_threshold": 0.9, "patience": 9},
    {"mode": "max", "stopping_threshold": 0.7, "divergence_threshold": -0.8, "patience": 9},
]
FITS = [
    ({}, {}),
    ({"val_check_interval": 2}, {}),
    ({"val_check_interval": 0.5}, {"patience": 2}),
    ({"val_check_interval": 3}, {"patience": 2}),
    ({"check_val_every_n_epoch": 2}, {"patience": 1}),
    ({"val_check_interval": 0.5}, {"patience": 2, "check_on_train_epoch_end": True}),
    ({"check_val_every_n_epoch": 2}, {"patience": 2, "check_on_train_epoch_end": True}),
    ({}, {"patience": 2, "check_on_train_epoch_end": False}),
    ({"min_epochs": 4}, {"patience": 1}),
    ({"min_steps": 21, "val_check_interval": 2}, {"patience": 1}),
    ({"min_epochs": 2, "val_check_interval": 2}, {"patience": 1}),
    ({"min_epochs": 2, "min_steps": 19}, {"patience": 1}),
    ({"min_steps": 5, "val_check_interval": 2}, {"patience": 1}),
    ({"min_steps": 13}, {"patience": 1}),
    ({"min_steps": 16, "val_check_interval": 3}, {"patience": 1}),
    ({"min_steps": 0, "val_check_interval": 2}, {"patience": 1}),
    ({"min_epochs": 0, "min_steps": 5, "val_check_interval": 2}, {"patience": 1}),
    ({"min_epochs": 3, "val_check_interval": 3}, {"patience": 1}),
    ({"min_epochs": 3, "check_val_every_n_epoch": 2}, {"patience": 1, "check_on_train_epoch_end": True}),
    ({"min_epochs": 2, "min_steps": 13, "val_check_interval": 3}, {"patience": 1, "check_on_train_epoch_end": True}),
    ({"min_epochs": 2, "limit_val_batches": 0}, {"monitor": "train_loss", "patience": 1}),
    ({"accumulate_grad_batches": 2, "val_check_interval": 4}, {"patience": 2}),
    ({"max_epochs": 2}, {}),
    ({"max_steps": 11}, {"patience": 1}),
    ({"limit_val_batches": 0}, {"monitor": "train_loss", "patience": 2}),
    ({}, {"monitor": "train_loss", "patience": 1}),
]


def watched_values(kind, n=30):
    """Falls and levels off; rises and levels off; is noise with holes that are no number, or infinite."""
    noise = random.Random(kind)
    if kind == 0:
        return [round(2.0 * 0.8 ** min(i, 14) + noise.uniform(0, 0.02), 4) for i in range(n)]
    if kind == 1:
        return [round(1.0 - 0.9 ** min(i, 20) + noise.uniform(0, 0.01), 4) for i in range(n)]
    holes = {3: math.nan, 8: math.inf, 13: -math.inf}
    return [holes.get(i % 17, round(noise.uniform(-1, 1), 2)) for i in range(n)]


def follow_stopping(arguments, values):
    stop, after = EarlyStopping("val_loss", **arguments), []
    stop.best_score = stop.best_score.double()
    for value in values:
        asks, _ = stop._evaluate_stopping_criteria(torch.tensor(value, dtype=torch.float64))
        after.append([asks, stop.wait_count, text(float(stop.best_score))])
    return after


def fit(trainer, arguments):
    class Counting(Still):
        validations = 0

        def training_step(self, batch, _):
            self.log("train_loss", 1.0, on_step=False, on_epoch=True)
            return (self.weight * batch[0]).sum()

        def validation_step(self, batch, _):
            self.log("val_loss", 1.0)

        def on_validation_end(self):
            self.validations += not self.trainer.sanity_checking

    data, model = DataLoader(TensorDataset(torch.ones(16, 1)), batch_size=2), Counting()
    stop = EarlyStopping(**{"monitor": "val_loss", "strict": False} | arguments)
    with tempfile.TemporaryDirectory() as root:
        run = quiet_trainer(root, [stop], **{"max_epochs": 12} | trainer, enable_checkpointing=False,
                            num_sanity_val_steps=0)
        run.fit(model, data, data)
    return {"trainer": trainer, "early_stopping": arguments, "steps": run.global_step, "epochs": run.current_epoch,
            "validations": model.validations, "wait": stop.wait_count,
            "stopped": stop.stopping_reason_message is not None}


def early_stopping():
    checks = [{"early_stopping": a, "values": [text(v) for v in watched_values(kind)],
               "after": follow_stopping(a, watched_values(kind))} for a in CHECKS for kind in range(3)]
    return f'{{"checks": [\n{lines_of(checks)}\n], "fits": [\n{lines_of(fit(*f) for f in FITS)}\n]}}\n'


# ---- loop ---------------------------------------------------------------------------------------------
def saved_at(interval, at):
    saved = []

    class Checkpoint(ModelCheckpoint):
        def _save_topk_checkpoint(self, trainer, *_):
            saved.append(trainer.global_step)

        def _should_skip_saving_checkpoint(self, *_):
            return False

    with tempfile.TemporaryDirectory() as root:
        point, trainer = Checkpoint(root, train_time_interval=timedelta(seconds=interval)), mock.MagicMock()
        trainer.strategy.broadcast = lambda v: v
        trainer.callback_metrics = {}
        trainer.lightning_module.automatic_optimization = True
        with mock.patch("lightning.pytorch.callbacks.model_checkpoint.time.monotonic") as clock:
            clock.return_value = 0
            point.on_train_start(trainer, None)
            for step, now in enumerate(at, 1):
                trainer.global_step, clock.return_value = step, now
                point.on_train_batch_end(trainer, mock.MagicMock(automatic_optimization=True), None, None, step - 1)
    return saved


def time_intervals():
    noise, cases = random.Random(7), []
    for interval in (1, 5, 60):
        at, now = [], 0
        for _ in range(40):
            now += noise.choice((0, 1, 1, 2, 7, 30))
            at.append(now)
        cases.append({"interval": interval, "at": at, "saved": saved_at(interval, at)})
    return cases


DEBUG_RUNS = [
    {"fast_dev_run": True},
    {"fast_dev_run": 3},
    {"fast_dev_run": 50},
    {"fast_dev_run": 4, "accumulate_grad_batches": 2},
    {"fast_dev_run": 1, "limit_train_batches": 4, "max_epochs": 5, "num_sanity_val_steps": -1},
    {"fast_dev_run": 3, "overfit_batches": 2},
    {"overfit_batches": 2},
    {"overfit_batches": 0.5},
    {"overfit_batches": 1.0},
    {"overfit_batches": 3, "limit_train_batches": 1, "limit_val_batches": 1},
    {"num_sanity_val_steps": 0},
    {"num_sanity_val_steps": 2},
    {"num_sanity_val_steps": -1},
]


def debug_run(arguments):
    seen = {"train": [], "val": [], "sanity": 0, "test": [], "predict": []}

    class Watch(Still):
        def on_train_epoch_start(self):
            seen["train"].append([])

        def training_step(self, batch, _):
            seen["train"][-1].append(batch[0].tolist())
            self.log("train_loss", 1.0)
            return (self.weight * batch[0]).sum()

        def on_validation_epoch_start(self):
            if not self.trainer.sanity_checking:
                seen["val"].append([])

        def validation_step(self, batch, _):
            if self.trainer.sanity_checking:
                seen["sanity"] += 1
            else:
                seen["val"][-1] += batch[0].tolist()
            self.log("val_loss", 1.0)

        def test_step(self, batch, _):
            seen["test"] += batch[0].tolist()

        def predict_step(self, batch, _):
            seen["predict"] += batch[0].tolist()

    def loader(n, shuffle=False):
        return DataLoader(TensorDataset(torch.arange(n)), batch_size=2, shuffle=shuffle)

    # Without overfit_batches the order is the data's, so that there is something to compare.
    shuffle = "overfit_batches" in arguments
    with tempfile.TemporaryDirectory() as root:
        calls = [ModelCheckpoint(root, every_n_train_steps=1), EarlyStopping("val_loss", patience=1)]
        calls = calls if "fast_dev_run" in arguments else calls[:1]
        run, model = quiet_trainer(root, calls, **{"max_epochs": 3} | arguments), Watch()
        run.fit(model, loader(12, shuffle), loader(7))
        steps = run.global_step
        run.test(model, loader(7), verbose=False)
        run.predict(model, loader(7))
        left = len(list(Path(root).glob("*.ckpt")))
    return {"trainer": arguments, "shuffle": shuffle, "steps": steps, "checkpoints": left} | seen


def split(n, part, seed):
    lengths = [1 - part, part] if isinstance(part, float) else [n - part, part]
    train, val = random_split(range(n), lengths, generator=torch.Generator().manual_seed(seed))
    return {"n": n, "val_split": part, "seed": seed, "train": list(train.indices), "val": list(val.indices)}


def loop():
    parts = {"time_interval": time_intervals(), "debug_runs": [debug_run(a) for a in DEBUG_RUNS],
             "splits": [split(n, part, seed) for n in (12, 57) for part in (1, 5, 0.1, 0.25, 0.5) for seed in (0, 7)]}
    return "{" + ",\n".join(f'"{k}": [\n{lines_of(v)}\n]' for k, v in parts.items()) + "}\n"


# ---- learning rates -----------------------------------------------------------------------------------
LR, MAX_STEPS = 0.4, 24
PLATEAUS = [
    {},
    {"patience": 0, "factor": 0.5},
    {"patience": 2, "cooldown": 3},
    {"patience": 1, "cooldown": 1, "factor": 0.5, "min_lr": 0.03},
    {"patience": 1, "factor": 0.9, "eps": 0.03},
    {"patience": 1, "factor": 0.0, "min_lr": 0.001},
    {"patience": 3, "threshold": 0.05},
    {"patience": 3, "threshold": 0.05, "threshold_mode": "abs"},
    {"patience": 1, "mode": "max", "factor": 0.3},
    {"patience": 2, "mode": "max", "threshold": 0.1, "cooldown": 2},
    {"patience": 2, "mode": "max", "threshold": 0.02, "threshold_mode": "abs", "factor": 0.7},
    {"patience": 0, "cooldown": 4, "threshold": 0.0},
]
SCHEDULES = [
    {"name": "constant"},
    {"name": "linear"},
    {"name": "linear", "start_factor": 1.0, "end_factor": 0.0, "total_iters": "auto"},
    {"name": "linear", "start_factor": 0.1, "end_factor": 0.8, "total_iters": 7},
    {"name": "cosine"},
    {"name": "cosine", "T_max": 9, "eta_min": 0.05},
    {"name": "step", "step_size": 5},
    {"name": "step", "step_size": 1, "gamma": 0.9},
    {"name": "multistep", "milestones": [3, 4, 17]},
    {"name": "multistep", "milestones": [9, 2, 9], "gamma": 0.5},
    {"name": "exponential", "gamma": 0.87},
    {"name": "polynomial"},
    {"name": "polynomial", "total_iters": "auto", "power": 2.0},
    {"name": "polynomial", "total_iters": 10, "power": 0.5},
    {"name": "inverse_sqrt", "num_warmup_steps": 6},
    {"name": "inverse_sqrt", "num_warmup_steps": 0},
    {"name": "inverse_sqrt", "num_warmup_steps": 4, "timescale": 10},
    {"name": "one_cycle"},
    {"name": "one_cycle", "total_steps": 30, "pct_start": 0.25, "div_factor": 10.0,
     "final_div_factor": 100.0, "anneal_strategy": "linear"},
    {"name": "one_cycle", "three_phase": True},
    {"name": "one_cycle", "three_phase": True, "pct_start": 0.4, "anneal_strategy": "linear"},
    {"name": "warmup_stable_decay", "num_warmup_steps": 5, "num_decay_steps": 8},
    {"name": "warmup_stable_decay", "num_warmup_steps": 0, "num_decay_steps": 24,
     "decay_type": "1-sqrt", "min_lr_ratio": 0.1},
    {"name": "warmup_stable_decay", "num_warmup_steps": 6, "num_decay_steps": 6,
     "num_training_steps": 18, "warmup_type": "1-sqrt", "decay_type": "linear", "min_lr_ratio": 0.25},
    {"name": "warmup_stable_decay", "num_warmup_steps": 8, "num_decay_steps": 0, "warmup_type": "cosine"},
    {"name": "warmup_stable_decay", "num_warmup_steps": 13, "num_decay_steps": 17},
]


def shown_values(kind, n=40):
    """Falls and levels off; rises and levels off below 0; is noise with holes."""
    noise = random.Random(kind)
    if kind == 0:
        return [round(2.0 * 0.8 ** min(i, 14) + noise.uniform(0, 0.02), 4) for i in range(n)]
    if kind == 1:
        return [round(-1.0 * 0.9 ** min(i, 20) + noise.uniform(0, 0.01), 4) for i in range(n)]
    return [math.nan if i % 7 == 3 else round(noise.uniform(-1, 1), 2) for i in range(n)]


def follow_plateau(case, values):
    opt = still_optimizer(LR)
    falls, after = schedulers.ReduceLROnPlateau(opt, **case), []
    for value in values:
        falls.step(value)
        after.append([float(f"{opt.param_groups[0]['lr']:.14g}"), falls.num_bad_epochs, falls.cooldown_counter])
    return after


def plateau():
    cases = [{"plateau": case, "values": [None if math.isnan(v) else v for v in shown_values(kind)],
              "after": follow_plateau(case, shown_values(kind))} for case in PLATEAUS for kind in range(3)]
    return f'{{"lr": {LR}, "cases": [\n{lines_of(cases)}\n]}}\n'


def scheduler(opt, case):
    """The scheduler of torch or transformers that the case names."""
    knobs = {k: MAX_STEPS if v == "auto" else v for k, v in case.items() if k != "name"}
    made = {
        "constant": lambda: schedulers.LambdaLR(opt, lambda step: 1.0),
        "linear": lambda: schedulers.LinearLR(opt, **knobs),
        "cosine": lambda: schedulers.CosineAnnealingLR(opt, **{"T_max": MAX_STEPS} | knobs),
        "step": lambda: schedulers.StepLR(opt, **knobs),
        "multistep": lambda: schedulers.MultiStepLR(opt, **knobs),
        "exponential": lambda: schedulers.ExponentialLR(opt, **knobs),
        "polynomial": lambda: schedulers.PolynomialLR(opt, **knobs),
        "inverse_sqrt": lambda: get_inverse_sqrt_schedule(opt, **knobs),
        "one_cycle": lambda: schedulers.OneCycleLR(opt, max_lr=LR, cycle_momentum=False,
                                                   **{"total_steps": MAX_STEPS} | knobs),
        "warmup_stable_decay": lambda: get_wsd_schedule(opt, **{"num_training_steps": MAX_STEPS} | knobs),
    }
    return made[case["name"]]()


def rates(case):
    opt = still_optimizer(LR)
    steps, out = scheduler(opt, case), []
    for _ in range(MAX_STEPS):
        out.append(float(f"{opt.param_groups[0]['lr']:.12g}"))
        opt.step()
        steps.step()
    return out


def schedules():
    cases = [{"lr_scheduler": case, "rates": rates(case)} for case in SCHEDULES]
    return f'{{"lr": {LR}, "max_steps": {MAX_STEPS}, "cases": [\n{lines_of(cases)}\n]}}\n'


# ---- orders of samples --------------------------------------------------------------------------------
def randperm():
    lines = ["# seed n digest first... (tests/tools/make_golden.py)"]
    for seed in (0, 1, 42, 5489, 2**31, 2**32 - 1, 2**32 + 7, 2**63 - 1):
        for n in (0, 1, 2, 3, 10, 623, 624, 625, 60000):
            p = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
            lines.append(" ".join(map(str, [seed, n, fnv1a(p), *p[:16]])))
    return "\n".join(lines) + "\n"


def epochs():
    for n in (1, 2, 3, 5, 7, 16, 37, 103):
        for world in (1, 2, 3, 4, 8):
            for shuffle in (False, True):
                for drop_last in (False, True):
                    for epoch in (0, 1, 5):
                        yield n, world, shuffle, drop_last, 1, epoch
    for n, world, epoch, seed in ((1000, 3, 0, 0), (10000, 4, 2, 42), (60000, 2, 0, 1),
                                  (60000, 7, 4, 1), (60000, 2, 1, 2**40 + 5), (100003, 5, 9, 7)):
        for shuffle in (False, True):
            for drop_last in (False, True):
                yield n, world, shuffle, drop_last, seed, epoch


def sampler():
    lines = ["# n world shuffle drop_last seed epoch rank count digest first... (tests/tools/make_golden.py)"]
    for n, world, shuffle, drop_last, seed, epoch in epochs():
        if drop_last and n < world:
            continue  # torch has no such epoch: its count is 0 or the assertion fails
        small = n <= 40
        for rank in range(world) if small else sorted({0, world - 1}):
            s = DistributedSampler(range(n), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
            s.set_epoch(epoch)
            idx = list(s)
            lines.append(" ".join(map(str, [n, world, int(shuffle), int(drop_last), seed, epoch, rank, len(idx),
                                            fnv1a(idx), *(idx if small else idx[:8])])))
    return "\n".join(lines) + "\n"


# ---- main ---------------------------------------------------------------------------------------------
MAKERS = {f.__name__: f for f in (early_stopping, loop, losses, parity, plateau, randperm, sampler, schedules)}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true")
    options.add_argument("name", nargs="+", choices=MAKERS)
    args = options.parse_args()
    warnings.simplefilter("ignore")
    differs = []
    for name in args.name:
        path = TESTS / "golden" / f"{name}.{'txt' if MAKERS[name] in (randperm, sampler) else 'json'}"
        made = MAKERS[name]()
        if args.check:
            differs += [path.name] if made != path.read_text() else []
        else:
            path.write_text(made)
    print(f"torch {torch.__version__}, Lightning {lightning.__version__}, transformers {transformers.__version__}: "
          f"{'other than ' + ', '.join(differs) if differs else ', '.join(args.name)}", file=sys.stderr)
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
