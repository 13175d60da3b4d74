"""`--profile`, which is `trainer.profile`: a table of kernels and their time, of rank 0, as JSON beside the checkpoints and
as text in its log. It counts what a small model is known to run, and the losses keep their bits."""
import json
import pathlib

import pytest

SPEC = """
seed_everything: 5
stages: [fit, predict]
model: {name: mlp, layers: [16, 12, 4]}
data: {name: synthetic, samples: 96, val_split: 32, batch_size: 8}
optimizer: {name: sgd, lr: 0.05}
trainer: {max_steps: 8, log_every_n_steps: 1, devices: 2, accelerator: ACCELERATOR, deterministic: true, num_sanity_val_steps: 0}
predict: {values: logits}
evaluate_from: last
"""


def said_of_profiles(done):
    return [n for n in done.notes if "profile" in n]


def table_of(text):
    """{(step, op): runs} of the rows of f32."""
    rows = [line.split() for line in text.splitlines()]
    return {(r[0], r[1]): int(r[3]) for r in rows if r[2:3] == ["f32"] and len(r) >= 8}


@pytest.fixture
def spec(tmp_path):
    def write(accelerator="cpu"):
        path = tmp_path / f"{accelerator}.yaml"
        path.write_text(SPEC.replace("ACCELERATOR", accelerator))
        return str(path)
    return write


def submit(daemon, *words):
    ran = daemon.ctl("submit", *words, "-o", "name", check=None)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()[-1]


def losses(daemon, job):
    return [(p.step, p.value) for p in daemon.points(job, "train_loss_step")]


def test_table_of_kernels_is_among_the_results_when_asked_for(daemon, spec):
    job = submit(daemon, spec(), "--profile")
    done = daemon.finish(job)
    note, = said_of_profiles(done)
    path = pathlib.Path(note.split(" is in ")[1])
    assert note.startswith("the profile of rank 0 is in ") and note in daemon.ctl("describe", job).stdout
    assert path == daemon.state_dir / "checkpoints" / job / "a1/profile.json"
    found = json.loads(path.read_text())
    assert {k: found[k] for k in ("attempt", "rank", "world_size", "step")} == {"attempt": 1, "rank": 0, "world_size": 2, "step": 8}
    rows = {(r["step"], r["op"]): r for r in found["kernels"] if r["type"] == "f32"}
    # two layers: two products forward, and three backward; four parameters
    assert rows["train", "matmul"]["runs"] == 8 * 5 and rows["train", "sgd"]["runs"] == 8 * 4
    assert rows["predict", "matmul"]["runs"] % 2 == 0 and ("predict", "sgd") not in rows
    assert all(r["seconds"] > 0 and r["plain_loops"] is False for r in rows.values())
    for step in ("train", "eval", "predict"):
        of_step = [r for r in found["kernels"] if r["step"] == step]
        assert sum(r["share"] for r in of_step) == pytest.approx(1, abs=1e-4), step
        assert [r["seconds"] for r in of_step] == sorted((r["seconds"] for r in of_step), reverse=True)
        total = sum(r["seconds"] for r in of_step)
        assert all(r["share"] == pytest.approx(r["seconds"] / total, abs=1e-5) for r in of_step)
    assert table_of(daemon.ctl("logs", job, "--rank", "0", "--err-only").stdout) == {k: r["runs"] for k, r in rows.items()}
    assert table_of(daemon.ctl("logs", job, "--rank", "1", "--err-only").stdout) == {}


def test_losses_are_the_same_bits_and_nothing_is_written_when_not_asked_for(daemon, spec):
    plain = submit(daemon, spec())
    done = daemon.finish(plain)
    assert said_of_profiles(done) == [] and not list(daemon.state_dir.glob("checkpoints/**/profile.json"))
    assert table_of(daemon.ctl("logs", plain, "--rank", "0").stdout) == {}
    timed = daemon.ctl("clone", plain, "--profile", "-o", "name").stdout.split()[-1]
    assert said_of_profiles(daemon.finish(timed))
    assert len(losses(daemon, plain)) == 8 and losses(daemon, timed) == losses(daemon, plain)
    again = daemon.ctl("retry", timed, "-o", "name").stdout.split()[-1]
    assert said_of_profiles(daemon.finish(again)) and (daemon.state_dir / "checkpoints" / again / "a1/profile.json").exists()


def test_note_says_why_when_the_accelerator_counts_no_time(daemon, spec):
    note, = said_of_profiles(daemon.finish(submit(daemon, spec("reference"), "--profile")))
    assert note == "the profile is not written: no kernel took any time: accelerator 'reference' counts none, or nothing ran"


def test_key_of_lightning_names_ours(daemon, spec):
    refused = daemon.ctl("submit", spec(), "--set", "trainer.profiler=simple", check=None)
    assert refused.returncode == 2 and "trainer.profile" in refused.stderr and "trainer.trace_dir" in refused.stderr
