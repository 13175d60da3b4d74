"""Paths of a spec that begin where its author is, and checkpoints of other jobs by the job's name."""
import json
import os
import subprocess

import numpy as np
import pytest

from fake_node import OLDER_BUILD, FakeNode
from support import BIN, ROOT, SPEC, spec_file

USAGE = 2
NPY = SPEC[:SPEC.index("data:")] + "data: {name: npy, x: X, y: Y, batch_size: 16}\n" + SPEC[SPEC.index("optimizer:"):]


@pytest.fixture
def here(tmp_path):
    """A working directory with data in it, and a home with other data."""
    place, home = tmp_path / "there" / "project", tmp_path / "home"
    for folder in (place / "data", home):
        folder.mkdir(parents=True)
        rng = np.random.default_rng(1)
        np.save(folder / "x.npy", rng.standard_normal((64, 16), dtype=np.float32))
        np.save(folder / "y.npy", rng.integers(0, 4, 64))
    return place


def ctl(daemon, here, *args, check=0, stdin=None):
    env = {**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir), "HOME": str(here.parent.parent / "home")}
    ran = subprocess.run([BIN / "trainctl", *map(str, args)], cwd=here, env=env, input=stdin, capture_output=True,
                         text=True, timeout=120)
    assert ran.returncode == check, f"exit {ran.returncode}\n{ran.stdout}\n{ran.stderr}\n{daemon.tail()}"
    return ran


@pytest.mark.parametrize("given, place", [
    ("data", "there/project/data"), ("./data", "there/project/data"), ("../project/data", "there/project/data"), ("~", "home")])
def test_paths_begin_where_the_client_is_and_are_shown_resolved(daemon, tmp_path, here, given, place):
    (here / "spec.yaml").write_text(NPY.replace("X", f"{given}/x.npy").replace("Y", f"{given}/y.npy"))
    resolved = json.loads(ctl(daemon, here, "submit", "spec.yaml", "--dry-run", "-o", "json").stdout)
    assert resolved["data"]["x"] == str(tmp_path / place / "x.npy")
    ctl(daemon, here, "plan", "spec.yaml")
    ctl(daemon, here, "submit", "spec.yaml", "--follow", "--set", "checkpoint.dir=out", "--set", "stages=[fit]")
    assert list((here / "out").glob("j-*/a1/step-*")), "an output need not be there"


def test_a_relative_path_that_is_not_there_was_refused_after_the_job_was_queued(daemon, here):
    text = NPY.replace("X", "data/typo.npy").replace("Y", "~/y.npy")
    for verb in (["submit", "-"], ["plan", "-"], ["submit", "-", "--dry-run"]):
        said = ctl(daemon, here, *verb, check=USAGE, stdin=text).stderr
        assert f"data.x: 'data/typo.npy' is '{here}/data/typo.npy' here: No such file" in said, said
    said = ctl(daemon, here, "submit", "-", "--set", "init_from=nobody/best", check=USAGE, stdin=NPY).stderr
    assert "init_from: 'nobody/best' is no checkpoint of a job" in said, said
    assert f"as a path it is '{here}/nobody/best' here: No such file" in said, said
    assert not daemon.ctl_json("list").get("jobs")


def test_arrays_of_an_archive_and_places_of_loggers_are_relative_too(daemon, here):
    np.savez(here / "both.npz", a=np.load(here / "data/x.npy"), b=np.load(here / "data/y.npy"))
    text = NPY.replace("X", "both.npz:a").replace("Y", "both.npz:b")
    ctl(daemon, here, "submit", "-", "--follow", "--set", "loggers=[{name: csv, dir: curves}]", "--set", "stages=[fit]", stdin=text)
    assert list((here / "curves").glob("*/*")), "a logger's place need not be there"
    said = ctl(daemon, here, "submit", "-", check=USAGE, stdin=text.replace("both.npz:b", "none.npz:b")).stderr
    assert f"data.y: 'none.npz:b' is '{here}/none.npz:b' here" in said


def test_run_without_a_daemon_takes_the_same_paths(here):
    (here / "spec.yaml").write_text(NPY.replace("X", "data/x.npy").replace("Y", "../../home/y.npy"))
    run = lambda *more: subprocess.run([BIN / "trainctl", "run", "spec.yaml", "--set", "stages=[fit]", *more], cwd=here,
                                       capture_output=True, text=True, timeout=120)
    ran = run()
    assert ran.returncode == 0, ran.stderr
    missing = run("--set", "data.x=no/x.npy", "-O", "other")
    assert missing.returncode == USAGE and f"data.x: 'no/x.npy' is '{here}/no/x.npy' here" in missing.stderr
    assert not (here / "other").exists()


@pytest.mark.parametrize("given, words", [
    ("~alice/x.npy", "the home of another user"), ("data/../x.npy", "without '..'"), ("x" * 4095, "longer than 4095"),
    ('"a\\x01b"', "control characters")])
def test_relative_paths_that_are_refused(daemon, here, given, words):
    said = ctl(daemon, here, "submit", "-", check=USAGE, stdin=NPY.replace("X", given).replace("Y", "/y.npy")).stderr
    assert words in said and "data.x" in said, said


def test_a_relative_path_is_refused_where_a_node_is_another_machine(coordinator, here):
    node = FakeNode(coordinator, name="far-away")
    text = NPY.replace("X", "data/x.npy").replace("Y", "/y.npy")
    said = ctl(coordinator, here, "submit", "-", check=USAGE, stdin=text).stderr
    assert "'data/x.npy' is relative: node far-away is another machine" in said and "absolute path" in said
    node.close()


