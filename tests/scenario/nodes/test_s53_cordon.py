"""Nodes that operators keep from new jobs, and nodes that they empty: what is shown, what survives restarts, what goes
elsewhere to the same bits, and what stays and is named."""
import json
import signal
import subprocess

import pytest

from marks import full_only
from support import BIN, LONG, SPEC, until

NOT_FOUND, USAGE, TIMEOUT, OK = 3, 2, 6, 0
SLEEPS = json.dumps({"kind": "command", "name": "sleeps", "command": ["sleep", "1000"], "trainer": {"devices": 1}})


@pytest.fixture
def coordinator(cluster):
    return cluster.start("--role", "coordinator", "--heartbeat-ms", "200", "--lease-ms", "1000", name="c")


def ready(c, n):
    until(f"{n} are ready", lambda: len(c.nodes("READY")) == n)


def shown(c, name):
    """The row of a node, and what is below the table."""
    lines = c.ctl("node", "list", "-o", "wide", check=OK).stdout.splitlines()
    return next(line for line in lines if f" {name} " in line), [line for line in lines if line.startswith((name, "  "))]


def why(c, job, code):
    return until(f"it waits for {code}", lambda: c.job(job).reason.code == code and c.job(job).reason.text)


def test_cordon_is_kept_over_restarts_and_shown_with_who_when_and_why(coordinator, cluster):
    c, a = coordinator, cluster.node(coordinator, 2, "a")
    ready(c, 1)
    running = c.submit(LONG)
    c.wait_step(running, 5)
    said = c.ctl("node", "cordon", "a", "--reason", "a fan is loud", check=OK).stdout
    assert said == "a is cordoned: it gets no new jobs; the one that runs there goes on\n"
    job = c.submit(SPEC)
    text = why(c, job, "NODES_CORDONED")
    assert text == "node a is cordoned; `trainctl node uncordon a` lets jobs start there"
    before = c.ctl_json("node", "list")["nodes"][0]
    assert (before["cordon"]["by"], before["cordon"]["reason"]) == ("owner", "a fan is loud")
    for d in (c, a):
        d.restart(signal.SIGKILL)
    ready(c, 1)
    assert c.ctl_json("node", "list")["nodes"][0]["cordon"] == before["cordon"]
    row, below = shown(c, "a")
    assert " READY, cordoned " in row
    assert below == [f"a is cordoned by owner since {before['cordon']['time']}: a fan is loud"]
    at = c.job(running).global_step
    c.wait_step(running, at + 20)  # what ran goes on
    assert c.job(running).attempt == 1 and not c.job(job).attempt
    why(c, job, "NODES_CORDONED")
    assert c.ctl("node", "uncordon", "a", check=OK).stdout == "a gets jobs again\n"
    c.finish(job)
    assert " READY " in shown(c, "a")[0] and not shown(c, "a")[1]
    line = [json.loads(x) for x in (c.state_dir / "audit.log").read_text().splitlines()]
    verbs = [x["method"].split("/")[1] for x in line if x["object"] == before["id"] and x["code"] == "OK"]
    assert [v for v in verbs if "ordon" in v] == ["CordonNode", "UncordonNode"]


def test_bad_requests_are_refused_with_what_is_right(coordinator, cluster):
    c = coordinator
    cluster.node(c, 1, "gpu-1")
    ready(c, 1)
    for verb in ("cordon", "uncordon", "drain"):
        done = c.ctl("node", verb, "gpu-11", check=NOT_FOUND)
        assert "no node has the id or the name 'gpu-11', did you mean gpu-1?" in done.stderr
        assert "NODE is missing" in c.ctl("node", verb, check=USAGE).stderr
    done = c.ctl("node", "cordon", "gpu-1", "--reason", "x" * 201, check=USAGE)
    assert "reason: it has 201 bytes, and may have 200" in done.stderr
    assert not c.nodes()[0].HasField("cordon")
    words = c.ctl("completion", "words", "--", "node", "drain", "", check=OK).stdout
    assert words == "gpu-1\tREADY\n"


