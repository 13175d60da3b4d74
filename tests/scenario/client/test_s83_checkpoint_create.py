"""`trainctl checkpoint create`: the ranks of a job that runs save when somebody asks, and train on. Of trainings on one
node and on several, of programs and of commands; what is said where no checkpoint will come."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from support import BIN, LONG, SPEC, until
from test_s26_fabric import built, submit  # noqa: F401
from test_s24_commands import python, spec
from test_s56_several_nodes import spec as spec_of_two, two  # noqa: F401

OK, JOB_FAILED, NOT_FOUND, UNAVAILABLE, TIMEOUT, CONFLICT = 0, 1, 3, 5, 6, 7
RARELY = ["checkpoint.every_n_train_steps=0", "checkpoint.every_n_epochs=0", "checkpoint.save_top_k=-1"]


def create(daemon, job, *args, check=OK):
    return daemon.ctl("checkpoint", "create", job, *args, check=check)


def paths(daemon, job):
    return [c.path for c in daemon.checkpoints(job)]


def test_checkpoint_is_made_and_the_job_trains_on(daemon):
    job = daemon.submit(LONG, *RARELY, "trainer.devices=2")
    before = daemon.wait_step(job, 20).global_step
    made = create(daemon, job, "--wait").stdout
    path = made.split(" of ")[0]
    assert made == f"{path} of {job}\n" and paths(daemon, job) == [path]
    assert int(path.split("step-")[1]) >= before and daemon.job(job).State.Name(daemon.job(job).state) == "RUNNING"
    assert create(daemon, "long", "--wait", "-o", "name").stdout.strip() == paths(daemon, job)[0] != path
    found = json.loads(create(daemon, job, "--wait", "-o", "json").stdout)
    assert found["state"] == "COMMITTED" and found["path"] == paths(daemon, job)[0] and len(paths(daemon, job)) == 3
    asked = create(daemon, job).stdout
    assert f"{job} is asked to save" in asked and f"`trainctl checkpoint list {job}`" in asked
    until("it comes", lambda: len(paths(daemon, job)) == 4)
    daemon.steer("Cancel", job)


def test_one_is_kept_also_where_save_top_k_is_0(daemon):
    job = daemon.submit(LONG, "checkpoint.save_top_k=0")
    daemon.wait_step(job, 20)
    path = create(daemon, job, "--wait", "-o", "name").stdout.strip()
    assert paths(daemon, job) == [path]
    daemon.steer("Cancel", job)


def test_job_of_two_nodes_saves_once(two):
    c, a, b = two
    job = c.submit(LONG, *RARELY, "trainer.num_nodes=2")
    c.wait_step(job, 20)
    path = create(c, job, "--wait", "-o", "name").stdout.strip()
    first = c.job(job).global_step
    c.wait_step(job, first + 20)
    assert paths(c, job) == [path], "one request, one checkpoint"
    b.kill()  # the node of rank 1: the other can still be asked
    create(c, job)
    until("the lease of a is over", lambda: a.kill() is not None and not c.nodes("READY"))
    said = create(c, job, check=UNAVAILABLE).stderr
    assert "node a, which has ranks of job" in said and "is away" in said, said
    a.start()
    b.start()
    until("both are back", lambda: len(c.nodes("READY")) == 2)
    create(c, job, "--wait")
    c.steer("Cancel", job)


def test_program_saves_when_it_takes_its_wishes(daemon, built):
    job = submit(daemon, built, "--epochs", 100, world=2)
    daemon.wait_step(job, 20)
    path = create(daemon, job, "--wait", "-o", "name").stdout.strip()
    assert path in paths(daemon, job) and path.startswith("a1/step-")
    daemon.steer("Cancel", job)


SAVES = """
import traind
traind.init()
for step in range(1, 10**9):
    traind.log({"loss": 1.0}, step=step)
    if traind.should_save():
        open("kept", "w").write(str(step))
        traind.register_checkpoint("kept", step=step)
    if traind.should_stop():
        sys.exit(0)
    time.sleep(0.001)
"""


def test_command_registers_one_when_it_asks(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, SAVES))
    daemon.wait_step(job, 20)
    first = create(daemon, job, "--wait", "-o", "name").stdout.strip()
    assert paths(daemon, job) == [first]
    second = json.loads(create(daemon, job, "--wait", "-o", "json").stdout)
    assert second["state"] == "REGISTERED" and second["path"] != first
    daemon.steer("Cancel", job)


def test_all_ranks_of_a_command_on_several_nodes_get_the_word(two, tmp_path):
    c = two[0]
    job = c.submit(spec_of_two(tmp_path, """
