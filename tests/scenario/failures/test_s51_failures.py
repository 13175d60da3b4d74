"""What fails has a class, a message and, where that helps, another attempt. Nothing of it is left
(tests/support.py looks for processes, sockets and half-written files at the end of each test)."""
import gzip
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys

import pytest

from marks import full_only
from plans import steps_in
from support import BIN, LONG, SPEC, alive, below, until, with_worker


def kill_worker(daemon, job, rank=0, sig=signal.SIGKILL):
    os.kill(until("ranks run", lambda: daemon.workers(job))[rank], sig)


def test_killed_worker_is_reported_and_retried_from_the_last_checkpoint(daemon):
    job = daemon.submit(LONG, "trainer.devices=2", "trainer.max_steps=1000", "restart.backoff=[1]")
    daemon.wait_checkpoint(job)
    daemon.wait_step(job, 60)
    pids = daemon.workers(job)
    kill_worker(daemon, job, 1)
    backing_off = until("it backs off", lambda: (lambda j: j.reason.code == "BACKING_OFF" and j)(daemon.job(job)))
    assert backing_off.State.Name(backing_off.state) == "RECOVERING"
    assert 0 < backing_off.reason.retry_in_ms <= 1000
    assert not any(alive(p) for p in pids)
    done = daemon.finish(job)
    failure = done.failure
    assert (getattr(failure, "class"), failure.attempt, failure.rank) == ("killed", 1, 1)
    assert "signal 9 (KILL), not sent by traind: by somebody on this machine" in failure.message
    assert "MiB are in use" in failure.message and failure.step >= 60
    assert failure.node == daemon.nodes()[0].name, "by its name, not by its id"
    assert done.attempt == 2 and done.restarts == 1
    first_of_second = min(p.step for p in daemon.points(job) if p.attempt == 2)
    assert first_of_second > 1 and first_of_second % 50 == 1, "it went on from a checkpoint"
    daemon.losses(job, 1000, 2)


def test_crashed_worker_leaves_last_words(daemon):
    job = daemon.submit(LONG, "trainer.max_steps=100000", "restart.max=0")
    daemon.wait_step(job, 5)
    kill_worker(daemon, job, 0, signal.SIGSEGV)
    failed = daemon.wait_state(job, "FAILED")
    assert failed.failure.last_words.startswith("SIGSEGV") and "step" in failed.failure.last_words
    assert failed.restarts == 0


def test_killed_launcher_takes_its_ranks_along_and_the_job_goes_on(daemon):
    job = daemon.submit(LONG, "trainer.devices=2", "trainer.max_steps=1000")
    daemon.wait_step(job, 60)
    pids = daemon.workers(job)
    os.kill(daemon.launcher(job), signal.SIGKILL)
    until("ranks die", lambda: not any(alive(p) for p in pids), 10)
    done = daemon.finish(job)
    assert done.attempt == 2 and done.restarts == 1
    assert getattr(done.failure, "class") == "internal" and "launcher" in done.failure.message
    daemon.losses(job, 1000, 2)


def test_note_is_said_once_by_all_ranks_and_attempts(daemon):
    job = daemon.submit(LONG, "trainer.devices=2", "trainer.precision=64-true", "trainer.max_steps=200", "model.layers=[128, 16, 8]")
    daemon.wait_step(job, 60)
    os.kill(daemon.launcher(job), signal.SIGKILL)
    done = daemon.finish(job)
    assert done.attempt == 2 and len([n for n in done.notes if "no fast kernel" in n]) == 1, done.notes
    shown = [line for line in daemon.ctl("describe", job, check=0).stdout.splitlines() if line.startswith("note ")]
    assert [line.split(maxsplit=1)[1] for line in shown] == list(done.notes)


