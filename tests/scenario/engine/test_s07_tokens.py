"""`trainer.accumulate: tokens`: the gradient of a step is the mean over all labels that count in its window, on all ranks,
however they are divided into batches. What one batch of all gives is what any division has to give."""
import numpy as np
import pytest
from safetensors.numpy import load_file

from plans import plan_of, steps_in
from ranks import Attempt

SAMPLES, WIDTH, CLASSES, IGNORED = 32, 6, 4, 3
# Labels are ignored unevenly: all of the first samples of each step, few of the others.
LOSSES = {"ignored": {"ignore_index": IGNORED}, "weights": {"class_weights": [0.5, 2, 1, 3]},
          "both": {"ignore_index": IGNORED, "class_weights": [0.5, 2, 1, 3], "label_smoothing": 0.1}, "none": {}}
WAYS = [(8, 1, 1), (4, 2, 1), (2, 4, 1), (1, 8, 1), (4, 1, 2), (2, 2, 2), (1, 4, 2)]  # batch, window, ranks


@pytest.fixture
def arrays(tmp_path):
    rng = np.random.default_rng(5)
    y = rng.integers(0, CLASSES - 1, SAMPLES).astype("i4")
    for step in range(0, SAMPLES, 8):
        y[step:step + 3] = IGNORED
        y[step + 6] = IGNORED
    np.save(tmp_path / "x.npy", rng.standard_normal((SAMPLES, WIDTH)).astype("f4"))
    np.save(tmp_path / "y.npy", y)
    return tmp_path


def plan_for(folder, name, way, loss="ignored", precision="64-true", accumulate="tokens", **trainer):
    batch, window, world = way
    plan = plan_of({"model": {"name": "mlp", "layers": [WIDTH, 8, CLASSES],
                              "loss": {"name": "cross_entropy"} | LOSSES.get(loss, {})},
                    "optimizer": {"name": "adamw", "lr": 0.05, "weight_decay": 0.1}})
    plan["data"] = {"name": "npy", "x": str(folder / "x.npy"), "y": str(folder / "y.npy"), "batch_size": batch}
    plan["trainer"] |= {"accelerator": "cpu", "devices": world, "precision": precision, "accumulate": accumulate,
                        "accumulate_grad_batches": window, "max_epochs": 2, "limit_val_batches": 0} | trainer
    plan["checkpoint"] = {"every_n_train_steps": 1, "save_top_k": -1}
    plan["run"]["checkpoint_dir"] = str(folder / name)
    return plan


def trained(folder, name, plan):
    world = plan["trainer"]["devices"]
    with Attempt(folder, plan, world) as attempt:
        assert attempt.wait(60) == [0] * world, attempt.story()
        norms = [m["sum"] for m in attempt.ranks[0].metrics if m["name"] == "grad_norm"]
        points = [(m["step"], m["sum"], m["count"]) for r in attempt.ranks for m in r.metrics if m["name"] == "train_loss_step"]
    last = max(steps_in(folder / name))
    losses = [sum(s for at, s, _ in points if at == step) / max(sum(n for at, _, n in points if at == step), 1)
              for step in range(1, last + 1)]
    return load_file(folder / name / f"step-{last}/model.safetensors"), losses, norms


def apart(a, b):
    return max(np.abs(a[k].astype("f8") - b[k].astype("f8")).max() for k in a)


@pytest.mark.parametrize("loss", LOSSES)
def test_step_is_that_of_one_batch_however_samples_are_divided(arrays, loss):
    whole, losses, norms = trained(arrays, "whole", plan_for(arrays, "whole", WAYS[0], loss, accumulate="batches", log_grad_norm=True))
    for i, way in enumerate(WAYS):
        weights, own, own_norms = trained(arrays, f"w{i}", plan_for(arrays, f"w{i}", way, loss, log_grad_norm=True))
        assert apart(weights, whole) < 1e-12, way
        np.testing.assert_allclose(own, losses, rtol=1e-12, err_msg=str(way))
        np.testing.assert_allclose(own_norms, norms, rtol=1e-6, err_msg=str(way))


def test_mean_of_means_is_another_number_and_stays_the_default(arrays):
    whole, _, _ = trained(arrays, "whole", plan_for(arrays, "whole", (8, 1, 1)))
    weights, _, _ = trained(arrays, "means", plan_for(arrays, "means", (4, 2, 1), accumulate="batches"))
    plan = plan_for(arrays, "default", (4, 2, 1))
    del plan["trainer"]["accumulate"]
    default, _, _ = trained(arrays, "default", plan)
    assert apart(weights, whole) > 1e-3 and apart(weights, default) == 0


