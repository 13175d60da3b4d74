"""kind: program, through a real daemon: a rank of somebody's own is attached as traind-worker is (program.c beside this)."""
import json
import os
import pathlib
import signal
import sys

import grpc
import pytest

from support import BUILD, alive, processes_of, until

PROGRAM = BUILD / "tests/scenario/program"


def spec(*argv, **more):
    base = {"kind": "program", "command": [str(a) for a in argv], "restart": {"max": 2, "backoff": [0]}}
    return json.dumps({**base, **more})


def program(mode, number=0, **more):
    return spec(PROGRAM, mode, number, **more)


def python(tmp_path, text, **more):
    path = tmp_path / "script.py"
    path.write_text("import os, sys, signal, subprocess\n" + text)
    return spec(sys.executable, path, **more)


def text_of(daemon, job, stream="out.0.log"):
    """Of an attempt that is not over: its files are gone then."""
    return b"".join(p.read_bytes() for p in sorted(daemon.state_dir.glob(f"attempts/{job}/a*/{stream}"))).decode()


def pids(daemon, job):
    """The ranks: what the launcher has started."""
    launcher = daemon.launcher(job)
    return [int(p) for p in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


def failed(daemon, job):
    return daemon.wait_state(job, "FAILED").failure


# ---- what it gives and gets ---------------------------------------------------------------------
def test_metrics_logs_and_checkpoints_are_those_of_any_job(daemon):
    job = daemon.submit(program("train", 250, trainer={"devices": 2}, resources={"threads": 1}))
    done = daemon.finish(job)
    assert (done.global_step, done.total_steps, done.attempt, done.restarts) == (250, 250, 1, 0)
    points = daemon.points(job, "loss")
    assert [(p.step, p.n_ranks) for p in points] == [(s, 2) for s in range(1, 251)]
    assert points[9].value == pytest.approx(0.1)
    said = daemon.output(job, rank=1)
    assert "attached attempt=1 threads=1 from=" in said, said
    rows = daemon.checkpoints(job)[::-1]  # the newest first
    assert [(c.step, c.path, c.State.Name(c.state)) for c in rows] == \
        [(s, f"a1/step-{s}", "COMMITTED") for s in (100, 200)]
    assert [f.name for f in rows[0].files] == ["state", "manifest.json"] and rows[0].metrics["loss"] == 0.01
    kept = pathlib.Path(rows[1].directory)
    assert (kept / "state").read_text() == "200\n" and kept.parent.parent == daemon.state_dir / "checkpoints" / job


def test_pause_saves_and_resume_goes_on_from_there(daemon):
    job = daemon.submit(program("train", 10**6))
    daemon.wait_step(job, 20)
    daemon.steer("Pause", job)
    paused = daemon.wait_state(job, "PAUSED")
    at = daemon.checkpoints(job)[0].step
    assert at == paused.global_step and at >= 20 and not paused.notes
    daemon.restart()  # it is in the catalog, not in somebody's memory
    daemon.steer("Resume", job)
    daemon.wait_step(job, at + 20)
    assert f"attached attempt=2 threads=1 from={daemon.state_dir}/checkpoints/{job}/a1/step-{at}\n" in text_of(daemon, job)
    daemon.steer("Cancel", job)
    ended = daemon.wait_state(job, "CANCELLED")
    assert (ended.attempt, ended.restarts) == (2, 0)


def test_a_killed_rank_takes_its_peer_along_and_both_go_on_from_the_checkpoint(daemon):
    log = lambda a: daemon.state_dir / f"attempts/{job}/a{a}/events.log"
    job = daemon.submit(program("train", 2000, trainer={"devices": 2}))
    until("there is one to go on from", lambda: daemon.checkpoints(job))
    logs = [log(1).open()]  # what is open can be read to its end, though the attempt is forgotten
    os.kill(pids(daemon, job)[1], signal.SIGKILL)
    logs.append(until("another attempt begins", lambda: log(2).exists() and log(2).open()))
    done = daemon.finish(job)
    assert (done.attempt, done.restarts, done.global_step) == (2, 1, 2000)
    events = [json.loads(line) for f in logs for line in f]
    exits = {e["rank"]: e for e in events if e["event"] == "rank_exit" and e["code"] != 0}
    assert exits[1]["class"] == "killed" and "signal 9 (KILL), not sent by traind" in exits[1]["message"]
    assert exits[0]["class"] == "collective" and exits[0]["message"] == "a peer is gone"
    resumed = [e["step"] for e in events if e["event"] == "resumed"]
    assert len(resumed) == 2 and len(set(resumed)) == 1 and resumed[0] >= 100 and resumed[0] % 100 == 0


def test_adoption_while_a_program_runs(daemon):
    job = daemon.submit(program("train", 10**6))
    step = daemon.wait_step(job, 5).global_step
    daemon.restart()  # SIGKILL
    daemon.wait_step(job, step + 50)
    daemon.steer("Cancel", job)
    assert daemon.wait_state(job, "CANCELLED").attempt == 1


def test_another_job_begins_where_ckpt_path_says(daemon, tmp_path):
    first = daemon.submit(program("train", 100))
    daemon.finish(first)
    kept = daemon.checkpoints(first)[0].directory
    second = daemon.submit(program("train", 200, ckpt_path=kept, checkpoint={"dir": str(tmp_path / "mine")}))
    daemon.finish(second)
    assert [p.step for p in daemon.points(second, "loss")] == list(range(101, 201))
    assert daemon.checkpoints(second)[0].directory == str(tmp_path / "mine" / second / "a1/step-200")


def test_streamed_checkpoints_carry_it_to_another_node(cluster):
    head = cluster.start("--role", "coordinator", name="head")
    first = cluster.node(head, 1, "first", "--allow", "programs")
    job = head.submit(program("train", 10**6))
    head.wait_step(job, 150)
    head.steer("Pause", job)
    head.wait_state(job, "PAUSED")
    row = head.checkpoints(job)[0]
    assert row.State.Name(row.state) == "COMMITTED"
    until("nothing is left there", lambda: not first.attempts())
    first.kill(signal.SIGTERM)
    cluster.node(head, 1, "second", "--allow", "programs")
    head.steer("Resume", job)
    until("it goes on", lambda: head.job(job).attempt == 2 and head.job(job).global_step > row.step)
    until("its log comes", lambda: b"attempt=2" in b"".join(m.data for m in head.logs(job, attempt=2)))
    head.steer("Cancel", job)
    head.wait_state(job, "CANCELLED")


def test_ranks_meet_in_memory_that_they_grow(daemon):
    job = daemon.submit(program("group", trainer={"devices": 2}))
    daemon.finish(job)
    assert "all 2 are here" in daemon.output(job) and "all 2 are here" in daemon.output(job, rank=1)


# Contract 17: ranks of a program have their own name and those of torchrun
def test_rank_and_torchruns_names_are_in_its_environment(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
print(os.environ["TRAIND_RANK"], "TRAIND_FD" in os.environ, os.environ["WORLD_SIZE"], os.environ["MINE"])
""", env={"MINE": "it"}))
    daemon.finish(job)
    plan = f"{daemon.state_dir}/attempts/{job}/a1/plan.json"
    said = f"rank=0 world_size=1 page_fd=3 events_fd=4 group_fd=-1 store_fd=-1 results_fd=-1 plan={plan}"
    assert daemon.output(job).strip() == f"{said} False 1 it"


# ---- how an end is judged -----------------------------------------------------------------------
@pytest.mark.parametrize("argv, cls, words", [
    ((PROGRAM, "fail"), "data", "record 7 is torn"),
    ((PROGRAM, "code", 40), "data", "ended with exit code 40 (data) and said no more"),
    ((PROGRAM, "code", 21), "bad_spec", "ended with exit code 21 (bad_spec)"),
    ((PROGRAM, "code", 3), "user_code", "ended with exit code 3; see its stderr"),
    ((PROGRAM, "code", 10), "user_code", "ended with exit code 10; see its stderr"),
    ((PROGRAM, "other"), "bad_spec", "the launcher's rank page has version 99"),
    (("sh", "-c", "kill -SEGV $$"), "user_code", "signal 11 (SEGV)"),
    (("no-such-program-here",), "bad_spec", "'no-such-program-here' cannot be run on this node: No such file"),
    (("/etc/passwd",), "bad_spec", "'/etc/passwd' cannot be run on this node: Permission denied"),
])
def test_end_is_judged_once_and_for_all(daemon, argv, cls, words):
    job = daemon.submit(spec(*argv))
    found = failed(daemon, job)
    assert getattr(found, "class") == cls and words in found.message, found
    assert daemon.job(job).attempt == 1


def test_code_of_a_bug_is_tried_again_within_the_budget(daemon):
    job = daemon.submit(program("code", 70))
    assert "exit code 70 (internal)" in failed(daemon, job).message
    assert (daemon.job(job).attempt, daemon.job(job).restarts) == (3, 2)


# ---- stopping -----------------------------------------------------------------------------------
def test_what_ignores_the_word_gets_sigterm_before_the_end(cluster):
    daemon = cluster.start("--slots", "1", "--stop-grace-ms", "2000")
    job = daemon.submit(program("term"))
    until("it waits", lambda: "waits" in text_of(daemon, job))
    daemon.steer("Pause", job)
    daemon.wait_state(job, "PAUSED")
    until("its last words have come", lambda: b"SIGTERM with stop=1" in b"".join(m.data for m in daemon.logs(job)))
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


def test_what_ignores_sigterm_too_is_killed_after_the_grace(cluster):
    daemon = cluster.start("--slots", "1", "--stop-grace-ms", "300")
    job = daemon.submit(program("deaf"))
    until("it waits", lambda: "waits" in text_of(daemon, job))
    rank, = pids(daemon, job)
    daemon.steer("Pause", job)
    paused = daemon.wait_state(job, "PAUSED")
    assert not alive(rank) and any("did not stop in time and was killed" in n for n in paused.notes)
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


def test_what_is_not_attached_gets_sigterm_at_once(daemon):
    job = daemon.submit(spec("sleep", 1000))
    until("it runs", lambda: daemon.state(job) == "RUNNING")
    rank, = pids(daemon, job)
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED", deadline_s=7)  # half of the grace, when it would come else, is 7.5 s
    assert not alive(rank)


def test_only_what_beats_can_be_silent(cluster):
    daemon = cluster.start("--slots", "2", "--silent-after-ms", "200")
    quiet = daemon.submit(program("term", restart={"max": 0, "stuck_timeout": 1}))
    loud = daemon.submit(program("silent", restart={"max": 0, "stuck_timeout": 1}))
    found = failed(daemon, loud)
    assert getattr(found, "class") == "stuck" and "silent" in found.message
    assert daemon.state(quiet) == "RUNNING" and not daemon.job(quiet).notes
    os.kill(pids(daemon, quiet)[0], signal.SIGKILL)  # a cancel would wait for half of its grace
    daemon.wait_state(quiet, "FAILED")


# ---- limits, logs, children ---------------------------------------------------------------------
def test_children_are_reaped_also_those_in_sessions_of_their_own(daemon, tmp_path):
    kept = tmp_path / "pids"
    job = daemon.submit(python(tmp_path, f"""
own = subprocess.Popen(["sleep", "1000"])
session = subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM HUP; echo $$ >> {kept}; while :; do sleep 1000; done"])
while not (os.path.exists("{kept}") and open("{kept}").read().strip()): os.sched_yield()
open("{kept}", "a").write(f"{{own.pid}} {{session.pid}}")
"""))
    daemon.finish(job)
    found = [int(p) for p in kept.read_text().split()]
    assert len(found) == 3 and not [p for p in found if alive(p)]
    assert not [line for line in processes_of(daemon.state_dir).values() if job in line]


def test_log_is_cut_and_counted(daemon):
    job = daemon.submit(spec("sh", "-c", "head -c 1073741824 /dev/zero | tr '\\0' x"))
    done = daemon.finish(job, deadline_s=120)
    said = list(daemon.logs(job, follow=True))
    kept = b"".join(m.data for m in said)
    assert 55 << 20 < kept.count(b"x") < len(kept) <= 56 << 20 and done.attempt == 1
    assert said[-1].dropped_bytes == (1 << 30) - kept.count(b"x")


# ---- what is refused ----------------------------------------------------------------------------
def refused(daemon, text):
    with pytest.raises(grpc.RpcError) as why:
        daemon.submit(text)
    return why.value


@pytest.mark.parametrize("given, words", [
    ({"model": {"name": "mlp"}}, "model (line 1): a job of kind program has no such key, kind train has"),
    ({"checkpoint": {"save_top_k": 1}}, "a job of kind program has no such key, kind train has"),
    ({"init_from": "/x"}, "init_from (line 1): a job of kind program has no such key"),
    ({"kind": "command", "ckpt_path": "/x"}, "a job of kind command has no such key, kinds train and program have"),
    ({"env": {"TRAIND_RANK": "3"}}, "env.TRAIND_RANK (line 1): is set by traind and cannot be changed"),
    ({"command": []}, "a list of 1 to 1024"),
    ({"resources": {"memory_bytes": 10**15}}, "UNSATISFIABLE: resources.memory_bytes asks for"),
])
def test_bad_spec_is_refused_by_name(daemon, given, words):
    assert words in refused(daemon, json.dumps({**json.loads(spec("true")), **given})).details()


def test_node_that_allows_none_refuses_and_another_is_chosen(cluster):
    first = cluster.start("--slots", "1", "--allow", "commands", name="first")
    why = refused(first, spec("true"))
    assert why.code() == grpc.StatusCode.PERMISSION_DENIED and "--allow programs" in why.details()
    cluster.node(first, 1, "willing", "--allow", "programs")
    until("it is there", lambda: len(first.nodes("READY")) == 2)
    job = first.submit(spec("pwd"))
    first.finish(job)
    assert "/willing/checkpoints/" in first.output(job)


def test_plan_and_run_say_what_it_is(daemon, tmp_path):
    path = tmp_path / "spec.json"
    path.write_text(spec("true", resources={"memory_bytes": 1 << 20}))
    said = daemon.ctl("plan", path, check=0).stdout
    assert "program: there is no plan" in said and "1.0 MiB a rank" in said, said
    assert "no graph to show" in daemon.ctl("plan", path, "--dump-graph", "fuse").stderr
    assert "kind program, which needs a daemon" in daemon.ctl("run", path).stderr
