"""Exact resume, as one table: a run that is cut off and resumed gives the losses and the last bytes of one
that never was. A row is a model, an optimizer, a precision, a window of accumulation and a number of ranks;
the cut is SIGKILL in the middle of an epoch, so what is resumed from is whatever checkpoint was complete."""
import os
import signal

import pytest

from marks import FULL, full_only
from plans import losses, plan_of, state_of, steps_in
from ranks import Attempt

OPTIMIZERS = {
    "sgd": {"name": "sgd", "lr": 0.05},
    "nesterov": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True},
    "adam": {"name": "adam", "lr": 0.01},
    "adamw": {"name": "adamw", "lr": 0.01, "groups": [{"match": "*.bias", "weight_decay": 0}]},
    "lion": {"name": "lion", "lr": 0.001, "weight_decay": 0.1},
    "adafactor": {"name": "adafactor", "lr": 0.02},
    "muon": {"name": "muon", "lr": 0.01, "adamw_lr": 0.003},
}
# Epochs of 7 batches: 4 steps, then 3, then 7.
CHANGING = {"0": 2, "1": 3, "2": 1}
PRECISIONS = ["32-true", "64-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true"]
IDX = "/usr/share/datasets/fashion-mnist"
TEXT = "the quick brown fox jumps over the lazy dog. " * 60
MODELS = {
    "mlp": ({"name": "mlp", "layers": [16, 32, 4]}, {}),
    "convnet": ({"name": "convnet", "layers": [
        {"name": "conv", "channels": 4, "kernel": 3}, "batch_norm", "relu", {"name": "max_pool", "kernel": 2},
        "flatten", {"name": "dropout", "p": 0.3}, {"name": "linear", "features": 10}]},
        {"name": "idx", "path": IDX, "batch_size": 16, "shuffle": True}),
    "gpt": ({"name": "gpt", "n_layer": 2, "n_head": 2, "n_embd": 16, "embd_pdrop": 0.1,
             "attn_pdrop": 0.3, "resid_pdrop": 0.2},
            {"name": "text", "block_size": 16, "batch_size": 8, "shuffle": True}),
    "llama": ({"name": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
               "num_attention_heads": 4, "num_key_value_heads": 2, "attention_dropout": 0.3},
              {"name": "text", "block_size": 16, "batch_size": 8, "shuffle": True}),
}

TABLE = [("mlp", o, "32-true", 1 + i % 3, 1) for i, o in enumerate(OPTIMIZERS)]
TABLE += [("mlp", "adamw", p, 3, 1) for p in PRECISIONS[1:]]
TABLE += [("convnet", "adamw", "32-true", 3, 1), ("convnet", "nesterov", "bf16-mixed", 1, 1),
          ("gpt", "adamw", "32-true", 3, 1), ("gpt", "muon", "bf16-mixed", 2, 1),
          ("mlp", "adafactor", "16-mixed", 3, 2), ("mlp", "adam", "32-true", "changing", 2),
          ("convnet", "lion", "bf16-mixed", 2, 2), ("gpt", "adamw", "bf16-true", 3, 2),
          ("llama", "muon", "bf16-mixed", 3, 2)]
# Not the product of all, which is 378 rows: every optimizer in every precision, with models and ways to run
# that go round so that any two values of any two columns meet in a row.
WAYS = [(1, 1), (4, 1), (3, 2)]  # window, ranks
REST = [(list(MODELS)[(i + j) % 3], o, p, *WAYS[(i + 2 * j) % 3])
        for i, o in enumerate(OPTIMIZERS) for j, p in enumerate(PRECISIONS)]
REST = [row for row in REST if row not in TABLE]


def plan_for(directory, row, resume_from=None):
    model, optimizer, precision, window, world = row
    what, data = MODELS[model]
    plan = plan_of({"model": what, "optimizer": OPTIMIZERS[optimizer]},
                   trainer={"accelerator": "cpu", "devices": world, "precision": precision, "max_steps": 14,
                            "max_epochs": -1,
                            "accumulate_grad_batches": CHANGING if window == "changing" else window,
                            "gradient_clip_val": 1.0, "limit_val_batches": 0,
                            # 7 batches an epoch: windows of 2, 3 and 4 end short
                            "limit_train_batches": 7},
                   checkpoint={"every_n_train_steps": 1, "save_top_k": -1},
                   run={"checkpoint_dir": str(directory), "resume_from": resume_from})
    plan["lr_scheduler"] = {"name": "warmup_cosine", "warmup_steps": 3}
    if data:
        plan["data"] = data
        plan["run"]["cache_dir"] = str(directory.parent / "cache")
    if data.get("name") == "text":
        (directory.parent / "text").write_text(TEXT)
        plan["data"] = dict(data, path=str(directory.parent / "text"))
    return plan


