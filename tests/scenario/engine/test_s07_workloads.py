"""The networks and data sets that traind brings: each trains, resumes to the bit with all that it keeps
(dropout, batch norm's statistics) on one rank and on two, and refuses what does not fit."""
import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import save_file

from ranks import EXIT, Attempt, run_by_hand

PIXELS = np.random.RandomState(0).randint(0, 256, (120, 8, 8)).astype(np.uint8)
LABELS = (PIXELS.reshape(120, -1).mean(1) > 127).astype(np.int64)
TEXT = b"the quick brown fox jumps over the lazy dog. " * 60

CONVNET = {"name": "convnet", "layers": [
    {"name": "conv", "channels": 6, "padding": 1}, "batch_norm", {"name": "leaky_relu", "negative_slope": 0.1},
    "max_pool",
    {"name": "residual", "channels": 8, "stride": 2}, "global_avg_pool",
    {"name": "dropout", "p": 0.25}, {"name": "linear", "features": 2}]}
GPT = {"name": "gpt", "n_layer": 2, "n_head": 2, "n_embd": 16, "embd_pdrop": 0.1, "resid_pdrop": 0.1}
LLAMA = {"name": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "attention_dropout": 0.1}


@pytest.fixture
def data(tmp_path):
    np.save(tmp_path / "x.npy", PIXELS)
    np.save(tmp_path / "y.npy", LABELS)
    nan = PIXELS.astype("f4")
    nan[3, 0, 7] = np.nan
    np.save(tmp_path / "nan.npy", nan)
    (tmp_path / "text").write_bytes(TEXT)
    np.frombuffer(TEXT, np.uint8).astype("<u2").tofile(tmp_path / "train.bin")
    npy = {"name": "npy", "x": str(tmp_path / "x.npy"), "y": str(tmp_path / "y.npy"),
           "val_x": str(tmp_path / "x.npy"), "val_y": str(tmp_path / "y.npy")}
    return {"npy": npy, "text": {"name": "text", "path": str(tmp_path / "text"), "block_size": 16},
            "tokens": {"name": "tokens", "train": [str(tmp_path / "train.bin")], "vocab_size": 128,
                       "val": [str(tmp_path / "train.bin")], "block_size": 16}}


def plan_of(model, data, batch=8, **sections):
    plan = {"format": 1, "name": "w", "seed_everything": 3, "stages": ["fit"], "model": model,
            "data": dict(data, batch_size=batch, shuffle=True),
            "optimizer": {"name": "adamw", "lr": 0.01},
            "trainer": {"accelerator": "reference", "max_steps": 12, "log_every_n_steps": 1,
                        "num_sanity_val_steps": 0, "val_check_interval": 4, "limit_val_batches": 3},
            "checkpoint": {"every_n_epochs": 1000},
            "run": {"job": "w", "threads_per_rank": 1}}
    for name, values in sections.items():
        plan[name] = dict(plan.get(name, {}), **values) if isinstance(values, dict) else values
    return plan


NETWORKS_WITH_RELU = {
    "mlp": {"name": "mlp", "layers": [64, 16, 2]},
    "convnet": {"name": "convnet", "layers": [
        {"name": "conv", "channels": 16, "padding": 1}, "relu", "max_pool", "global_max_pool",
        {"name": "linear", "features": 2}]},
}


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("accelerator", ["cpu", "reference"])
@pytest.mark.parametrize("network", NETWORKS_WITH_RELU)
def test_loss_is_no_number_when_a_weight_is_none(tmp_path, data, network, accelerator, precision):
    """A relu that makes 0 of NaN hides it: the weights are ruined, and the loss stays finite. (A file with NaN in it is
    refused: here it is 0 times infinity.)"""
    x = np.where(np.arange(64) % 4, PIXELS.reshape(120, 64), 0).astype("u1")
    x = x.reshape((120, 64) if network == "mlp" else (120, 1, 8, 8))
    np.save(tmp_path / "x.npy", x)
    name, shape = {"mlp": ("fc1.weight", (16, 64)), "convnet": ("conv1.weight", (16, 1, 3, 3))}[network]
    weight = np.full(shape, 0.1, "f4")
    weight.flat[8] = np.inf
    save_file({name: weight}, tmp_path / "ruined.safetensors")
    plan = plan_of(NETWORKS_WITH_RELU[network], data["npy"], batch=120,
                   init_from=str(tmp_path / "ruined.safetensors"), strict=False)
    plan["trainer"].update(accelerator=accelerator, precision=precision, limit_val_batches=0)
    code, lines = run_by_hand(tmp_path, plan)
    assert code == EXIT["numeric"], lines[-1]
    assert "the loss is nan at step 1 " in lines[-1]["message"]


