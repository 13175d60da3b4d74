"""reduce_on_plateau in a run: it takes what all ranks' validation gives together, and a run that is cut
off goes on with what it remembered. Its rules alone are held against torch in test_train_plateau.c."""
import json
import math
import re
import signal

import numpy as np
import pytest

from plans import plan_of, state_of, steps_in
from ranks import EXIT, Attempt, run_by_hand

KNOBS = {"monitor": "val_loss", "factor": 0.5, "patience": 1, "cooldown": 1, "min_lr": 0.002}
# After which of an epoch's 8 micro-batches a validation comes, and the threshold. Every third: one of two validations
# is in the middle of a window, which a kill may cut. Every second: each boundary has one, so that a stop leaves it
# pending; and nothing is an improvement, which would hide a validation that counted twice.
HOW = {"kill": (3, 0.05), "stop": (2, 0.9)}


def plan_for(directory, how, max_steps, resume_from=None):
    interval, threshold = HOW[how]
    plan = plan_of({"optimizer": {"name": "adamw", "lr": 0.05}},
                   trainer={"accelerator": "cpu", "max_steps": max_steps, "max_epochs": -1, "val_check_interval": interval,
                            "accumulate_grad_batches": 2, "limit_train_batches": 8},
                   # a pass over the 1000 of validation is most of a step's time, so a stop falls into one
                   data={"samples": 8001, "batch_size": 16},
                   checkpoint={"every_n_train_steps": 1, "save_top_k": -1},
                   run={"checkpoint_dir": str(directory), "resume_from": resume_from})
    plan["lr_scheduler"] = {"name": "reduce_on_plateau", "threshold": threshold} | KNOBS
    return plan


def means(ranks, name):
    """Of the points of all ranks with that name, in order: (step, mean)."""
    rows = zip(*[[m for m in r.metrics if m["name"] == name] for r in ranks])
    return [(row[0]["step"], math.fsum(m["sum"] for m in row) / math.fsum(m["count"] for m in row)) for row in rows]


def rates_of(rank):
    return {m["step"]: m["sum"] for m in rank.metrics if m["name"] == "lr"}


def expected_rates(validations, threshold, lr, last):
    """By step, from the values that the schedule took; the rules for these KNOBS written down once more."""
    best, bad, cooldown, values, rates = math.inf, 0, 0, list(validations), {}
    for step in range(1, last + 1):
        # A window takes its rate when it begins: what came in its middle counts from the next one on.
        while values and values[0][0] + values[0][2] < step:
            value = values.pop(0)[1]
            best, bad = (value, 0) if value < best * (1 - threshold) else (best, bad + 1)
            if cooldown:
                cooldown, bad = cooldown - 1, 0
            if bad > KNOBS["patience"]:
                lr, bad, cooldown = max(lr * KNOBS["factor"], KNOBS["min_lr"]), 0, KNOBS["cooldown"]
        rates[step] = lr
    return rates


def manifest_of(directory, step):
    return json.loads((directory / f"step-{step}/manifest.json").read_text())


def falls(ranks):
    """Rank 0 alone reports them."""
    fall = re.compile(r"\w+ is on a plateau \(.*\): the learning rate is now \S+, at step \d+ \(epoch \d+\)")
    return [e for r in ranks for e in r.event("note") if fall.fullmatch(e["text"])]


def counting(directory, counter):
    """Checkpoints of lowered rates that would go on otherwise if the counter were lost."""
    found = {s: manifest_of(directory, s)["plateau"] for s in steps_in(directory)}
    return [s for s, p in found.items() if p["lr_scale"] < 1 and p[counter] > 0]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("world, counter", [(1, "bad"), (1, "cooldown"), (2, "bad")])