def check(tmp_path, row):
    world = row[-1]
    with Attempt(tmp_path, plan_for(tmp_path / "whole", row), world) as all_of_it:
        assert all_of_it.wait(120) == [0] * world, all_of_it.story()
        whole = [losses(r.metrics) for r in all_of_it.ranks]
    final = state_of(tmp_path / "whole/step-14")
    with Attempt(tmp_path, plan_for(tmp_path / "cut", row), world) as cut:
        cut.until(lambda a: len(a.ranks[0].event("checkpoint")) >= 5 or a.ranks[0].process.poll() is not None, 120)
        cut.kill(0)
        assert cut.wait()[0] in (-signal.SIGKILL, 0), cut.story()
    # The newest that is complete and not of the end; windows end short, so 5 is in the middle of an epoch.
    complete = [s for s in steps_in(tmp_path / "cut") if (tmp_path / f"cut/step-{s}/manifest.json").exists()]
    step = max(s for s in complete if s < 14)
    with Attempt(tmp_path, plan_for(tmp_path / "rest", row, str(tmp_path / f"cut/step-{step}")), world) as rest:
        assert rest.wait(120) == [0] * world, rest.story()
        resumed = rest.ranks[0].event("resumed")[0]
        assert [losses(r.metrics) for r in rest.ranks] == [{s: v for s, v in w.items() if s > step} for w in whole]
    assert resumed["exact"] and resumed["step"] == step
    assert state_of(tmp_path / "rest/step-14") == final


def title(row):
    return "-".join(map(str, row))


@pytest.mark.parametrize("row", TABLE, ids=title)
def test_resume_changes_nothing(tmp_path, row):
    check(tmp_path, row)


@full_only
@pytest.mark.parametrize("row", REST, ids=title)
def test_resume_changes_nothing_in_any_other_row(tmp_path, row):
    check(tmp_path, row)


@pytest.mark.parametrize("world", [1, 2])
def test_windows_have_the_length_of_their_epoch_and_resume_in_each(tmp_path, world):
    def run(part, steps, resume_from=None):
        plan = plan_for(tmp_path / part, ("mlp", "adamw", "32-true", "changing", world), resume_from)
        plan["lr_scheduler"] = {"name": "constant"}
        plan["trainer"]["max_steps"] = steps
        with Attempt(tmp_path, plan, world) as attempt:
            assert attempt.wait(120) == [0] * world, attempt.story()
            return tmp_path / part / f"step-{steps}", [r.metrics for r in attempt.ranks]

    whole, points = run("whole", 14)
    for of_rank in points:
        assert [m["count"] / 32 for m in of_rank if m["name"] == "train_loss_step"] == [2, 2, 2, 1, 3, 3, 1] + 7 * [1]
    for step in (1, 4, 5, 8):  # inside an epoch or right after one
        origin, _ = run(f"to-{step}", step)
        assert state_of(run(f"from-{step}", 14, str(origin))[0]) == state_of(whole)


@pytest.mark.parametrize("before, after", [((1, 1), (4, 1)), ((3, 1), (3, 2)), ((4, 2), (5, 1))])
def test_first_window_is_whole_when_the_epoch_goes_on_with_others(tmp_path, before, after):
    """(window, ranks) change where no multiple of the new window is; every sample of the epoch counts once."""
    def plan_of_part(part, window, world, max_steps, resume_from=None):
        plan = plan_for(tmp_path / part, ("mlp", "adamw", "32-true", window, world), resume_from)
        plan["lr_scheduler"] = {"name": "constant"}
        plan["trainer"].update(max_epochs=1, max_steps=max_steps, limit_train_batches=1.0)
        return plan

    counted = 0
    for part, (window, world), steps, origin in (("a", before, 3 if before == (1, 1) else 1, None),
                                                 ("b", after, -1, "a")):
        origin = origin and str(tmp_path / f"a/step-{steps_in(tmp_path / 'a')[-1]}")
        with Attempt(tmp_path, plan_of_part(part, window, world, steps, origin), world) as attempt:
            assert attempt.wait(120) == [0] * world, attempt.story()
            points = [m for r in attempt.ranks for m in r.metrics if m["name"] == "train_loss_step"]
            rates = [m["sum"] for r in attempt.ranks for m in r.metrics if m["name"] == "lr"]
        assert points[0]["count"] == window * 32 and min(rates) > 0
        counted += sum(p["count"] for p in points)
    assert counted == 500