@pytest.mark.parametrize("world", [1, 2])
def test_evaluation_that_is_no_number_is_noted_once(tmp_path, data, world):
    np.save(tmp_path / "large.npy", np.full((120, 64), 3e38, "f4"))
    np.save(tmp_path / "x.npy", PIXELS.reshape(120, 64).astype("f4") / 255)
    save_file({"fc1.weight": np.full((16, 64), 2, "f4")}, tmp_path / "large.safetensors")
    plan = plan_of(NETWORKS_WITH_RELU["mlp"], dict(data["npy"], val_x=str(tmp_path / "large.npy")),
                   init_from=str(tmp_path / "large.safetensors"), strict=False)
    plan["stages"] = ["fit", "test"]
    plan["trainer"]["devices"] = world
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait(120) == [0] * world, attempt.story()
        notes = [e["text"] for r in attempt.ranks for e in r.event("note") if "loss is" in e["text"]]
        bad = [m["step"] for r in attempt.ranks for m in r.metrics
               if m["name"] in ("val_loss", "test_loss") and not np.isfinite(m["sum"])]
    assert sorted(bad) == sorted(world * [4, 8, 12, 12])
    assert len(notes) == 1 and "val_loss is nan at step 4 (epoch 0): " in notes[0], notes


def metrics_of(attempt, after=0):
    return [sorted((m["name"], m["step"], m["sum"], m["count"]) for m in r.metrics
                   if m["name"] in ("train_loss_step", "train_loss_epoch", "val_loss", "val_accuracy") and m["step"] > after)
            for r in attempt.ranks]


def run(tmp_path, plan, world):
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait(120) == [0] * world, attempt.story()
        resumed = attempt.ranks[0].event("resumed")
        return attempt, resumed


def files_of(directory):
    return {f.name: f.read_bytes() for f in pathlib.Path(directory).glob("*.safetensors")}


JOBS = {"convnet": (CONVNET, "npy"), "gpt": (GPT, "text"), "gpt-tokens": (GPT, "tokens"),
        "llama": (LLAMA, "text")}


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("job", JOBS)
def test_resume_gives_the_same_bits_when_it_drops_and_normalizes(tmp_path, data, job, world):
    model, kind = JOBS[job]
    batch = 8 // world
    whole, _ = run(tmp_path, plan_of(model, data[kind], batch,
                                     run={"checkpoint_dir": str(tmp_path / "whole")}), world)
    assert len([m for m in whole.ranks[0].metrics if m["name"] == "val_loss"]) == 3
    for step in (3, 8):  # between two validations, and right after one
        run(tmp_path, plan_of(model, data[kind], batch, trainer={"max_steps": step},
                              run={"checkpoint_dir": str(tmp_path / "first")}), world)
        part, resumed = run(tmp_path, plan_of(model, data[kind], batch, run={
            "checkpoint_dir": str(tmp_path / f"part-{step}"), "attempt": 2,
            "resume_from": str(tmp_path / f"first/step-{step}")}), world)
        assert resumed[0]["exact"] and resumed[0]["step"] == step
        assert metrics_of(part, step) == metrics_of(whole, step)
        assert files_of(tmp_path / f"part-{step}/step-12") == files_of(tmp_path / "whole/step-12")


def test_ranks_evaluate_with_the_statistics_of_rank_0(tmp_path, data):
    """Which are those of the checkpoint: one rank that takes it finds the same."""
    limits = {"limit_val_batches": 1.0, "max_steps": 8}
    two, _ = run(tmp_path, plan_of(CONVNET, data["npy"], 4, trainer=limits,
                                   run={"checkpoint_dir": str(tmp_path / "a")}), 2)
    plan = plan_of(CONVNET, data["npy"], 8, stages=["validate"], init_from=str(tmp_path / "a/step-8"),
                   trainer=limits)
    one, _ = run(tmp_path, plan, 1)
    sums = [sum(m["sum"] for r in a.ranks for m in r.metrics
                if m["name"] == "val_loss" and m["step"] in (0, 8)) for a in (two, one)]
    assert sums[0] == pytest.approx(sums[1], rel=1e-5)


@pytest.mark.parametrize("model", [dict(GPT, embd_pdrop=0, resid_pdrop=0), dict(LLAMA, attention_dropout=0),
                                   dict(LLAMA, attention_dropout=0, tie_word_embeddings=True)])
def test_decoder_learns_when_the_text_repeats(tmp_path, data, model):
    code, lines = run_by_hand(tmp_path, plan_of(model, data["text"], trainer={"max_steps": 60},
                                                run={"job": None}), 300)
    assert code == 0
    losses = [m["sum"] / m["count"] for m in lines if m.get("name") == "train_loss_step"]
    assert losses[0] == pytest.approx(np.log(256), abs=0.2) and losses[-1] < 2.7


@pytest.mark.parametrize("tied", [False, True])
def test_decoder_of_so_many_tokens_that_its_logits_are_never_whole_trains(tmp_path, data, tied):
    """128 rows of 70000 logits are more than 32 MB. The gradient of a last layer of its own is written as the loss is."""
    plan = plan_of(dict(LLAMA, tie_word_embeddings=tied), dict(data["tokens"], vocab_size=70000),
                   trainer={"accelerator": "cpu", "max_steps": 3, "limit_val_batches": 0})
    code, records = run_by_hand(tmp_path, plan)
    losses = [x["value"] for x in records if x.get("name") == "train_loss_step"]
    assert code == 0 and len(losses) == 3 and losses[2] < losses[0], records[-1]



