"""Metrics of what a command prints (metrics_from.stdout), through a real daemon and real shell scripts: what is seen, what
is refused when submitted, and what happens when the process that reads the lines dies, hangs, or is flooded."""
import json
import os
import pathlib
import signal
import sys
import textwrap

import grpc
import pytest

from marks import full_only
from support import alive, until, with_worker

PATTERN = r"step=(?P<step>\d+)(/(?P<total_steps>\d+))? loss=(?P<loss>\S+)( epoch=(?P<epoch>\S+))?"


def bash(folder, text, pattern=PATTERN, **more):
    script = folder / "script.sh"
    script.write_text(textwrap.dedent(text))
    return json.dumps({"kind": "command", "command": ["bash", str(script)], "metrics_from": {"stdout": pattern},
                       "restart": {"max": 2, "backoff": [0]}, **more})


def of(daemon, job, name):
    return [(p.step, p.value) for p in daemon.points(job, name)] if name in daemon.job(job).metrics else []


def readers(daemon):
    """Processes that read lines."""
    found = []
    for pid in (p for p in pathlib.Path("/proc").iterdir() if p.name.isdigit()):
        try:
            words = (pid / "cmdline").read_bytes().split(b"\0")
            ours = os.readlink(pid / "cwd").startswith(str(daemon.state_dir))
        except OSError:
            continue
        if ours and words[1:2] == [b"reports"]:
            found.append(int(pid.name))
    return found


def reader(daemon):
    until("a process reads lines", lambda: len(readers(daemon)) == 1)
    return readers(daemon)[0]


def resident(pid):
    return int((pathlib.Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1]).split()[0]) << 10


# ---- what is seen -------------------------------------------------------------------------------
def test_a_script_that_knows_nothing_of_traind_has_metrics_and_progress(daemon, tmp_path):
    go = tmp_path / "go"
    job = daemon.submit(bash(tmp_path, f"""
        echo starting; echo "step=0 loss=9 to stderr" >&2
        for i in {{1..40}}; do printf 'step=%d/50 loss=0.%02d epoch=%d.5\\n' $i $i $((i / 20)); done
        until [ -e {go} ]; do sleep 0.02; done
        printf 'step=41/50 loss=nan\\rstep=42/50 loss=-inf\\rstep=43/50 loss=0.5,\\n'
        printf 'step=50/50 loss=0.01'  # without an end
        """, trainer={"devices": 2}))
    until("lines are metrics while it runs", lambda: len(of(daemon, job, "loss")) == 40)
    now = daemon.job(job)
    assert (now.global_step, now.total_steps, now.progress.epoch) == (40, 50, 2)
    assert abs(now.progress.loss - 0.40) < 1e-6
    assert [p.n_ranks for p in daemon.points(job, "loss")] == [1] * 40  # rank 1 printed the same, and is not looked at
    shown = daemon.ctl("list", check=0).stdout
    assert "40/50" in shown or "80%" in shown or "80 %" in shown, shown
    go.write_text("")
    done = daemon.finish(job)
    points = of(daemon, job, "loss")
    assert points[:40] == [(i, float(f"0.{i:02d}")) for i in range(1, 41)]
    assert [(s, str(v)) for s, v in points[40:]] == [(41, "nan"), (42, "-inf"), (50, "0.01")]
    assert done.global_step == 50
    assert any("'0.5,' where metrics_from.stdout has group 'loss'" in n for n in done.notes), done.notes
    assert daemon.output(job, out_only=True).endswith("step=50/50 loss=0.01")


def test_what_is_left_to_do_is_told_in_time(daemon, tmp_path):
    go = tmp_path / "go"
    job = daemon.submit(bash(tmp_path, f"""
        i=0; until [ -e {go} ]; do i=$((i + 1)); echo step=$i/100000 loss=1; sleep 0.1; done
        """))
    until("a step took some time", lambda: daemon.job(job).progress.eta_s > 0)
    left = daemon.job(job).progress.eta_s
    assert 0.1 * 100000 * 0.5 < left < 0.1 * 100000 * 20, left
    assert ", ETA " in daemon.ctl("describe", job, check=0).stdout
    go.write_text("")
    daemon.finish(job)