def test_checkpoint_that_no_launcher_wrote_down_is_found(daemon):
    """save_top_k 1, killed between the rank's removal of the one before and the launcher's word of the new one."""
    job = daemon.submit(LONG, "trainer.max_steps=1000000", "checkpoint.every_n_train_steps=10")
    daemon.wait_step(job, 20)
    launcher, pids = daemon.launcher(job), daemon.workers(job)
    os.kill(launcher, signal.SIGSTOP)
    home, log = daemon.state_dir / "checkpoints" / job / "a1", daemon.state_dir / "attempts" / job / "a1/events.log"
    reported = lambda: {e["step"] for e in map(json.loads, log.read_text().splitlines()) if e["event"] == "checkpoint"}
    whole = lambda: set(steps_in(home))
    until("nothing that was reported is left", lambda: (lambda left: left and not left & reported())(whole()))
    os.kill(launcher, signal.SIGKILL)
    until("ranks die", lambda: not any(alive(p) for p in pids), 10)
    left = whole()  # the next attempt's first one takes its place
    until("another attempt trains", lambda: daemon.job(job).attempt == 2 and daemon.state(job) == "RUNNING")
    first = until("its points", lambda: [p.step for p in daemon.points(job) if p.attempt == 2])[0]
    assert left == {int(s) for s in re.findall(f"checkpoint found that no log names dir={home} step=(\\d+)", daemon.tail(100))}
    assert first == max(left) + 1
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


def test_log_that_lost_its_end_with_the_power_is_closed_all_the_same(daemon):
    job = daemon.submit(LONG, "trainer.max_steps=1000000", "checkpoint.every_n_train_steps=10")
    known = daemon.wait_checkpoint(job)
    launcher, pids = daemon.launcher(job), daemon.workers(job)
    daemon.kill()
    os.kill(launcher, signal.SIGKILL)
    until("ranks die", lambda: not any(alive(p) for p in [launcher, *pids]))
    home, log = daemon.state_dir / "checkpoints" / job / "a1", daemon.state_dir / "attempts" / job / "a1/events.log"
    log.write_bytes(log.read_bytes().splitlines(True)[0])  # what was sent of it is more
    newest = max(steps_in(home))
    daemon.start()
    until("another attempt trains", lambda: daemon.job(job).attempt == 2 and daemon.state(job) == "RUNNING")
    assert f"log is shorter than what was sent of it job={job}" in daemon.tail(100)
    first = until("its points", lambda: [p.step for p in daemon.points(job) if p.attempt == 2])[0]
    assert first == newest + 1 > int(known.split("-")[1])
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


def test_launcher_killed_while_no_daemon_runs(daemon):
    job = daemon.submit(LONG, "trainer.max_steps=1000")
    daemon.wait_step(job, 60)
    launcher = daemon.launcher(job)
    daemon.kill()
    os.kill(launcher, signal.SIGKILL)
    until("the launcher is gone", lambda: not alive(launcher))
    daemon.start()
    done = daemon.finish(job)
    assert done.attempt == 2 and done.restarts == 1
    daemon.losses(job, 1000)


def test_restart_max_is_respected(daemon):
    job = daemon.submit(LONG, "restart.max=2")
    for attempt in (1, 2, 3):
        until("the attempt", lambda: daemon.job(job).attempt == attempt and daemon.workers(job))
        kill_worker(daemon, job)
        until("its end", lambda: daemon.job(job).attempt > attempt or daemon.state(job) == "FAILED")
    failed = daemon.wait_state(job, "FAILED")
    assert failed.restarts == 2 and failed.attempt == 3
    assert any("restart.max" in note for note in failed.notes)


