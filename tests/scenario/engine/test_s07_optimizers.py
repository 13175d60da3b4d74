"""What is around the optimizer: groups by name, numbers that are not finite."""
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from plans import plan_of, steps_in
from ranks import EXIT, Attempt, run_by_hand

# ---- groups --------------------------------------------------------------------------------------


def weights(tmp_path, name, **optimizer):
    """The weights before and after a few steps."""
    out = []
    for steps in (0, 5):
        directory = tmp_path / f"{name}{steps}"
        plan = plan_of({"optimizer": {"name": "adamw", "lr": 0.01} | optimizer},
                       trainer={"max_steps": max(steps, 1), "accelerator": "cpu"},
                       checkpoint={"every_n_train_steps": 1}, run={"checkpoint_dir": str(directory)})
        code, lines = run_by_hand(tmp_path, plan)
        assert code == 0, lines[-1]
        out.append(load_file(directory / f"step-{max(steps, 1)}" / "model.safetensors"))
    return out


def test_frozen_layer_stays_and_the_others_learn_when_a_group_says_so(tmp_path):
    one, five = weights(tmp_path, "frozen", groups=[{"match": "fc1.*", "lr_scale": 0}])
    assert all((one[k] == five[k]).all() == k.startswith("fc1.") for k in one)
    stored = load_file(tmp_path / "frozen5/step-5/optimizer.safetensors")
    assert {k.split(":")[0] for k in stored} == {"fc2.weight", "fc2.bias"}


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_frozen_layer_counts_in_no_norm_when_gradients_are_clipped(tmp_path, precision):
    """As in torch, where what requires no gradient has none: clipping looks at the others alone."""
    def run(name, match, lr):
        directory = tmp_path / name
        plan = plan_of({"optimizer": {"name": "sgd", "lr": lr, "groups": [{"match": match, "lr_scale": 0}]}},
                       trainer={"max_steps": 1, "accelerator": "cpu", "precision": precision,
                                "gradient_clip_val": 2.0 ** -8}, run={"checkpoint_dir": str(directory)})
        code, lines = run_by_hand(tmp_path, plan)
        assert code == 0, lines[-1]
        norm, = (m["value"] for m in lines if m.get("name") == "grad_norm")
        return norm, load_file(directory / "step-1/model.safetensors")

    norm, moved = run("moved", "fc1.*", 1.0)
    _, still = run("still", "fc1.*", 0.0)
    step = np.sqrt(sum(((moved[k].astype("f8") - still[k].astype("f8")) ** 2).sum() for k in moved))
    assert step == pytest.approx(2.0 ** -8, rel=1e-4), "with sgd at lr 1 the step is the clipped gradient"
    others, _ = run("others", "fc2.*", 1.0)
    plan = plan_of({"optimizer": {"name": "sgd", "lr": 0.0}},
                   trainer={"max_steps": 1, "accelerator": "cpu", "precision": precision, "log_grad_norm": True})
    code, lines = run_by_hand(tmp_path, plan)
    whole, = (m["value"] for m in lines if m.get("name") == "grad_norm")
    assert whole ** 2 == pytest.approx(norm ** 2 + others ** 2, rel=1e-3)


@pytest.mark.parametrize("accelerator", ["reference", "cpu"])
@pytest.mark.parametrize("match", ["fc1.*", "fc2.*", "*.weight", "fc1.bias"])
def test_ranks_stop_at_one_step_when_a_group_is_frozen(tmp_path, match, accelerator):
    """The word to stop travels with the last bucket of gradients, and what is frozen has none. It is said to one rank. A
    bucket has few tensors, so that the last one would be of frozen ones alone."""
    plan = plan_of({"optimizer": {"name": "adamw", "lr": 0.01, "groups": [{"match": match, "lr_scale": 0}]}},
                   trainer={"accelerator": accelerator, "devices": 2, "max_steps": 10 ** 6, "max_epochs": -1,
                            "strategy": {"name": "ddp", "bucket_cap_mb": 0.001}, "limit_val_batches": 0},
                   checkpoint={"every_n_train_steps": 0}, run={"checkpoint_dir": str(tmp_path / "c")})
    with Attempt(tmp_path, plan, 2) as attempt:
        attempt.until(lambda a: a.ranks[0].step > 20)
        attempt.stop(ranks=attempt.ranks[1:])
        assert attempt.wait(60) == [EXIT["stopped"]] * 2, attempt.story()
        step, = {r.step for r in attempt.ranks}
    assert steps_in(tmp_path / "c") == [step]


@pytest.mark.parametrize("accelerator", ["reference", "cpu"])
def test_muon_trains_when_its_momentum_is_0(tmp_path, accelerator):
    """As torch's: it follows the newest gradient, and to look ahead of it changes nothing."""
    def run(part, **optimizer):
        plan = plan_of({"optimizer": {"name": "muon", "lr": 0.01, "momentum": 0} | optimizer},
                       trainer={"max_steps": 3, "accelerator": accelerator}, run={"checkpoint_dir": str(tmp_path / part)})
        code, lines = run_by_hand(tmp_path, plan)
        assert code == 0, lines[-1]
        return [load_file(tmp_path / part / f"step-{i}/model.safetensors") for i in (1, 3)]

    (first, last), (_, plain) = run("ahead"), run("plain", nesterov=False)
    assert all((last[k] != first[k]).any() for k in last)
    assert all(last[k] == pytest.approx(plain[k], rel=1e-4, abs=1e-6) for k in last)


