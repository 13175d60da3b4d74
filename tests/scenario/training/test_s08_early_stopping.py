"""Early stopping in a run: it ends where Lightning's Trainer does (tests/golden/early_stopping.json), and a run that is
cut off ends at the same step as one that was not. Its rules alone are held against Lightning in
test_train_early_stop.c."""
import json
import pathlib

import numpy as np
import pytest
import support
from plans import plan_of, state_of, steps_in
from ranks import EXIT, Attempt, run_by_hand

GOLDEN = json.loads((pathlib.Path(support.ROOT) / "tests/golden/early_stopping.json").read_text())
EPOCH = 8  # batches, as in the golden runs


def plan_for(directory, stopping, **sections):
    """Without a rate nothing ever improves."""
    plan = plan_of({"optimizer": {"name": "sgd", "lr": 0.0}}, **sections, early_stopping={"monitor": "val_loss"} | stopping)
    plan["data"] = {"name": "synthetic", "samples": EPOCH * 16, "batch_size": 16} | sections.get("data", {})
    plan["checkpoint"] = {"every_n_train_steps": 1, "save_top_k": -1}
    plan["run"]["checkpoint_dir"] = str(directory)
    return plan


def notes_of(ranks):
    return [e["text"] for r in ranks for e in r.event("note") if e["text"].startswith("early stopping: ")]


def manifest_of(directory, step):
    return json.loads((directory / f"step-{step}/manifest.json").read_text())


def last_state(directory):
    return manifest_of(directory, max(steps_in(directory)))["early_stopping"]


# Contract 41: fit ends at the step, epoch and validation where Lightning's Trainer does
@pytest.mark.parametrize("case", GOLDEN["fits"], ids=lambda c: json.dumps(c["trainer"] | c["early_stopping"]))
def test_fit_ends_where_lightnings_does(tmp_path, case):
    plan = plan_for(tmp_path, case["early_stopping"], trainer={"max_epochs": 12} | case["trainer"])
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        points = [m["step"] for m in one.ranks[0].metrics if m["name"] == "val_loss"]
        notes = notes_of(one.ranks)
        logged = [m["step"] for m in one.ranks[0].metrics if m["name"] == "train_loss_step"]
    step = max(steps_in(tmp_path))
    assert (step, len(points)) == (case["steps"], case["validations"])
    assert manifest_of(tmp_path, step)["epoch"] + (step * plan["trainer"].get("accumulate_grad_batches", 1) % EPOCH > 0) \
        in (case["epochs"], case["epochs"] - 1)
    assert logged[-1] == step
    whole = step * plan["trainer"].get("accumulate_grad_batches", 1) % EPOCH == 0
    at_limit = not case["stopped"] or "max_steps" in case["trainer"]
    assert len(notes) == (not at_limit)
    # Lightning checks an epoch that its limits cut, too; here a run that goes on in it would count it twice.
    if whole or "val_check_interval" in case["trainer"]:
        assert last_state(tmp_path)["wait"] == case["wait"]


def test_note_says_why_it_ended_and_once(tmp_path):
    with Attempt(tmp_path, plan_for(tmp_path / "a", {}, trainer={"max_epochs": 12}), 2) as two:
        assert two.wait() == [0, 0], two.story()
        (note,) = notes_of(two.ranks)
    best = last_state(tmp_path / "a")["best"]
    assert note == f"early stopping: val_loss did not improve for 3 checks (best {best:g}), at step {2 * EPOCH} (epoch 3)"


# ---- cut off ------------------------------------------------------------------------------------
def learning(directory, resume_from=None, interval=3, **stopping):
    """Overfits: val_loss falls, then rises. Every third batch: a validation in the middle of a window, or at its end.
    Every second: each boundary has one, so that a stop leaves it pending."""
    plan = plan_for(directory, {"patience": 6, "min_delta": 0.001} | stopping,
                    trainer={"accelerator": "cpu", "max_epochs": 200, "val_check_interval": interval,
                             "accumulate_grad_batches": 2})
    plan["optimizer"] = {"name": "adamw", "lr": 0.02}
    plan["data"] |= {"samples": 256, "shuffle": True}
    plan["run"]["resume_from"] = resume_from
    return plan


def stopped_at(directory, world, early):
    """Stops a run while it has not done so many steps; the step it left at, with a validation pending."""
    with Attempt(directory.parent, learning(directory, interval=2), world) as one:
        one.until(lambda a: a.ranks[0].step >= 1)
        one.stop()
        assert one.wait() == [EXIT["stopped"]] * world, one.story()
    step = max(steps_in(directory))
    assert step < early and manifest_of(directory, step)["progress"]["validation_pending"]
    return step


