"""Examples of docs/job-spec.md: each section and kind has one, and a node plans it, completed to a whole spec."""
import json
import re
import subprocess

import grpc
import numpy as np
import pytest

from gpu_nodes import Driver, gpus
from plans import plan_of
from support import BIN, ROOT, until

REFERENCE = (ROOT / "docs/job-spec.md").read_text()
# What a fragment leaves out.
REST = {"model": "model: {name: mlp, layers: [784, 128, 10]}\n",
        "data": "data: {name: idx, path: /usr/share/datasets/fashion-mnist, batch_size: 64}\n",
        "optimizer": "optimizer: {name: adamw, lr: 0.001}\n"}


def examples_of(text):
    return re.findall(r"^```yaml\n(.*?)^```$", text, re.M | re.S)


def sections():
    """(heading, text) of each section of the document, its kinds among the text."""
    body = REFERENCE[REFERENCE.index("## Top level"):REFERENCE.index("## Combinations")]
    return [(part.partition("\n")[0].strip("`"), part) for part in re.split(r"^## ", body, flags=re.M)[1:]]


def whole(example):
    """The example as a spec."""
    keys = set(re.findall(r"^(\w+):", example, re.M))
    if re.search(r"^kind: (command|program)", example, re.M):
        return example
    wants = REST.keys() - keys - ({"optimizer"} if "optimizers" in keys else set())
    return example + "".join(REST[key] for key in sorted(wants))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a person types: with the data that the specs name."""
    place = tmp_path / "typed"
    for made in ("texts", "traces"):
        (place / made).mkdir(parents=True)
    monkeypatch.chdir(place)
    draw = np.random.default_rng(1)
    (place / "texts/a.txt").write_text("to be or not to be, that is the question\n" * 400)
    (place / "train.py").write_text("import os\nprint('rank', os.environ['RANK'])\n")
    for name in ("train.bin", "val.bin"):
        draw.integers(0, 50257, 5000).astype("<u2").tofile(place / name)
    return place


def save(folder, features, **targets):
    draw = np.random.default_rng(1)
    np.save(folder / "X.npy", draw.standard_normal((320, features)).astype("f4"))
    for name, values in targets.items():
        np.save(folder / f"{name}.npy", values(draw))


def test_every_section_and_kind_has_an_example():
    missing = [name for name, text in sections() if not examples_of(text)]
    kinds = [(name, kind, text) for name, text in sections()
             for kind in re.findall(r"^### `\w+: \{name: (\w+)\}`", text, re.M)]
    value = r"(?:: |- |, |\[)%s(?:[,}\]\n])"
    missing += [f"{name}: {{name: {kind}}}" for name, kind, text in kinds
                if not any(re.search(value % kind, example) for example in examples_of(text))]
    parts = re.findall(r"^### each of `([\w.]+)`\n\n.*\n\n(?!```yaml)", REFERENCE, re.M)
    assert len(sections()) > 15 and len(kinds) > 60
    assert not missing + parts, "give its row an .example (lib/spec/knobs*.def), and print docs/job-spec.md again"


def refusal(daemon, spec, folder):
    """Why a node does not plan it; of a plugin, whose file is not here, why the parser does not take it."""
    if "name: plugin" not in spec:
        said = daemon.ctl("submit", "-", "--dry-run", stdin=spec)
        return said.returncode and said.stderr
    try:
        daemon.validated(spec, folder)
    except grpc.RpcError as error:
        return error.details()
    return None


@pytest.fixture
def machine(cluster, tmp_path):
    """A daemon on a machine with GPUs, which examples ask for."""
    driver = Driver(tmp_path, "machine")
    driver.says(*gpus("a", 4))
    daemon = cluster.make()
    daemon.bin = driver.bin
    daemon.start()
    until("its GPUs are listed", lambda: daemon.nodes()[0].gpus.gpus)
    return daemon


def test_every_example_of_the_job_spec_is_planned(machine, folder):
    save(folder, 8, y=lambda draw: draw.integers(0, 3, 320), prices=lambda draw: draw.random(320, "f4"),
         labels=lambda draw: draw.integers(0, 2, (320, 3)).astype("f4"))
    found = [e for _, text in sections() for e in examples_of(text) if not e.startswith('"run"')]
    refused = [example + why for example in found if (why := refusal(machine, whole(example), folder))]
    assert len(found) > 50 and not refused, "\n".join(refused)


def test_the_example_of_a_plan_is_taken(tmp_path):
    example, = [e for e in examples_of(REFERENCE) if e.startswith('"run"')]
    run = json.loads("{" + example + "}")["run"]
    (tmp_path / "plan.json").write_text(json.dumps(plan_of(run={**run, "checkpoint_dir": str(tmp_path)})))
    ran = subprocess.run([BIN / "traind-worker", "plan", "--plan", tmp_path / "plan.json"], capture_output=True,
                         text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
