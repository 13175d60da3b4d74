"""What training measured over an epoch: over all its samples and ranks, also after a resume in its middle, and counted
from 0 wherever an epoch is named. What no job can measure cannot be monitored."""
import json
import math
import re

import pytest

from plans import plan_of, steps_in
from ranks import EXIT, Attempt, run_by_hand

OK, FAILED = 0, 1
METRICS = ("loss", "accuracy")


def run(directory, world=1, resume_from=None, **sections):
    sections.setdefault("data", {"batch_size": 32 // world})
    plan = plan_of(**sections)
    plan["run"].update(checkpoint_dir=str(directory), resume_from=resume_from and str(resume_from))
    with Attempt(directory.parent, plan, world) as attempt:
        assert attempt.wait() == [0] * world, attempt.story()
        return [r.metrics for r in attempt.ranks], [e["text"] for e in attempt.ranks[0].event("note")]


def points(of_rank, name):
    """(epoch, step, sum, count)"""
    return [(m["epoch"], m["step"], m["sum"], m["count"]) for m in of_rank if m["name"] == name]


def manifest_of(directory):
    return json.loads((directory / "manifest.json").read_text())


@pytest.mark.parametrize("world", [1, 2])
def test_epoch_is_the_mean_over_its_samples_and_not_its_last_batch(tmp_path, world):
    ranks, _ = run(tmp_path / "a1", world, trainer={"max_epochs": 3, "accumulate_grad_batches": 3})
    for name in METRICS:
        for of_rank in ranks:
            steps = points(of_rank, f"train_{name}_step")
            expected = [(e, max(s[1] for s in steps if s[0] == e), sum(s[2] for s in steps if s[0] == e),
                         sum(s[3] for s in steps if s[0] == e)) for e in range(3)]
            assert points(of_rank, f"train_{name}_epoch") == expected
        counts = [sum(p[3] for r in ranks for p in points(r, f"train_{name}_epoch") if p[0] == e) for e in range(3)]
        assert counts == [500] * 3
    assert not [m for r in ranks for m in r if m["name"] in ("train_loss", "train_accuracy")]


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("step", [1, 5, 16, 17])
def test_epoch_is_the_same_when_the_run_resumed_in_its_middle(tmp_path, world, step):
    names = [f"train_{n}_epoch" for n in METRICS]
    whole, _ = run(tmp_path / "whole", world, trainer={"max_steps": 32})
    run(tmp_path / "a1", world, trainer={"max_steps": step})
    rest, notes = run(tmp_path / "a2", world, tmp_path / f"a1/step-{step}", trainer={"max_steps": 32})
    for a, b in zip(whole, rest):
        for name in names:
            assert points(b, name) == [p for p in points(a, name) if p[1] > step]
    assert not [n for n in notes if "train_*_epoch" in n]


def test_epoch_counts_every_sample_once_when_it_resumes_with_more_ranks(tmp_path):
    whole, _ = run(tmp_path / "whole", trainer={"max_epochs": 1}, data={"batch_size": 32})
    run(tmp_path / "a1", trainer={"max_steps": 5}, data={"batch_size": 32})
    two, _ = run(tmp_path / "a2", 2, tmp_path / "a1/step-5", trainer={"max_epochs": 1}, data={"batch_size": 16})
    for name in METRICS:
        one, = points(whole[0], f"train_{name}_epoch")
        both = [points(r, f"train_{name}_epoch")[0] for r in two]
        assert sum(p[3] for p in both) == one[3] == 500
        assert math.fsum(p[2] for p in both) == pytest.approx(one[2], rel=1e-5)


def test_epoch_has_no_metrics_rather_than_wrong_ones_when_an_older_checkpoint_does_not_know_its_beginning(tmp_path):
    run(tmp_path / "a1", trainer={"max_steps": 5})
    path = tmp_path / "a1/step-5/manifest.json"
    old = json.loads(path.read_text())
    old["metrics"] = {"train_loss": old["metrics"].pop("train_loss_step")}
    del old["epoch_metrics"]
    path.write_text(json.dumps(old))
    run(tmp_path / "a2", 1, path.parent, trainer={"max_steps": 9})
    assert "train_loss_epoch" not in manifest_of(tmp_path / "a2/step-9")["metrics"]
    ranks, notes = run(tmp_path / "a3", 1, tmp_path / "a2/step-9", trainer={"max_epochs": 2})
    assert [p[0] for p in points(ranks[0], "train_loss_epoch")] == [1]
    assert len([n for n in notes if "checkpoint of step 9" in n and "epoch 0" in n and "train_*_epoch" in n]) == 1
    assert "train_loss_epoch" in manifest_of(tmp_path / "a3/step-32")["metrics"]


@pytest.mark.parametrize("steps", [1, 3, 18])
def test_last_step_is_logged_when_the_run_is_shorter_than_the_interval(tmp_path, steps):
    (metrics,), _ = run(tmp_path / "a1", trainer={"max_steps": steps, "log_every_n_steps": 50})
    expected = [s for s in (16, steps) if s <= steps]
    for name in ("train_loss_step", "train_loss_epoch", "lr"):
        assert [p[1] for p in points(metrics, name)] == expected, name


@pytest.mark.parametrize("name", ["train_loss", "train_loss_epoch"])
def test_monitor_of_the_training_loss_is_of_the_epoch_and_not_its_last_batch(tmp_path, name):
    ranks, _ = run(tmp_path / "a1", 2, trainer={"max_epochs": 4}, optimizer={"lr": 0.05},
                   checkpoint={"every_n_train_steps": 0, "every_n_epochs": 1, "save_top_k": 1, "monitor": name})
    means = {}
    for e, (a, b) in enumerate(zip(*[points(r, "train_loss_epoch") for r in ranks])):
        means[a[1]] = (a[2] + b[2]) / (a[3] + b[3])
    best = min(means, key=means.get)
    newest = manifest_of(tmp_path / f"a1/step-{max(means)}")
    assert newest["best"] == {"monitor": name, "mode": "min", "value": means[best], "step": best,
                              "path": f"a1/step-{best}"}
    assert steps_in(tmp_path / "a1") == sorted({best, max(means)})


REFUSED = {
    "nothing to validate on": ({"limit_val_batches": 0}, "val_loss", "there is nothing to validate on"),
    "ends before a validation": ({"max_steps": 7}, "val_loss", "the run ends before its first validation"),
    "a name that nobody logs": ({}, "val_los", None),
    "a name of another stage": ({}, "test_loss", None),
    "the rate": ({}, "lr", None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_monitor_that_the_job_can_never_give_is_refused_with_the_names_that_there_are(tmp_path, case):
    trainer, monitor, why = REFUSED[case]
    plan = plan_of(trainer=trainer, checkpoint={"monitor": monitor, "dir": str(tmp_path / "ck")}, run={"job": None})
    code, lines = run_by_hand(tmp_path, plan)
    end = lines[-1]
    assert code == EXIT["bad_spec"] and end["class"] == "bad_spec"
    assert f"checkpoint.monitor: this job gives no '{monitor}'" in end["message"]
    assert "it gives train_loss, train_loss_epoch, train_loss_step, train_accuracy" in end["message"]
    assert (why or "; it gives") in end["message"] and (why is None) == ("val_accuracy" in end["message"])
    assert not (tmp_path / "ck").exists()


SPEC = """
name: epochs
stages: [fit]
model: {name: mlp, layers: [16, 8, 4]}
data: {name: synthetic, samples: 64, batch_size: 8}
optimizer: {name: sgd, lr: 0.1}
trainer: {accelerator: cpu, max_epochs: 3, log_every_n_steps: 3}
"""


def test_plan_refuses_a_monitor_that_the_job_can_never_give(daemon, tmp_path):
    (tmp_path / "job.yaml").write_text(SPEC + "checkpoint: {monitor: val_loss}\n")
    assert "val_loss" not in daemon.ctl("plan", tmp_path / "job.yaml", check=OK).stderr
    said = daemon.ctl("plan", tmp_path / "job.yaml", "--set", "trainer.limit_val_batches=0")
    assert said.returncode != OK and "this job gives no 'val_loss'" in said.stderr and "train_loss" in said.stderr


def test_epochs_count_from_the_same_number_in_every_view(daemon, tmp_path):
    (tmp_path / "job.yaml").write_text(SPEC)
    ran = daemon.ctl("submit", tmp_path / "job.yaml", "--follow", check=OK)
    job = ran.stdout.split()[0]
    assert re.findall(r"^epoch (\d+): train_loss_epoch [\d.]+, train_accuracy_epoch", ran.stderr, re.M) == ["0", "1", "2"]
    for name in ("train_loss_step", "train_loss_epoch", "val_loss"):
        assert sorted({p.epoch for p in daemon.points(job, name)}) == [0, 1, 2]
    assert daemon.job(job).epoch == 2 and re.search(r"^epoch +2$", daemon.ctl("describe", job, check=OK).stdout, re.M)
    assert {c.step: c.epoch for c in daemon.checkpoints(job)}[24] == 2
    assert " epoch 2 " in daemon.ctl("watch", job, check=OK).stdout.splitlines()[-1]
    metrics = daemon.job(job).metrics
    last = daemon.points(job, "train_loss_epoch")[-1]
    assert metrics["train_loss_epoch"] == last.value and "train_loss" not in metrics
