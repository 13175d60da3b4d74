"""What a resumed run does not take over is said: state of another optimizer, schedule, loss scale or model,
and what begins at zero instead. A line for each, in notes and, joined, in the reason of `resumed`."""
import numpy as np
import pytest

from plans import plan_of, state_of
from ranks import Attempt

HEAD = "resume is not bit-exact: "
ADAMW = {"name": "adamw", "lr": 0.01}
SGD = {"name": "sgd", "lr": 0.05}
MOMENTUM = SGD | {"momentum": 0.9}
NARROW = {"name": "mlp", "layers": [16, 16, 16]}
DEEP = {"name": "mlp", "layers": [16, 16, 16, 16]}


def plateau(monitor):
    return {"name": "reduce_on_plateau", "monitor": monitor}


# What the run was, what it goes on as, what is said of it.
TABLE = {
    "nothing": ({"optimizer": ADAMW}, {}, []),
    "another kind": ({"optimizer": ADAMW}, {"optimizer": SGD},
                     ["optimizer adamw -> sgd: not taken over: exp_avg, exp_avg_sq (8 tensors)"]),
    "the same tensors": ({"optimizer": {"name": "adam", "lr": 0.01}}, {"optimizer": ADAMW},
                         ["optimizer adam -> adamw: its state is taken over"]),
    "no state before": ({"optimizer": SGD}, {"optimizer": ADAMW},
                        ["optimizer sgd -> adamw: zero at first: exp_avg, exp_avg_sq (8 tensors)"]),
    "both": ({"optimizer": MOMENTUM}, {"optimizer": {"name": "lion", "lr": 0.001}},
             ["optimizer sgd -> lion: not taken over: momentum_buffer (4 tensors); zero at first: exp_avg (4 tensors)"]),
    "no momentum any more": ({"optimizer": MOMENTUM}, {"optimizer": SGD},
                             ["optimizer sgd: not taken over: momentum_buffer (4 tensors)"]),
    "momentum from here on": ({"optimizer": SGD}, {"optimizer": MOMENTUM},
                              ["optimizer sgd: zero at first: momentum_buffer (4 tensors)"]),
    "frozen": ({"optimizer": ADAMW}, {"optimizer": ADAMW | {"groups": [{"match": "*.bias", "lr_scale": 0}]}},
               ["optimizer adamw: not taken over: exp_avg, exp_avg_sq (4 tensors)"]),
    "fewer layers": ({"model": DEEP, "optimizer": SGD}, {"model": NARROW},
                     ["the model has no place for fc3.weight, fc3.bias (2 tensors) of the checkpoint"]),
    "another schedule": ({"lr_scheduler": {"name": "cosine"}}, {"lr_scheduler": {"name": "step", "step_size": 4}},
                         ["lr_scheduler cosine -> step"]),
    "a schedule that remembers": ({"lr_scheduler": plateau("val_loss")}, {"lr_scheduler": {"name": "constant"}},
                                  ["lr_scheduler reduce_on_plateau -> constant: not taken over: its scale of the "
                                   "rate, 1, and its best val_loss"]),
    "a schedule without memory": ({}, {"lr_scheduler": plateau("val_loss")},
                                  ["lr_scheduler constant -> reduce_on_plateau, which has no metric yet"]),
    "another monitor": ({"lr_scheduler": plateau("val_loss")}, {"lr_scheduler": plateau("val_accuracy")},
                        ["lr_scheduler.monitor val_loss -> val_accuracy: not taken over: the best val_loss; the scale "
                         "of the rate, 1, is"]),
    "no loss scale any more": ({"trainer": {"precision": "16-mixed"}}, {"trainer": {"precision": "32-true"}},
                               ["precision 16-mixed -> 32-true",
                                "the loss scale 65536 is not taken over: 32-true scales no loss"]),
    "a loss scale from here on": ({"trainer": {"precision": "32-true"}}, {"trainer": {"precision": "16-mixed"}},
                                  ["precision 32-true -> 16-mixed",
                                   "the loss scale begins at its first value: the checkpoint has none"]),
    "another seed": ({"seed_everything": 1}, {"seed_everything": 2}, ["seed 1 -> 2: other samples and other dropout from here on"]),
    "another order": ({"trainer": {"sampler": "torch"}}, {"trainer": {"sampler": "keyed"}},
                      ["trainer.sampler torch -> keyed: another order of samples from here on"]),
}


def run(directory, sections, world=1, **more):
    sections = dict(sections)
    trainer = {"max_steps": 4 if "resume_from" in more else 2, "val_check_interval": 1} | sections.pop("trainer", {})
    plan = plan_of(sections, trainer=trainer, run={"checkpoint_dir": str(directory), **more})
    with Attempt(directory.parent, plan, world) as attempt:
        assert attempt.wait(60) == [0] * world, attempt.story()
        notes = [e["text"] for r in attempt.ranks for e in r.event("note")]
        return [n for n in notes if n.startswith(HEAD)], attempt.ranks[0].event("resumed")


@pytest.mark.parametrize("case", TABLE)
def test_state_that_is_not_taken_over_is_named_when_a_job_goes_on_as_another(tmp_path, case):
    before, change, expected = TABLE[case]
    run(tmp_path / "a1", before)
    notes, resumed = run(tmp_path / "a2", before | change, resume_from=str(tmp_path / "a1/step-2"))
    assert notes == [HEAD + line for line in expected]
    assert resumed[0]["exact"] == (not expected) and resumed[0]["reason"] == "; ".join(expected)
    assert resumed[0]["step"] == 2 and state_of(tmp_path / "a2/step-4")


def test_one_rank_names_what_is_not_taken_over_when_there_are_two(tmp_path):
    run(tmp_path / "a1", {"optimizer": ADAMW}, 2)
    notes, _ = run(tmp_path / "a2", {"optimizer": SGD}, 2, resume_from=str(tmp_path / "a1/step-2"))
    assert len(notes) == 1 and "optimizer adamw -> sgd" in notes[0]


def test_samples_held_out_are_named_when_they_are_others(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((64, 16), np.float32))
    np.save(tmp_path / "y.npy", np.arange(64) % 4)
    before = {"model": NARROW, "data": {"name": "npy", "x": f"{tmp_path}/x.npy", "y": f"{tmp_path}/y.npy",
                                        "classes": 16, "batch_size": 8, "val_split": 0.25}}
    run(tmp_path / "a1", before)
    notes, _ = run(tmp_path / "a2", before | {"trainer": {"sampler": "keyed"}}, resume_from=str(tmp_path / "a1/step-2"))
    assert notes == [HEAD + "trainer.sampler torch -> keyed: another order of samples from here on, and val_split holds "
                     "out others, of which most were trained on"]
