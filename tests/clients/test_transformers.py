"""Hugging Face's library and traind read each other's gpt directories and find the same logits."""
import numpy as np
import pytest

import ranks

SIZES = dict(n_layer=2, n_head=2, n_embd=32)
TEXT = b"what one has written the other reads, and says the same of it. " * 40
BLOCK = 16


@pytest.fixture
def hugging_face(rival):
    return rival("transformers", "hugging_face.py")


def run(tmp_path, accelerator, **changes):
    (tmp_path / "text").write_bytes(TEXT)
    plan = {"format": 1, "name": "h", "seed_everything": 2, "stages": ["fit"], "model": dict(SIZES, name="gpt"),
            "data": {"name": "text", "path": str(tmp_path / "text"), "block_size": BLOCK, "batch_size": 8},
            "optimizer": {"name": "adamw", "lr": 0.01},
            "trainer": {"accelerator": accelerator, "max_steps": 10, "num_sanity_val_steps": 0},
            "run": {"checkpoint_dir": str(tmp_path / "out"), "threads_per_rank": 2}}
    plan.update(changes)
    code, lines = ranks.run_by_hand(tmp_path, plan)
    assert code == 0, lines[-1]
    return tmp_path / "out"


def predicted(tmp_path, accelerator, weights):
    """traind's logits behind each row of the held-out text, and those rows."""
    out = run(tmp_path, accelerator, stages=["predict"], init_from=str(weights),
              predict={"values": "logits"})
    held_out = np.frombuffer(TEXT[len(TEXT) - len(TEXT) // 10:], np.uint8)
    n = (len(held_out) - 1) // BLOCK
    np.save(tmp_path / "rows.npy", held_out[:n * BLOCK].reshape(n, BLOCK))
    return np.load(out / "predictions.npy")


def compare(tmp_path, hugging_face, accelerator, weights):
    ours = predicted(tmp_path, accelerator, weights)
    hugging_face("logits", weights, tmp_path / "rows.npy", tmp_path / "theirs.npy")
    theirs = np.load(tmp_path / "theirs.npy")
    assert ours.shape == theirs.shape and theirs.std() > 0.1
    assert np.abs(ours - theirs).max() <= 1e-4


@pytest.mark.parametrize("accelerator", ["cpu", "reference"])
def test_transformers_reads_what_traind_trained(tmp_path, hugging_face, accelerator):
    weights = run(tmp_path, accelerator) / "step-10"
    compare(tmp_path, hugging_face, accelerator, weights)


@pytest.mark.parametrize("shard", ["1GB", "20KB"])
def test_traind_reads_what_transformers_saved(tmp_path, hugging_face, shard):
    hugging_face("make", tmp_path / "theirs", shard)
    index = tmp_path / "theirs/model.safetensors.index.json"
    assert index.exists() == (shard == "20KB")
    compare(tmp_path, hugging_face, "cpu", tmp_path / "theirs")
