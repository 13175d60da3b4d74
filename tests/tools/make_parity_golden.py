#!/usr/bin/env python3
"""Writes tests/golden/parity.json: what torch says of a small training problem, case by case.

Run it once with real torch in a throw-away virtual environment; the file is committed, so tests
need no torch (tests/scenario/test_s06_parity.py reads the problem from here). The problem: 24 images
of 2 x 2 pixels, 3 classes, an mlp 4-5-3 with given first weights, 12 optimizer steps, in fp64. An epoch
has 6 batches of 4, so a window of 4 batches ends short, with 2, at the end of each epoch.
"""
import json
import math
import sys
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "parity.json"
ROWS, BATCH, STEPS = 24, 4, 12
SHAPES = {"fc1.weight": (5, 4), "fc1.bias": (5,), "fc2.weight": (3, 5), "fc2.bias": (3,)}
COSINE = {"warmup_steps": 3, "total_steps": 10, "min_lr": 0.001}

# name: (optimizer as in a spec, schedule, clip, window)
SGD, ADAM, ADAMW = ({"name": n, "lr": lr, "weight_decay": 0.0} for n, lr in
                    (("sgd", 0.1), ("adam", 0.02), ("adamw", 0.02)))
NESTEROV = SGD | {"momentum": 0.9, "nesterov": True}
CASES = {
    "sgd": (SGD, None, 0, 1),
    "sgd decay": (SGD | {"weight_decay": 0.1}, None, 0, 1),
    "momentum": (SGD | {"momentum": 0.9}, None, 0, 1),
    "momentum dampened": (SGD | {"momentum": 0.9, "dampening": 0.5}, None, 0, 1),
    "nesterov": (NESTEROV, None, 0, 1),
    "nesterov decay": (NESTEROV | {"weight_decay": 0.1}, None, 0, 1),
    "adam": (ADAM, None, 0, 1),
    "adam decay": (ADAM | {"weight_decay": 0.1}, None, 0, 1),
    "adamw decay": (ADAMW | {"weight_decay": 0.1}, None, 0, 1),
    "adamw betas": (ADAMW | {"betas": [0.8, 0.95], "eps": 1e-3}, None, 0, 1),
    "sgd cosine": (SGD, COSINE, 0, 1),
    "momentum clip": (SGD | {"momentum": 0.9}, None, 0.2, 1),
    "sgd windows": (SGD, None, 0, 4),
    "nesterov all": (NESTEROV | {"weight_decay": 0.01}, COSINE, 0.2, 4),
    "adamw all": (ADAMW | {"weight_decay": 0.1}, COSINE, 0.2, 4),
}


def images():
    """Pixels (24, 2, 2) and labels (24), both u8."""
    r, c = np.arange(ROWS)[:, None], np.arange(4)[None, :]
    return ((r * 31 + c * 57 + r * c * 13) % 256).astype(np.uint8).reshape(ROWS, 2, 2), \
        ((np.arange(ROWS) * 5 + np.arange(ROWS) ** 2) % 3).astype(np.uint8)


def first_weights():
    out, at = {}, 0
    for name, shape in SHAPES.items():
        n = math.prod(shape)
        out[name] = (((np.arange(at, at + n) * 7919) % 101 - 50) / 64).astype(np.float32).reshape(shape)
        at += n
    return out


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


def run(torch, optimizer, cosine, clip, window):
    x, y = images()
    x = torch.from_numpy(x.reshape(ROWS, 4)).double() / 255
    y = torch.from_numpy(y).long()
    w = {k: torch.from_numpy(v).double().requires_grad_() for k, v in first_weights().items()}
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    opt = kind[optimizer["name"]](w.values(), **{k: v for k, v in optimizer.items() if k != "name"})
    losses, norms, each = [], [], windows(window)
    for step in range(STEPS):
        batches, total = next(each), 0.0
        for b in batches:
            rows = slice(b * BATCH, (b + 1) * BATCH)
            h = torch.relu(x[rows] @ w["fc1.weight"].T + w["fc1.bias"])
            logits = h @ w["fc2.weight"].T + w["fc2.bias"]
            loss = torch.nn.functional.cross_entropy(logits, y[rows]) / len(batches)
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), clip or math.inf).item())
        losses.append(total)
        opt.param_groups[0]["lr"] = rate(step, optimizer["lr"], cosine)
        opt.step()
        opt.zero_grad()
    last = {k: [round(z, 9) for z in v.detach().flatten().tolist()] for k, v in w.items()}
    return {"loss": [round(z, 9) for z in losses], "grad_norm": [round(z, 9) for z in norms], "last": last}


def main():
    import torch

    lines = [f"{json.dumps(name)}: {json.dumps(run(torch, *case))}" for name, case in CASES.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"wrote {GOLDEN} with torch {torch.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
