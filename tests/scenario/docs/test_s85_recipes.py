"""Specs of docs/recipes.md: all of them run, and do what their text says."""
import re

import numpy as np
import pytest
from safetensors.numpy import load

from support import ROOT
from test_s56_several_nodes import two  # noqa: F401
from test_s84_spec_examples import examples_of, folder, save  # noqa: F401

PAGE = (ROOT / "docs/recipes.md").read_text()
RECIPES = examples_of(PAGE)


def run(daemon, spec, *overrides):
    sets = [word for o in overrides for word in ("--set", o)]
    job = daemon.ctl("submit", "-", *sets, "-o", "name", check=0, stdin=spec).stdout.strip()
    return daemon.wait_state(job, "SUCCEEDED")


def test_every_recipe_runs_and_does_what_its_text_says(cluster, folder):  # noqa: F811
    """In the order of the page, on one node: some go on from the first."""
    save(folder, 20, y=lambda draw: draw.integers(0, 3, 320), five=lambda draw: draw.integers(0, 5, 320))
    daemon = cluster.start("--slots", "2", "--allow", "commands")
    done = {}
    for spec in [r for r in RECIPES if "num_nodes" not in r]:
        name = re.match(r"name: (\S+)", spec)[1]
        done[name] = run(daemon, spec, *["trainer.max_steps=2"] * (name == "writer"))
    assert len(done) == len(RECIPES) - 1 > 10
    steps = {name: job.global_step for name, job in done.items()}
    assert 0 < steps["flowers"] < 50 * 8 and steps["flowers-slow"] == 80 * 8, steps
    assert daemon.points(done["flowers-slow"].id, "lr")[0].value == pytest.approx(0.001)
    best, = [c.path for c in daemon.checkpoints(done["flowers"].id) if c.best]
    was, now = (load(daemon.weights(done[name].id, path)["model.safetensors"])
                for name, path in (("flowers", best), ("flowers-head", "")))
    frozen = {f"fc{i}.{w}" for i in (1, 2) for w in ("bias", "weight")}
    assert {name for name in was if was[name].tobytes() == now[name].tobytes()} == frozen
    assert np.load(folder / "logits.npy").shape == (320, 3)
    assert list(folder.glob("runs/*/events*"))


def test_the_recipe_of_two_nodes_runs(two, folder):  # noqa: F811
    save(folder, 20, y=lambda draw: draw.integers(0, 3, 320))
    spec, = [r for r in RECIPES if "num_nodes" in r]
    assert run(two[0], spec, "trainer.max_epochs=1").n_ranks == 4


def test_contents_of_the_recipes_are_their_headings():
    listed, headings = re.findall(r"^- \[(.*?)\]\(#(.*?)\)$", PAGE, re.M), re.findall(r"^## (.*)$", PAGE, re.M)
    assert listed == [(h, re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-")) for h in headings]
    assert len(headings) == len(RECIPES)
