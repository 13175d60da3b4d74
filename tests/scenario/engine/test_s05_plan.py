"""What a worker says of a plan before anything of it runs: sizes, time, graph."""
import json
import os
import struct
import subprocess

import pytest

import levels
import ranks
import support
from plans import plan_of
from ranks import EXIT, Attempt, run_by_hand


def test_plan_says_sizes_and_steps_without_training(tmp_path):
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(json.dumps(plan_of(trainer={"accumulate_grad_batches": 3})))
    one, two = ranks.sizes(plan_file), ranks.sizes(plan_file, 2)
    assert one["parameters"] == 16 * 32 + 32 + 32 * 4 + 4
    assert one["samples"] == 500 and one["batches_per_epoch"] == 16
    assert one["steps_per_epoch"] == 6 and one["total_steps"] == 18 and one["shared_bytes"] == 0
    assert two["batches_per_epoch"] == 8 and two["total_steps"] == 9
    assert two["shared_bytes"] > 2 * 4 * two["parameters"]
    assert one["flops_per_step"] > 0 and one["arena_bytes"] > 0


CONVNET = {"name": "convnet", "layers": [
    {"name": "conv", "channels": 8, "kernel": 3, "padding": 1}, {"name": "batch_norm"}, {"name": "relu"},
    {"name": "residual", "channels": 8, "blocks": 4}, {"name": "global_avg_pool"}, {"name": "dropout"},
    {"name": "linear", "features": 4}]}


