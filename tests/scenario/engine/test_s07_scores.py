"""`metrics`: perplexity, F1, R2 and the confusion matrix of an evaluation are those that scikit-learn computes of all samples
at once, whatever the batches and ranks are. The model's predictions come from the predict stage."""
import json
import pathlib
import re

import grpc
import numpy as np
import pytest
from sklearn import metrics as sk

from support import LONG, until

SPEC = """
seed_everything: 5
stages: [fit, test, predict]
metrics: {metrics}
model: {{name: mlp, layers: [6, {width}], loss: {loss}}}
data: {{name: npy, x: {dir}/x.npy, y: {dir}/y.npy, val_x: {dir}/vx.npy, val_y: {dir}/vy.npy, batch_size: 7, shuffle: true}}
optimizer: {{name: sgd, lr: 0.05}}
trainer: {{max_epochs: 2, devices: {ranks}, num_sanity_val_steps: 2}}
predict: {{values: logits}}
evaluate_from: last
"""
WIDTHS = {"cross_entropy": 5, "bce": 4, "mse": 3}


def data(folder, loss, n=60, n_val=53):
    """Class 4 is in no label, and the last binary label is never set."""
    rng = np.random.default_rng(1)
    for name, rows in (("", n), ("v", n_val)):
        x = rng.standard_normal((rows, 6)).astype("<f4")
        score = x @ rng.standard_normal((6, WIDTHS[loss]))
        y = {"cross_entropy": score[:, :4].argmax(1), "bce": (score > 0.5) & np.array([True, True, True, False])[:WIDTHS[loss] if loss == "bce" else 1], "mse": 100 + score}[loss]
        np.save(folder / f"{name}x.npy", x)
        np.save(folder / f"{name}y.npy", y if loss == "cross_entropy" else y.astype("<f4"))


def run(daemon, folder, loss, asked, ranks, *overrides):
    spec = SPEC.format(metrics=asked, width=WIDTHS[loss], loss=loss, dir=folder, ranks=ranks)
    job = daemon.submit(spec, *overrides)
    done = daemon.finish(job)
    logits = np.load(daemon.state_dir / "checkpoints" / job / "a1/predictions.npy")
    return job, done, logits


def matrix(done, stage):
    note = next(n for n in done.notes if f"the confusion matrix of {stage} is in " in n)
    return json.loads(pathlib.Path(note.split(" is in ")[1]).read_text())


