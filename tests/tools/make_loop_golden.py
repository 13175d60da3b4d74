#!/usr/bin/env python3
"""Writes tests/golden/loop.json: what knobs of Lightning's Trainer and of its checkpoints do to a run.

Run it once with real Lightning in a throw-away virtual environment (`make rivals` makes one); the file is committed,
so tests need none.

time_interval: a clock shows `at[i]` seconds after the i-th step; `saved` are the steps at which ModelCheckpoint saves.
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


def main():
    import lightning

    parts = {"time_interval": time_intervals()}
    lines = [f'"{k}": [\n' + ",\n".join(json.dumps(c) for c in v) + "\n]" for k, v in parts.items()]
    OUT.write_text("{" + ",\n".join(lines) + "}\n")
    print(f"wrote {OUT} with Lightning {lightning.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