def test_a_later_attempt_goes_on_in_the_same_series(daemon, tmp_path):
    job = daemon.submit(bash(tmp_path, """
        a=$TRAIND_ATTEMPT; from=$((a * 3 - 2))
        for i in $(seq $from $((from + 4))); do echo "step=$i loss=$a$i"; done
        echo "step=$from loss=100"  # again, and another step came since
        [ $a = 2 ] || exit 75
        """))
    done = daemon.finish(job)
    # Attempt 1 said 1 to 5, attempt 2 says 4 to 8.
    assert of(daemon, job, "loss") == [(1, 11), (2, 12), (3, 13), (4, 24), (5, 25), (6, 26), (7, 27), (8, 28)]
    assert sum("again, after that value was closed" in n for n in done.notes) >= 1, done.notes


def test_who_also_talks_has_one_value_of_a_name_at_a_step(daemon, tmp_path):
    job = daemon.submit(bash(tmp_path, """
        for i in 1 2 3; do echo "step=$i loss=0.$i"; done
        printf '{"step": 7, "metrics": {"loss": 7, "acc": 1}}' >&$TRAIND_FD
        """))
    daemon.finish(job)
    assert sorted(of(daemon, job, "loss")) == [(1, 0.1), (2, 0.2), (3, 0.3), (7, 7.0)] and of(daemon, job, "acc") == [(7, 1.0)]


# ---- what is refused ----------------------------------------------------------------------------
@pytest.mark.parametrize("pattern, words", [
    (r"step=(?P<step>\d+", "missing )"),
    (r"(?P<step>\d+)(?=x)", "invalid perl operator: (?="),
    (r"loss=(?P<loss>\S+)", "no group `step`"),
    (r"(?P<step>\d+)" + "x" * 250, "1 to 256 bytes"),
])
def test_a_bad_pattern_is_refused_when_submitted_and_planned(daemon, tmp_path, pattern, words):
    spec = tmp_path / "job.yaml"
    spec.write_text(f"kind: command\ncommand: [echo]\nmetrics_from:\n  stdout: '{pattern}'\n")
    for verb in (["submit"], ["submit", "--dry-run"], ["plan"]):
        said = daemon.ctl(*verb, spec)
        assert said.returncode != 0 and words in said.stderr and "metrics_from.stdout (line 4)" in said.stderr, said
    assert not json.loads(daemon.ctl("list", "-o", "json", check=0).stdout).get("jobs")


def test_a_key_of_commands_is_refused_for_others(daemon):
    for kind in ("program", "train"):
        with pytest.raises(grpc.RpcError) as refused:
            daemon.submit(json.dumps({"kind": kind, "command": ["x"], "metrics_from": {"stdout": PATTERN}}))
        assert f"a job of kind {kind} has no such key, kind command has" in str(refused.value.trailing_metadata())


def test_nothing_is_started_for_a_job_that_does_not_ask(daemon, tmp_path):
    go = tmp_path / "go"
    job = daemon.submit(json.dumps({"kind": "command", "command": ["sh", "-c", f"until [ -e {go} ]; do sleep 0.02; done"]}))
    daemon.wait_state(job, "RUNNING")
    assert readers(daemon) == [] and daemon.job(job).notes == []
    go.write_text("")
    daemon.finish(job)


# ---- the process that reads lines ---------------------------------------------------------------
def test_a_reader_that_dies_is_replaced_a_few_times_and_notes_say_so(daemon, tmp_path):
    job = daemon.submit(bash(tmp_path, f"""
        for i in 1 2 3 4 5; do
            echo "step=$i loss=0.$i"
            until [ -e {tmp_path}/go$i ]; do sleep 0.02; done
        done
        """))
    for i in range(1, 5):
        until("its lines are read", lambda: (i, i / 10) in of(daemon, job, "loss"))
        pid = reader(daemon)
        os.kill(pid, signal.SIGKILL)
        until("a note", lambda: sum("ended by signal 9" in n for n in daemon.job(job).notes) == i)
        if i < 4:
            assert reader(daemon) != pid
        (tmp_path / f"go{i}").write_text("")
    assert readers(daemon) == []
    (tmp_path / "go5").write_text("")
    done = daemon.finish(job)
    assert [s for s, _ in of(daemon, job, "loss")] == [1, 2, 3, 4]
    assert sum("another one takes its place" in n for n in done.notes) == 3
    assert sum("replaced 3 times before, and nothing" in n for n in done.notes) == 1