def images(folder):
    """70 images of 12 x 12 and 10 to test with, as idx files."""
    folder.mkdir(exist_ok=True)
    for kind, n in (("train", 70), ("t10k", 10)):
        pixels = bytes((i * 37 + i // 144) % 251 for i in range(n * 144))
        (folder / f"{kind}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, n, 12, 12) + pixels)
        (folder / f"{kind}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, n)
                                                           + bytes(i % 4 for i in range(n)))
    return {"name": "idx", "path": str(folder), "classes": 4, "batch_size": 32}


# On cpu, 64-true runs on the reference's loops, whose scratch counts like any other. Where products or convolutions
# choose between ways, the plan counts all of them, and a rank that knows its choice holds that one.
@pytest.mark.parametrize("accelerator, precision", [("reference", "32-true"), ("cpu", "32-true"),
                                                    ("cpu", "bf16-mixed"), ("cpu", "64-true")])
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("model", ["mlp", "convnet"])
def test_plan_says_the_bytes_that_ranks_hold(tmp_path, model, world, accelerator, precision):
    changes = {} if model == "mlp" else {"model": CONVNET, "data": images(tmp_path / "data")}
    plan = plan_of(changes, checkpoint={"save_top_k": 0}, run={"world_size": world},
                   trainer={"accelerator": accelerator, "devices": world, "max_steps": 2, "precision": precision,
                            "accumulate_grad_batches": 2, "recompute": "selective"})
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(json.dumps(plan))
    says = ranks.sizes(plan_file, world)
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait() == [0] * world
    held = [e for r in attempt.ranks for e in r.event("memory")]
    names = ("state_bytes", "arena_bytes", "recompute")
    assert len(held) == world and all(says[n] == h[n] for h in held for n in names)
    chooses = accelerator == "cpu" and precision != "64-true"
    assert all(0 < h["scratch_bytes"] <= says["scratch_bytes"] if chooses else
               h["scratch_bytes"] == says["scratch_bytes"] > 0 for h in held)
    assert says["recompute"] == "selective"


# Winograd or direct is a choice by timing; where the processor has no Winograd there is nothing to exchange.
def test_plan_says_the_bytes_when_either_convolution_is_chosen(tmp_path):
    conv = {"name": "conv", "channels": 16, "kernel": 3, "padding": 1}
    model = {"name": "convnet", "layers": [conv, "relu", conv, "relu", "flatten", {"name": "linear", "features": 4}]}
    plan = plan_of({"model": model, "data": images(tmp_path / "data")}, checkpoint={"save_top_k": 0},
                   run={"job": None, "cache_dir": str(tmp_path / "cache")},
                   trainer={"accelerator": "cpu", "max_steps": 2})
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(json.dumps(plan))
    says = ranks.sizes(plan_file)

    def holds():
        code, lines = run_by_hand(tmp_path, plan)
        assert code == 0
        held, = [x for x in lines if x.get("event") == "memory"]
        assert all(says[n] == held[n] for n in ("state_bytes", "arena_bytes"))
        return held["scratch_bytes"]

    assert holds() == says["scratch_bytes"]  # of all ways, which race
    cache, = (tmp_path / "cache").glob("cpu-tune-*")
    lines = [line.rpartition("=") for line in cache.read_text().splitlines()]
    own = levels.of_machine(support.BUILD) == "avx2"  # below it no convolution races
    scratch = []
    for way in ("direct", "own_winograd" if own else "winograd"):  # all of them: who wins differs from run to run
        cache.write_text("".join(f"{key}={way if key.startswith('convolution') else name}\n" if key else f"{name}\n"
                                 for key, _, name in lines))
        scratch.append(holds())
    assert 0 < min(scratch) and max(scratch) <= says["scratch_bytes"]
    assert any(key.startswith("convolution") for key, _, _ in lines) == (scratch[0] != scratch[1])


def test_activations_are_made_again_when_memory_is_short(tmp_path):
    def plan(limit, level):
        return plan_of({"model": CONVNET, "data": images(tmp_path / "data")}, checkpoint={"save_top_k": 0}, run={"job": None},
                       resources={"memory_bytes": limit}, trainer={"recompute": level, "max_steps": 2})

    def sizes(limit, level="auto"):
        (tmp_path / "p.json").write_text(json.dumps(plan(limit, level)))
        return ranks.sizes(tmp_path / "p.json")

    def total(s):
        parts = ("state_bytes", "arena_bytes", "scratch_bytes", "snapshot_bytes", "batch_bytes", "order_bytes", "process_bytes")
        assert s["memory_bytes"] == sum(s[n] for n in parts)
        return s["memory_bytes"]

    none, full = sizes("auto", "none"), sizes("auto", "full")
    assert sizes("auto")["recompute"] == "none" and total(full) < total(none)
    assert sizes(total(none))["recompute"] == "none"
    assert sizes(total(none) - 1)["recompute"] in ("selective", "full")
    assert sizes(total(full)) == full
    code, lines = run_by_hand(tmp_path, plan(total(full) - 1, "auto"))
    end = lines[-1]
    assert end["class"] == "out_of_memory" and code == EXIT["resource"]
    assert str(total(full)) in end["message"] and "batch_size" in end["message"]
    code, lines = run_by_hand(tmp_path, plan(total(full), "none"))
    assert "trainer.recompute: full" in lines[-1]["message"]


def test_plan_of_two_billion_batches_took_a_minute_and_left_their_order_out(tmp_path):
    """Time does not grow with the number of batches. Their order is in the memory of a rank, and no planner makes it."""
    (tmp_path / "text").touch()
    os.truncate(tmp_path / "text", 2 * 10**9)

    def plan(batch, **more):
        sections = {"trainer": {"max_epochs": 1, **more.pop("trainer", {})}, **more}
        return plan_of({"model": {"name": "gpt", "n_layer": 1, "n_head": 1, "n_embd": 8},
                        "data": {"name": "text", "path": str(tmp_path / "text"), "block_size": 8, "stride": 1,
                                 "batch_size": batch, "shuffle": True, "val_fraction": 0.0001},
                        "early_stopping": {"monitor": "val_loss"}}, run={"job": None}, **sections)

    def sizes(*args, **more):
        (tmp_path / "p.json").write_text(json.dumps(plan(*args, **more)))
        before = os.times().children_user
        found = ranks.sizes(tmp_path / "p.json")
        return found, os.times().children_user - before

    many, seconds = sizes(1)
    few, usual = sizes(1 << 20)
    assert many["batches_per_epoch"] == many["samples"] > 1.9e9 and few["batches_per_epoch"] < 2000
    assert seconds < usual + 3  # it was 20 s
    assert many["order_bytes"] == few["order_bytes"] == 8 * many["samples"]
    assert many["memory_bytes"] > many["order_bytes"]
    keyed, _ = sizes(1, trainer={"sampler": "keyed"})
    assert keyed["order_bytes"] == 0 and keyed["memory_bytes"] == many["memory_bytes"] - many["order_bytes"]
    (tmp_path / "p.json").write_text(json.dumps(plan(1, resources={"memory_bytes": 10**9})))
    refused = subprocess.run([ranks.WORKER, "plan", "--plan", tmp_path / "p.json"], capture_output=True, text=True)
    assert refused.returncode == EXIT["resource"] and "or set trainer.sampler: keyed" in refused.stdout, refused.stdout


def test_plan_estimates_the_step_where_the_peak_can_be_measured(tmp_path):
    def seconds(accelerator, batch):
        file = tmp_path / "p.json"
        file.write_text(json.dumps(plan_of(
            {"model": {"name": "mlp", "layers": [16, 512, 512, 4]}}, trainer={"accelerator": accelerator},
            data={"batch_size": batch, "samples": 4096})))
        return ranks.sizes(file)["step_seconds"]

    assert seconds("reference", 32) == 0
    assert 0 < seconds("cpu", 16) * 4 < seconds("cpu", 4096) < 60


def test_plan_prints_the_graph_of_any_pass_when_asked(tmp_path):
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(json.dumps(plan_of(trainer={"gradient_clip_val": 1.0})))

    def dump(name, *more):
        return subprocess.run([ranks.WORKER, "plan", "--plan", plan_file, "--dump-graph", name, *more],
                              capture_output=True, text=True, timeout=60)

    texts = {name: dump(name).stdout for name in ("record", "autodiff", "precision", "strategy", "optimizer",
                                                  "simplify", "fuse", "residual", "schedule", "memory", "autotune")}
    assert all(t.startswith("program batch=32 ") and "state @fc1.weight param" in t for t in texts.values())
    assert "backward:" not in texts["record"] and "backward:" in texts["autodiff"]
    assert "adamw" not in texts["strategy"] and "clip_coef" in texts["optimizer"]
    assert "act=relu" not in texts["simplify"] and "act=relu" in texts["fuse"]
    assert " arena=" not in texts["fuse"] and " arena=" in texts["memory"] and " at 0" in texts["memory"]
    assert texts["autotune"].startswith(texts["memory"]) and "no choices" in texts["autotune"]
    whole = json.loads(dump("fuse", "--json").stdout)
    assert whole["graph"] == texts["fuse"] and whole["arena_bytes"] > 0

    unknown = dump("fuze")
    assert unknown.returncode == EXIT["bad_spec"]
    assert all(name in json.loads(unknown.stdout)["message"] for name in ("fuze", *texts))
