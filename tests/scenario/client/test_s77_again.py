"""A job again: retry, clone, and two jobs side by side."""
import contextlib
import json
import pathlib
import signal
import sqlite3

import pytest

from support import LONG, SPEC

OK, USAGE, NOT_FOUND = 0, 2, 3


@pytest.fixture
def done(daemon):
    job = daemon.submit(SPEC, "trainer.max_steps=40")
    daemon.finish(job)
    return job


def spec_of(daemon, job):
    return json.loads(daemon.job(job).spec_json)


# ---- retry -------------------------------------------------------------------------------------

def test_retry_begins_from_the_start_and_says_where_it_could_go_on(daemon, done):
    ran = daemon.ctl("retry", done, "-o", "name", check=OK)
    again = ran.stdout.strip()
    assert again != done and spec_of(daemon, again) == spec_of(daemon, done)
    assert ran.stderr == (f"trainctl: begins from the start; {done} has checkpoint a1/step-40, from which --resume "
                          "would go on\n")
    daemon.finish(again)
    assert daemon.losses(again, 40) == daemon.losses(done, 40), "the same job gives the same numbers"


def test_retry_goes_on_from_the_newest_checkpoint_when_asked_to(daemon):
    job = daemon.submit(LONG)
    daemon.wait_checkpoint(job)
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")
    newest = daemon.checkpoints(job)[0]
    ran = daemon.ctl("retry", job, "--resume", "-o", "json", check=OK)
    assert f"goes on from checkpoint {newest.path} of {job}" in ran.stderr
    again = json.loads(ran.stdout)["id"]
    assert spec_of(daemon, again)["ckpt_path"] == newest.directory
    daemon.wait_step(again, newest.step + 1)
    daemon.steer("Cancel", again)
    daemon.wait_state(again, "CANCELLED")
    assert min(p.step for p in daemon.points(again)) == newest.step + 1, "it did not begin again"


def test_retry_of_a_job_that_is_over_says_that_nothing_is_left(daemon, done):
    again = daemon.ctl("retry", done, "--resume", "-o", "name", check=OK).stdout.strip()
    daemon.finish(again)
    shown = daemon.ctl("describe", again, check=OK).stdout
    assert "nothing is left to train: the checkpoint is of step 40" in shown and "raise trainer.max_steps" in shown


# 512 samples in batches of 16, 3 epochs: 96 steps. The rest in batches of 8 is 24 and 2 times 64.
def test_describe_named_a_last_step_that_a_resumed_job_went_past(daemon):
    first = daemon.submit(SPEC, "trainer.max_steps=20")
    daemon.finish(first)
    job = daemon.submit(SPEC, f"ckpt_path={daemon.checkpoints(first)[0].directory}", "data.batch_size=8")
    daemon.finish(job)
    shown = daemon.ctl("describe", job, check=OK).stdout
    assert "172 of 172" in shown and "the run ends at step 172 now; when its checkpoint was written" in shown
    assert daemon.job(job).total_steps == 172


def test_retry_of_a_job_that_began_with_weights_takes_those_of_its_checkpoint(daemon, done):
    weights, *_ = daemon.checkpoints(done)
    job = daemon.submit(SPEC, "trainer.max_steps=10", f"init_from={weights.directory}", "checkpoint.every_n_epochs=1")
    daemon.finish(job)
    newest = daemon.checkpoints(job)[0]
    again = daemon.ctl("retry", job, "--resume", "-o", "name", check=OK).stdout.strip()
    spec = spec_of(daemon, again)
    assert spec["ckpt_path"] == newest.directory and spec["init_from"] is None
    daemon.finish(again)


def test_retry_of_a_job_without_a_checkpoint_begins_from_the_start_with_resume_too(daemon):
    job = daemon.submit(SPEC, "checkpoint.save_top_k=0", "trainer.max_steps=3")
    daemon.finish(job)
    ran = daemon.ctl("retry", job, "--resume", "--follow", check=OK)
    assert f"begins from the start; {job} has no whole checkpoint\n" in ran.stderr
    assert "SUCCEEDED: step 3" in ran.stdout


# ---- clone -------------------------------------------------------------------------------------

def test_clone_changes_what_set_says_and_nothing_else(daemon, done):
    made = daemon.ctl("clone", done, "--set", "optimizer.lr=0.5", "--set", "name=hot", "-o", "name", check=OK).stdout.strip()
    spec, origin = spec_of(daemon, made), spec_of(daemon, done)
    assert (spec["optimizer"]["lr"], spec["name"]) == (0.5, "hot")
    spec["optimizer"]["lr"], spec["name"] = origin["optimizer"]["lr"], origin["name"]
    assert spec == origin
    daemon.finish(made)
    refused = daemon.ctl("clone", done, "--set", "optimizer.weight_decya=1", check=USAGE).stderr
    assert "optimizer.weight_decya" in refused and "did you mean weight_decay?" in refused
    here = daemon.ctl("clone", done, "--set", "predict.output=sample.npy", "-o", "name", check=OK).stdout.strip()
    assert spec_of(daemon, here)["predict"]["output"] == str(pathlib.Path.cwd() / "sample.npy"), "relative to here"
    daemon.finish(here)
    for verb in ("clone", "retry"):
        daemon.ctl(verb, "j-000000000000", check=NOT_FOUND)


# ---- compare -----------------------------------------------------------------------------------

@pytest.fixture
def pair(daemon, done):
    other = daemon.submit(SPEC, "trainer.max_steps=40", "optimizer.lr=0.001", "model.layers=[16, 8, 4]",
                          "lr_scheduler={name: linear, total_iters: 40}")
    daemon.finish(other)
    return done, other


