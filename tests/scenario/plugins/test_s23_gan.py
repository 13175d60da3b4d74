"""Two networks that train in turns: examples/plugins/gan.c, a module of two training steps, on Fashion-MNIST. Runs that
are killed and resumed, on each strategy, give the bits of one that was never cut off."""
import os
import shutil
import signal
import subprocess

import numpy
import pytest
from safetensors.numpy import load_file

import support
from plans import losses, plan_of, state_of, steps_in
from ranks import Attempt

STEPS = 24  # 12 batches
DATA = {"name": "idx", "path": "/usr/share/datasets/fashion-mnist", "batch_size": 16, "shuffle": True}

ADAM = {"name": "adam", "lr": 0.002, "betas": [0.5, 0.999]}
OPTIMIZERS = [{"name": "disc", "match": "disc.*", "optimizer": ADAM},
              {"name": "gen", "match": "gen.*", "optimizer": ADAM | {"lr": 0.004}, "lr_scheduler": {"name": "cosine"}}]


@pytest.fixture(scope="module")
def tree(build, tmp_path_factory):
    """An installation of its own with the module in it."""
    where = tmp_path_factory.mktemp("tree")
    for folder in ("bin", "lib"):
        shutil.copytree(build / folder, where / folder)
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                    f"-I{support.ROOT}/include", support.ROOT / "examples/plugins/gan.c",
                    "-o", where / "lib/traind/module-gan.so"], check=True)
    return where


@pytest.fixture(autouse=True)
def worker(tree, monkeypatch):
    monkeypatch.setattr("ranks.WORKER", tree / "bin/traind-worker")


def plan_for(directory, world, resume_from=None, **trainer):
    return plan_of({"data": DATA,
                    "model": {"name": "plugin", "module": "gan", "knobs": {"latent": 16, "hidden": 24}},
                    "optimizer": {"name": "sgd"}, "optimizers": OPTIMIZERS},
                   trainer={"accelerator": "cpu", "devices": world, "max_steps": STEPS, "max_epochs": -1,
                            "limit_train_batches": 5, "limit_val_batches": 2, "gradient_clip_val": 1.0, **trainer},
                   run={"checkpoint_dir": str(directory), "cache_dir": str(directory.parent / "cache"),
                        "resume_from": resume_from and str(resume_from)})


def finish(tmp_path, plan, world):
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait(120) == [0] * world, attempt.story()
        return attempt.ranks


def both(rank):
    return losses(rank.metrics, "train_loss_disc_step"), losses(rank.metrics, "train_loss_gen_step")


@pytest.mark.parametrize("world, trainer", [
    (1, {}), (2, {}), (2, {"accumulate_grad_batches": 2}), (2, {"precision": "bf16-mixed"}),
    (1, {"accumulate_grad_batches": 2, "precision": "16-mixed"}), (2, {"accelerator": "reference"})],
    ids=["single", "ddp", "windows", "bf16", "fp16", "reference"])
def test_killed_run_goes_on_to_the_bits_of_one_that_was_not(tmp_path, world, trainer):
    whole = finish(tmp_path, plan_for(tmp_path / "whole", world, **trainer), world)
    end, = [s for s in steps_in(tmp_path / "whole") if s >= STEPS - 1]
    with Attempt(tmp_path, plan_for(tmp_path / "cut", world, **trainer), world) as cut:
        cut.until(lambda a: len(a.ranks[0].event("checkpoint")) >= 4 or a.ranks[0].process.poll() is not None, 120)
        cut.kill(world - 1)
        assert cut.wait()[world - 1] in (-signal.SIGKILL, 0), cut.story()
    step = max(s for s in steps_in(tmp_path / "cut") if (tmp_path / f"cut/step-{s}/manifest.json").exists() and s < end)
    rest = finish(tmp_path, plan_for(tmp_path / "rest", world, tmp_path / f"cut/step-{step}", **trainer), world)
    assert rest[0].event("resumed")[0]["exact"]
    rates = [losses(whole[0].metrics, f"lr_{name}") for name in ("disc", "gen")]
    assert {v for v, _ in rates[0].values()} == {numpy.float32(0.002)} and len(set(rates[1].values())) == len(rates[1])
    for before, after in zip(whole, rest):
        assert both(after) == tuple({s: v for s, v in of.items() if s > step} for of in both(before))
    assert state_of(tmp_path / f"rest/step-{end}") == state_of(tmp_path / f"whole/step-{end}")


