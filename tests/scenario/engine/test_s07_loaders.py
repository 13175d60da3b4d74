"""Loaders: how the samples of a split are divided. Validation on several has metrics of each beside those
of the split, which stay what they were. Data may also be left whole on each rank."""
import json

import numpy as np
import pytest

from ranks import Attempt, run_by_hand, sizes

BLOCK = 8


def tokens_file(path, seed, rows, high):
    np.random.RandomState(seed).randint(0, high, rows * BLOCK + 1).astype("<u2").tofile(path)
    return str(path)


def plan_of(files, by_file, stages=("fit", "test"), **trainer):
    return {"format": 1, "name": "w", "seed_everything": 3, "stages": list(stages),
            "model": {"name": "gpt", "n_layer": 1, "n_head": 2, "n_embd": 16},
            "data": {"name": "tokens", "train": files[:1], "val": files, "val_by_file": by_file,
                     "block_size": BLOCK, "vocab_size": 64, "batch_size": 4},
            "optimizer": {"name": "adamw", "lr": 0.01},
            "trainer": dict({"accelerator": "reference", "max_steps": 4, "num_sanity_val_steps": 1}, **trainer),
            "checkpoint": {"every_n_epochs": 1000}, "run": {"job": "w", "threads_per_rank": 1}}


@pytest.fixture
def files(tmp_path):
    """11 rows, 6 rows and 1 row: with two ranks one has nothing of the last."""
    return [tokens_file(tmp_path / f"{i}.bin", i, rows, high) for i, (rows, high) in
            enumerate([(11, 64), (6, 8), (1, 2)])]


def seen(metrics, of):
    """name -> (sum, count) over the ranks, of the last evaluation."""
    found = {}
    last = max(m["step"] for m in metrics if m["name"].startswith(of))
    for m in metrics:
        if m["name"].startswith(of) and m["step"] == last:
            a, b = found.get(m["name"], (0, 0))
            found[m["name"]] = (a + m["sum"], b + m["count"])
    return found


@pytest.mark.parametrize("accelerator", ["reference", "cpu"])
def test_loaders_add_up_to_the_split(tmp_path, files, accelerator):
    (tmp_path / "whole").mkdir()
    code, lines = run_by_hand(tmp_path, plan_of(files, True, accelerator=accelerator))
    assert code == 0
    code, whole = run_by_hand(tmp_path / "whole", plan_of(files, False, accelerator=accelerator))
    assert code == 0
    for of in ("val_loss", "test_loss"):
        parts = seen([m for m in lines if "sum" in m], of)
        assert sorted(parts) == [of, f"{of}/0", f"{of}/1", f"{of}/2"]
        assert [parts[f"{of}/{i}"][1] for i in range(3)] == [11, 6, 1]
        for k in range(2):
            assert sum(parts[f"{of}/{i}"][k] for i in range(3)) == pytest.approx(parts[of][k], rel=1e-12)
        one = seen([m for m in whole if "sum" in m], of)
        assert list(one) == [of] and one[of][1] == 18
        assert one[of][0] == pytest.approx(parts[of][0], rel=1e-5)


def test_loaders_are_divided_among_ranks(tmp_path, files):
    plan = plan_of(files, True, devices=2)
    with Attempt(tmp_path, plan, 2) as two:
        assert two.wait() == [0, 0]
        parts = seen([m for rank in two.ranks for m in rank.metrics], "val_loss")
    assert {name: count for name, (_, count) in parts.items()} == {
        "val_loss": 18, "val_loss/0": 11, "val_loss/1": 6, "val_loss/2": 1}


def test_limit_counts_for_each_loader(tmp_path, files):
    code, lines = run_by_hand(tmp_path, plan_of(files, True, limit_val_batches=1))
    assert code == 0
    parts = seen([m for m in lines if "sum" in m], "val_loss")
    assert [parts[f"val_loss/{i}"][1] for i in range(3)] == [4, 4, 1]
    assert parts["val_loss"][1] == 9


def test_predictions_are_those_of_the_split_in_order(tmp_path, files):
    for name, by_file in (("a", True), ("b", False)):
        (tmp_path / name).mkdir()
        plan = dict(plan_of(files, by_file, stages=["fit", "predict"]), predict={"output": str(tmp_path / name / "predictions.npy")})
        assert run_by_hand(tmp_path / name, plan)[0] == 0
    found = [tmp_path / name / "predictions.npy" for name in "ab"]
    assert len(np.load(found[0])) == 18
    assert np.array_equal(np.load(found[0]), np.load(found[1]))


def monitored(directory, files, max_steps, val_check_interval=1, resume_from=None):
    plan = plan_of(files, True, stages=["fit"], devices=2, max_steps=max_steps, val_check_interval=val_check_interval)
    plan["checkpoint"] = {"monitor": "val_loss/1", "mode": "max", "save_top_k": 1, "every_n_train_steps": 1}
    plan["lr_scheduler"] = {"name": "reduce_on_plateau", "monitor": "val_loss/2", "mode": "max", "patience": 0}
    plan["run"].update(checkpoint_dir=str(directory), resume_from=resume_from)
    return plan


