"""Hugging Face's library and traind read each other's directories and find the same logits, and the same
losses and gradient norms when both train on."""
import numpy as np
import pytest

import ranks

LLAMA = dict(name="llama", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             rms_norm_eps=1e-5)
MODELS = {  # those of hugging_face.py
    "gpt": dict(name="gpt", n_layer=2, n_head=2, n_embd=32),
    "llama": dict(LLAMA, num_key_value_heads=2, rope_theta=500.0),
    "llama tied": dict(LLAMA, tie_word_embeddings=True),
    "llama wide": dict(LLAMA, head_dim=12, num_key_value_heads=2),
    "llama linear": dict(LLAMA, rope_scaling={"rope_type": "linear", "factor": 3}),
    "llama dynamic": dict(LLAMA, rope_scaling={"rope_type": "dynamic", "factor": 3}),
    "llama 3": dict(LLAMA, rope_theta=50, rope_scaling=dict(
        rope_type="llama3", factor=8, low_freq_factor=0.3, high_freq_factor=1, original_max_position_embeddings=8)),
}
ROPES = ("llama wide", "llama linear", "llama dynamic", "llama 3")
TEXT = b"what one has written the other reads, and says the same of it. " * 40
BLOCK, STEPS = 16, 16


@pytest.fixture(scope="module")
def hugging_face(rival_server):
    return rival_server("transformers", "hugging_face.py")


def run(tmp_path, model, accelerator, **changes):
    (tmp_path / "text").write_bytes(TEXT)
    plan = {"format": 1, "name": "h", "seed_everything": 2, "stages": ["fit"], "model": MODELS[model],
            "data": {"name": "text", "path": str(tmp_path / "text"), "block_size": BLOCK, "batch_size": 8},
            "optimizer": {"name": "adamw", "lr": 0.01},
            "trainer": {"accelerator": accelerator, "max_steps": 10, "num_sanity_val_steps": 0},
            "run": {"checkpoint_dir": str(tmp_path / "out"), "threads_per_rank": 2}}
    plan.update(changes)
    code, lines = ranks.run_by_hand(tmp_path, plan)
    assert code == 0, lines[-1]
    return tmp_path / "out", lines


def predicted(tmp_path, model, accelerator, weights):
    """traind's logits after each row of the held-out text, and those rows."""
    out, _ = run(tmp_path, model, accelerator, stages=["predict"], init_from=str(weights),
                 predict={"values": "logits"})
    held_out = np.frombuffer(TEXT[len(TEXT) - len(TEXT) // 10:], np.uint8)
    n = (len(held_out) - 1) // BLOCK
    np.save(tmp_path / "rows.npy", held_out[:n * BLOCK].reshape(n, BLOCK))
    return np.load(out / "predictions.npy")


def compare(tmp_path, hugging_face, model, accelerator, weights):
    ours = predicted(tmp_path, model, accelerator, weights)
    hugging_face("logits", weights, tmp_path / "rows.npy", tmp_path / "theirs.npy")
    theirs = np.load(tmp_path / "theirs.npy")
    assert ours.shape == theirs.shape and theirs.std() > 0.1
    assert np.abs(ours - theirs).max() <= 1e-4


@pytest.mark.parametrize("model, accelerator", [("gpt", "cpu"), ("gpt", "reference"), ("llama", "cpu"),
                                                ("llama tied", "reference")]
                         + [(m, a) for m in ROPES for a in ("cpu", "reference")])
def test_transformers_reads_what_traind_trained(tmp_path, hugging_face, model, accelerator):
    out, _ = run(tmp_path, model, accelerator)
    compare(tmp_path, hugging_face, model, accelerator, out / "step-10")


@pytest.mark.parametrize("model, shard", [("gpt", "1GB"), ("gpt", "20KB"), ("llama", "20KB"),
                                          ("llama tied", "1GB"), *((m, "1GB") for m in ROPES)])
def test_traind_reads_what_transformers_saved(tmp_path, hugging_face, model, shard):
    hugging_face("make", model, tmp_path / "theirs", shard)
    index = tmp_path / "theirs/model.safetensors.index.json"
    assert index.exists() == (shard == "20KB")
    compare(tmp_path, hugging_face, model, "cpu", tmp_path / "theirs")


@pytest.mark.parametrize("model", MODELS)
def test_both_train_alike_from_the_same_weights(tmp_path, hugging_face, model):
    hugging_face("make", model, tmp_path / "theirs", "1GB")
    trainer = {"accelerator": "cpu", "max_steps": STEPS, "num_sanity_val_steps": 0, "limit_val_batches": 0,
               "log_every_n_steps": 1, "log_grad_norm": True}
    _, lines = run(tmp_path, model, "cpu", init_from=str(tmp_path / "theirs"), trainer=trainer,
                   optimizer={"name": "sgd", "lr": 0.3})
    ours = np.array([[m["value"] for m in lines if m.get("name") == name]
                     for name in ("train_loss_step", "grad_norm")]).T
    rows = np.arange(STEPS * 8)[:, None] * BLOCK + np.arange(BLOCK + 1)
    np.save(tmp_path / "rows.npy", np.frombuffer(TEXT, np.uint8)[rows].reshape(STEPS, 8, BLOCK + 1))
    hugging_face("train", tmp_path / "theirs", tmp_path / "rows.npy", tmp_path / "steps.npy")
    theirs = np.load(tmp_path / "steps.npy")
    assert theirs[-1, 0] < theirs[0, 0] / 2
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("model", [m for m in MODELS if m != "gpt"])
def test_everything_of_a_llama_comes_with_the_weights(tmp_path, hugging_face, model, monkeypatch):
    """rope_theta, rope_scaling, tie_word_embeddings and the epsilon as well as sizes."""
    hugging_face("make", model, tmp_path / "theirs", "1GB")
    monkeypatch.setitem(MODELS, model, {"name": "llama"})
    compare(tmp_path, hugging_face, model, "cpu", tmp_path / "theirs")
