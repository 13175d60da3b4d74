"""Where a run that goes on from a checkpoint ends: with another batch, world or amount of data it has other steps left, and
its schedule, its plan and its progress know how many. What such a run says of itself."""
import json

import pytest

from plans import plan_of, steps_in
from ranks import Attempt, sizes

CUT = 12  # of 16 batches of 10 samples, in the first of 2 epochs
# The knob that may be `auto`; each of these falls to its least, or nearly, at the end.
SCHEDULES = {
    "cosine": ("T_max", {}),
    "linear": ("total_iters", {"start_factor": 1, "end_factor": 0}),
    "polynomial": ("total_iters", {}),
    "one_cycle": ("total_steps", {}),
    "warmup_cosine": ("total_steps", {"warmup_steps": 3}),
    "warmup_stable_decay": ("num_training_steps", {"num_warmup_steps": 2, "num_decay_steps": 5}),
}
# What goes on otherwise, and the last step then.
OTHERWISE = {"ranks": (2, {}, 22), "batch": (1, {"batch_size": 5}, 52), "data": (1, {"samples": 240}, 12 + 12 + 24),
             "nothing": (1, {}, 32), "window": (1, {}, 12 + 2 + 8)}


def plan_for(directory, schedule="cosine", end="auto", resume_from=None, **sections):
    knob, knobs = SCHEDULES[schedule]
    plan = plan_of({"lr_scheduler": {"name": schedule, knob: end, **knobs}}, **sections)
    plan["data"] = {"name": "synthetic", "samples": 160, "batch_size": 10} | sections.get("data", {})
    plan["trainer"] |= {"max_epochs": 2, "limit_val_batches": 0} | sections.get("trainer", {})
    plan["run"].update(checkpoint_dir=str(directory), resume_from=resume_from and str(resume_from))
    return plan


def played(tmp_path, plan, world=1):
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait() == [0] * world, attempt.story()
        first = attempt.ranks[0]
        return ({m["step"]: m["sum"] for m in first.metrics if m["name"] == "lr"}, first.word("total_steps", "<q"),
                [e["text"] for e in first.event("note")])


def cut_off(tmp_path, schedule="cosine"):
    """A whole run, of which the checkpoint of step 12 is what another goes on from."""
    return played(tmp_path, plan_for(tmp_path / "whole", schedule, trainer={"max_epochs": 2}))


def ends_of(notes):
    return [n for n in notes if n.startswith("the run ends")]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rates_fall_to_the_end_when_fewer_steps_are_left(tmp_path, schedule):
    cut_off(tmp_path, schedule)
    at = tmp_path / f"whole/step-{CUT}"
    auto, total, notes = played(tmp_path, plan_for(tmp_path / "auto", schedule, "auto", at), 2)
    named, _, quiet = played(tmp_path, plan_for(tmp_path / "named", schedule, 22, at), 2)
    assert max(auto) == total == 22 and auto == named
    assert ends_of(notes) == ["the run ends at step 22 now; when its checkpoint was written it was to end at step 32; "
                              "so the learning rate follows another curve"]
    assert ends_of(quiet) == ["the run ends at step 22 now; when its checkpoint was written it was to end at step 32"]


@pytest.mark.parametrize("how", OTHERWISE)
def test_plan_and_progress_know_the_end_when_a_run_goes_on(tmp_path, how):
    world, data, end = OTHERWISE[how]
    whole, total, _ = cut_off(tmp_path)
    assert total == 32
    plan = plan_for(tmp_path / "rest", resume_from=tmp_path / f"whole/step-{CUT}", data=data,
                    trainer={"accumulate_grad_batches": 2 if how == "window" else 1})
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert sizes(tmp_path / "plan.json", world)["total_steps"] == end
    rest, total, notes = played(tmp_path, plan, world)
    assert max(rest) == max(steps_in(tmp_path / "rest")) == total == end
    assert len(ends_of(notes)) == (how != "nothing")
    if how == "nothing":
        assert rest == {s: lr for s, lr in whole.items() if s > CUT}


def test_end_is_that_of_the_first_run_when_it_goes_on_twice(tmp_path):
    whole, _, _ = cut_off(tmp_path)
    at = tmp_path / f"whole/step-{CUT}"
    played(tmp_path, plan_for(tmp_path / "two", resume_from=at), 2)
    rest, total, notes = played(tmp_path, plan_for(tmp_path / "again", resume_from=tmp_path / "two/step-13"), 2)
    assert max(rest) == total == 22 and not ends_of(notes)