def test_monitors_follow_one_loader_each(tmp_path, files):
    """The losses fall, so the first of them are the best, and the rate falls after each of the others."""
    with Attempt(tmp_path, monitored(tmp_path / "c", files, 4), 2) as two:
        assert two.wait() == [0, 0], two.story()
        points = [m for rank in two.ranks for m in rank.metrics]
    steps = range(1, 5)
    losses = {of: [sum(m["sum"] for m in points if m["name"] == f"val_loss/{of}" and m["step"] == step) / n
                   for step in steps] for of, n in ((1, 6), (2, 1))}
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == ["step-1", "step-4"]
    found = json.loads((tmp_path / "c/step-4/manifest.json").read_text())
    assert losses[1][0] == max(losses[1])
    assert (found["best"]["monitor"], found["best"]["step"]) == ("val_loss/1", 1)
    assert found["best"]["value"] == pytest.approx(losses[1][0], rel=1e-12)
    assert found["metrics"]["val_loss/1"]["count"] == 6
    plateau = found["plateau"]
    assert plateau["monitor"] == "val_loss/2" and plateau["best"] == pytest.approx(max(losses[2]), rel=1e-12)
    assert plateau["lr_scale"] < 1


def test_monitor_of_a_loader_goes_on_when_a_run_is_resumed(tmp_path, files):
    """Of the third step, which no validation follows, the checkpoint says what the one before it found."""
    for name, max_steps, resume in (("a", 2, None), ("b", 3, str(tmp_path / "a/step-2")), ("whole", 3, None)):
        with Attempt(tmp_path, monitored(tmp_path / name, files, max_steps, 2, resume), 2) as two:
            assert two.wait() == [0, 0], two.story()
    b, whole = (json.loads((tmp_path / name / "step-3/manifest.json").read_text()) for name in ("b", "whole"))
    assert {"val_loss", "val_loss/0", "val_loss/1", "val_loss/2"} <= b["metrics"].keys()
    assert b["metrics"] == whole["metrics"]
    assert (b["best"]["monitor"], b["best"]["value"]) == ("val_loss/1", whole["best"]["value"])
    assert b["plateau"] == whole["plateau"]


def test_monitor_is_refused_when_there_is_no_such_loader(tmp_path, files):
    plan = dict(plan_of(files, True), checkpoint={"monitor": "val_loss/3", "mode": "min"})
    code, lines = run_by_hand(tmp_path, plan)
    assert code != 0
    assert "checkpoint.monitor: this job gives no 'val_loss/3'; it gives" in lines[-1]["message"]
    assert "val_loss, val_loss/0, val_loss/1, val_loss/2" in lines[-1]["message"]


def state_of(folder):
    return [(folder / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]


@pytest.mark.parametrize("accelerator", ["reference", "cpu"])
def test_ranks_are_equal_to_one_when_each_plays_all_data(tmp_path, files, accelerator):
    """The mean of two equal gradients is that gradient, to the bit."""
    def plan(name, **trainer):
        made = plan_of(files, True, stages=["fit"], accelerator=accelerator, max_steps=7, **trainer)
        made["data"]["shuffle"] = True
        made["run"]["checkpoint_dir"] = str(tmp_path / name)
        return made
    with Attempt(tmp_path, plan("two", devices=2, use_distributed_sampler=False), 2) as two:
        assert two.wait() == [0, 0], two.story()
        parts = seen([m for rank in two.ranks for m in rank.metrics], "val_loss")
    assert [parts[f"val_loss/{i}"][1] for i in range(3)] == [22, 12, 2]
    with Attempt(tmp_path, plan("one")) as one:
        assert one.wait() == [0]
    assert state_of(tmp_path / "two" / "step-7") == state_of(tmp_path / "one" / "step-7")


def test_predict_is_refused_when_each_rank_would_write_all_rows(tmp_path, files):
    plan = plan_of(files, False, stages=["predict"], devices=2, use_distributed_sampler=False)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(AssertionError, match="use_distributed_sampler: false would predict each sample on each of 2"):
        sizes(tmp_path / "plan.json", 2)


def test_daemon_keeps_what_each_loader_gave(daemon, files):
    plan = plan_of(files, True, devices=2)
    spec = {key: plan[key] for key in ("name", "model", "data", "optimizer", "trainer")}
    job = daemon.submit(json.dumps(dict(spec, stages=["fit"])))
    daemon.finish(job)
    shown = {s["name"]: s["points"] for s in daemon.ctl_json("metrics", job)["series"]}
    assert {"val_loss", "val_loss/0", "val_loss/1", "val_loss/2"} <= shown.keys()
    mean = {name: points[-1]["value"] for name, points in shown.items() if name.startswith("val_loss")}
    of_parts = (11 * mean["val_loss/0"] + 6 * mean["val_loss/1"] + mean["val_loss/2"]) / 18
    assert of_parts == pytest.approx(mean["val_loss"], rel=1e-9)
