#!/usr/bin/env python3
"""Writes tests/golden/loop.json: what knobs of Lightning's Trainer and of its checkpoints do to a run.

Run it once with real Lightning in a throw-away virtual environment (`make rivals` makes one); the file is committed,
so tests need none.

time_interval: a clock shows `at[i]` seconds after the i-th step; `saved` are the steps at which ModelCheckpoint saves.
debug_runs: a Trainer's arguments over 12 samples to train and 7 to validate and test on, in batches of 2; which samples
each epoch of training, each validation, test and predict see, the optimizer steps, and how many checkpoints are left.
splits: what torch.utils.data.random_split makes of n samples, for a count or a fraction to validate on.
"""
import json
import random
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from unittest import mock

OUT = Path(__file__).resolve().parents[1] / "golden" / "loop.json"


def saved_at(interval, at):
    from lightning.pytorch.callbacks import ModelCheckpoint

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


TRAIN, VAL, BATCH = 12, 7, 2
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
    import lightning.pytorch as pl
    import torch

    seen = {"train": [], "val": [], "sanity": 0, "test": [], "predict": []}

    class Watch(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

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

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.0)

    def loader(n, shuffle=False):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(n)), batch_size=BATCH,
                                           shuffle=shuffle)

    # Without overfit_batches the order is the data's, so that there is something to compare.
    shuffle = "overfit_batches" in arguments
    with tempfile.TemporaryDirectory() as root:
        calls = [pl.callbacks.ModelCheckpoint(root, every_n_train_steps=1), pl.callbacks.EarlyStopping("val_loss", patience=1)]
        calls = calls if "fast_dev_run" in arguments else calls[:1]
        run = pl.Trainer(**{"max_epochs": 3} | arguments, callbacks=calls, logger=False, enable_progress_bar=False,
                         enable_model_summary=False, accelerator="cpu", devices=1, default_root_dir=root)
        model = Watch()
        run.fit(model, loader(TRAIN, shuffle), loader(VAL))
        steps = run.global_step
        run.test(model, loader(VAL), verbose=False)
        run.predict(model, loader(VAL))
        left = len(list(Path(root).glob("*.ckpt")))
    return {"trainer": arguments, "shuffle": shuffle, "steps": steps, "checkpoints": left} | seen


def split(n, part, seed):
    import torch

    generator = torch.Generator().manual_seed(seed)
    lengths = [1 - part, part] if isinstance(part, float) else [n - part, part]
    train, val = torch.utils.data.random_split(range(n), lengths, generator=generator)
    return {"n": n, "val_split": part, "seed": seed, "train": list(train.indices), "val": list(val.indices)}


def main():
    import lightning

    parts = {"time_interval": time_intervals(), "debug_runs": [debug_run(a) for a in DEBUG_RUNS],
             "splits": [split(n, part, seed) for n in (12, 57) for part in (1, 5, 0.1, 0.25, 0.5) for seed in (0, 7)]}
    lines = [f'"{k}": [\n' + ",\n".join(json.dumps(c) for c in v) + "\n]" for k, v in parts.items()]
    OUT.write_text("{" + ",\n".join(lines) + "}\n")
    print(f"wrote {OUT} with Lightning {lightning.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
