#!/usr/bin/env python3
"""Writes tests/golden/early_stopping.json: what Lightning's EarlyStopping makes of series of values, and
when its Trainer stops.

Run it once with real Lightning in a throw-away virtual environment (`make rivals` makes one); the file is committed,
so tests need none. `checks`: the callback's arguments, the values it receives and, after each of them, whether it
asks for the end, its wait count and its best. `fits`: a Trainer's arguments, the callback's, and the optimizer
steps, the epochs and the validations of a run over 8 batches whose metrics never change.
"""
import json
import math
import random
import sys
import tempfile
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "golden" / "early_stopping.json"

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


def series(kind, n=30):
    """Falls and levels off; rises and levels off; is noise with holes that are no number, or infinite."""
    noise = random.Random(kind)
    if kind == 0:
        return [round(2.0 * 0.8 ** min(i, 14) + noise.uniform(0, 0.02), 4) for i in range(n)]
    if kind == 1:
        return [round(1.0 - 0.9 ** min(i, 20) + noise.uniform(0, 0.01), 4) for i in range(n)]
    holes = {3: math.nan, 8: math.inf, 13: -math.inf}
    return [holes.get(i % 17, round(noise.uniform(-1, 1), 2)) for i in range(n)]


def text(value):
    """Neither NaN nor an infinity is JSON."""
    return value if math.isfinite(value) else str(value)


def follow(arguments, values):
    import torch
    from lightning.pytorch.callbacks import EarlyStopping

    stop, after = EarlyStopping("val_loss", **arguments), []
    stop.best_score = stop.best_score.double()
    for value in values:
        asks, _ = stop._evaluate_stopping_criteria(torch.tensor(value, dtype=torch.float64))
        after.append([asks, stop.wait_count, text(float(stop.best_score))])
    return after


def fit(trainer, arguments):
    import lightning.pytorch as pl
    import torch

    class Still(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.validations = 0

        def training_step(self, batch, _):
            self.log("train_loss", 1.0, on_step=False, on_epoch=True)
            return (self.weight * batch[0]).sum()

        def validation_step(self, batch, _):
            self.log("val_loss", 1.0)

        def on_validation_end(self):
            self.validations += not self.trainer.sanity_checking

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.0)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(16, 1)), batch_size=2)
    model = Still()
    stop = pl.callbacks.EarlyStopping(**{"monitor": "val_loss", "strict": False} | arguments)
    with tempfile.TemporaryDirectory() as root:
        run = pl.Trainer(**{"max_epochs": 12} | trainer, callbacks=[stop], logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", devices=1,
                         default_root_dir=root, num_sanity_val_steps=0)
        run.fit(model, data, data)
    return {"trainer": trainer, "early_stopping": arguments, "steps": run.global_step, "epochs": run.current_epoch,
            "validations": model.validations, "wait": stop.wait_count,
            "stopped": stop.stopping_reason_message is not None}


def main():
    import lightning

    checks = [json.dumps({"early_stopping": a, "values": [text(v) for v in series(kind)],
                          "after": follow(a, series(kind))}) for a in CHECKS for kind in range(3)]
    fits = [json.dumps(fit(*f)) for f in FITS]
    OUT.write_text('{"checks": [\n' + ",\n".join(checks) + '\n], "fits": [\n' + ",\n".join(fits) + "\n]}\n")
    print(f"wrote {OUT} with Lightning {lightning.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