def idx(folder, damage=None):
    """A tiny set of four idx files of 28 x 28, one of them damaged."""
    folder.mkdir()
    for kind, n in (("train", 64), ("t10k", 32)):
        images = struct.pack(">IIII", 0x803, n, 28, 28) + bytes(n * 784)
        labels = struct.pack(">II", 0x801, n) + bytes(i % 10 for i in range(n))
        (folder / f"{kind}-images-idx3-ubyte").write_bytes(images)
        (folder / f"{kind}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    if damage:
        damage(folder)
    return folder


TRAIN, LABELS = "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz"
BAD_DATA = {
    "missing": (lambda d: (d / TRAIN).unlink(), [TRAIN, "paths are those of this node"]),
    "truncated": (lambda d: os.truncate(d / TRAIN, 1000), [TRAIN, "1000"]),
    "wrong magic": (lambda d: (d / TRAIN).write_bytes(b"\1\2\3\4" + (d / TRAIN).read_bytes()[4:]), [TRAIN, "magic"]),
    "not gzip": (lambda d: (d / LABELS).write_bytes(b"\x1f\x8b nonsense"), [LABELS]),
    "other count": (lambda d: (d / LABELS).write_bytes(
        gzip.compress(struct.pack(">II", 0x801, 31) + bytes(31))), [LABELS, "31", "32"]),
    "label out of range": (lambda d: (d / LABELS).write_bytes(
        gzip.compress(struct.pack(">II", 0x801, 32) + bytes([77] * 32))), [LABELS, "77", "data.classes"]),
    "empty": (lambda d: (d / TRAIN).write_bytes(b""), [TRAIN]),
}


@pytest.mark.parametrize("what", BAD_DATA)
def test_bad_data_is_class_data_and_never_retried(daemon, tmp_path, what):
    damage, texts = BAD_DATA[what]
    folder = idx(tmp_path / "data", damage)
    spec = SPEC.replace("[16, 32, 4]", "[784, 10]").replace(
        "{name: synthetic, samples: 512, features: 16, classes: 4,", f"{{name: idx, path: {folder},")
    job = daemon.submit(spec)
    failed = daemon.wait_state(job, "FAILED", deadline_s=30)
    assert getattr(failed.failure, "class") == "data", failed.failure
    assert failed.restarts == 0 and failed.attempt <= 1
    for text in texts:
        assert text in failed.failure.message, failed.failure


def test_numeric_failure_is_never_retried(daemon):
    spec = LONG.replace("{name: adamw, lr: 0.001, weight_decay: 0.01}", "{name: sgd, lr: 1000000}")
    failed = daemon.wait_state(daemon.submit(spec, "trainer.devices=2"), "FAILED", deadline_s=30)
    assert getattr(failed.failure, "class") == "numeric" and "step" in failed.failure.message
    assert failed.restarts == 0 and failed.attempt == 1


def can_mount():
    probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    return os.geteuid() == 0 and probe.returncode == 0


@pytest.fixture(params=["file size limit", "tmpfs"] if can_mount() else ["file size limit"])
def small_disk(request, cluster, tmp_path):
    """A daemon and a checkpoint directory that holds less than one checkpoint of LONG."""
    folder = tmp_path / "disk"
    folder.mkdir()
    daemon = cluster.make("--slots", "2")
    if request.param == "tmpfs":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", folder], check=True)
        request.addfinalizer(lambda: subprocess.run(["umount", "-l", folder]))
    else:
        daemon.bin = with_worker(tmp_path / "bin", f'ulimit -f 200\nexec {BIN}/traind-worker "$@"')
    return daemon.start(), folder


def test_full_disk_is_tried_again_up_to_restart_max(small_disk):
    daemon, folder = small_disk
    job = daemon.submit(LONG, f"checkpoint.dir={folder}", "checkpoint.every_n_train_steps=5", "restart.max=2")
    failed = daemon.wait_state(job, "FAILED", deadline_s=30)
    assert getattr(failed.failure, "class") == "disk" and "step-" in failed.failure.message
    assert failed.attempt == 3 and failed.restarts == 2
    assert not [p for p in below(folder) if p.is_file()], "nothing is left of checkpoints that did not fit"


@pytest.fixture(params=["moved away", "read-only"] if can_mount() else ["moved away"])
def fickle_place(request, tmp_path):
    """A checkpoint.dir, and what makes it fail and be well again."""
    folder, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    folder.mkdir()
    if request.param == "moved away":
        return folder, lambda: folder.rename(elsewhere), lambda: elsewhere.rename(folder)
    remount = lambda how: subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", folder], check=True)
    request.addfinalizer(lambda: subprocess.run(["umount", "-l", folder]))
    return folder, lambda: remount("ro"), lambda: remount("rw")


@full_only  # pauses of 1 and 2 s
def test_checkpoint_dir_that_was_away_for_3_s_failed_the_job_as_a_bad_spec(daemon, fickle_place):
    folder, fail, mend = fickle_place
    job = daemon.submit(LONG, "trainer.max_steps=100000", f"checkpoint.dir={folder}", "checkpoint.every_n_train_steps=20",
                        "checkpoint.save_top_k=-1", "restart.backoff=[0]", "restart.max=9")
    until("a checkpoint is committed", lambda: daemon.job(job).checkpoint)
    until("ranks are stopped", lambda: [os.kill(pid, signal.SIGSTOP) for pid in daemon.workers(job)])
    fail()
    kill_worker(daemon, job)
    waits = until("it waits for the disk", lambda: (lambda j: j.reason.code == "BACKING_OFF" and j.restarts == 3 and j)(daemon.job(job)))
    assert getattr(waits.failure, "class") == "disk" and "checkpoint" in waits.failure.message, waits
    assert re.search(r"restart 3 of 9 in 2 s, at 20\S+Z, after disk: ", daemon.ctl("describe", job).stdout)
    mend()
    until("it runs again", lambda: daemon.state(job) == "RUNNING" and daemon.workers(job))
    events = daemon.state_dir / "attempts" / job / "a4/events.log"
    until("it resumes from what it had saved", lambda: b'"event":"resumed"' in events.read_bytes())
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


def test_memory_limit_of_a_rank_has_a_class(daemon):
    job = daemon.submit(LONG, "resources.memory_bytes=8000000", "restart.max=1")
    failed = daemon.wait_state(job, "FAILED", deadline_s=30)
    assert getattr(failed.failure, "class") == "out_of_memory" and failed.attempt == 0, failed.failure
    words = re.fullmatch(r"a rank needs (\d+) bytes, resources.memory_bytes allows 8000000: .*", failed.failure.message)
    assert words and int(words[1]) > 8000000, failed.failure
    assert all(knob in failed.failure.message for knob in ("data.batch_size", "resources.memory_bytes")), failed.failure


def test_back_off_grows_as_the_spec_says(daemon):
    job = daemon.submit(LONG, "restart.max=2", "restart.backoff=[1, 30]")
    for attempt, most in ((1, 1000), (2, 30000)):
        until("the attempt", lambda: daemon.job(job).attempt == attempt and daemon.workers(job))
        kill_worker(daemon, job)
        waits = until("it backs off", lambda: (lambda j: j.reason.code == "BACKING_OFF" and j)(daemon.job(job)))
        assert most / 2 < waits.reason.retry_in_ms <= most
        assert waits.attempt == attempt
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED", deadline_s=5)


def test_nothing_of_an_ended_attempt_stays_in_the_state_directory(daemon):
    job = daemon.submit(SPEC, "trainer.devices=2")
    daemon.finish(job)
    attempts = pathlib.Path(daemon.state_dir / "attempts")
    until("its files are gone", lambda: not [p for p in below(attempts) if p.is_file()])
    assert not below(daemon.cluster.runtime, "*.sock")


@pytest.mark.parametrize("files, spoil", [
    pytest.param(["record.json"], lambda p: p.write_text("{"), marks=full_only), pytest.param(["record.json"], lambda p: p.unlink(), marks=full_only),
    pytest.param(["assignment.json"], lambda p: p.write_bytes(b"\xff\0"), marks=full_only),
    pytest.param(["assignment.json"], lambda p: p.unlink(), marks=full_only),
    (["record.json", "assignment.json"], lambda p: p.write_text("")),
], ids=["unreadable record", "no record", "unreadable assignment", "no assignment", "both empty"])
def test_attempt_that_cannot_be_taken_over_is_fenced(daemon, files, spoil):
    job = daemon.submit(LONG, "trainer.devices=2", "trainer.max_steps=1000")
    known = daemon.wait_checkpoint(job)
    daemon.kill()
    pids = [daemon.launcher(job), *daemon.workers(job)]
    until("what is known is gone, save_top_k is 1", lambda: not (daemon.state_dir / "checkpoints" / job / known).exists())
    for name in files:
        spoil(daemon.state_dir / "attempts" / job / "a1" / name)
    daemon.start()
    until("it is gone before anything else starts", lambda: not any(alive(p) for p in pids))
    assert f"launcher killed pid={pids[0]}" in daemon.tail(100)
    done = daemon.finish(job)
    assert (done.attempt, done.restarts) == (2, 1)
    assert min(p.step for p in daemon.points(job) if p.attempt == 2) > 51, "it went on from a later checkpoint"
    daemon.losses(job, 1000, 2)  # what was made while no daemon ran is there, too


def test_start_that_a_power_failure_left_empty_is_removed(daemon):
    """It keeps all checkpoints: else one may take the place of the one before, and what says so is emptied here."""
    job = daemon.submit(LONG, "trainer.max_steps=400", "checkpoint.save_top_k=-1")
    daemon.wait_step(job, 60)
    daemon.kill()
    os.kill(daemon.launcher(job), signal.SIGKILL)
    for f in (daemon.state_dir / "attempts" / job / "a1").iterdir():
        f.write_bytes(b"")
    daemon.start()
    assert daemon.finish(job).attempt == 2
    assert not below(daemon.state_dir / "attempts", "a1") and "attempt left as it is" not in daemon.tail(100)


def test_planner_that_wants_too_much_memory_has_its_limit_reported(cluster, tmp_path):
    daemon = cluster.make("--slots", "2")
    daemon.bin = with_worker(tmp_path / "bin", f"""
{sys.executable} -c 'bytearray(6 << 30)' || {{
    echo '{{"event":"end","class":"out_of_memory","code":"RESOURCE_EXHAUSTED","message":"no more than '$(ulimit -d)' KiB"}}'
    exit 30
}}""", verb="plan")
    daemon.start()
    failed = daemon.wait_state(daemon.submit(SPEC), "FAILED")
    assert getattr(failed.failure, "class") == "out_of_memory" and failed.attempt == 0
    assert "planning may use 4096 MiB" in failed.failure.message and "4194304 KiB" in failed.failure.message


def test_planner_that_computes_without_end_is_stopped_and_reported(cluster, tmp_path):
    daemon = cluster.make("--slots", "2")
    daemon.bin = with_worker(tmp_path / "bin", f"""
echo "$(ulimit -S -t) $(ulimit -H -t)" >> {tmp_path}/limits
ulimit -S -t 1  # the same end, sooner
while :; do :; done""", verb="plan")
    daemon.start()
    failed = daemon.wait_state(daemon.submit(SPEC), "FAILED")
    assert (tmp_path / "limits").read_text().split() == ["30", "31"], "asked once: the next time would be the same"
    assert (getattr(failed.failure, "class"), failed.failure.code, failed.attempt) == ("bad_spec", "RESOURCE_EXHAUSTED", 0)
    assert "planning used more than 30 s of processor time" in failed.failure.message
    assert "make the model smaller, or the data" in failed.failure.message


def test_planner_dies_with_its_daemon(cluster, tmp_path):
    daemon = cluster.make("--slots", "2")
    daemon.bin = with_worker(tmp_path / "bin", f"""
echo $$ > {tmp_path}/pid
exec sleep 600""", verb="plan")
    daemon.start()
    daemon.submit(SPEC)
    pid = int(until("it plans", lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    daemon.kill()
    until("it is gone", lambda: not alive(pid), 10)