# The same place, without what says how many windows the run has played.
def test_end_is_known_when_the_checkpoint_is_of_an_older_traind(tmp_path):
    cut_off(tmp_path)
    path = tmp_path / f"whole/step-{CUT}/manifest.json"
    old = json.loads(path.read_text())
    del old["progress"]["windows"], old["progress"]["total_steps"]
    path.write_text(json.dumps(old))
    rest, total, notes = played(tmp_path, plan_for(tmp_path / "rest", resume_from=path.parent), 2)
    assert max(rest) == total == 22 and not ends_of(notes)


# What is counted since adds to what that traind had played.
def test_end_stays_when_a_run_of_an_older_traind_goes_on_twice(tmp_path):
    cut_off(tmp_path)
    path = tmp_path / f"whole/step-{CUT}/manifest.json"
    old = json.loads(path.read_text())
    del old["progress"]["windows"], old["progress"]["total_steps"]
    path.write_text(json.dumps(old))
    played(tmp_path, plan_for(tmp_path / "b", resume_from=path.parent, trainer={"max_steps": CUT + 1}))
    rest, total, notes = played(tmp_path, plan_for(tmp_path / "c", resume_from=tmp_path / f"b/step-{CUT + 1}"))
    assert max(rest) == total == 32


# A step that 16-mixed skips is none, but its window was played: the end of the schedule does not move.
def test_end_stays_when_steps_were_skipped_before(tmp_path):
    mixed = {"accelerator": "cpu", "precision": "16-mixed"}
    played(tmp_path, plan_for(tmp_path / "a", trainer=mixed | {"max_steps": 2}))
    path = tmp_path / "a/step-2/manifest.json"
    saved = json.loads(path.read_text())
    saved["loss_scaler"]["scale"] = 2.0 ** 40
    path.write_text(json.dumps(saved))
    whole, total, _ = played(tmp_path, plan_for(tmp_path / "whole", resume_from=path.parent, trainer=mixed))
    assert total == 32 > max(whole)
    at = max(whole) - 6
    rest, total, notes = played(tmp_path, plan_for(tmp_path / "rest", resume_from=tmp_path / f"whole/step-{at}",
                                                   trainer=mixed))
    assert total == 32 and not ends_of(notes)
    assert rest == {s: lr for s, lr in whole.items() if s > at}


# ---- a run that was over ------------------------------------------------------------------------
EVALUATED = ("val_loss", "validate_loss", "test_loss", "train_loss_epoch")


def evaluated(tmp_path, folder, resume_from=None, **trainer):
    plan = plan_for(tmp_path / folder, resume_from=resume_from, trainer={"limit_val_batches": 1.0} | trainer)
    plan["stages"] = ["fit", "validate", "test"]
    with Attempt(tmp_path, plan) as attempt:
        assert attempt.wait() == [0], attempt.story()
        first = attempt.ranks[0]
        return ([(m["name"], m["epoch"], m["step"]) for m in first.metrics if m["name"] in EVALUATED],
                [e["text"] for e in first.event("note") if e["text"].startswith("nothing is left")], first.step)


@pytest.mark.parametrize("step", [16, 20, 32])
def test_points_are_of_the_last_epoch_when_the_run_resumed_at_the_end_of_one(tmp_path, step):
    whole, quiet, _ = evaluated(tmp_path, "whole")
    rest, notes, _ = evaluated(tmp_path, "rest", tmp_path / f"whole/step-{step}")
    assert rest == [p for p in whole if p[2] > step or p[0] in ("validate_loss", "test_loss")]
    assert {p for p in rest if p[0] == "test_loss"} == {("test_loss", 1, 32)}
    assert not quiet and len(notes) == (step == 32)


@pytest.mark.parametrize("limits, text", [
    ({}, "the checkpoint is of step 32, with 2 epochs done, and max_epochs is 2; raise trainer.max_epochs to go on"),
    ({"max_epochs": 1}, "the checkpoint is of step 32, with 2 epochs done, and max_epochs is 1; raise trainer.max_epochs"),
    ({"max_steps": 32}, "the checkpoint is of step 32, with 2 epochs done, and max_steps is 32; raise trainer.max_steps"),
    ({"max_epochs": 3}, None)])
def test_note_says_that_nothing_is_left_when_a_run_was_over(tmp_path, limits, text):
    evaluated(tmp_path, "whole")
    _, notes, step = evaluated(tmp_path, "rest", tmp_path / "whole/step-32", **limits)
    assert [text in n for n in notes] == ([True] if text else [])
    assert step == (32 if text else 48)