# Contract 41: all ranks end at the same step, and a resumed run where one that was not cut off does
@pytest.mark.parametrize("how", ["at a step", "in a validation", "by the training loss"])
@pytest.mark.parametrize("world", [1, 2])
def test_run_that_is_cut_off_ends_at_the_same_step(tmp_path, world, how):
    more = {"interval": 2} if how == "in a validation" else {}
    if how == "by the training loss":  # over an epoch so far, of which a checkpoint has a part
        more = {"monitor": "train_loss", "min_delta": 0.02}
    with Attempt(tmp_path, learning(tmp_path / "whole", **more), world) as one:
        assert one.wait() == [0] * world, one.story()
        (note,) = notes_of(one.ranks)
    last = max(steps_in(tmp_path / "whole"))
    waits = {s: manifest_of(tmp_path / "whole", s)["early_stopping"]["wait"] for s in steps_in(tmp_path / "whole")}
    assert waits[last] == 6 and last > 10
    if how != "in a validation":  # of a checkpoint that has counted checks, and not all of them
        source = tmp_path / f"whole/step-{next(s for s in sorted(waits) if s < last and waits[s] in (3, 4))}"
    else:
        source = tmp_path / f"cut/step-{stopped_at(tmp_path / 'cut', world, last)}"
    with Attempt(tmp_path, learning(tmp_path / "rest", str(source), **more), world) as one:
        assert one.wait() == [0] * world, one.story()
        assert one.ranks[0].event("resumed")[0]["exact"]
        assert notes_of(one.ranks) == [note]
    assert max(steps_in(tmp_path / "rest")) == last
    assert state_of(tmp_path / f"rest/step-{last}") == state_of(tmp_path / f"whole/step-{last}")
    assert last_state(tmp_path / "rest") == last_state(tmp_path / "whole")


def resumed(tmp_path, name, stopping, source, **run):
    """The steps that a run makes which goes on from there, and why its resume is not exact."""
    plan = plan_for(tmp_path / name, stopping, trainer={"max_epochs": 12})
    plan["run"] |= {"resume_from": str(source)} | run
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        steps = {m["step"] for m in one.ranks[0].metrics if m["name"] == "train_loss_step"}
        return sorted(steps), [n["text"] for n in one.ranks[0].event("note") if "exact" in n["text"]]


def test_end_holds_for_the_job_and_not_for_another_that_goes_on(tmp_path):
    with Attempt(tmp_path, plan_for(tmp_path / "a", {"patience": 1}, trainer={"max_epochs": 12})) as one:
        assert one.wait() == [0], one.story()
    last = 2 * EPOCH
    source = tmp_path / f"a/step-{last}"
    assert max(steps_in(tmp_path / "a")) == last and last_state(tmp_path / "a")["decided"]
    assert resumed(tmp_path, "same", {"patience": 1}, source) == ([], [])
    steps, _ = resumed(tmp_path, "other", {"patience": 1}, source, job="k")
    assert steps == list(range(last + 1, last + EPOCH + 1))
    steps, notes = resumed(tmp_path, "metric", {"patience": 2, "monitor": "train_loss"}, source)
    assert steps[-1] == last + 3 * EPOCH
    assert "early_stopping.monitor val_loss (min) -> train_loss (min): its checks count from 0" in notes[0]


# ---- values, and what is refused ----------------------------------------------------------------
def test_value_that_is_not_finite_ends_fit_at_once(tmp_path):
    rng = np.random.default_rng(3)
    for name, scale in (("", 1), ("val_", 3e38)):
        np.save(tmp_path / f"{name}x.npy", (np.sign(rng.standard_normal((32, 16))) * scale).astype("f4"))
        np.save(tmp_path / f"{name}y.npy", rng.integers(0, 4, 32).astype("i4"))
    for finite, steps in ((True, 2), (False, 6)):
        plan = plan_for(tmp_path / str(finite), {"check_finite": finite}, trainer={"max_epochs": 12})
        plan["data"] = {"name": "npy", "batch_size": 16} | {k: str(tmp_path / f"{k}.npy") for k in ("x", "y", "val_x", "val_y")}
        with Attempt(tmp_path, plan) as one:
            assert one.wait() == [0], one.story()
            (note,) = notes_of(one.ranks)
        assert max(steps_in(tmp_path / str(finite))) == steps
        assert ("is nan" in note or "is infinite" in note) == finite


