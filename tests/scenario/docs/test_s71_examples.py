"""Every job spec in examples/ runs through a daemon: cut short in make check, whole in check-full, where
the convnet must also be as good as the rival's."""
import os
import re
import subprocess

import pytest

from support import BIN, BUILD, ROOT, processes_of

FULL = bool(os.environ.get("TD_FULL"))
FEW = ("trainer.max_epochs=1", "trainer.limit_train_batches=2", "trainer.limit_val_batches=1",
       "trainer.limit_test_batches=1")
SMALL = ("trainer.max_steps=2", "trainer.limit_val_batches=1", "data.batch_size=2")
SHORT = {
    "synthetic": (),
    "fashion-mnist": FEW,
    "fashion-mnist-convnet": FEW,
    "resnet18": FEW + ("data.batch_size=4",),
    "llama-bytes": SMALL,
    "gpt2-124m": ("trainer.max_steps=1", "model.n_layer=1", "model.n_embd=48", "data.block_size=32"),
}
RIVAL_ACCURACY = 0.883  # tests/bench/rivals/fashion.py --job convnet, 2 epochs


PAIR = {"gpt-bytes", "gpt-bytes-predict"}  # tried together below


def test_all_examples_are_tried():
    assert {p.stem for p in (ROOT / "examples").glob("*.yaml")} == set(SHORT) | PAIR


def test_demo_reaches_its_accuracy_and_leaves_no_daemon(tmp_path):
    """It makes the state directory before the daemon, which once refused the mode."""
    (tmp_path / "bin").symlink_to(BIN)
    (tmp_path / "lib").symlink_to(BUILD / "lib")
    done = subprocess.run([ROOT / "examples/demo.sh", tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert float(re.search(r"^test accuracy  ([0-9.]+)$", done.stdout, re.M)[1]) > 0.85
    assert not processes_of(tmp_path)


def run(daemon, name, *overrides, deadline_s=120):
    job = daemon.submit((ROOT / f"examples/{name}.yaml").read_text(), *overrides)
    return job, daemon.wait_state(job, "SUCCEEDED", deadline_s=deadline_s)


@pytest.mark.parametrize("name", SHORT)
def test_example_runs_when_cut_short(daemon, name):
    _, done = run(daemon, name, *SHORT[name])
    assert done.global_step >= 1


def test_gpt_writes_when_it_was_trained(daemon):
    """gpt-bytes.yaml, then gpt-bytes-predict.yaml from its checkpoint, as its first lines say."""
    job, _ = run(daemon, "gpt-bytes", *SMALL)
    weights, = daemon.checkpoints(job)
    output = daemon.cluster.folder / "sample.txt"
    run(daemon, "gpt-bytes-predict", f"init_from={weights.directory}", "predict.max_new_tokens=5",
        f"predict.output={output}")
    daemon.ctl("checkpoint", "download", job, "-O", daemon.cluster.folder / "got", check=0)
    assert (daemon.cluster.folder / "got/config.json").exists(), "it is what from_pretrained takes"
    assert len(output.read_bytes()) == len(b"Dictionary \\Dic") + 5


# Minutes each, beside other tests: their deadlines are far.
def test_convnet_is_as_good_as_the_rival_after_two_epochs(daemon, full):
    _, done = run(daemon, "fashion-mnist-convnet", deadline_s=1800)
    assert done.metrics["test_accuracy"] >= RIVAL_ACCURACY - 0.005


def test_gpt2_does_three_steps_at_full_size(daemon, full):
    job, done = run(daemon, "gpt2-124m", deadline_s=1800)
    assert done.global_step == 3
    losses = [p.value for p in daemon.points(job)]
    assert len(losses) == 3 and all(9 < v < 12 for v in losses)  # about ln 50257


def test_gpt_learns_the_dictionary(daemon, full):
    _, done = run(daemon, "gpt-bytes", "trainer.max_steps=60", "lr_scheduler.warmup_steps=10",
                  deadline_s=1800)
    assert done.metrics["val_loss"] < 3.2