def test_a_relative_path_is_taken_where_the_other_machine_gets_no_job(coordinator, here):
    node = FakeNode(coordinator, name="far-away", build=OLDER_BUILD)
    text = NPY.replace("X", "data/x.npy").replace("Y", "/y.npy")
    ctl(coordinator, here, "submit", "-", stdin=text)
    node.close()


def test_a_client_that_does_not_say_where_it_is_has_no_relative_paths(daemon, stubs):
    with pytest.raises(Exception, match="absolute path"):
        daemon.submit(NPY.replace("X", "x.npy").replace("Y", "/y.npy"))


def test_checkpoints_of_other_jobs_by_name_id_and_prefix(daemon, here):
    first = daemon.submit(SPEC, "checkpoint.monitor=val_loss", "checkpoint.mode=max", "stages=[fit]")
    last = daemon.finish(first).checkpoint
    rows = {c.path: c for c in daemon.checkpoints(first)}
    best = max(rows.values(), key=lambda c: c.metrics["val_loss"]).path
    other = sorted(rows)[0]
    for word, kept, path in ((first, "last", last), (first[:9], "last", last), ("small", "last", last),
                             ("small/last", "last", last), ("small/best", "best", best), (f"small/{other}", other, other)):
        for key in ("init_from", "ckpt_path"):
            spec = daemon.stub("Job").PlanJob(daemon.cluster.stubs.job.PlanJobRequest(
                spec=SPEC, overrides=[f"{key}={word}"]), timeout=60)
            assert json.loads(spec.spec_json)[key] == f"{first}/{kept}", (word, key)
            assert json.loads(spec.plan_json)[key] == rows[path].directory, (word, key)
    ctl(daemon, here, "submit", "-", "--follow", "--set", "init_from=small/best", stdin=SPEC.replace("small", "next"))


@pytest.mark.parametrize("given, words", [
    ("small/a9/step-9", "has no checkpoint a9/step-9; `trainctl checkpoint list"),
    ("small/best/x", "init_from: 'small/best/x' is no checkpoint of a job"),
    ("nobody", "init_from: 'nobody' is no checkpoint of a job"),
    ("./small", "init_from: './small' is '")])
def test_references_that_lead_nowhere(daemon, here, given, words):
    daemon.finish(daemon.submit(SPEC, "trainer.max_steps=2"))
    said = ctl(daemon, here, "submit", "-", "--set", f"init_from={given}", check=USAGE, stdin=SPEC).stderr
    assert words in said, said


def test_a_job_without_a_checkpoint_cannot_be_begun_from(coordinator, here):
    coordinator.submit(SPEC)
    said = ctl(coordinator, here, "submit", "-", "--set", "init_from=small", check=USAGE, stdin=SPEC).stderr
    assert "(small) has no checkpoint yet" in said


def test_the_same_request_id_from_another_directory_is_another_request(daemon, here):
    text = NPY.replace("X", "x.npy").replace("Y", "y.npy")
    places = [here / "data", here.parent.parent / "home"]
    ask = lambda place: subprocess.run(
        [BIN / "trainctl", "submit", "-", "--request-id", "once", "-o", "name"], cwd=place, input=text, text=True,
        capture_output=True, env={**os.environ, **daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir)}, timeout=60)
    first, again, elsewhere = (ask(place) for place in (places[0], *places))
    assert first.stdout == again.stdout and first.stdout.startswith("j-"), first.stderr
    assert elsewhere.returncode == USAGE and "used for another request" in elsewhere.stderr, elsewhere.stderr


CSV = """plugins: [.]
stages: [fit]
model: {name: mlp, layers: [2, 2]}
data: {name: plugin, dataset: mydata, knobs: {path: X}, batch_size: 8}
optimizer: {name: sgd}
trainer: {max_epochs: 1, accelerator: cpu}
"""


# The client does not know which of a plugin's knobs are paths; the node does, and where they begin.
@pytest.mark.parametrize("given, place", [
    ("points.csv", "there/project"), ("../points.csv", "there"), ("~/points.csv", "home")])
def test_paths_in_knobs_of_a_plugin_begin_where_the_client_is(cluster, tmp_path, here, given, place):
    for folder in (tmp_path, tmp_path / "there", here):
        folder.chmod(0o755)
    subprocess.run(["cc", "-std=c11", "-O1", "-shared", "-fPIC", f"-I{ROOT}/include", ROOT / "examples/init/mydata.c",
                    "-o", here / "dataset-mydata.so", "-lm"], check=True)
    (here / "dataset-mydata.so").chmod(0o644)
    (tmp_path / place / "points.csv").write_text("".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(40)))
    (here / "spec.yaml").write_text(CSV.replace("X", given))
    daemon = cluster.start("--plugin-dirs", here)
    kept = json.loads(ctl(daemon, here, "submit", "spec.yaml", "--dry-run", "-o", "json").stdout)
    assert kept["data"]["knobs"]["path"] == given and kept["paths_from"] == [str(here), str(tmp_path / "home")]
    ctl(daemon, here, "plan", "spec.yaml")
    ctl(daemon, here, "submit", "spec.yaml", "--follow")
    (tmp_path / "again.yaml").write_text(ctl(daemon, here, "spec", "job").stdout)
    ctl(daemon, tmp_path, "submit", "again.yaml", "--follow")  # from another directory
    ctl(daemon, here, "run", "spec.yaml")
    said = ctl(daemon, here, "plan", "spec.yaml", "--set", "data.knobs.path=gone.csv", check=1).stderr
    assert str(here / "gone.csv") in said, said
