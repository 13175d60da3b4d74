"""What two ranks send of their gradients: comm_hook of a job, its state in checkpoints, and a hook from outside the
tree (examples/plugins/one_bit.c). A run that is resumed gives the same bits, on every accelerator."""
import json
import os
import re
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

import support
from far_plugin import args_of, far, mine  # noqa: F401 (mine is a fixture)
from plans import losses, plan_of, state_of
from ranks import Attempt, EXIT, sizes
from test_s07_precision import manifest_of, scaled_up

KEPT = "plugins.safetensors"
POWER = {"name": "power_sgd", "start_powerSGD_iter": 3, "min_compression_rate": 1}
ONE_BIT = {"name": "plugin", "comm_hook": "one_bit", "knobs": {}}


@pytest.fixture
def hooks(mine):
    """The directory of far, with the hook one_bit."""
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                    f"-I{support.ROOT}/include", support.ROOT / "examples/plugins/one_bit.c",
                    "-o", mine / "comm_hook-one_bit.so", "-lm"], check=True)
    (mine / "comm_hook-one_bit.so").chmod(0o644)
    return mine


def plan_for(folder, directory, hook, world=2, resume_from=None, accelerator="cpu", **trainer):
    return plan_of(comm_hook=hook, plugins=[str(folder)],
                   trainer={"accelerator": accelerator, "devices": world, "max_steps": 9, "max_epochs": -1,
                            "limit_val_batches": 0, **trainer},
                   run={"checkpoint_dir": str(directory), "resume_from": resume_from and str(resume_from)})


def run(folder, tmp_path, plan, world=2):
    on_far = plan["trainer"]["accelerator"] != "cpu"
    more = args_of(folder) if on_far else lambda rank: ["--plugin-dirs", folder]
    with Attempt(tmp_path, plan, world, args_of=more) as attempt:
        assert attempt.wait(60) == [0] * world, attempt.story()
        return attempt.ranks


def reasons(ranks):
    return ranks[0].event("resumed")[0]["reason"]


def sent(ranks):
    """Bytes that a rank sent, and those of its gradients."""
    said, = [e["text"] for e in ranks[0].event("note") if "comm_hook" in e["text"]]
    return [int(n) for n in re.findall(r"(\d+) bytes for (\d+) of", said)[0]]


# A hook, the largest share of the bytes that it may send, what else the trainer has, and on what.
CASES = [
    ({"name": "fp16"}, 0.5, {}, "cpu"),
    ({"name": "bf16"}, 0.5, {}, "far"),
    (POWER, 0.7, {}, "cpu"),
    (POWER, 0.7, {"accumulate_grad_batches": 2}, "far"),
    (POWER, 1, {"precision": "bf16-true"}, "cpu"),
    (POWER | {"wrapper": "fp16"}, 0.7, {}, "cpu"),
    (ONE_BIT, 0.04, {}, "cpu"),
    (ONE_BIT, 0.04, {}, "far"),
]


@pytest.mark.parametrize("hook, most, trainer, accelerator", CASES, ids=str)
def test_resume_gives_the_same_bits_when_ranks_send_less(hooks, tmp_path, hook, most, trainer, accelerator):
    def train(name, **more):
        on = far() if accelerator == "far" else accelerator
        return run(hooks, tmp_path, plan_for(hooks, tmp_path / name, hook, accelerator=on, **trainer, **more))

    whole = train("whole")
    mine, all_of_it = sent(whole)
    assert mine <= most * all_of_it, f"{mine} of {all_of_it} bytes"
    rest = train("rest", resume_from=tmp_path / "whole/step-5")
    assert reasons(rest) == "" and rest[0].event("resumed")[0]["exact"]
    for one, other in zip(rest, whole):
        assert losses(one.metrics) == {s: v for s, v in losses(other.metrics).items() if s > 5}
    assert state_of(tmp_path / "rest/step-9") == state_of(tmp_path / "whole/step-9")


def test_state_is_each_ranks_own_in_a_checkpoint(hooks, tmp_path):
    run(hooks, tmp_path, plan_for(hooks, tmp_path / "run", ONE_BIT))
    kept = load_file(tmp_path / "run/step-9" / KEPT)
    assert set(kept) == {"comm_hook.one_bit.rank-0", "comm_hook.one_bit.rank-1"}
    assert bytes(kept["comm_hook.one_bit.rank-0"]) != bytes(kept["comm_hook.one_bit.rank-1"]), "never sent to another"


