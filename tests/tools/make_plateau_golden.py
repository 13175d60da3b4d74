#!/usr/bin/env python3
"""Writes tests/golden/plateau.json: what torch's ReduceLROnPlateau makes of series of values.

Run it once with real torch in a throw-away virtual environment; the file is committed, so tests need no
torch. Each case has the scheduler's arguments, the values it receives and, after each of them, the learning
rate, the count of bad values and what is left of the cooldown, as torch has them.
"""
import json
import random
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "golden" / "plateau.json"
LR = 0.4

CASES = [
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


def series(kind, n=40):
    """Falls and levels off; rises and levels off below 0; is noise with holes."""
    noise = random.Random(kind)
    if kind == 0:
        return [round(2.0 * 0.8 ** min(i, 14) + noise.uniform(0, 0.02), 4) for i in range(n)]
    if kind == 1:
        return [round(-1.0 * 0.9 ** min(i, 20) + noise.uniform(0, 0.01), 4) for i in range(n)]
    return [float("nan") if i % 7 == 3 else round(noise.uniform(-1, 1), 2) for i in range(n)]


def follow(case, values):
    import torch

    opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], LR)
    plateau, after = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, **case), []
    for value in values:
        plateau.step(value)
        lr = float(f"{opt.param_groups[0]['lr']:.14g}")
        after.append([lr, plateau.num_bad_epochs, plateau.cooldown_counter])
    return after


def text(values):
    """NaN is no JSON: null stands for it."""
    return [None if v != v else v for v in values]


def main():
    import torch

    lines = []
    for case in CASES:
        for kind in range(3):
            values = series(kind)
            lines.append(json.dumps({"plateau": case, "values": text(values), "after": follow(case, values)}))
    OUT.write_text(f'{{"lr": {LR}, "cases": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"wrote {OUT} with torch {torch.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