def test_a_reader_dies_with_its_launcher(daemon, tmp_path):
    job = daemon.submit(bash(tmp_path, "echo step=1 loss=1; exec sleep 600", restart={"max": 0}))
    pid = reader(daemon)
    launcher = int(pathlib.Path(f"/proc/{pid}/status").read_text().split("PPid:")[1].split()[0])
    os.kill(launcher, signal.SIGKILL)
    until("it is gone", lambda: not alive(pid))
    daemon.wait_state(job, "FAILED")


def test_a_reader_that_cannot_begin_holds_up_no_job(cluster, tmp_path):
    daemon = cluster.make()
    daemon.bin = with_worker(tmp_path / "bin", "exit 3", verb="reports")
    daemon.start()
    job = daemon.submit(bash(tmp_path, "echo step=1 loss=1; sleep 0.5; echo done"))
    done = daemon.finish(job)
    assert sum("ended with exit code 3 before it was ready" in n for n in done.notes) == 4, done.notes
    assert daemon.output(job, out_only=True).endswith("done\n")


def test_a_reader_that_cannot_use_its_settings_is_not_replaced(cluster, tmp_path):
    daemon = cluster.make()
    daemon.bin = with_worker(tmp_path / "bin", f"mkdir {tmp_path}/once || exit 20; exit 3", verb="reports")
    daemon.start()
    job = daemon.submit(bash(tmp_path, f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"))
    until("a note says that nothing more is read", lambda: any("nothing more is read" in n for n in daemon.job(job).notes))
    (tmp_path / "go").write_text("")
    notes = list(daemon.finish(job).notes)
    assert len(notes) == 2 and "number 1 of at most 3" in notes[0], notes
    assert "code 20 before it was ready, as it cannot use its settings; it was replaced 1 time before, and nothing" in notes[1], notes


@full_only  # 5 s
def test_a_reader_that_never_ends_its_words_holds_up_no_job(cluster, tmp_path):
    """What it says is taken more slowly than it comes, so that one look at it had no end."""
    daemon = cluster.make()
    flood = tmp_path / "flood.py"
    flood.write_text(textwrap.dedent("""
        import socket
        s = socket.socket(fileno=3)
        s.send(b'{"ready": true}')
        while True: s.send(b"{}\\n" * 5000)
        """))
    daemon.bin = with_worker(tmp_path / "bin", f"exec {sys.executable} {flood}", verb="reports")
    daemon.start()
    job = daemon.submit(bash(tmp_path, "echo step=1 loss=1"))
    done = daemon.finish(job)
    assert any("did not come to its end in 5 s" in n for n in done.notes), done.notes


@full_only
def test_a_reader_that_hangs_holds_up_no_job(daemon, tmp_path):
    job = daemon.submit(bash(tmp_path, f"""
        echo step=1 loss=1
        until [ -e {tmp_path}/go ]; do sleep 0.02; done
        head -c 20000000 /dev/zero | tr '\\0' 'x'; seq 1000000
        """))
    until("its line is read", lambda: of(daemon, job, "loss"))
    os.kill(reader(daemon), signal.SIGSTOP)
    (tmp_path / "go").write_text("")
    done = daemon.finish(job)
    assert any("did not come to its end in 5 s" in n for n in done.notes), done.notes
    assert readers(daemon) == []


def test_a_flood_is_taken_within_bounds_and_its_end_is_seen(daemon, tmp_path):
    job = daemon.submit(bash(tmp_path, f"""
        yes 'step=1 loss=0.5 and some more text to make it a line' | head -c 100000000
        echo
        touch {tmp_path}/printed
        until [ -e {tmp_path}/go ]; do echo step=2 loss=0.25; sleep 0.05; done
        """))
    pid = reader(daemon)
    launcher = int(pathlib.Path(f"/proc/{pid}/status").read_text().split("PPid:")[1].split()[0])
    until("it printed all", (tmp_path / "printed").exists)
    assert resident(pid) < 64 << 20 and resident(launcher) < 64 << 20
    until("what comes then is seen", lambda: of(daemon, job, "loss") == [(1, 0.5), (2, 0.25)])
    (tmp_path / "go").write_text("")
    done = daemon.finish(job)
    assert any("prints faster than its lines are looked at" in n for n in done.notes), done.notes
    assert any("were not looked at" in n for n in done.notes), done.notes