def rows(text):
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}


def test_compare_shows_differences_of_the_specs_and_metrics_side_by_side(daemon, pair):
    left, right = pair
    shown = rows(daemon.ctl("compare", left, right, check=OK).stdout)
    assert shown["SPEC"] == shown["RESULT"] == [left, right]
    assert shown["optimizer.lr"] == ["0.01", "0.001"] and shown["model.layers"] == ["[16,32,4]", "[16,8,4]"]
    assert shown["lr_scheduler.name"] == ["constant", "linear"] and "optimizer.name" not in shown
    assert shown["state"] == ["SUCCEEDED"] * 2 and shown["step"] == ["40", "40"]
    wanted = [f"{daemon.job(job).metrics['val_loss']:.4g}" for job in pair]
    assert shown["val_loss"] == wanted
    one = rows(daemon.ctl("compare", left, right, "val_loss", check=OK).stdout)
    assert one["val_loss"] == wanted and "val_accuracy" not in one


def test_compare_as_json_has_values_and_not_text(daemon, pair):
    left, right = pair
    found = daemon.ctl_json("compare", left, right)
    assert (found["left"], found["right"]) == pair
    spec = {d["key"]: d for d in found["spec"]}
    assert spec["model.layers"]["right"] == [16, 8, 4] and spec["optimizer.lr"]["left"] == 0.01
    assert found["metrics"]["val_loss"]["right"] == daemon.job(right).metrics["val_loss"]
    assert set(daemon.ctl("compare", left, right, "-o", "name", check=OK).stdout.split()) == set(spec)


def test_compare_of_a_job_with_itself_finds_no_difference(daemon, done):
    assert daemon.ctl("compare", done, done, check=OK).stdout.startswith("the specs are equal\n")


def test_defaults_that_came_later_were_differences_from_an_older_job(daemon, done):
    brief = daemon.ctl("spec", done, check=OK).stdout
    daemon.kill(signal.SIGTERM)
    with contextlib.closing(sqlite3.connect(daemon.state_dir / "state.db")) as db, db:
        body, = db.execute("SELECT body FROM specs WHERE key = ?", (done,)).fetchone()
        old = json.loads(body)
        del old["comm_hook"], old["trainer"]["log_grad_norm"], old["trainer"]["sampler"]  # what older builds did not have
        db.execute("UPDATE specs SET body = ?, digest = NULL WHERE key = ?", (json.dumps(old), done))
    daemon.start()
    assert "comm_hook" not in daemon.ctl_json("spec", done) and daemon.ctl("spec", done, check=OK).stdout == brief
    again = daemon.ctl("clone", done, "--set", "trainer.log_grad_norm=true", "-o", "name", check=OK).stdout.strip()
    daemon.finish(again)
    assert daemon.ctl("compare", done, again, "-o", "name", check=OK).stdout == "trainer.log_grad_norm\n"


def test_compare_draws_all_on_the_same_axes(daemon, pair):
    left, right = pair
    third = daemon.submit(SPEC, "trainer.max_steps=40", "name=third")
    daemon.finish(third)
    jobs = (*pair, third)
    text = daemon.ctl("compare", *jobs, "train_loss_step", "--plot", check=OK, env={"LC_ALL": "C.UTF-8"}).stdout
    for job in jobs:
        assert f"train_loss_step of {job} ({daemon.job(job).name})" in text
    panel = text.split("train_loss_step of ")[-1].splitlines()[1:]
    most = max(p.value for job in jobs for p in daemon.points(job))
    least = min(p.value for job in jobs for p in daemon.points(job))
    assert panel[0].split()[0] == f"{most:.4g}" and panel[11].split()[0] == f"{least:.4g}"
    assert text.count(f"{most:.4g} ") == 1, "one pair of axes"
    assert "leave out -o" in daemon.ctl("compare", left, right, "--plot", "-o", "json", check=USAGE).stderr


def test_compare_takes_as_many_jobs_as_are_named(daemon, pair):
    left, right = pair
    third = daemon.submit(SPEC, "trainer.max_steps=40", "name=third", "optimizer.lr=0.005")
    daemon.finish(third)
    shown = rows(daemon.ctl("compare", left, right, "third", "val_loss", check=OK).stdout)
    assert shown["SPEC"] == shown["RESULT"] == [left, right, third]
    assert shown["optimizer.lr"] == ["0.01", "0.001", "0.005"] and shown["state"] == ["SUCCEEDED"] * 3
    assert shown["model.layers"] == ["[16,32,4]", "[16,8,4]", "[16,32,4]"]
    assert shown["val_loss"] == [f"{daemon.job(job).metrics['val_loss']:.4g}" for job in (left, right, third)]
    assert "val_accuracy" not in shown
    found = daemon.ctl_json("compare", left, right, third)
    assert found["jobs"] == [left, right, third] and "left" not in found
    assert {d["key"]: d["values"] for d in found["spec"]}["optimizer.lr"] == [0.01, 0.001, 0.005]
    assert found["metrics"]["val_loss"]["values"][2] == daemon.job(third).metrics["val_loss"]
    said = daemon.ctl("compare", left, right, "val_los", check=NOT_FOUND).stderr
    assert "'val_los' is neither a job nor a metric of these jobs" in said and "val_loss" in said


def test_compare_of_what_is_not_there_names_it(daemon, done):
    assert "j-000000000000" in daemon.ctl("compare", done, "j-000000000000", check=NOT_FOUND).stderr
    assert "JOB JOB" in daemon.ctl("compare", done, check=USAGE).stderr
