"""fast_dev_run and overfit_batches: a run sees the samples that Lightning's Trainer sees (tests/golden/loop.json)."""
import json
import pathlib

import numpy as np
import pytest
import support
from plans import plan_of, steps_in
from ranks import EXIT, Attempt
from telling import MODEL, arrays, seen

GOLDEN = json.loads((pathlib.Path(support.ROOT) / "tests/golden/loop.json").read_text())
TRAIN, VAL, BATCH = 12, 7, 2


def plan_for(directory, trainer, **more):
    plan = plan_of({"optimizer": {"name": "sgd", "lr": 0.1}, "stages": ["fit", "test", "predict"]},
                   model=MODEL,
                   trainer={"max_epochs": 3} | trainer,
                   checkpoint={"every_n_train_steps": 1, "save_top_k": 1, "monitor": "val_loss"},
                   predict={"output": str(directory / "out.npy")},
                   run={"checkpoint_dir": str(directory / "a1")}, **more)
    plan["data"] = {"name": "npy", "batch_size": BATCH, "shuffle": True} | arrays(directory, TRAIN, VAL)
    return plan


@pytest.mark.parametrize("case", [c for c in GOLDEN["debug_runs"] if c["trainer"].keys() & {"fast_dev_run", "overfit_batches"}],
                         ids=lambda c: json.dumps(c["trainer"]))
def test_a_run_sees_the_samples_that_lightnings_does(tmp_path, case):
    more = {"early_stopping": {"monitor": "val_loss", "patience": 1}} if "fast_dev_run" in case["trainer"] else {}
    plan = plan_for(tmp_path, case["trainer"], evaluate_from="best", **more)
    plan["data"]["shuffle"] = case["shuffle"]
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        window = case["trainer"].get("accumulate_grad_batches", 1)
        batches = [b for epoch in case["train"] for b in epoch]
        windows = [sorted(sum(batches[i:i + window], [])) for i in range(0, len(batches), window)]
        assert seen(one.ranks, "train_loss_step") == windows
        assert seen(one.ranks, "val_loss") == case["val"]
        assert seen(one.ranks, "test_loss") == [case["test"]]
        assert one.ranks[0].step == case["steps"]
        (weights,) = one.ranks[0].event("weights")
        assert weights["text"].startswith("last" if "fast_dev_run" in case["trainer"] else "best"), weights
        assert not [n for n in one.ranks[0].event("note") if "early stopping" in n["text"]]
    assert len(np.load(tmp_path / "out.npy")) == len(case["predict"])
    assert bool(steps_in(tmp_path / "a1")) == (case["checkpoints"] > 0)


def test_ranks_share_the_batches_of_a_fast_run(tmp_path):
    with Attempt(tmp_path, plan_for(tmp_path, {"fast_dev_run": 2, "overfit_batches": 2}), 2) as two:
        assert two.wait() == [0, 0], two.story()
        assert seen(two.ranks, "train_loss_step") == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert seen(two.ranks, "val_loss") == [list(range(VAL))]


def test_overfitting_goes_on_with_the_same_bits(tmp_path):
    plan = plan_for(tmp_path, {"overfit_batches": 3, "max_epochs": 4})
    plan["checkpoint"] = {"every_n_train_steps": 1, "save_top_k": -1}
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
    plan["run"] |= {"checkpoint_dir": str(tmp_path / "a2"), "resume_from": str(tmp_path / "a1/step-7")}
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        assert seen(one.ranks, "train_loss_step") == [[2, 3], [4, 5]] + [[0, 1], [2, 3], [4, 5]]
        assert one.ranks[0].event("resumed")[0]["exact"]


def test_fast_run_that_is_stopped_saves_where_it_is(tmp_path):
    plan = plan_for(tmp_path, {"fast_dev_run": 1000})
    plan["model"] = {"name": "mlp", "layers": [16, 1024, 1024, 4]}
    plan["data"] = {"name": "synthetic", "samples": 100000, "batch_size": 64}
    with Attempt(tmp_path, plan) as one:
        one.until(lambda a: a.ranks[0].step >= 1)
        one.stop()
        assert one.wait() == [EXIT["stopped"]], one.story()
    assert len(steps_in(tmp_path / "a1")) == 1


def test_job_is_tried_in_a_moment(daemon):
    done = daemon.finish(daemon.submit(support.SPEC, "trainer.fast_dev_run=true"))
    assert done.global_step == 1 and not list(daemon.checkpoints(done.id))