import traind
traind.init()
while not traind.should_save():
    traind.log({}, step=1)
    time.sleep(0.001)
print("asked", rank, flush=True)
"""))
    c.wait_step(job, 1)
    create(c, job)
    c.finish(job)
    assert all(f"asked {rank}" in c.output(job, rank=rank) for rank in (0, 1))


# ---- by a signal (test_s41_stop.py has trainings of one node) -----------------------------------
def test_sigusr1_of_a_node_without_rank_0_saves_the_job(two):
    c, a, b = two
    job = c.submit(LONG, *RARELY, "trainer.num_nodes=2")
    c.wait_step(job, 20)
    os.kill(b.process.pid, signal.SIGUSR1)
    until("a checkpoint", lambda: paths(c, job))
    first = c.job(job).global_step
    c.wait_step(job, first + 20)
    assert len(paths(c, job)) == 1 and c.job(job).attempt == 1
    c.steer("Cancel", job)


def test_sigusr1_of_a_rank_of_a_program_saves(daemon, built):
    job = submit(daemon, built, "--epochs", 100, world=2)
    daemon.wait_step(job, 20)
    launcher = daemon.launcher(job)
    rank = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()[1]
    os.kill(int(rank), signal.SIGUSR1)
    until("a checkpoint", lambda: paths(daemon, job))
    assert daemon.job(job).attempt == 1 and daemon.state(job) == "RUNNING"
    daemon.steer("Cancel", job)


# ---- where none will come -----------------------------------------------------------------------
def test_job_without_ranks_is_refused_with_its_state(daemon):
    done = daemon.submit(SPEC)
    daemon.finish(done)
    assert f"job {done} is SUCCEEDED: it has no ranks that train" in create(daemon, done, "--wait", check=CONFLICT).stderr
    waits = daemon.submit(LONG)
    daemon.wait_step(waits, 1)
    daemon.steer("Pause", waits)
    assert "it saves as it stops" in create(daemon, waits, check=CONFLICT).stderr or \
        daemon.state(waits) == "PAUSED"
    daemon.wait_state(waits, "PAUSED")
    assert "is PAUSED" in create(daemon, waits, check=CONFLICT).stderr
    assert "nobody" in create(daemon, "nobody", check=NOT_FOUND).stderr


def test_all_of_a_name_are_asked_also_where_one_has_ended(daemon):
    done = daemon.submit(SPEC, "name=long")
    daemon.finish(done)
    job = daemon.submit(LONG, *RARELY)
    daemon.wait_step(job, 20)
    ran = create(daemon, "long", "--all", "--wait", "-o", "name")
    assert ran.stdout.split() == paths(daemon, job) and f"job {done} is SUCCEEDED" in ran.stderr
    daemon.steer("Cancel", job)


def test_job_that_only_evaluates_is_refused(daemon):
    job = daemon.submit(LONG, "stages=[validate]", "trainer.limit_val_batches=1.0", "data.knobs.samples=400000", "data.val_split=0.9")
    daemon.wait_state(job, "RUNNING")
    assert "no training step follows" in create(daemon, job, check=CONFLICT).stderr
    assert "no training step follows" in create(daemon, job, "--all").stderr
    daemon.steer("Cancel", job)


def waiting(daemon, job, *args):
    return subprocess.Popen([BIN / "trainctl", "checkpoint", "create", job, "--wait", *args], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env={**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir)})


def test_waiting_ends_when_the_attempt_does(daemon, tmp_path):
    job = daemon.submit(spec("sh", "-c", "sleep 2; echo no >&2; exit 3", restart={"max": 0}))
    daemon.wait_state(job, "RUNNING")
    out, err = waiting(daemon, job).communicate(timeout=30)
    assert not out and "has no checkpoint since it was asked: it is FAILED: attempt 1 has ended, rank 0 ended with exit code 3" in err, err


def test_waiting_ends_with_its_time_and_outlives_a_restart_of_the_daemon(daemon):
    deaf = daemon.submit(spec("sleep", 600))
    daemon.wait_state(deaf, "RUNNING")
    said = create(daemon, deaf, "--wait", "--timeout", "0.5", check=TIMEOUT).stderr
    assert "has not saved within --timeout (0.5 s)" in said and "may still" in said
    waits = waiting(daemon, deaf)
    until("it has asked", lambda: daemon.log.read_text().count("job asked to save") == 2)
    daemon.job(deaf)  # an answer that is later than the one to the request
    daemon.restart()
    daemon.wait_state(deaf, "RUNNING")
    assert waits.poll() is None
    daemon.steer("Cancel", deaf)
    assert "attempt 1 has ended" in waits.communicate(timeout=30)[1] and waits.returncode != 0
