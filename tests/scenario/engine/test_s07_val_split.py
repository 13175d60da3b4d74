"""data.val_split: which samples train and which validate, with every dataset and any number of ranks. The parts are
those of torch's random_split (tests/golden/loop.json)."""
import json
import pathlib
import struct

import numpy as np
import pytest
import support
from plans import plan_of, state_of, steps_in
from ranks import EXIT, Attempt, run_by_hand, sizes
from telling import MODEL, arrays, seen

GOLDEN = json.loads((pathlib.Path(support.ROOT) / "tests/golden/loop.json").read_text())
N = 12
SPLITS = [s for s in GOLDEN["splits"] if s["n"] == N]


def numbers(directory, n_val=0):
    return {"name": "npy"} | arrays(directory, N, n_val)


def plan_for(directory, data, seed, part, batch, **more):
    plan = plan_of({"optimizer": {"name": "sgd", "lr": 0.1}, "seed_everything": seed, "stages": ["fit", "test"]},
                   model=MODEL, trainer={"max_epochs": 2} | more)
    plan["data"] = data | {"batch_size": batch, "val_split": part}
    plan["run"]["checkpoint_dir"] = str(directory / "a1")
    return plan


@pytest.mark.parametrize("split", SPLITS, ids=lambda s: f"{s['val_split']} {s['seed']}")
def test_samples_train_or_validate_as_torch_has_them(tmp_path, split):
    with Attempt(tmp_path, plan_for(tmp_path, numbers(tmp_path), split["seed"], split["val_split"], 1)) as one:
        assert one.wait() == [0], one.story()
        assert seen(one.ranks, "train_loss_step") == 2 * [[i] for i in split["train"]]
        assert seen(one.ranks, "val_loss") == 2 * [sorted(split["val"])]
        assert seen(one.ranks, "test_loss") == [sorted(split["val"])]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_parts_are_the_same_for_any_number_of_ranks(tmp_path, world):
    (split,) = [s for s in SPLITS if (s["val_split"], s["seed"]) == (0.5, 7)]
    with Attempt(tmp_path, plan_for(tmp_path, numbers(tmp_path, n_val=3), 7, 0.5, 6 // world), world) as one:
        assert one.wait() == [0] * world, one.story()
        assert seen(one.ranks, "train_loss_step") == 2 * [sorted(split["train"])]
        assert seen(one.ranks, "val_loss") == 2 * [sorted(split["val"])]
        assert seen(one.ranks, "test_loss") == [[0, 1, 2]]  # the dataset's own


def test_shuffled_run_resumes_to_the_bit_and_never_trains_on_what_validates(tmp_path):
    (split,) = [s for s in SPLITS if (s["val_split"], s["seed"]) == (5, 7)]
    plan = plan_for(tmp_path, numbers(tmp_path) | {"shuffle": True}, 7, 5, 1, max_epochs=3)
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        played = seen(one.ranks, "train_loss_step")
    assert len(played) == 21
    epochs = [sum(played[i:i + 7], []) for i in (0, 7, 14)]
    assert all(sorted(e) == sorted(split["train"]) for e in epochs) and epochs[0] != epochs[1]
    last = max(steps_in(tmp_path / "a1"))
    plan["run"] |= {"resume_from": str(tmp_path / "a1/step-9"), "checkpoint_dir": str(tmp_path / "a2")}
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        assert one.ranks[0].event("resumed")[0]["exact"] and seen(one.ranks, "train_loss_step") == played[9:]
    assert state_of(tmp_path / f"a2/step-{last}") == state_of(tmp_path / f"a1/step-{last}")


# ---- every dataset ------------------------------------------------------------------------------
GPT = {"name": "gpt", "n_layer": 1, "n_head": 2, "n_embd": 8}
TEXT = b"It was the best of times, it was the worst of times. " * 20


def datasets(directory):
    rng = np.random.default_rng(1)
    images = directory / "idx"
    images.mkdir()
    for name, n in (("train", 40), ("t10k", 8)):
        (images / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, n, 4, 4) + rng.bytes(16 * n))
        (images / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, n) + bytes(i % 4 for i in range(n)))
    np.save(directory / "x.npy", rng.standard_normal((40, 16)).astype("f4"))
    np.save(directory / "y.npy", rng.integers(0, 4, 40).astype("i4"))
    (directory / "text").write_bytes(TEXT)
    np.frombuffer(TEXT, np.uint8).astype("<u2").tofile(directory / "train.bin")
    return {
        "synthetic": {"samples": 40},
        "npy": {"x": str(directory / "x.npy"), "y": str(directory / "y.npy")},
        "idx": {"path": str(images), "classes": 4},
        "text": {"path": str(directory / "text"), "block_size": 8},
        "tokens": {"train": [str(directory / "train.bin")], "vocab_size": 128, "block_size": 8},
    }


def planned(tmp_path, plan):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    return sizes(path)["samples"]


@pytest.mark.parametrize("name", ["synthetic", "npy", "idx", "text", "tokens"])
def test_every_dataset_can_be_split(tmp_path, name):
    plan = plan_of(trainer={"max_epochs": 1})
    plan["data"] = {"name": name, "batch_size": 4} | datasets(tmp_path)[name]
    if name in ("text", "tokens"):
        plan["model"] = GPT
    n = planned(tmp_path, plan)
    plan["data"]["val_split"] = 0.25
    assert planned(tmp_path, plan) == n - n // 4
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        (point,) = [m for m in one.ranks[0].metrics if m["name"] == "val_loss"]
        (epoch,) = [m for m in one.ranks[0].metrics if m["name"] == "train_loss_epoch"]
    assert epoch["count"] / point["count"] == (n - n // 4) / (n // 4)


@pytest.mark.parametrize("data, message", [
    ({"val_split": 0.01}, "data.val_split: 0.01 of 40 samples is none to validate on"),
    ({"val_split": 40}, "data.val_split: 40 of 40 samples leaves none to train on"),
])
def test_split_that_leaves_nothing_is_refused(tmp_path, data, message):
    code, lines = run_by_hand(tmp_path, plan_of(data={"samples": 40} | data))
    assert code == EXIT["bad_spec"] and message in lines[-1]["message"], lines[-1]


def test_rows_that_overlap_are_refused(tmp_path):
    plan = plan_of(model=GPT)
    plan["model"] = GPT
    plan["data"] = {"name": "text", "path": "/none", "block_size": 8, "stride": 4, "batch_size": 4, "val_split": 0.1}
    code, lines = run_by_hand(tmp_path, plan)
    assert code == EXIT["bad_spec"] and "data.val_split" in json.dumps(lines[-1]) and "rows overlap" in json.dumps(lines[-1])