@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid"])
def test_mlp_learns_with_every_activation(tmp_path, data, activation):
    model = {"name": "mlp", "layers": [64, 32, 2], "activation": activation}
    plan = plan_of(model, data["npy"], 4, trainer={"max_steps": 400, "limit_val_batches": 0}, run={"job": None})
    code, lines = run_by_hand(tmp_path, plan)
    assert code == 0, lines[-1]
    losses = [m["sum"] / m["count"] for m in lines if m.get("name") == "train_loss_step"]
    assert np.mean(losses[-20:]) < 0.9 * np.mean(losses[:20])


@pytest.mark.parametrize("model, knob", [(dict(GPT, embd_pdrop=0, resid_pdrop=0), "attn_pdrop"),
                                         (LLAMA, "attention_dropout")])
def test_attention_drops_weights_when_training_only(tmp_path, data, model, knob):
    losses = {}
    for p in (0, 0.5):
        model = dict(model, initializer_range=0.5) | {knob: p}
        plan = plan_of(model, data["text"], optimizer={"name": "sgd", "lr": 0.0}, run={"job": None},
                       trainer={"accelerator": "cpu", "max_steps": 1, "val_check_interval": 1})
        code, lines = run_by_hand(tmp_path, plan)
        assert code == 0, lines[-1]
        losses[p] = {m["name"]: m["sum"] / m["count"] for m in lines if m.get("name") in ("train_loss_step", "val_loss")}
    assert losses[0]["train_loss_step"] != losses[0.5]["train_loss_step"]
    assert losses[0]["val_loss"] == losses[0.5]["val_loss"]


def test_token_ids_train_alike_in_every_file_that_holds_them(tmp_path, data):
    ids = np.frombuffer(TEXT, np.uint8)
    np.save(tmp_path / "ids.npy", ids.astype("<i8"))
    ids.astype("<u4").tofile(tmp_path / "ids.u4")
    losses = {}
    for name, change in {"train.bin": {}, "ids.npy": {}, "ids.u4": {"token_bytes": 4}}.items():
        files = {"train": [str(tmp_path / name)], "val": [str(tmp_path / name)]}
        plan = plan_of(dict(GPT, vocab_size=128), dict(data["tokens"], **files, **change), run={"job": None})
        code, lines = run_by_hand(tmp_path, plan)
        assert code == 0, lines[-1]
        losses[name] = [m["sum"] for m in lines if m.get("name") in ("train_loss_step", "val_loss")]
    assert losses["train.bin"] and losses["train.bin"] == losses["ids.npy"] == losses["ids.u4"]
    plan["data"].pop("token_bytes")  # read as id, 0, id, 0, it would train as well
    code, lines = run_by_hand(tmp_path, plan)
    assert code == EXIT["data"] and "set data.token_bytes: 4" in lines[-1]["message"], lines[-1]


@pytest.mark.parametrize("model, kind, change, code, text", [
    ({"name": "convnet", "layers": ["flatten", {"name": "conv", "channels": 3}]}, "npy", {}, "bad_spec",
     "model.layers[1] (conv conv1): it needs an image"),
    ({"name": "mlp", "layers": [63, 2]}, "npy", {}, "bad_spec", "begins with 63"),
    (GPT, "npy", {"x": "nan.npy"}, "data", "sample 3 is no number"),
    ({"name": "mlp", "layers": [64, 2]}, "npy", {"classes": 1}, "data", "label: expected 0 to 0, found 1"),
    ({"name": "mlp", "layers": [64, 2]}, "npy", {"classes": 3}, "bad_spec", "labels begin at 0: if the least is 1, save y - 1"),
    (CONVNET, "text", {}, "bad_spec", "the dataset's samples are 16"),
    (GPT, "npy", {}, "bad_spec", "rows of i32 tokens"),
    (GPT, "tokens", {"vocab_size": 100}, "data", "token id: expected 0 to 99, found 116"),
    (GPT, "tokens", {"vocab_size": 100}, "data", "is not in the vocabulary; data.vocab_size says"),
    (dict(GPT, vocab_size=100), "tokens", {}, "bad_spec", "model.vocab_size is 100"),
    (dict(GPT, n_positions=8), "text", {}, "bad_spec", "model.n_positions is 8"),
    (GPT, "text", {"block_size": 4000}, "data", "bytes to train on, at least: expected 4001"),
    (GPT, "text", {"path": "/nonexistent"}, "data", "/nonexistent"),
])
def test_run_says_what_does_not_fit(tmp_path, data, model, kind, change, code, text):
    if "x" in change:
        change = {"x": str(tmp_path / change["x"])}
    exit_code, lines = run_by_hand(tmp_path, plan_of(model, dict(data[kind], **change),
                                                     run={"job": None}))
    assert exit_code == EXIT[code] and lines[-1]["class"] == code, json.dumps(lines[-1])
    assert text in lines[-1]["message"]
