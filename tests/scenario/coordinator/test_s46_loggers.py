"""`loggers`: metrics.csv and TensorBoard's event files. What is in them is what the coordinator shows, each step once, also
after kills; and no file that cannot be written ends a job."""
import csv
import json
import math
import os
import signal
import struct
import subprocess
import sys

import pytest

from support import BIN, LONG, ROOT, SPEC, until

BOTH = "loggers=[csv, tensorboard]"


def rows_of(folder):
    """Rows as csv reads them, and the header."""
    with open(folder / "metrics.csv", newline="") as f:
        reader = csv.DictReader(f)
        return list(reader), reader.fieldnames


def cells(folder):
    """(metric, step) -> value; each step is one row."""
    rows, _ = rows_of(folder)
    steps = [int(r["step"]) for r in rows]
    assert steps == sorted(set(steps)), steps
    return {(name, int(r["step"])): float(v) for r in rows for name, v in r.items()
            if v and name not in ("step", "epoch")}


def named(daemon, job):
    """The folder of a job in a place of one's own: what TensorBoard calls the run."""
    return f"{daemon.job(job).name}-{job}"


def scalars(folder):
    """The same as the real TensorBoard reads it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    board.Reload()
    found = [(tag, e.step, e.value) for tag in board.Tags()["scalars"] if tag != "epoch" for e in board.Scalars(tag)]
    assert len({f[:2] for f in found}) == len(found), "a scalar is there twice"
    return {(tag, step): value for tag, step, value in found}


def records(path):
    """Events of a file, whose checksums TensorFlow's own reader has checked. A torn one would raise."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
    from tensorboard.compat.proto.event_pb2 import Event

    reader, events = PyRecordReader_New(str(path).encode()), []
    while True:
        try:
            reader.GetNext()
        except Exception as end:
            assert type(end).__name__ == "OutOfRangeError", end  # a torn one is another
            return events
        events.append(Event.FromString(reader.record()))


def f32(v):
    return struct.unpack("f", struct.pack("f", v))[0]


def check(daemon, job, folder):
    """All points of the job are in both, and nothing else."""
    names = sorted(daemon.job(job).metrics)
    points = {(name, p.step): p.value for name in names for p in daemon.points(job, name)}
    assert cells(folder).keys() == scalars(folder).keys() == points.keys()
    # Of a rate each rank has its own, and the last one that comes is shown, here and there.
    own = ("samples_per_s", "step_time_s", "utilisation", "flops_per_s") if daemon.job(job).n_ranks > 1 else ()
    same = {key: v for key, v in points.items() if key[0] not in own}
    assert same == {key: v for key, v in cells(folder).items() if key[0] not in own}
    assert {key: f32(v) for key, v in same.items()} == {key: v for key, v in scalars(folder).items() if key[0] not in own}
    return points


@pytest.mark.parametrize("ranks", [1, 2])
def test_files_hold_all_points_of_the_job(daemon, ranks):
    job = daemon.submit(SPEC, f"trainer.devices={ranks}", BOTH)
    daemon.finish(job)
    folder = daemon.state_dir / "checkpoints" / job / "logs"
    points = check(daemon, job, folder)
    assert len({s for n, s in points if n == "train_loss_step"}) == 96 // ranks
    rows, header = rows_of(folder)
    assert header == sorted(header) and {"step", "epoch", "val_loss", "test_accuracy"} <= set(header)
    assert (rows[0]["epoch"], rows[-1]["epoch"]) == ("0", "2")
    first, second = records(next(folder.glob("events.out.tfevents.*.traind.a1")))[:2]
    assert first.file_version == "brain.Event:2" and second.summary.value and abs(second.wall_time - first.wall_time) < 60


def test_files_go_with_the_job_when_it_is_deleted(daemon, tmp_path):
    job = daemon.submit(SPEC, "trainer.max_steps=20", f"loggers=[csv, {{name: tensorboard, dir: {tmp_path}/mine}}]")
    daemon.finish(job)
    folder = daemon.state_dir / "checkpoints" / job / "logs"
    assert (folder / "metrics.csv").exists()
    mine = tmp_path / "mine" / named(daemon, job)
    daemon.ctl("delete", job, check=0)
    until("its directory is gone", lambda: not folder.exists())
    assert scalars(mine)  # a place of one's own stays


def test_csv_has_the_layout_of_lightnings_logger(daemon):
    """What its writer makes of the same rows, to the byte but for numbers: those have as few digits as they can."""
    job = daemon.submit(SPEC, "trainer.max_steps=40", "loggers=[csv]")
    daemon.finish(job)
    path = daemon.state_dir / "checkpoints" / job / "logs/metrics.csv"
    rows, header = rows_of(path.parent)
    again = path.with_name("again.csv")
    with open(again, "w", newline="") as f:  # as lightning.fabric.loggers.csv_logs._ExperimentWriter.save
        writer = csv.DictWriter(f, fieldnames=sorted({k for r in rows for k in r}))
        writer.writeheader()
        writer.writerows(rows)
    assert path.read_bytes() == again.read_bytes()


def test_command_s_points_are_written_and_one_that_is_no_number_as_python_has_it(daemon, tmp_path):
    text = tmp_path / "say.py"
    text.write_text(f"import sys; sys.path.insert(0, {str(ROOT / 'clients/python')!r})\nimport traind\n"
                    "traind.log({'a': float('nan'), 'b': 1.5}, step=1)\ntraind.log({'a': 2.0}, step=2)\n")
    job = daemon.submit(json.dumps({"kind": "command", "command": [sys.executable, str(text)], "loggers": ["csv", "tensorboard"]}))
    daemon.finish(job)
    folder = daemon.state_dir / "checkpoints" / job / "logs"
    rows, _ = rows_of(folder)
    assert [(r["step"], r["a"], r["b"]) for r in rows] == [("1", "nan", "1.5"), ("2", "2.0", "")]
    found = scalars(folder)
    assert math.isnan(found["a", 1]) and found["a", 2] == 2 and found["b", 1] == 1.5