@pytest.mark.parametrize("match, skips", [("fc1.*", False), ("fc2.*", True)])
def test_frozen_layer_skips_no_step_when_its_gradients_overflow(tmp_path, match, skips):
    """What the large weights of fc2 send back is more than 16 bits hold: fc1's gradients are infinite, no others."""
    rng = np.random.default_rng(5)
    first = {"fc1.weight": rng.uniform(-0.25, 0.25, (32, 16)), "fc1.bias": np.zeros(32),
             "fc2.weight": rng.uniform(-1000, 1000, (4, 32)), "fc2.bias": np.zeros(4)}
    save_file({k: v.astype("f4") for k, v in first.items()}, tmp_path / "first.safetensors")
    plan = plan_of({"optimizer": {"name": "sgd", "lr": 1e-3, "groups": [{"match": match, "lr_scale": 0}]},
                    "init_from": str(tmp_path / "first.safetensors")},
                   trainer={"max_steps": 1, "accelerator": "cpu", "precision": "16-mixed", "limit_val_batches": 0},
                   checkpoint={"save_top_k": 0}, run={"job": None})
    code, lines = run_by_hand(tmp_path, plan)
    assert code == 0, lines[-1]
    skipped, = (m["value"] for m in lines if m.get("name") == "skipped_steps")
    assert (skipped > 0) == skips


def test_decay_of_a_group_is_its_own_when_the_rest_decays(tmp_path):
    decays = dict(lr=1e-4, weight_decay=1000.0)
    _, all_of_them = weights(tmp_path, "all", **decays)
    _, no_biases = weights(tmp_path, "some", **decays, groups=[{"match": "*.bias", "weight_decay": 0}])
    for k in all_of_them:
        kept = np.linalg.norm(no_biases[k]) > 1.3 * np.linalg.norm(all_of_them[k])
        assert kept == k.endswith(".bias"), k


def test_job_is_refused_when_a_group_names_nothing(tmp_path):
    plan = plan_of({"optimizer": {"name": "sgd", "groups": [{"match": "*.bias|ln_*", "weight_decay": 0}]}})
    code, lines = run_by_hand(tmp_path, plan)
    assert code == EXIT["bad_spec"]
    assert "optimizer.groups[0].match: 'ln_*'" in lines[-1]["message"] and "fc1.weight" in lines[-1]["message"]


# ---- numbers that are not finite ------------------------------------------------------------------

DIVERGES = {"optimizer": {"name": "sgd", "lr": 1e6}}


@pytest.mark.parametrize("accelerator", ["cpu", "reference"])
def test_anomaly_names_step_op_and_tensor_when_it_is_looked_for(tmp_path, accelerator):
    said = {}
    for looks in (False, True):
        plan = plan_of(DIVERGES, trainer={"max_epochs": 50, "detect_anomaly": looks, "accelerator": accelerator},
                       checkpoint={"save_top_k": 0}, run={"job": None})
        code, lines = run_by_hand(tmp_path, plan)
        assert code == EXIT["numeric"] and lines[-1]["class"] == "numeric"
        said[looks] = lines[-1]["message"]
    assert "the loss is" in said[False] and "detect_anomaly" in said[False]
    step = int(said[False].split("at step ")[1].split()[0])
    assert f"step {step} (epoch 0): anomaly: matmul, node" in said[True], said
    assert "element" in said[True] and "it read" in said[True] and "'fc" in said[True]


def test_bits_are_the_same_when_anomalies_are_looked_for(tmp_path):
    files = []
    for looks in (False, True):
        directory = tmp_path / str(looks)
        plan = plan_of(trainer={"max_steps": 4, "detect_anomaly": looks, "accelerator": "cpu"},
                       run={"checkpoint_dir": str(directory)})
        assert run_by_hand(tmp_path, plan)[0] == 0
        files.append((directory / "step-4/model.safetensors").read_bytes())
    assert files[0] == files[1]


def test_overflow_of_scaled_gradients_is_no_anomaly_when_the_precision_looks_for_its_scale(tmp_path):
    plan = plan_of({"optimizer": {"name": "sgd", "lr": 20.0}},
                   trainer={"max_steps": 12, "detect_anomaly": True, "accelerator": "cpu", "precision": "16-mixed"},
                   data={"samples": 64, "shuffle": False}, checkpoint={"save_top_k": 0}, run={"job": None})
    code, lines = run_by_hand(tmp_path, plan)
    assert code == 0, lines[-1]
    assert [line["value"] for line in lines if line.get("name") == "skipped_steps"][-1] > 0


def test_loss_that_is_not_finite_ends_all_ranks_and_one_says_numeric(tmp_path):
    plan = plan_of(DIVERGES, trainer={"max_epochs": 50, "accelerator": "cpu"}, checkpoint={"save_top_k": 0})
    with Attempt(tmp_path, plan, 2) as two:
        codes = two.wait()
        assert EXIT["numeric"] in codes and set(codes) <= {EXIT["numeric"], EXIT["collective"]}, two.story()
        ends = [r.event("end")[0] for r in two.ranks]
    assert any(e["class"] == "numeric" and "the loss is" in e["message"] for e in ends), json.dumps(ends)


# ---- throughput ----------------------------------------------------------------------------------

def test_flops_are_those_of_the_samples_when_a_batch_and_a_window_end_short(tmp_path):
    plan = plan_of(trainer={"max_epochs": 1, "accelerator": "cpu", "accumulate_grad_batches": 3,
                            "log_every_n_steps": 1000, "limit_val_batches": 0},
                   model={"layers": [16, 64, 4]}, checkpoint={"save_top_k": 0}, run={"job": None})
    code, lines = run_by_hand(tmp_path, plan)
    assert code == 0
    found = {line["name"]: line["value"] for line in lines if "name" in line}
    products = 2 * (16 * 64 * 2 + 64 * 4 * 3)  # the first layer's input needs no gradient
    assert products < found["flops_per_s"] / found["samples_per_s"] < 1.6 * products
    assert found["utilisation"] > 0 and "tokens_per_s" not in found
