#!/usr/bin/env python3
"""Writes tests/golden/schedules.json: the learning rates that torch and transformers give.

Run it once with real torch and transformers in a throw-away virtual environment; the file is
committed, so tests need neither. Each case has an lr_scheduler as it is in a job spec, with the
optimizer's lr and the job's max_steps, and the rate of every optimizer step.
"""
import json
import sys
import warnings
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "golden" / "schedules.json"
LR, STEPS = 0.4, 24  # the job's

CASES = [
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


def scheduler(opt, case):
    """The scheduler of torch or transformers that the case names."""
    import torch.optim.lr_scheduler as t
    from transformers.optimization import get_inverse_sqrt_schedule, get_wsd_schedule

    knobs = {k: STEPS if v == "auto" else v for k, v in case.items() if k != "name"}
    made = {
        "constant": lambda: t.LambdaLR(opt, lambda step: 1.0),
        "linear": lambda: t.LinearLR(opt, **knobs),
        "cosine": lambda: t.CosineAnnealingLR(opt, **{"T_max": STEPS} | knobs),
        "step": lambda: t.StepLR(opt, **knobs),
        "multistep": lambda: t.MultiStepLR(opt, **knobs),
        "exponential": lambda: t.ExponentialLR(opt, **knobs),
        "polynomial": lambda: t.PolynomialLR(opt, **knobs),
        "inverse_sqrt": lambda: get_inverse_sqrt_schedule(opt, **knobs),
        "one_cycle": lambda: t.OneCycleLR(opt, max_lr=LR, cycle_momentum=False,
                                          **{"total_steps": STEPS} | knobs),
        "warmup_stable_decay": lambda: get_wsd_schedule(opt, **{"num_training_steps": STEPS} | knobs),
    }
    return made[case["name"]]()


def rates(case):
    import torch

    opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], LR)
    steps, out = scheduler(opt, case), []
    for _ in range(STEPS):
        out.append(float(f"{opt.param_groups[0]['lr']:.12g}"))
        opt.step()
        steps.step()
    return out


def main():
    import torch
    import transformers

    warnings.simplefilter("ignore")
    lines = [json.dumps({"lr_scheduler": case, "rates": rates(case)}) for case in CASES]
    OUT.write_text(f'{{"lr": {LR}, "max_steps": {STEPS}, "cases": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"wrote {OUT} with torch {torch.__version__}, transformers {transformers.__version__}",
          file=sys.stderr)


if __name__ == "__main__":
    main()