def test_rates_and_weights_are_those_of_one_run_when_it_is_cut_off(tmp_path, world, counter, how):
    with Attempt(tmp_path, plan_for(tmp_path / "cut", how, -1), world) as one:
        one.until(lambda a: len(falls(a.ranks)) > 1 and (how == "stop" or counting(tmp_path / "cut", counter)))
        one.stop() if how == "stop" else one.kill()
        assert one.wait()[0] == (EXIT["stopped"] if how == "stop" else -signal.SIGKILL), one.story()
    step = min(counting(tmp_path / "cut", counter)) if how == "kill" else max(steps_in(tmp_path / "cut"))
    assert manifest_of(tmp_path / "cut", step)["progress"]["validation_pending"] == (how == "stop")
    last = step + 20

    with Attempt(tmp_path, plan_for(tmp_path / "whole", how, last), world) as one:
        assert one.wait() == [0] * world, one.story()
        whole = rates_of(one.ranks[0])
        values = means(one.ranks, "val_loss")
        reported = len(falls(one.ranks))
    values = [(at, value, how == "kill" and i % 2 == 0) for i, (at, value) in enumerate(values)]
    assert whole == pytest.approx(expected_rates(values, HOW[how][1], 0.05, last), rel=1e-6)
    seen = len(set(whole.values())) - 1
    assert seen > 0 and reported - seen in (0, 1)  # the last validation may lower what no step takes

    plan = plan_for(tmp_path / "rest", how, last, str(tmp_path / f"cut/step-{step}"))
    with Attempt(tmp_path, plan, world) as one:
        assert one.wait() == [0] * world, one.story()
        assert one.ranks[0].event("resumed")[0]["exact"]
        assert rates_of(one.ranks[0]) == {at: lr for at, lr in whole.items() if at > step}
    assert state_of(tmp_path / f"rest/step-{last}") == state_of(tmp_path / f"whole/step-{last}")
    assert manifest_of(tmp_path / "rest", last)["plateau"] == manifest_of(tmp_path / "whole", last)["plateau"]


def test_all_ranks_hear_the_same_when_one_has_no_sample_to_validate(tmp_path):
    plan = plan_for(tmp_path, "stop", 30)
    plan["data"].update(samples=8, batch_size=4)  # validation is an eighth of it: one sample
    plan["trainer"].update(val_check_interval=1, accumulate_grad_batches=1, limit_train_batches=1)
    with Attempt(tmp_path, plan, 2) as two:
        assert two.wait() == [0, 0], two.story()
        points = [[m for m in r.metrics if m["name"] == "val_loss"] for r in two.ranks]
        assert [[m["count"] for m in rank] for rank in points] == [[1] * 30, [0] * 30]
        values = [(at, value, False) for at, value in means(two.ranks, "val_loss")]
        rates = rates_of(two.ranks[0])
        assert rates == pytest.approx(expected_rates(values, HOW["stop"][1], 0.05, 30), rel=1e-6)
        assert rates == rates_of(two.ranks[1]) and min(rates.values()) < 0.05


def test_rate_is_not_lowered_when_validation_counts_no_label(tmp_path):
    rng = np.random.default_rng(3)
    for name, labels in (("", rng.integers(0, 4, 32)), ("val_", np.full(32, -100))):
        np.save(tmp_path / f"{name}x.npy", rng.standard_normal((32, 16)).astype("f4"))
        np.save(tmp_path / f"{name}y.npy", labels.astype("i4"))
    plan = plan_for(tmp_path / "out", "stop", 12)
    plan["model"]["loss"] = {"name": "cross_entropy", "ignore_index": -100}
    plan["data"] = {"name": "npy", "batch_size": 16} | {k: str(tmp_path / f"{k}.npy") for k in ("x", "y", "val_x", "val_y")}
    plan["trainer"].update(val_check_interval=1)
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        assert {m["count"] for m in one.ranks[0].metrics if m["name"] == "val_loss"} == {0}
        assert min(rates_of(one.ranks[0]).values()) == pytest.approx(0.05) and not falls(one.ranks)


@pytest.mark.parametrize("change, text", [
    ({"lr_scheduler": {"monitor": "val_perplexity"}},
     "validation gives no 'val_perplexity'; this model's gives val_loss, val_accuracy"),
    ({"trainer": {"limit_val_batches": 0}}, "nothing to validate on"),
    ({"trainer": {"max_steps": 1}}, "ends before its first validation"),
])
def test_job_is_refused_when_its_schedule_would_hear_nothing(tmp_path, change, text):
    plan = plan_for(tmp_path, "kill", 60)
    for section, knobs in change.items():
        plan[section].update(knobs)
    code, lines = run_by_hand(tmp_path, plan)
    assert code == EXIT["bad_spec"] and lines[-1]["class"] == "bad_spec"
    assert "lr_scheduler.monitor: " in lines[-1]["message"] and text in lines[-1]["message"]
