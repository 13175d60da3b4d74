"""Every loss that a model can minimize, against torch's numbers (tests/golden/losses.json, which
tests/tools/make_golden.py made): each step, all of the validation at once, the last weights, the
predictions. Then what only a whole job shows: resume, two ranks, a daemon, and targets that do not fit."""
import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import problems
import support
from ranks import EXIT, Attempt, run_by_hand

GOLDEN = json.loads((pathlib.Path(support.ROOT) / "tests/golden/losses.json").read_text())
CLOSE = 2e-5  # fp32 against fp64, relative


def npy(folder, x, y):
    for name, array in (("x", x), ("y", y)):
        np.save(folder / f"{name}.npy", array)
    return {"name": "npy", **{key: str(folder / f"{key[-1]}.npy") for key in ("x", "y", "val_x", "val_y")}}


def plan_of(folder, case, accelerator="reference", world=1, **sections):
    job, loss, kind = problems.LOSSES[case]
    save_file(problems.first_weights(job), folder / "first.safetensors")
    if job == "gpt":
        (folder / "tokens.bin").write_bytes(problems.tokens().tobytes())
        model = {"name": "gpt", "n_layer": problems.BLOCKS, "n_head": problems.HEADS, "n_embd": problems.WIDTH}
        files = [str(folder / "tokens.bin")]
        data = {"name": "tokens", "train": files, "val": files, "block_size": problems.CONTEXT, "vocab_size": problems.TOKENS}
    else:
        model, data = {"name": "mlp", "layers": [4, 5, 3]}, npy(folder, *problems.arrays(kind))
    plan = {"format": 1, "name": "losses", "stages": ["fit"], "init_from": str(folder / "first.safetensors"),
            "model": dict(model, loss=loss), "data": dict(data, batch_size=problems.BATCH // world),
            "optimizer": problems.LOSS_OPTIMIZER,
            "trainer": {"accelerator": accelerator, "max_steps": problems.STEPS, "log_every_n_steps": 1,
                        "num_sanity_val_steps": 0, "devices": world},
            "checkpoint": {"every_n_epochs": 1, "save_top_k": -1},
            "run": {"job": "losses", "threads_per_rank": 1, "checkpoint_dir": str(folder / "out")}}
    for name, values in sections.items():
        plan[name] = dict(plan.get(name, {}), **values) if isinstance(values, dict) else values
    return plan


def merged(ranks, name):
    """One value a step, merged over the ranks."""
    sums = {}
    for m in (m for r in ranks for m in r.metrics if m["name"] == name):
        total, count = sums.get(m["step"], (0.0, 0.0))
        sums[m["step"]] = (total + m["sum"], count + m["count"])
    return [total / count for _, (total, count) in sorted(sums.items())]


# On two ranks, where labels count alike: else a rank's mean is over its own, as under torch's DDP.
RUNS = [(case, accelerator, world) for case, (_, loss, _) in problems.LOSSES.items()
        for accelerator, world in (("reference", 1), ("cpu", 1), ("cpu", 2))
        if world == 1 or not loss.keys() & {"class_weights", "ignore_index"}]


@pytest.mark.parametrize("case, accelerator, world", RUNS)
def test_steps_and_validation_are_those_of_torch(tmp_path, case, accelerator, world):
    job, golden = problems.LOSSES[case][0], GOLDEN[case]
    stages = ["fit"] if job == "gpt" else ["fit", "predict"]
    plan = plan_of(tmp_path, case, accelerator, world, stages=stages, predict={"values": "logits"})
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait() == [0] * world, attempt.story()
        assert merged(attempt.ranks, "train_loss_step") == pytest.approx(golden["loss"], rel=CLOSE)
        assert merged(attempt.ranks, "val_loss")[-1] == pytest.approx(golden["val_loss"], rel=CLOSE)
        accuracy = merged(attempt.ranks, "val_accuracy")
    assert (accuracy[-1] if accuracy else None) == pytest.approx(golden["val_accuracy"])
    last = load_file(tmp_path / f"out/step-{problems.STEPS}/model.safetensors")
    assert {k: np.linalg.norm(v.astype("f8")) for k, v in last.items()} == pytest.approx(golden["norm"], rel=CLOSE)
    if job == "mlp":
        outputs = np.load(tmp_path / "out/predictions.npy")
        assert outputs.shape == (problems.ROWS, 3) and outputs.dtype == np.float32
        assert outputs.flatten() == pytest.approx(golden["outputs"], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("case", ["mse", "bce", "all options"])
@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true"])
def test_losses_are_near_those_of_torch_in_every_precision(tmp_path, case, precision):
    plan = plan_of(tmp_path, case, "cpu", trainer={"precision": precision})
    with Attempt(tmp_path, plan) as attempt:
        assert attempt.wait() == [0], attempt.story()
        losses = merged(attempt.ranks, "train_loss_step")
    close = 1e-6 if precision == "64-true" else 0.03
    assert np.linalg.norm(np.subtract(losses, GOLDEN[case]["loss"])) <= close * np.linalg.norm(GOLDEN[case]["loss"])


@pytest.mark.parametrize("accelerator, world, batch", [("reference", 1, 24), ("reference", 1, 1), ("cpu", 1, 24),
                                                       ("cpu", 1, 5), ("cpu", 1, 1), ("cpu", 2, 5), ("cpu", 2, 1)])
@pytest.mark.parametrize("ignored", [None, 2])
def test_smoothed_loss_is_that_of_all_labels_when_a_class_weighs_nothing(tmp_path, accelerator, world, batch, ignored):
    """torch: F.cross_entropy over all rows. A batch whose labels weigh nothing has a loss all the same, by smoothing."""
    smoothing, weight = 0.2, np.array([0, 2, 1.0])
    loss = problems.CE | {"label_smoothing": smoothing, "class_weights": weight.tolist(), "ignore_index": ignored}
    x, y = problems.arrays("labels")
    y[::5] = 1
    w = {k: v.astype("f8") for k, v in problems.first_weights("mlp").items()}
    z = np.maximum(x @ w["fc1.weight"].T + w["fc1.bias"], 0) @ w["fc2.weight"].T + w["fc2.bias"]
    log_p = (z - np.log(np.exp(z).sum(1, keepdims=True))) * weight
    rows = [i for i in range(len(y)) if y[i] != ignored]
    smoothed = (1 - smoothing) * log_p[rows, y[rows]] + smoothing * log_p[rows].mean(1)
    plan = plan_of(tmp_path, "smoothing", accelerator, world, model={"loss": loss}, data={"batch_size": batch},
                   optimizer={"name": "sgd", "lr": 0.0}, trainer={"max_steps": -1, "max_epochs": 1})
    npy(tmp_path, x, y)
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait() == [0] * world, attempt.story()
    for name in ("train_loss_epoch", "val_loss"):
        assert merged(attempt.ranks, name) == pytest.approx([-smoothed.sum() / weight[y[rows]].sum()], rel=CLOSE), name


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("case", ["mse", "bce", "all options"])
def test_resume_is_exact(tmp_path, case, world):
    data = {"shuffle": True}
    with Attempt(tmp_path, plan_of(tmp_path, case, "cpu", world, data=data), world) as whole:
        assert whole.wait() == [0] * world, whole.story()
        losses = merged(whole.ranks, "train_loss_step")
    plan = plan_of(tmp_path, case, "cpu", world, data=data, run={
        "checkpoint_dir": str(tmp_path / "rest"), "resume_from": str(tmp_path / "out/step-6")})
    with Attempt(tmp_path, plan, world) as rest:
        assert rest.wait() == [0] * world, rest.story()
        assert rest.ranks[0].event("resumed")[0]["exact"]
        assert merged(rest.ranks, "train_loss_step") == losses[6:]
    for name in ("model", "optimizer"):
        files = [(tmp_path / f"{at}/step-12/{name}.safetensors").read_bytes() for at in ("out", "rest")]
        assert files[0] == files[1]


def test_a_batch_counts_for_nothing_when_all_its_labels_are_ignored(tmp_path):
    plan = plan_of(tmp_path, "ignored", "cpu", trainer={"max_steps": 6})
    y = np.load(tmp_path / "y.npy")
    y[4:12] = -100
    np.save(tmp_path / "y.npy", y)
    with Attempt(tmp_path, plan) as attempt:
        assert attempt.wait() == [0], attempt.story()
        counts = [m["count"] for m in attempt.ranks[0].metrics if m["name"] == "train_accuracy_step"]
        assert counts == [(y[at:at + 4] != -100).sum() for at in range(0, 24, 4)] and counts[1:3] == [0, 0]
        assert np.isfinite([m["sum"] for m in attempt.ranks[0].metrics if m["name"] == "train_loss_step"]).all()
    plan["run"]["checkpoint_dir"] = str(tmp_path / "by hand")
    code, lines = run_by_hand(tmp_path, plan)
    assert code == 0
    for name in ("train_loss_step", "train_accuracy_step"):   # a mean over nothing is no number
        values = [m["value"] for m in lines if m.get("name") == name]
        assert [at for at, v in enumerate(values) if v == "nan"] == [1, 2] and len(values) == 6


@pytest.mark.parametrize("values, expected", [(None, "logits"), ("classes", "classes")])
@pytest.mark.parametrize("labels", [1, 3])
def test_predictions_of_a_binary_loss_are_its_logits_or_its_sides(tmp_path, labels, values, expected):
    x, y = problems.arrays("sides")
    plan = plan_of(tmp_path, "bce", "cpu", stages=["fit", "predict"], init_from=None, predict={"values": values},
                   model={"layers": [4, 5, labels]})
    np.save(tmp_path / "y.npy", y[:, 0] if labels == 1 else y)
    with Attempt(tmp_path, plan) as attempt:
        assert attempt.wait() == [0], attempt.story()
        accuracy = merged(attempt.ranks, "val_accuracy")[-1]
    found = np.load(tmp_path / "out/predictions.npy")
    if expected == "logits":
        assert found.dtype == np.float32 and found.shape == (24, labels)
        found = found > 0
    else:
        assert found.dtype == np.int32 and found.shape == ((24,) if labels == 1 else (24, labels))
    assert (found.reshape(24, -1) == y[:, :labels]).mean() == pytest.approx(accuracy)


BAD = {
    "labels for mse": ("labels", {"loss": "mse"}, {}, "bad_spec",
                       "loss mse wants float targets 'y' of 3 numbers a sample; the dataset gives i32 labels"),
    "targets for classes": ("targets", {"loss": "cross_entropy"}, {}, "bad_spec",
                            "the dataset gives 3 of f32: set model.loss to mse or bce, or save y as integers"),
    "too few targets": ("sides", {"loss": "bce", "layers": [4, 2]}, {}, "bad_spec",
                        "model.layers ends with 2 but the dataset's targets 'y' have 3 numbers"),
    "another ignore_index": ("some labels", {"loss": {"name": "cross_entropy", "ignore_index": -1}}, {}, "data",
                             "label: expected 0 to 1048575, found -100"),
    "targets that are no shares": ("targets", {"loss": "bce"}, {}, "data",
                                   "element: expected a number from 0 to 1, found "),
    "weights of fewer classes": ("labels", {"loss": {"name": "cross_entropy", "class_weights": [1, 2]}}, {}, "bad_spec",
                                 "class_weights has 2 numbers, but model.layers gives 3 classes"),
    "monitored accuracy": ("targets", {"loss": "mse"}, {"checkpoint": {"monitor": "val_accuracy", "mode": "max"}}, "bad_spec",
                           "checkpoint.monitor: this job gives no 'val_accuracy'; it gives train_loss, train_loss_epoch, "
                           "train_loss_step, val_loss"),
    "classes of a regression": ("targets", {"loss": "mse"}, {"predict": {"values": "classes"}}, "bad_spec",
                                "a model with loss mse has no classes"),
}


@pytest.mark.parametrize("case", BAD)
def test_job_is_refused_when_loss_and_targets_do_not_fit(tmp_path, case):
    kind, model, sections, code, text = BAD[case]
    plan = plan_of(tmp_path, "mse", "cpu", model=model, init_from=None, run={"job": None}, **sections)
    npy(tmp_path, *problems.arrays(kind))
    exit_code, lines = run_by_hand(tmp_path, plan)
    assert exit_code == EXIT[code] and lines[-1]["class"] == code, lines[-1]
    assert text in json.dumps(lines[-1], ensure_ascii=False), lines[-1]


REGRESSION = """
name: regression
stages: [fit, validate, test, predict]
model: {{name: mlp, layers: [4, 16, {width}], activation: tanh, loss: {loss}}}
data: {{name: npy, x: {folder}/x.npy, y: {folder}/y.npy, val_x: {folder}/x.npy, val_y: {folder}/y.npy, batch_size: 4, shuffle: true}}
optimizer: {{name: adamw, lr: 0.01}}
trainer: {{accelerator: cpu, max_epochs: 4, log_every_n_steps: 1}}
predict: {{output: {folder}/predictions.npy}}
checkpoint: {{monitor: val_loss}}
"""


@pytest.mark.parametrize("loss, kind", [("mse", "targets"), ("bce", "sides")])
def test_job_of_numbers_runs_through_a_daemon(daemon, tmp_path, loss, kind):
    x, y = problems.arrays(kind)
    npy(tmp_path, x, y)
    job = daemon.submit(REGRESSION.format(width=3, loss=loss, folder=tmp_path))
    done = daemon.finish(job)
    losses = daemon.losses(job, 24)
    assert np.mean([losses[s] for s in range(19, 25)]) < np.mean([losses[s] for s in range(1, 7)])
    outputs = np.load(tmp_path / "predictions.npy").astype("f8")
    of_all = ((outputs - y) ** 2).mean() if loss == "mse" else (np.logaddexp(0, outputs) - outputs * y).mean()
    assert done.metrics["test_loss"] == pytest.approx(of_all, rel=1e-5)
    assert ("val_accuracy" in done.metrics) == (loss == "bce")
    followed = daemon.ctl("submit", "-", "--follow", check=0,
                          stdin=REGRESSION.format(width=3, loss=loss, folder=tmp_path))
    assert "epoch 3: train_loss_epoch" in followed.stderr and ("val_accuracy" in followed.stderr) == (loss == "bce")


def test_planner_refuses_when_targets_are_not_the_loss_s(daemon, tmp_path):
    npy(tmp_path, *problems.arrays("labels"))
    refused = daemon.submit(REGRESSION.format(width=3, loss="mse", folder=tmp_path))
    failed = daemon.wait_state(refused, "FAILED")
    assert "save y as float32" in failed.failure.message and not failed.start_time, failed