def test_drain_leaves_a_command_and_names_it(coordinator, cluster):
    c, a = coordinator, cluster.node(coordinator, 2, "a", "--allow", "commands")
    ready(c, 1)
    command, training = c.submit(SLEEPS), c.submit(SPEC, "trainer.max_epochs=-1", "trainer.max_steps=-1")
    for job in (command, training):
        c.wait_state(job, "RUNNING")
    said = c.ctl("node", "drain", "a", check=OK).stdout
    assert said.startswith("a is drained: it gets no new jobs\n")
    assert (f"{command} (sleeps) stays: it is a command that has registered no checkpoint; it goes on here until it ends, "
            "or is cancelled\n") in said
    assert f"{training} (small) saves and stops, and goes on where it finds room\n" in said
    why(c, training, "NODES_CORDONED")
    assert c.state(command) == "RUNNING" and c.job(training).restarts == 0
    row, below = shown(c, "a")
    assert " READY, draining " in row
    assert below[1] == f"  {command} (sleeps) stays there: it is a command that has registered no checkpoint"
    late = c.ctl("node", "drain", "a", "--wait", "--timeout", "0.2", check=TIMEOUT)
    assert "is not empty within --timeout (0.2 s)" in late.stderr and f"{command} (sleeps) stays" in late.stderr
    waits = subprocess.Popen([BIN / "trainctl", "node", "drain", "a", "--wait"], text=True, stdout=subprocess.PIPE,
                             env={**c.env, "TRAIND_STATE_DIR": str(c.state_dir)})
    c.steer("Cancel", command)
    out, _ = waits.communicate(timeout=30)
    assert waits.returncode == OK and out.endswith("a is empty\n"), out
    assert not a.attempts() and " READY, drained " in shown(c, "a")[0]
    c.ctl("node", "uncordon", "a", check=OK)
    assert until("it is back", lambda: c.job(training).attempt == 2 and c.job(training))
    c.steer("Cancel", training)


def test_node_of_the_coordinator_is_emptied_and_gets_its_jobs_back(daemon):
    job = daemon.submit(LONG)
    daemon.wait_step(job, 20)
    said = daemon.ctl("node", "drain", daemon.node_name, "--wait", check=OK).stdout
    assert f"{job} (long) leaves: it saves and stops; its checkpoints are on this node alone" in said
    assert said.endswith(" is empty\n")
    waits = daemon.job(job)
    assert waits.State.Name(waits.state) == "QUEUED" and waits.global_step >= 20
    assert f"which alone has its checkpoint a1/step-{waits.global_step}, is cordoned" in why(daemon, job, "NODES_CORDONED")
    daemon.ctl("node", "uncordon", daemon.node_name, check=OK)
    until("it goes on", lambda: daemon.job(job).global_step > waits.global_step)
    now = daemon.job(job)
    assert (now.attempt, now.restarts) == (2, 0) and any("was drained" in n for n in now.notes)


@full_only
def test_drain_moves_a_job_of_two_nodes_and_one_of_one_to_the_same_bits(coordinator, cluster):
    c, last = coordinator, 3000
    nodes = {name: cluster.node(c, 2, name, "--collective-interface", "lo") for name in ("a", "b", "d")}
    ready(c, 3)
    specs = ([f"trainer.max_steps={last}", "trainer.num_nodes=2", "name=wide"],
             [f"trainer.max_steps={last}", "name=narrow"])
    wanted = []
    for overrides in specs:
        job = c.submit(LONG, *overrides)
        c.finish(job, 120)
        wanted.append((c.losses(job, last, 2 if "wide" in overrides[-1] else 1), c.weights(job)))
    moved = [c.submit(LONG, *overrides) for overrides in specs]
    for job in moved:
        c.wait_step(job, 50)
    away = next(n for n in c.job(moved[0]).nodes)
    c.ctl("node", "drain", away, "--wait", check=OK)
    assert not nodes[away].attempts() and all(away not in c.job(job).nodes for job in moved)
    on_it = [job for job in moved if c.job(job).attempt == 2]
    assert moved[0] in on_it
    if moved[1] not in on_it:  # it ran elsewhere: now it moves back
        other, = c.job(moved[1]).nodes
        c.ctl("node", "uncordon", away, check=OK)
        c.ctl("node", "drain", other, "--wait", check=OK)
    for job, (losses, weights) in zip(moved, wanted):
        done = c.finish(job, 120)
        assert done.attempt >= 2 and done.restarts == 0 and not done.HasField("failure")
        assert c.losses(job, last, 2 if done.n_ranks == 2 else 1) == losses
        assert c.weights(job) == weights
        assert not [n for n in done.notes if "bit-exact" in n], done.notes