@pytest.mark.parametrize("ranks", [1, 2])
def test_scores_of_classes_are_those_of_scikit_learn(daemon, tmp_path, ranks):
    data(tmp_path, "cross_entropy")
    job, done, logits = run(daemon, tmp_path, "cross_entropy", "[perplexity, f1_macro, f1_micro, confusion_matrix]", ranks)
    y, said = np.load(tmp_path / "vy.npy"), logits.argmax(1)
    nll = np.log(np.exp(logits.astype("f8")).sum(1)) - logits[np.arange(len(y)), y]
    for prefix in ("val", "test"):  # the last validation is of the same weights
        assert done.metrics[f"{prefix}_f1_macro"] == pytest.approx(sk.f1_score(y, said, average="macro", zero_division=0), abs=1e-12)
        assert done.metrics[f"{prefix}_f1_micro"] == pytest.approx(sk.f1_score(y, said, average="micro"), abs=1e-12)
        assert done.metrics[f"{prefix}_f1_micro"] == pytest.approx(done.metrics[f"{prefix}_accuracy"], abs=1e-7)
        assert done.metrics[f"{prefix}_perplexity"] == pytest.approx(np.exp(nll.mean()), rel=1e-5)
        found = matrix(done, prefix)
        assert found["matrix"] == sk.confusion_matrix(y, said, labels=range(5)).tolist() and found["classes"] == 5
        assert (found["stage"], found["step"]) == (prefix, done.global_step)
    assert [p.step for p in daemon.points(job, "val_f1_macro")] == [p.step for p in daemon.points(job, "val_loss")]
    kept = daemon.checkpoints(job)[0].metrics
    assert kept["val_f1_macro"] == done.metrics["val_f1_macro"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_scores_of_labels_are_those_of_scikit_learn(daemon, tmp_path, ranks):
    data(tmp_path, "bce")
    _, done, logits = run(daemon, tmp_path, "bce", "[f1_macro, f1_micro, confusion_matrix]", ranks)
    y, said = np.load(tmp_path / "vy.npy") > 0.5, logits > 0
    assert done.metrics["test_f1_macro"] == pytest.approx(sk.f1_score(y, said, average="macro", zero_division=0), abs=1e-12)
    assert done.metrics["test_f1_micro"] == pytest.approx(sk.f1_score(y, said, average="micro", zero_division=0), abs=1e-12)
    assert matrix(done, "test")["matrix"] == sk.multilabel_confusion_matrix(y, said).tolist()


@pytest.mark.parametrize("ranks", [1, 2])
def test_r2_is_that_of_scikit_learn_where_the_mean_is_far_from_zero(daemon, tmp_path, ranks):
    data(tmp_path, "mse")
    _, done, said = run(daemon, tmp_path, "mse", "[r2]", ranks)
    y = np.load(tmp_path / "vy.npy")
    wanted = sk.r2_score(y.astype("f8"), said.astype("f8"))
    assert done.metrics["test_r2"] == pytest.approx(wanted, rel=1e-9) and done.metrics["val_r2"] == pytest.approx(wanted, rel=1e-9)


def test_label_that_is_ignored_is_in_no_score(daemon, tmp_path):
    data(tmp_path, "cross_entropy")
    y = np.load(tmp_path / "vy.npy")
    y[::3] = -100
    np.save(tmp_path / "vy.npy", y)
    _, done, logits = run(daemon, tmp_path, "cross_entropy", "[f1_macro, perplexity, confusion_matrix]", 1,
                          "model.loss={name: cross_entropy, ignore_index: -100}")
    keep = y >= 0
    assert done.metrics["test_f1_macro"] == pytest.approx(sk.f1_score(y[keep], logits.argmax(1)[keep], average="macro"), abs=1e-12)
    assert np.sum(matrix(done, "test")["matrix"]) == keep.sum()


def test_monitor_may_name_a_score_and_the_best_checkpoint_has_it(daemon, tmp_path):
    data(tmp_path, "cross_entropy")
    job, done, _ = run(daemon, tmp_path, "cross_entropy", "[f1_macro]", 1, "checkpoint={monitor: val_f1_macro, mode: max, save_top_k: 1}",
                       "trainer.max_epochs=4", "stages=[fit, test, predict]")
    best = max(daemon.points(job, "val_f1_macro"), key=lambda p: (p.value, -p.step))
    assert best.step in {c.step for c in daemon.checkpoints(job)}


def test_llama_and_gpt_have_perplexity(daemon, tmp_path):
    (tmp_path / "text").write_bytes(bytes(np.random.default_rng(0).integers(97, 105, 4000, dtype="u1")))
    job = daemon.submit(f"""
stages: [fit, test]
metrics: [perplexity]
model: {{name: gpt, n_layer: 1, n_head: 2, n_embd: 16}}
data: {{name: text, path: {tmp_path}/text, block_size: 16, val_fraction: 0.2, batch_size: 4}}
optimizer: {{name: adamw, lr: 0.01}}
trainer: {{max_steps: 10}}
""")
    done = daemon.finish(job)
    assert done.metrics["test_perplexity"] == pytest.approx(np.exp(done.metrics["test_loss"]), rel=1e-9)


REFUSED = [("cross_entropy", "[r2]", "r2 is of float targets"), ("mse", "[f1_macro]", "loss mse has r2"),
           ("bce", "[perplexity]", "perplexity is of loss cross_entropy alone"),
           ("{name: cross_entropy, label_smoothing: 0.1}", "[perplexity]", "that of the plain cross entropy")]


@pytest.mark.parametrize("loss, asked, said", REFUSED)
def test_score_that_does_not_go_with_the_loss_is_refused_by_the_plan(daemon, tmp_path, loss, asked, said):
    kind = re.sub(r".*name: (\w+).*", r"\1", loss)
    data(tmp_path, kind)
    spec = SPEC.format(metrics=asked, width=WIDTHS[kind], loss=loss, dir=tmp_path, ranks=1)
    failure = daemon.wait_state(daemon.submit(spec), "FAILED").failure
    assert getattr(failure, "class") == "bad_spec" and said in failure.message, failure


PLANNED = [("cross_entropy", "[r2]", "stages=[test]", "r2 is of float targets"),
           ("mse", "[confusion_matrix]", "stages=[validate]", "loss mse has r2"),
           ("cross_entropy", "[confusion_matrix]", "model.layers=[6, 1025]", "has 1024 classes at most, the model has 1025")]


@pytest.mark.parametrize("loss, asked, override, said", PLANNED)
def test_scores_were_looked_at_only_when_the_job_trained_and_their_sizes_after_an_epoch(daemon, tmp_path, loss, asked, override, said):
    data(tmp_path, loss)
    spec = SPEC.format(metrics=asked, width=WIDTHS[loss], loss=loss, dir=tmp_path, ranks=1)
    with pytest.raises(grpc.RpcError) as error:
        daemon.stub("Job").PlanJob(daemon.cluster.stubs.job.PlanJobRequest(spec=spec, overrides=[override]), timeout=60)
    assert said in error.value.details()


def test_metric_that_is_not_known_is_refused(daemon):
    with pytest.raises(grpc.RpcError) as error:
        daemon.submit(LONG, "metrics=[auroc]")
    assert "f1_macro" in error.value.details() and "auroc" in error.value.details()