@pytest.mark.parametrize("hook, world, said", [
    (POWER, 1, "comm_hook power_sgd: its state is not taken over"),
    (POWER, 3, "comm_hook power_sgd: its state is not taken over, because it is of 2 ranks and the world size is now 3"),
    ({"name": "none"}, 2, "comm_hook power_sgd: its state is not taken over"),
    (ONE_BIT, 2, "comm_hook power_sgd: its state is not taken over"),
])
def test_state_is_dropped_aloud_when_it_has_no_taker(hooks, tmp_path, hook, world, said):
    run(hooks, tmp_path, plan_for(hooks, tmp_path / "first", POWER, max_steps=5))
    rest = run(hooks, tmp_path, plan_for(hooks, tmp_path / "rest", hook, world, tmp_path / "first/step-5"), world)
    assert said in reasons(rest).split("; ")
    assert said in str(rest[0].event("note"))


@pytest.mark.parametrize("before, after, said", [
    ({"name": "none"}, {"name": "bf16"}, "comm_hook none -> bf16"),
    ({"name": "fp16"}, {"name": "none"}, "comm_hook fp16 -> none"),
    ({"name": "none"}, POWER, "comm_hook power_sgd begins as in a new run: the checkpoint has nothing of it"),
])
def test_resume_says_so_when_the_hook_is_another(hooks, tmp_path, before, after, said):
    run(hooks, tmp_path, plan_for(hooks, tmp_path / "first", before, max_steps=5))
    rest = run(hooks, tmp_path, plan_for(hooks, tmp_path / "rest", after, 2, tmp_path / "first/step-5"))
    assert said in reasons(rest).split("; ")


def test_ranks_stop_at_the_same_step_when_a_hook_reduces(hooks, tmp_path):
    plan = plan_for(hooks, tmp_path / "run", ONE_BIT, max_steps=200000)
    with Attempt(tmp_path, plan, 2, args_of=lambda rank: ["--plugin-dirs", hooks]) as attempt:
        attempt.until(lambda a: a.ranks[0].step > 20)
        attempt.stop(ranks=attempt.ranks[1:])
        assert attempt.wait(60) == [EXIT["stopped"]] * 2, attempt.story()
        assert attempt.ranks[0].step == attempt.ranks[1].step


def test_skipped_step_leaves_state_alone(hooks, tmp_path):
    """A loss scale that overflows makes gradients infinite: what a hook kept of them would never go away."""
    run(hooks, tmp_path, plan_for(hooks, tmp_path / "first", ONE_BIT, precision="16-mixed", max_steps=2))
    scaled_up(tmp_path / "first/step-2", 2.0 ** 40)
    run(hooks, tmp_path, plan_for(hooks, tmp_path / "rest", ONE_BIT, 2, tmp_path / "first/step-2",
                                  precision="16-mixed", max_steps=6))
    assert manifest_of(tmp_path / "rest/step-6")["loss_scaler"]["skipped_steps"] > 0
    kept = load_file(tmp_path / "rest/step-6" / KEPT)
    assert np.isfinite(np.frombuffer(bytes(kept["comm_hook.one_bit.rank-1"]), "<f4")).all()


@pytest.mark.parametrize("hook, trainer, words", [
    ({"name": "power_sgd", "start_powerSGD_iter": 1}, {}, "comm_hook.start_powerSGD_iter is 1, but has to be at least 2"),
    (POWER, {"precision": "64-true"}, "comm_hook power_sgd computes in fp32, and gradients of this precision are f64"),
    ({"name": "fp8"}, {}, "comm_hook.name"),
    (POWER | {"wraper": "fp16"}, {}, "did you mean wrapper?"),
    ({"name": "plugin", "comm_hook": "two_bit"}, {}, "there is no comm_hook 'two_bit' (did you mean one_bit?)"),
    ({"name": "plugin", "comm_hook": "fp16"}, {}, "comm_hook 'fp16' is traind's own, not a plugin"),
])
def test_hook_is_refused_when_it_cannot_be(hooks, tmp_path, hook, trainer, words):
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(json.dumps(plan_for(hooks, tmp_path / "run", hook, **trainer)))
    out = subprocess.run([support.BUILD / "bin/traind-worker", "plan", "--plan", plan_file, "--world-size", "2",
                          "--plugin-dirs", hooks], capture_output=True, text=True, timeout=60)
    assert out.returncode == EXIT["bad_spec"] and words in out.stdout + out.stderr, out.stdout + out.stderr


def test_plan_counts_what_a_hook_needs(hooks, tmp_path):
    need = {}
    for name, hook in ("none", {"name": "none"}), ("power_sgd", POWER):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(plan_for(hooks, tmp_path / name, hook)))
        need[name] = sizes(file, 2, ["--plugin-dirs", hooks])
    assert need["none"]["hook_bytes"] == 0 < need["power_sgd"]["hook_bytes"]
    assert need["power_sgd"]["memory_bytes"] - need["none"]["memory_bytes"] == need["power_sgd"]["hook_bytes"]
