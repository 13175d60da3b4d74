"""evaluate_from: which weights validate, test and predict use, and that the result says which they were."""
import json
import shutil

import numpy as np
import pytest

from plans import plan_of
from ranks import EXIT, Attempt, run_by_hand

OK = 0
# The loss falls from epoch to epoch, so the largest is the first one's: the best are never the last.
FIRST_IS_BEST = {"every_n_train_steps": 0, "every_n_epochs": 1, "save_top_k": 2, "monitor": "val_loss", "mode": "max"}
STEPS, FIRST = 48, 16


class Ran:
    def __init__(self, ranks, code):
        self.code, self.ranks = code, ranks
        self.weights = [e["text"] for e in ranks[0].event("weights")]
        self.notes = [e["text"] for e in ranks[0].event("note")]
        self.end = ranks[0].event("end")[0]

    def value(self, name):
        found = [[m for m in r.metrics if m["name"] == name] for r in self.ranks]
        return sum(m["sum"] for of in found for m in of) / sum(m["count"] for of in found for m in of)


def run(directory, world=1, resume_from=None, code=0, evaluate_from=None, **sections):
    stages = sections.pop("stages", ["fit", "test"])
    plan = plan_of(stages=stages, data={"batch_size": 32 // world}, evaluate_from=evaluate_from, **sections)
    plan["run"].update(checkpoint_dir=directory and str(directory), resume_from=resume_from and str(resume_from))
    where = directory.parent
    where.mkdir(exist_ok=True)
    with Attempt(where, plan, world) as attempt:
        codes = attempt.wait()
        assert codes == [code] * world, attempt.story()
        return Ran(attempt.ranks, codes[0])


def loss_of(directory, weights, stage="test", name="test_loss"):
    """Of those weights alone."""
    return run(directory, stages=[stage], init_from=str(weights)).value(name)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("asked", [None, "best"])
def test_best_weights_are_tested_where_a_best_exists(tmp_path, world, asked):
    ran = run(tmp_path / "a1", world, evaluate_from=asked, checkpoint=FIRST_IS_BEST, stages=["fit", "validate", "test"])
    best = tmp_path / f"a1/step-{FIRST}"
    assert len(ran.weights) == 1 and ran.weights[0].startswith(f"best, a1/step-{FIRST} (val_loss "), ran.weights
    assert ran.value("test_loss") == pytest.approx(loss_of(tmp_path / "x", best), rel=1e-5)
    assert ran.value("test_loss") != pytest.approx(loss_of(tmp_path / "x", tmp_path / f"a1/step-{STEPS}"), rel=1e-3)
    # The stage's points are its own: of the same step, they would be one with those of fit's last validation.
    assert ran.value("validate_loss") == pytest.approx(loss_of(tmp_path / "x", best, "validate", "val_loss"), rel=1e-5)
    assert [m["step"] for m in ran.ranks[0].metrics if m["name"] == "val_loss"] == [16, 32, 48]


def test_last_weights_and_those_of_a_path_are_tested_when_asked_for(tmp_path):
    last = run(tmp_path / "a1", evaluate_from="last", checkpoint=FIRST_IS_BEST)
    assert last.weights == [f"last, step {STEPS}"]
    assert last.value("test_loss") == pytest.approx(loss_of(tmp_path / "x", tmp_path / f"a1/step-{STEPS}"), rel=1e-6)
    first = tmp_path / f"a1/step-{FIRST}"
    path = run(tmp_path / "b1", evaluate_from=str(first), checkpoint=FIRST_IS_BEST)
    assert path.weights == [f"those of {first}"]
    assert path.value("test_loss") == pytest.approx(loss_of(tmp_path / "x", first), rel=1e-6)
    assert run(tmp_path / "c1").weights == [f"last, step {STEPS}"]  # nothing is monitored


def test_predictions_are_those_of_the_best_weights(tmp_path):
    values = {"values": "logits"}
    run(tmp_path / "a1", stages=["fit", "predict"], predict=values, checkpoint=FIRST_IS_BEST)
    for step, same in ((FIRST, True), (STEPS, False)):
        run(tmp_path / f"b{step}", stages=["predict"], predict=values, init_from=str(tmp_path / f"a1/step-{step}"))
        a, b = (np.load(tmp_path / d / "predictions.npy") for d in ("a1", f"b{step}"))
        assert np.allclose(a, b, rtol=1e-6) == same


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("steps", [STEPS, 20])
def test_best_of_an_earlier_attempt_is_tested_after_a_resume(tmp_path, world, steps):
    """In the test stage, when fit was over; or in fit."""
    run(tmp_path / "a1", world, stages=["fit"], trainer={"max_steps": steps}, checkpoint=FIRST_IS_BEST)
    ran = run(tmp_path / "a2", world, tmp_path / f"a1/step-{steps}", checkpoint=FIRST_IS_BEST)
    assert ran.weights[0].startswith(f"best, a1/step-{FIRST} (val_loss "), ran.weights
    expected = loss_of(tmp_path / "x", tmp_path / f"a1/step-{FIRST}")
    assert ran.value("test_loss") == pytest.approx(expected, rel=1e-5)


def test_best_of_another_job_is_not_taken_for_one_of_its_own(tmp_path):
    """Its path would be the same, "a1/step-16", and a later attempt would not find it."""
    run(tmp_path / "one/a1", stages=["fit"], trainer={"max_steps": 32}, checkpoint=FIRST_IS_BEST)
    ran = run(tmp_path / "two/a1", resume_from=tmp_path / "one/a1/step-32", checkpoint=FIRST_IS_BEST, run={"job": "two"})
    assert ran.weights[0].startswith(f"best, a1/step-{STEPS} (val_loss "), ran.weights
    assert json.loads((tmp_path / f"two/a1/step-{STEPS}/manifest.json").read_text())["best"]["step"] == STEPS


@pytest.mark.parametrize("how", ["gone", "damaged"])
@pytest.mark.parametrize("world", [1, 2])
def test_best_that_is_not_there_is_said_or_refused_and_never_replaced_in_silence(tmp_path, world, how):
    run(tmp_path / "a1", world, stages=["fit"], checkpoint=FIRST_IS_BEST)
    best = tmp_path / f"a1/step-{FIRST}"
    if how == "gone":
        shutil.rmtree(best)
    else:
        data = bytearray((best / "model.safetensors").read_bytes())
        data[-1] ^= 1
        (best / "model.safetensors").write_bytes(data)
    newest = tmp_path / f"a1/step-{STEPS}"
    ran = run(tmp_path / "a2", world, newest, checkpoint=FIRST_IS_BEST)
    why = f"because the best checkpoint, a1/step-{FIRST}, " + ("is not on" if how == "gone" else "cannot be used")
    assert ran.weights[0].startswith(f"last, step {STEPS}, {why}"), ran.weights
    assert [n for n in ran.notes if why in n], ran.notes
    assert ran.value("test_loss") == pytest.approx(loss_of(tmp_path / "x", newest), rel=1e-5)
    asked = run(tmp_path / "a3", world, newest, EXIT["data"], "best", checkpoint=FIRST_IS_BEST)
    assert asked.end["class"] == "data" and f"a1/step-{FIRST}" in asked.end["message"] and asked.weights == []


def test_last_weights_are_said_when_no_checkpoint_is_kept(tmp_path):
    ran = run(tmp_path / "a1", checkpoint=FIRST_IS_BEST | {"save_top_k": 0})
    assert ran.weights == [f"last, step {STEPS}, because no checkpoint is kept"]
    assert [n for n in ran.notes if "no checkpoint is kept" in n]
    plan = plan_of(stages=["fit", "test"], evaluate_from="best", checkpoint=FIRST_IS_BEST, run={"job": None})
    code, lines = run_by_hand(tmp_path, plan)
    assert code == EXIT["bad_spec"] and "evaluate_from: best needs a place for checkpoints" in lines[-1]["message"]
    assert not [line for line in lines if "name" in line]


def test_path_that_is_not_there_is_refused_before_the_first_step(tmp_path):
    plan = plan_of(stages=["fit", "test"], evaluate_from="/nowhere/step-1", run={"job": None})
    code, lines = run_by_hand(tmp_path, plan)
    assert code == EXIT["bad_spec"] and "there is no '/nowhere/step-1'" in lines[-1]["message"]
    assert not [line for line in lines if "name" in line]


def test_result_names_the_weights(daemon, tmp_path):
    (tmp_path / "job.yaml").write_text(json.dumps({
        "name": "weights", "stages": ["fit", "test"], "model": {"name": "mlp", "layers": [16, 8, 4]},
        "data": {"name": "synthetic", "samples": 64, "batch_size": 8}, "optimizer": {"name": "sgd", "lr": 0.1},
        "trainer": {"accelerator": "cpu", "max_epochs": 3, "devices": 2},
        "checkpoint": {"monitor": "val_loss", "mode": "max", "save_top_k": 2}}))
    ran = daemon.ctl("submit", tmp_path / "job.yaml", "--follow", check=OK)
    job, said = ran.stdout.split()[0], "best, a1/step-4 (val_loss "
    line, = [line for line in ran.stdout.splitlines() if line.split()[0] == "weights"]
    assert said in line
    assert said in daemon.ctl("describe", job, check=OK).stdout
    assert daemon.ctl_json("describe", job)["weights"].startswith(said)
    daemon.restart()
    assert daemon.job(job).weights.startswith(said)
