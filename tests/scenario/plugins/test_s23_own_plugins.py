"""Plugins of a stranger: examples/plugins, built from a copy with an installed traind and nothing else, in C and in
C++, named by a job spec and trained with."""
import json
import os
import re
import shutil
import subprocess

import pytest
from safetensors.numpy import load_file

import support

STRICT = "-O2 -Wall -Wextra -Wpedantic -Wshadow -Werror"
SOURCES = ("skipnet", "gan", "stripes", "sign_vote", "local_sgd", "post_local_sgd", "bf16_products", "one_bit", "fault")
# Without what a make above this one says: flags of its build, its jobs.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "CFLAGS", "CPPFLAGS"))}


def make(*args, cwd=support.ROOT, env=CLEAN):
    done = subprocess.run(["make", *map(str, args)], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def install(prefix, *more):
    make("install-built", f"B={support.BUILD}", f"PREFIX={prefix}", *more)


@pytest.fixture(scope="module")
def prefix(build, tmp_path_factory):
    where = tmp_path_factory.mktemp("installed")
    install(where)
    return where


@pytest.fixture(scope="module")
def built(prefix, tmp_path_factory):
    """A copy of examples/plugins, built in C, and in its folder cxx in C++."""
    away = tmp_path_factory.mktemp("away") / "plugins"
    shutil.copytree(support.ROOT / "examples/plugins", away)
    env = CLEAN | {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    make("all", f"CFLAGS={STRICT}", cwd=away, env=env)
    make(*(f"cxx-{name}.so" for name in SOURCES), f"CFLAGS={STRICT}", cwd=away, env=env)
    (away / "cxx").mkdir()
    for file in list(away.glob("*-*.so")):
        if file.name.startswith("cxx-"):
            as_c, = [c for c in away.glob(f"*-{file.stem.removeprefix('cxx-')}.so") if c != file]
            file.rename(away / "cxx" / as_c.name)
    for folder in (away, away / "cxx"):
        folder.chmod(0o755)
        for file in folder.glob("*.so"):
            file.chmod(0o755)
    return away


class Run:
    """`trainctl run` of own.yaml, in a folder of its own."""

    def __init__(self, prefix, plugins, folder, *overrides):
        folder.mkdir()
        shutil.copy(support.ROOT / "examples/plugins/own.yaml", folder)
        sets = [f"plugins=[{plugins}]" if plugins else "plugins=[]", "trainer.max_epochs=2", *overrides]
        done = subprocess.run([prefix / "bin/trainctl", "run", "own.yaml", *(w for s in sets for w in ("--set", s))],
                              cwd=folder, capture_output=True, text=True, timeout=120)
        self.folder, self.code, self.said = folder, done.returncode, done.stdout + done.stderr

    def weights(self):
        assert "own SUCCEEDED: step 64" in self.said, self.said
        step, = self.folder.glob("own/checkpoints/a1/step-64")
        return load_file(step / "model.safetensors")

    def last(self, name):
        points = map(json.loads, (self.folder / "own/metrics.jsonl").read_text().splitlines())
        return [p["value"] for p in points if p["name"] == name][-1]


def same(one, other):
    return one.keys() == other.keys() and all((one[n] == other[n]).all() for n in one)


def test_plugins_train_when_they_are_built_from_installed_headers(prefix, built, tmp_path):
    in_c = Run(prefix, built, tmp_path / "c")
    in_cxx = Run(prefix, built / "cxx", tmp_path / "cxx")
    assert set(in_c.weights()) == {"stem.weight", "block0.conv1.weight", "block0.conv2.weight", "fc.weight", "fc.bias"}
    assert in_c.last("test_accuracy") > 0.9, "four classes: chance is 0.25"
    assert same(in_c.weights(), in_cxx.weights()), "the compilers agree to the bit"


def test_plugins_are_found_by_name_when_they_are_installed(prefix, built, tmp_path):
    for file in built.glob("*.so"):
        shutil.copy(file, prefix / "lib/traind")
    installed = Run(prefix, None, tmp_path / "installed")
    for file in built.glob("*.so"):
        (prefix / "lib/traind" / file.name).unlink()
    assert same(installed.weights(), Run(prefix, built, tmp_path / "named").weights())


@pytest.mark.parametrize("override", [
    "model.knobs.blocks=2", "model.knobs.activation=silu", "model.knobs.dropout=0.2", "data.knobs.noise=0.5",
    "trainer.strategy=ddp", "trainer.strategy.knobs.magnitude=0.5", "trainer.precision=32-true"])
def test_each_plugin_and_knob_counts_when_it_is_another(prefix, built, tmp_path, override):
    assert not same(Run(prefix, built, tmp_path / "as_is").weights(), Run(prefix, built, tmp_path / "other", override).weights())


@pytest.mark.parametrize("override, words", [
    ("model.knobs.chanels=8", "model.knobs.chanels: unknown key, did you mean channels?"),
    ("model.knobs.channels=0", "model.knobs.channels: expected an integer from 1 to 1024, found 0"),
    ("model.knobs.activation=rleu", "did you mean relu?"),
    ("data.knobs.noise=much", "data.knobs.noise: expected a number from 0 to 1, found text 'much'"),
    ("trainer.strategy.knobs.magnitude=0", "trainer.strategy.knobs.magnitude: expected a number from 1e-12"),
    ("trainer.precision.knobs.bits=3", "trainer.precision.knobs.bits: unknown key; known here: nothing"),
    ("model.module=skipnets", "there is no module 'skipnets' (did you mean skipnet?); known are: "),
])
def test_job_is_refused_when_a_plugins_table_does_not_take_a_knob(prefix, built, tmp_path, override, words):
    run = Run(prefix, built, tmp_path / "none", override)
    assert run.code != 0 and words in re.sub(r"\s+", " ", run.said), run.said


def test_nothing_is_left_but_plugins_of_others_when_it_is_uninstalled(tmp_path):
    install("/usr", f"DESTDIR={tmp_path}")
    assert "prefix=/usr\n" in (tmp_path / "usr/lib/pkgconfig/traind.pc").read_text()
    own = tmp_path / "usr/lib/traind/module-own.so"
    own.write_text("of somebody else")
    make("uninstall", f"B={support.BUILD}", f"DESTDIR={tmp_path}", "PREFIX=/usr")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [own]
