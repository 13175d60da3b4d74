"""Checkpoints as others find them: loaded by a stranger, damaged, pruned, too large for the disk, left half."""
import json
import os
import resource
import shutil

import pytest

from plans import no_leftovers, plan_of, steps_in
from ranks import EXIT, Attempt


def test_shards_load_with_the_safetensors_package(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    plan = plan_of(run={"checkpoint_dir": str(tmp_path / "a1")}, trainer={"max_steps": 3})
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0]
    directory = tmp_path / "a1/step-3"
    manifest = json.loads((directory / "manifest.json").read_text())
    tensors = {}
    for file in manifest["files"]:
        tensors.update(numpy.load_file(directory / file["name"]))
    assert manifest["format"] == 1 and manifest["step"] == 3 and manifest["world_size"] == 1
    assert len(tensors) == len(manifest["tensors"]) == 12
    for t in manifest["tensors"]:
        assert list(tensors[t["name"]].shape) == t["shape"]
    assert manifest["plan"]["model"]["layers"] == [16, 32, 4]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "flipped byte": (lambda d: flip(d / "model.safetensors"), "digest"),
    "flipped byte in the optimizer": (lambda d: flip(d / "optimizer.safetensors"), "digest"),
    "shard cut short": (lambda d: os.truncate(d / "model.safetensors", 100), "bytes"),
    "shard missing": (lambda d: (d / "optimizer.safetensors").unlink(), "No such file"),
    "manifest missing": (lambda d: (d / "manifest.json").unlink(), "manifest"),
    "manifest cut short": (lambda d: os.truncate(d / "manifest.json", 200), "manifest"),
    "manifest of a newer format": (lambda d: (d / "manifest.json").write_text(
        (d / "manifest.json").read_text().replace('"format": 1', '"format": 9')), "format"),
    "half-written directory": (lambda d: [f.unlink() for f in d.glob("[mo]*")], "manifest"),
    "directory missing": (shutil.rmtree, "manifest"),
}


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("good")
    plan = plan_of(run={"checkpoint_dir": str(tmp_path / "a1")}, trainer={"max_steps": 4})
    with Attempt(tmp_path, plan) as one:
        one.until(lambda a: a.ranks[0].process.poll() is not None)
        saved = sorted(e["step"] for e in one.ranks[0].event("checkpoint"))
    assert len(saved) >= 2
    return tmp_path / "a1", saved


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_one_before_is_used_when_a_checkpoint_is_damaged(tmp_path, two_checkpoints, damage):
    shutil.copytree(two_checkpoints[0], tmp_path / "a1")
    steps = two_checkpoints[1]
    break_it, reason = DAMAGE[damage]
    newest, before = (tmp_path / f"a1/step-{s}" for s in (steps[-1], steps[-2]))
    break_it(newest)
    run = {"checkpoint_dir": str(tmp_path / "a2"), "resume_from": str(newest),
           "resume_before": [str(before)]}
    with Attempt(tmp_path, plan_of(run=run)) as one:
        assert one.wait() == [0], one.story()
        skipped = one.ranks[0].event("skipped_checkpoint")
        assert [s["path"] for s in skipped] == [str(newest)] and reason in skipped[0]["reason"]
        assert one.ranks[0].event("resumed")[0]["step"] == steps[-2]
    break_it(before)
    with Attempt(tmp_path, plan_of(run=run), 1) as one:
        assert one.wait() == [EXIT["data"]]
        end = one.ranks[0].event("end")[0]
    assert end["code"] == "DATA_LOSS" and end["class"] == "data" and "none of the 2" in end["message"]


def test_top_k_keeps_the_newest_when_nothing_is_monitored(tmp_path):
    plan = plan_of(checkpoint={"every_n_train_steps": 0, "every_n_epochs": 1, "save_top_k": 1},
                   run={"checkpoint_dir": str(tmp_path / "a1")}, data={"samples": 4000},
                   trainer={"max_epochs": 5})
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0]
        saved = [e["step"] for e in one.ranks[0].event("checkpoint")]
        removed = [e["step"] for e in one.ranks[0].event("removed")]
    assert steps_in(tmp_path / "a1") == saved[-1:] and removed == saved[:-1]
    assert no_leftovers(tmp_path)


def test_top_k_keeps_the_best_and_the_newest_when_a_metric_is_monitored(tmp_path):
    plan = plan_of({"optimizer": {"name": "sgd", "lr": 0.5}},
                   checkpoint={"every_n_train_steps": 0, "every_n_epochs": 1, "save_top_k": 2,
                               "monitor": "val_accuracy", "mode": "max"},
                   run={"checkpoint_dir": str(tmp_path / "a1")}, data={"samples": 4000},
                   trainer={"max_epochs": 6})
    with Attempt(tmp_path, plan, 2) as two:
        assert two.wait() == [0, 0]
        saved = [(e["metrics"]["val_accuracy"], e["step"])
                 for e in two.ranks[0].event("checkpoint")]
    best = sorted(saved)[-2:]
    assert steps_in(tmp_path / "a1") == sorted({step for _, step in best} | {saved[-1][1]})


def test_disk_full_is_class_disk_and_leaves_nothing_when_a_checkpoint_does_not_fit(tmp_path):
    plan = plan_of(run={"checkpoint_dir": str(tmp_path / "a1")}, model={"layers": [16, 4096, 4]})

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, 100 << 10))

    with Attempt(tmp_path, plan, preexec=small_files) as one:
        assert one.wait() == [EXIT["disk"]], one.story()
        end = one.ranks[0].event("end")[0]
    assert end["class"] == "disk" and "step-" in end["message"]
    assert list((tmp_path / "a1").iterdir()) == []


def test_leftovers_of_a_killed_attempt_are_removed_by_the_next(tmp_path):
    (tmp_path / "a1/step-9.tmp").mkdir(parents=True)
    (tmp_path / "a1/step-9.tmp/model.safetensors").write_bytes(b"half")
    plan = plan_of(run={"checkpoint_dir": str(tmp_path / "a2"), "attempt": 2},
                   trainer={"max_steps": 2})
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0]
    assert no_leftovers(tmp_path)