def test_note_says_that_fit_goes_on_when_a_minimum_is_not_met(tmp_path):
    for minimum, what in (({"min_epochs": 4}, "fit ends at min_epochs, unless it improves before"),
                          ({"min_steps": 4 * EPOCH}, "fit ends once min_epochs and min_steps are reached")):
        folder = tmp_path / next(iter(minimum))
        with Attempt(tmp_path, plan_for(folder, {"patience": 1}, trainer={"max_epochs": 12} | minimum)) as one:
            assert one.wait() == [0], one.story()
            (note,) = notes_of(one.ranks)
        assert note.endswith(f"at step {2 * EPOCH} (epoch 1); {what}")
        assert max(steps_in(folder)) == 4 * EPOCH


def wavering(folder, resume_from=None, **trainer):
    """Its validation is worse at times, and better again."""
    plan = plan_for(folder, {"monitor": "val_accuracy", "mode": "max", "patience": 1},
                    trainer={"max_epochs": 12} | trainer, data={"samples": 256})
    plan["optimizer"] = {"name": "adamw", "lr": 0.1}
    plan["run"]["resume_from"] = resume_from
    return plan


def ran_out(values):
    """Whether each check found that patience had run out; a check that improves begins anew."""
    best, out = -1.0, []
    for v in values:
        out.append(v <= best)
        best = max(best, v)
    return out


# What is not as in Lightning: there fit ends at min_epochs because patience had run out at some time before.
def test_patience_that_ran_out_is_judged_again_at_min_epochs(tmp_path):
    with Attempt(tmp_path, wavering(tmp_path / "whole", min_epochs=12)) as one:
        assert one.wait() == [0], one.story()
        out = ran_out([m["sum"] / m["count"] for m in one.ranks[0].metrics if m["name"] == "val_accuracy"])
    again = next(e for e in range(1, 11) if out[e - 1] and not out[e])  # taken back by epoch e, from 0
    end = next(e for e in range(again, 12) if out[e])
    with Attempt(tmp_path, wavering(tmp_path / "again", min_epochs=again + 1)) as one:
        assert one.wait() == [0], one.story()
        notes = notes_of(one.ranks)
    assert max(steps_in(tmp_path / "again")) == (end + 1) * 16
    assert "; fit ends at min_epochs, unless it improves before" in notes[0]
    assert any(n.startswith("early stopping: val_accuracy has improved to ") and n.endswith("; fit goes on") for n in notes)
    # The state before it is taken back is in the checkpoint.
    source = tmp_path / f"again/step-{again * 16}"
    assert manifest_of(tmp_path / "again", again * 16)["early_stopping"]["revocable"]
    with Attempt(tmp_path, wavering(tmp_path / "rest", str(source), min_epochs=again + 1)) as one:
        assert one.wait() == [0], one.story()
    assert max(steps_in(tmp_path / "rest")) == (end + 1) * 16


@pytest.mark.parametrize("stopping, trainer, text", [
    ({"monitor": "val_perplexity"}, {},
     "this job gives no 'val_perplexity'; it gives train_loss, train_loss_epoch, train_accuracy, train_accuracy_epoch, "
     "val_loss, val_accuracy"),
    ({"monitor": "train_loss_step"}, {}, "this job gives no 'train_loss_step'"),
    ({}, {"limit_val_batches": 0}, "nothing to validate on"),
    ({}, {"max_epochs": -1, "max_steps": 1}, "ends before its first validation"),
    ({"monitor": "train_loss", "check_on_train_epoch_end": False}, {"limit_val_batches": 0},
     "'train_loss' is checked when a validation ends, but none will: there is nothing to validate on"),
    ({"monitor": "train_loss"}, {"check_val_every_n_epoch": 9}, "but none will: the run ends before its first validation"),
])
def test_job_is_refused_when_nothing_could_be_checked(tmp_path, stopping, trainer, text):
    code, lines = run_by_hand(tmp_path, plan_for(tmp_path, stopping, trainer=trainer))
    assert code == EXIT["bad_spec"] and lines[-1]["class"] == "bad_spec"
    assert "early_stopping." in lines[-1]["message"] and text in lines[-1]["message"]


SPEC = """
model: {name: mlp, layers: [16, 8, 4]}
data: {name: synthetic, samples: 128, batch_size: 16}
optimizer: {name: sgd, lr: 0}
trainer: {max_epochs: 50, val_check_interval: 4, devices: 2, accelerator: reference}
early_stopping: {monitor: val_loss, patience: 2}
"""


def test_job_succeeds_and_a_note_of_it_says_why_it_ended(daemon):
    done = daemon.finish(daemon.submit(SPEC))
    assert done.global_step == 4 * 3
    assert [n for n in done.notes if "early stopping: val_loss did not improve for 2 checks (best" in n]
    refused = daemon.submit(SPEC, "early_stopping.monitor=val_los")
    failed = daemon.wait_state(refused, "FAILED")
    assert failed.failure.message.startswith("early_stopping.monitor: this job gives no 'val_los'"), failed.failure
