#!/usr/bin/env python3
"""Writes tests/golden/losses.json: what torch says of each loss that a model can minimize, case by case.

Run it once with real torch in a throw-away virtual environment; the file is committed, so tests
need no torch (tests/scenario/engine/test_s06_losses.py reads the problems from here). All are in fp64, from
the weights, samples and tokens of make_parity_golden.py: 12 steps of SGD with momentum over batches of
4 rows, 6 an epoch, then the loss and accuracy of all rows at once. Labels and tokens that are ignored lie
unevenly in the batches; at least one counts in each.
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import make_parity_golden as problem  # noqa: E402

GOLDEN = problem.GOLDEN.parent / "losses.json"
OPTIMIZER = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
CE = {"name": "cross_entropy"}
WEIGHTS = [0.5, 2.0, 1.0]
# name: (job, loss as in a spec, kind of y)
CASES = {
    "mse": ("mlp", {"name": "mse"}, "targets"),
    "bce": ("mlp", {"name": "bce"}, "sides"),
    "smoothing": ("mlp", CE | {"label_smoothing": 0.2}, "labels"),
    "weights": ("mlp", CE | {"class_weights": WEIGHTS}, "labels"),
    "ignored": ("mlp", CE | {"ignore_index": -100}, "some labels"),
    "all options": ("mlp", CE | {"label_smoothing": 0.1, "class_weights": WEIGHTS, "ignore_index": -100}, "some labels"),
    "gpt": ("gpt", CE | {"label_smoothing": 0.1, "ignore_index": 4}, None),
    "gpt weights": ("gpt", CE | {"class_weights": [0.5 + i / 4 for i in range(problem.TOKENS)], "ignore_index": 0}, None),
}


def arrays(kind):
    """x (24, 4) and y as they are saved."""
    pixels, labels = problem.images()
    x = (pixels.reshape(problem.ROWS, -1) / 255).astype("f4")
    row, column = np.arange(problem.ROWS)[:, None], np.arange(3)[None, :]
    targets = (((row * 7 + column * 11 + row * column * 3) % 17 - 8) / 4).astype("f4")
    if kind == "targets":
        return x, targets
    if kind == "sides":
        return x, (targets > 0).astype("f4")
    y = labels.astype("i8")
    if kind == "some labels":
        y[[0, 1, 2, 5, 9, 10, 13, 22]] = -100
    return x, y


def loss_of(torch, spec, z, y):
    F = torch.nn.functional
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


def run(torch, job, spec, kind):
    F = torch.nn.functional
    if job == "gpt":
        model, (x, y) = problem.gpt, problem.samples(torch, job)
    else:
        model, (x, y) = problem.mlp, (torch.from_numpy(a) for a in arrays(kind))
        x = x.double()
    w = {k: torch.from_numpy(v).double().requires_grad_() for k, v in problem.first_weights(job).items()}
    opt = torch.optim.SGD(w.values(), lr=OPTIMIZER["lr"], momentum=OPTIMIZER["momentum"])
    losses = []
    for step in range(problem.STEPS):
        at = step % (problem.ROWS // problem.BATCH) * problem.BATCH
        loss = loss_of(torch, spec, model(F, w, x[at:at + problem.BATCH]), y[at:at + problem.BATCH])
        loss.backward()
        losses.append(round(loss.item(), 9))
        opt.step()
        opt.zero_grad()
    z = model(F, w, x).detach()
    return {"loss": losses, "val_loss": round(loss_of(torch, spec, z, y).item(), 9),
            "val_accuracy": accuracy_of(spec, z, y) if job == "mlp" else None,
            "norm": {k: round(v.norm().item(), 9) for k, v in w.items()},
            "outputs": [round(v, 7) for v in z.flatten().tolist()] if job == "mlp" else None}


def main():
    import torch

    lines = [f"{json.dumps(name)}: {json.dumps(run(torch, *case))}" for name, case in CASES.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"wrote {GOLDEN} with torch {torch.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