# Contract 1: ranks train as one rank with all their samples
def test_ranks_hold_what_one_rank_with_their_samples_would(tmp_path):
    """The noise of a sample is its own, whatever rank it is on. After one update of each network the moments are the
    mean gradients."""
    one = plan_for(tmp_path / "one", 1, accelerator="reference", max_steps=2)
    one["data"] = DATA | {"batch_size": 32}
    finish(tmp_path, one, 1)
    finish(tmp_path, plan_for(tmp_path / "two", 2, accelerator="reference", max_steps=2), 2)
    one, two = (load_file(tmp_path / f"{part}/step-2/model.safetensors") for part in ("one", "two"))
    first = [load_file(tmp_path / f"{part}/step-2/optimizer.safetensors") for part in ("one", "two")]
    assert set(one) == {f"{n}.fc{i}.{p}" for n in ("disc", "gen") for i in (1, 2) for p in ("weight", "bias")}
    for name in first[0]:
        if name.endswith("exp_avg"):
            assert numpy.allclose(first[0][name], first[1][name], rtol=1e-3, atol=1e-7), name


# Host code that moves both networks by gradients of one place. The pass of the generator is open beneath that of the
# discriminator, or was ended before it: then it is the updates alone that come late.
PLAY = """
#include "traind/steps.h"
static td_status play(struct td_module *m, struct td_steps *s, int64_t batch_idx) {
    (void)m, (void)batch_idx;
    TD_TRY(td_steps_forward(s, "generator"));
    if (!OPEN) TD_TRY(td_steps_backward(s));
    TD_TRY(td_steps_forward(s, "discriminator"));
    if (OPEN) TD_TRY(td_steps_backward_of(s, "generator"));
    TD_TRY(td_steps_backward_of(s, "discriminator"));
    TD_TRY(td_steps_optimizer_step(s, "discriminator", NULL));
    return td_steps_optimizer_step(s, "generator", NULL);
}
"""


def build_played(tree, name, is_open):
    source = (support.ROOT / "examples/plugins/gan.c").read_text()
    for old, new in (("static const struct td_module_ops ops", PLAY + "static const struct td_module_ops ops"),
                     (".step_at = gan_step_at,",
                      ".step_at = gan_step_at, .training_step = play, .keeps_forwards = OPEN,"),
                     ('(MODULE, "gan"', f'(MODULE, "{name}"')):
        assert source.count(old) == 1
        source = source.replace(old, new)
    (tree / f"{name}.c").write_text(source)
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                    f"-DOPEN={is_open}", f"-I{support.ROOT}/include", tree / f"{name}.c",
                    "-o", tree / f"lib/traind/module-{name}.so"], check=True)


@pytest.mark.parametrize("world, trainer", [(1, {}), (2, {}), (2, {"precision": "bf16-mixed"})],
                         ids=["single", "ddp", "bf16"])
def test_networks_move_together_while_both_forwards_are_open(tmp_path, tree, world, trainer):
    found = []
    for name, is_open in (("gan_open", "true"), ("gan_closed", "false")):
        build_played(tree, name, is_open)
        plan = plan_for(tmp_path / name, world, **trainer)
        plan["model"]["module"] = name
        finish(tmp_path, plan, world)
        found.append(state_of(tmp_path / f"{name}/step-{STEPS}"))
    assert found[0] == found[1]