@pytest.mark.parametrize("whom, ranks", [("rank", 2), ("launcher", 2), ("daemon", 1)])
def test_no_step_is_lost_or_there_twice_when_something_is_killed(daemon, whom, ranks):
    job = daemon.submit(LONG, "trainer.max_steps=400", f"trainer.devices={ranks}", BOTH)
    daemon.wait_step(job, 120)
    if whom == "daemon":
        daemon.restart()
    else:
        os.kill(daemon.workers(job)[0] if whom == "rank" else daemon.launcher(job), signal.SIGKILL)
    done = daemon.finish(job)
    assert done.attempt == (1 if whom == "daemon" else 2), done
    folder = daemon.state_dir / "checkpoints" / job / "logs"
    found, board = cells(folder), scalars(folder)
    losses = {key: v for key, v in found.items() if key[0] == "train_loss_step"}
    assert losses == {("train_loss_step", p.step): p.value for p in daemon.points(job)}
    assert sorted(s for _, s in losses) == list(range(1, 401))
    assert {key: f32(v) for key, v in found.items()}.keys() == board.keys()
    assert {key: board[key] for key in losses} == {key: f32(v) for key, v in losses.items()}
    starts = [e for p in sorted(folder.glob("events.*")) for e in records(p) if e.HasField("session_log")]
    assert len(starts) == done.attempt - 1


def test_damaged_end_of_a_file_is_cut_when_the_job_goes_on(daemon):
    job = daemon.submit(LONG, "trainer.max_steps=300", BOTH)
    daemon.wait_step(job, 120)
    folder = daemon.state_dir / "checkpoints" / job / "logs"
    launcher = daemon.launcher(job)
    os.kill(launcher, signal.SIGSTOP)
    with open(folder / "metrics.csv", "ab") as f:
        f.write(b"1,2,3")
    with open(next(folder.glob("events.*")), "ab") as f:
        f.write(b"\x20\0\0\0\0\0\0\0torn")
    os.kill(launcher, signal.SIGKILL)
    assert daemon.finish(job).attempt == 2
    assert sorted(s for n, s in cells(folder) if n == "train_loss_step") == list(range(1, 301))
    assert sorted(s for n, s in scalars(folder) if n == "train_loss_step") == list(range(1, 301))


def notes_of(daemon, job):
    return "\n".join(daemon.job(job).notes)


def test_directory_that_cannot_be_written_is_a_note_with_its_path(daemon, tmp_path):
    (tmp_path / "taken").write_text("a file")
    other = tmp_path / "other"
    job = daemon.submit(SPEC, f"loggers=[{{name: csv, dir: {tmp_path}/taken/logs}}, {{name: tensorboard, dir: {other}}}]")
    daemon.finish(job)
    assert "the csv logger cannot write: " in notes_of(daemon, job) and f"{tmp_path}/taken/" in notes_of(daemon, job)
    assert notes_of(daemon, job).count("logger") == 1, notes_of(daemon, job)
    assert ("train_loss_step", 96) in scalars(other / named(daemon, job))


def can_mount():
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="only as root, outside of a strict container")
def test_full_disk_is_a_note_and_rows_are_written_when_there_is_room(daemon, tmp_path, request):
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", full], check=True)
    request.addfinalizer(lambda: subprocess.run(["umount", "-l", full]))
    filler = full / "filler"
    filler.write_bytes(b"x" * (40 << 10))
    job = daemon.submit(LONG, f"loggers=[{{name: csv, dir: {full}}}, {{name: tensorboard, dir: {full}}}]")
    until("both are noted", lambda: all(f"the {n} logger cannot write" in notes_of(daemon, job) for n in ("csv", "tensorboard")), 120)
    assert str(full) in notes_of(daemon, job) and "No space left" in notes_of(daemon, job)
    assert all(line.endswith("\r\n") for line in (full / named(daemon, job) / "metrics.csv").read_bytes().decode().splitlines(True))
    subprocess.run(["mount", "-o", "remount,size=64m", full], check=True)
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")
    folder = full / named(daemon, job)
    steps = [p.step for p in daemon.points(job)]
    assert sorted(s for n, s in cells(folder) if n == "train_loss_step") == steps
    assert sorted(s for n, s in scalars(folder) if n == "train_loss_step") == steps


def test_run_without_a_daemon_writes_them_too(tmp_path):
    (tmp_path / "spec.yaml").write_text(SPEC + "loggers: [csv, tensorboard]\n")
    subprocess.run([BIN / "trainctl", "run", "spec.yaml"], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    lines = [json.loads(line) for line in (tmp_path / "small/metrics.jsonl").read_text().splitlines()]
    points = {(p["name"], p["step"]): p["value"] for p in lines}
    assert cells(tmp_path / "small/checkpoints/logs") == points
    assert scalars(tmp_path / "small/checkpoints/logs").keys() == points.keys()


@pytest.mark.parametrize("given, said", [("[wandb]", "csv"), ("[{name: csv, dir: logs}]", "absolute path"), ("csv", "list")])
def test_loggers_that_are_not_known_are_refused(daemon, given, said):
    import grpc

    with pytest.raises(grpc.RpcError) as error:
        daemon.submit(SPEC, f"loggers={given}")
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "loggers" in error.value.details() and said in error.value.details(), error.value.details()