@pytest.mark.parametrize("precision, close", [("32-true", 1e-5), ("16-mixed", 2e-2), ("bf16-mixed", 5e-2), ("16-true", 5e-2)])
@pytest.mark.parametrize("accelerator", ["cpu", "reference"])
def test_precisions_are_near_one_batch_and_clip_the_divided_gradient(arrays, precision, close, accelerator):
    how = {"accelerator": accelerator, "gradient_clip_val": 0.2}
    whole, losses, norms = trained(arrays, "whole", plan_for(arrays, "whole", (8, 1, 1), precision="32-true", accumulate="batches", **how))
    assert max(norms) > 0.2
    for name, way in (("one", (2, 4, 1)), ("two", (1, 4, 2))):
        weights, own, own_norms = trained(arrays, name, plan_for(arrays, name, way, precision=precision, **how))
        assert len(own) == len(losses), "no step was skipped"
        assert apart(weights, whole) < close
        np.testing.assert_allclose(own_norms, norms, rtol=10 * close)


# Rank 0 has every second sample.
def test_rank_without_a_label_adds_nothing(arrays):
    y = np.load(arrays / "y.npy")
    y[0::2], y[1::2] = IGNORED, np.arange(SAMPLES // 2) % 3
    np.save(arrays / "y.npy", y)
    whole, losses, _ = trained(arrays, "whole", plan_for(arrays, "whole", (8, 1, 1)))
    weights, own, _ = trained(arrays, "two", plan_for(arrays, "two", (1, 4, 2)))
    assert apart(weights, whole) < 1e-12
    np.testing.assert_allclose(own, losses, rtol=1e-12)


def test_step_moves_nothing_but_by_decay_when_no_label_counts(arrays):
    np.save(arrays / "y.npy", np.full(SAMPLES, IGNORED, "i4"))
    plan = plan_for(arrays, "a", (2, 2, 2), log_grad_norm=True)
    plan["optimizer"] = {"name": "sgd", "lr": 0.1}
    weights, losses, norms = trained(arrays, "a", plan)
    first = load_file(arrays / "a/step-1/model.safetensors")
    assert apart(weights, first) == 0 and set(norms) == {0.0} and set(losses) == {0.0}


def test_resume_gives_the_same_bits(arrays):
    plan = plan_for(arrays, "whole", (1, 4, 2), precision="16-mixed")
    whole, _, _ = trained(arrays, "whole", plan)
    plan = plan_for(arrays, "rest", (1, 4, 2), precision="16-mixed")
    plan["run"]["resume_from"] = str(arrays / "whole/step-3")
    rest, _, _ = trained(arrays, "rest", plan)
    assert apart(rest, whole) == 0


# gpt's head writes gradients where the loss is made, so their seed has to be there before.
@pytest.mark.parametrize("precision, close", [("32-true", 1e-4), ("16-mixed", 3e-2), ("64-true", 1e-10)])
def test_tokens_of_a_language_model_are_counted(tmp_path, precision, close):
    (tmp_path / "text").write_text("the quick brown fox jumps over the lazy dog. " * 40)

    def plan(name, batch, window, world=1, **trainer):
        p = plan_of({"model": {"name": "gpt", "n_layer": 1, "n_head": 2, "n_embd": 16, "loss": {"name": "cross_entropy", "ignore_index": 32}},
                     "data": {"name": "text", "path": str(tmp_path / "text"), "block_size": 16, "batch_size": batch},
                     "optimizer": {"name": "sgd", "lr": 0.1}})
        p["trainer"] |= {"accelerator": "cpu", "devices": world, "precision": precision, "accumulate_grad_batches": window,
                         "max_steps": 4, "max_epochs": -1, "limit_val_batches": 0, "accumulate": "tokens"} | trainer
        p["checkpoint"] = {"every_n_train_steps": 1, "save_top_k": -1}
        p["run"].update(checkpoint_dir=str(tmp_path / name), cache_dir=str(tmp_path / "cache"))
        return p

    whole, losses, _ = trained(tmp_path, "whole", plan("whole", 8, 1))
    for name, way in (("parts", (2, 4)), ("ranks", (2, 2, 2))):
        weights, own, _ = trained(tmp_path, name, plan(name, *way))
        assert apart(weights, whole) < close
        np.testing.assert_allclose(own, losses, rtol=close)
