"""Event files of TensorBoard that a command writes (loggers_in.tensorboard): a real daemon, and what the writers of the real
package leave: both kinds of scalars, directories of directories, files that are no files, that are cut and written again."""
import json
import os
import signal
import sys
import textwrap

import pytest

from support import until
from test_s28_printed_metrics import of, reader, readers

# Writes as torch's SummaryWriter does (simple values), and as TensorFlow 2 (tensors).
WRITERS = """
import os, pathlib, struct, sys, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.summary import Writer
from tensorboard.summary.writer.event_file_writer import EventFileWriter

go, attempt = pathlib.Path(sys.argv[1]), int(os.environ["TRAIND_ATTEMPT"])


def scalar(writer, tag, step, value, when=None):
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    writer.add_event(Event(wall_time=time.time() if when is None else when, step=step, summary=summary))


def wait(name):
    while not (go / name).exists():
        time.sleep(0.02)
"""


def writes(folder, text, logs="runs", **more):
    script = folder / "script.py"
    script.write_text(WRITERS + textwrap.dedent(text))
    (folder / "go").mkdir(exist_ok=True)
    return json.dumps({"kind": "command", "command": [sys.executable, str(script), str(folder / "go")],
                       "workdir": str(folder), "loggers_in": {"tensorboard": logs},
                       "restart": {"max": 2, "backoff": [0]}, **more})


def go(folder, name):
    (folder / "go" / name).write_text("")


def notes(job, words):
    return [n for n in job.notes if words in n]


# ---- what is seen -------------------------------------------------------------------------------
def test_a_script_that_writes_for_tensorboard_has_metrics_and_progress(daemon, tmp_path):
    job = daemon.submit(writes(tmp_path, """
        train = EventFileWriter("runs", flush_secs=0.01)
        tensors = Writer("runs/val/top")
        for step in range(1, 21):
            scalar(train, "loss", step, 1 / step)
            tensors.add_scalar("loss", 2 / step, step)
        many = Summary(value=[Summary.Value(tag=f"lr/{i}", simple_value=i) for i in range(40)])
        train.add_event(Event(wall_time=time.time(), step=20, summary=many))
        text = Summary.Value(tag="text", tensor=TensorProto(dtype=7, string_val=[b"a text"]),
                             metadata=SummaryMetadata(plugin_data={"plugin_name": "text"}))
        train.add_event(Event(wall_time=time.time(), step=21, summary=Summary(value=[text])))
        train.flush()
        tensors.flush()
        wait("more")
        scalar(train, "loss", 30, 0.25)
        train.flush()
        wait("end")
        scalar(train, "loss", 31, float("nan"))
        train.close()  # the last ones come as it ends
        """))
    until("its files are metrics while it runs", lambda: len(of(daemon, job, "loss")) == 20 and of(daemon, job, "lr/39"))
    now = daemon.job(job)
    assert now.global_step == 20 and abs(now.progress.loss - 0.05) < 1e-6
    assert of(daemon, job, "val/top/loss")[1] == (2, 1.0) and len(of(daemon, job, "val/top/loss")) == 20
    assert of(daemon, job, "lr/39") == [(20, 39.0)] and "text" not in now.metrics
    go(tmp_path, "more")
    until("one more is seen", lambda: of(daemon, job, "loss")[-1] == (30, 0.25))
    assert daemon.job(job).global_step == 30
    go(tmp_path, "end")
    done = daemon.finish(job)
    assert [s for s, _ in of(daemon, job, "loss")][-2:] == [30, 31]
    assert notes(done, "tensorboard") == [], done.notes
    assert json.loads(daemon.ctl("metrics", job, "loss", "-o", "json", check=0).stdout).get("dropped_points", "0") == "0"


def test_files_of_before_do_not_count_and_later_attempts_replace(daemon, tmp_path):
    job = daemon.submit(writes(tmp_path, """
        old = EventFileWriter("runs/old")
        for step in (1, 2, 3, 90):
            scalar(old, "loss", step, 7, when=time.time() - 3600)
        old.close()
        new = EventFileWriter("runs")
        for step in range(attempt * 3 - 2, attempt * 3 + 3):
            scalar(new, "loss", step, attempt * 10 + step)
        new.close()
        sys.exit(75 if attempt == 1 else 0)
        """))
    done = daemon.finish(job)
    # Attempt 1 wrote 1 to 5, attempt 2 writes 4 to 8 in a file of its own; the first one is still there.
    assert of(daemon, job, "loss") == [(1, 11), (2, 12), (3, 13), (4, 24), (5, 25), (6, 26), (7, 27), (8, 28)]
    assert sorted(done.metrics) == ["loss"] and done.global_step == 8
    assert len(list((tmp_path / "runs").glob("*tfevents*"))) == 2 and notes(done, "tensorboard") == [], done.notes


def test_what_cannot_be_followed_is_noted_and_the_rest_is_seen(daemon, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    job = daemon.submit(writes(tmp_path, """
        os.makedirs("runs/run")
        os.mkfifo("runs/run/tfevents.fifo")
        os.symlink("../outside", "runs/out")
        for name in ("outside", "runs/run", "runs/cut", "runs/bad", "runs/long"):
            writer = EventFileWriter(name)
            for step in (1, 2):
                scalar(writer, "loss", step, step)
            writer.close()
        cut, bad, long = (next(pathlib.Path(f"runs/{n}").iterdir()) for n in ("cut", "bad", "long"))
        os.truncate(cut, cut.stat().st_size - 1)
        bytes = bytearray(bad.read_bytes())
        bytes[-20] ^= 1
        bad.write_bytes(bytes)
        os.truncate(long, 1 << 40)
        wait("more")
        scalar(writer := EventFileWriter("runs/run"), "loss", 3, 3)
        writer.close()
        wait("end")
        """))
    until("whole ones are seen", lambda: len(of(daemon, job, "run/loss")) == 2 and len(of(daemon, job, "long/loss")) == 2)
    go(tmp_path, "more")
    until("the rest goes on", lambda: len(of(daemon, job, "run/loss")) == 3)
    assert of(daemon, job, "cut/loss") == of(daemon, job, "bad/loss") == [(1, 1.0)]
    go(tmp_path, "end")
    done = daemon.finish(job)
    assert not [name for name in done.metrics if name.startswith("out")]
    for words in ("is a link, or no regular file", "is damaged at byte", "ends within a record"):
        assert len(notes(done, words)) == 1, (words, done.notes)
    in_all = notes(done, "in all")
    assert len(in_all) == 1 and "2 links" in in_all[0] and "2 damaged" in in_all[0] and "1 files that end" in in_all[0], in_all


def test_a_file_that_is_written_again_is_read_again(daemon, tmp_path):
    job = daemon.submit(writes(tmp_path, """
        def write(steps):
            writer = EventFileWriter("new")
            for step in steps:
                scalar(writer, "loss", step, step)
            writer.close()
            return next(pathlib.Path("new").iterdir())
        os.makedirs("runs")
        write(range(1, 9)).rename("runs/tfevents.1")
        wait("cut")
        pathlib.Path("runs/tfevents.1").write_bytes(write([8, 9]).read_bytes())
        wait("end")
        """))
    until("it is seen", lambda: len(of(daemon, job, "loss")) == 8)
    go(tmp_path, "cut")
    until("it is read again", lambda: of(daemon, job, "loss")[-1] == (9, 9.0))
    go(tmp_path, "end")
    done = daemon.finish(job)
    assert of(daemon, job, "loss") == [(i, float(i)) for i in range(1, 10)]
    assert len(notes(done, "'tfevents.1' was cut or written again")) == 1, done.notes


def test_another_source_of_steps_is_the_progress(daemon, tmp_path):
    job = daemon.submit(writes(tmp_path, """
        print("step=5", flush=True)
        wait("files")
        writer = EventFileWriter("runs")
        scalar(writer, "loss", 5000, 1)
        writer.close()
        wait("end")
        """, metrics_from={"stdout": r"step=(?P<step>\d+)"}))
    until("a line is progress", lambda: daemon.job(job).global_step == 5)
    go(tmp_path, "files")
    until("the file is seen", lambda: of(daemon, job, "loss") == [(5000, 1.0)])
    assert daemon.job(job).global_step == 5
    go(tmp_path, "end")
    assert daemon.finish(job).global_step == 5


# ---- the process that reads them ----------------------------------------------------------------
def test_a_record_was_taken_twice_when_its_reader_died(daemon, tmp_path):
    job = daemon.submit(writes(tmp_path, """
        writer = EventFileWriter("runs")
        for part in range(3):
            for step in range(1, 301):
                scalar(writer, "loss", 1000 * part + step, step)
            writer.flush()
            wait(f"part{part}")
        """))
    for part in range(3):
        until("its part is read", lambda: len(of(daemon, job, "loss")) == 300 * (part + 1))
        pid = reader(daemon)
        os.kill(pid, signal.SIGKILL)
        until("another one reads", lambda: readers(daemon) not in ([], [pid]))
        go(tmp_path, f"part{part}")
    done = daemon.finish(job)
    assert len(of(daemon, job, "loss")) == 900 and len(notes(done, "another one takes its place")) == 3
    assert notes(done, "logged 'loss'") == [], done.notes  # no repeat came
    assert json.loads(daemon.ctl("metrics", job, "loss", "-o", "json", check=0).stdout).get("dropped_points", "0") == "0"


def test_a_reader_goes_on_when_the_daemon_was_killed(daemon, tmp_path):
    job = daemon.submit(writes(tmp_path, """
        writer = EventFileWriter("runs")
        scalar(writer, "loss", 1, 1)
        writer.flush()
        wait("more")
        scalar(writer, "loss", 2, 2)
        writer.close()
        wait("end")
        """))
    until("it is seen", lambda: of(daemon, job, "loss") == [(1, 1.0)])
    daemon.restart()
    go(tmp_path, "more")
    until("one more is seen", lambda: of(daemon, job, "loss") == [(1, 1.0), (2, 2.0)])
    go(tmp_path, "end")
    done = daemon.finish(job)
    assert done.attempt == 1 and notes(done, "tensorboard") == [], done.notes


def test_what_a_launcher_writes_does_not_come_in_again(daemon, tmp_path):
    job = daemon.submit(writes(tmp_path, """
        writer = EventFileWriter("runs")
        for step in range(1, 6):
            scalar(writer, "loss", step, step)
        writer.flush()
        wait("more")
        scalar(writer, "loss", 6, 6)
        writer.close()
        """, loggers=[{"name": "tensorboard", "dir": str(tmp_path / "runs")}]))
    until("the logger has written", lambda: [f for f in tmp_path.glob("runs/*/*.traind.a1") if f.stat().st_size > 100])
    go(tmp_path, "more")
    done = daemon.finish(job)
    assert sorted(done.metrics) == ["loss"] and of(daemon, job, "loss") == [(i, float(i)) for i in range(1, 7)]


# ---- what is refused ----------------------------------------------------------------------------
@pytest.mark.parametrize("given", ["../runs", "/a/../b", "runs/..", "a\tb", ""])
def test_a_directory_that_leads_up_is_refused(daemon, tmp_path, given):
    spec = tmp_path / "job.yaml"
    spec.write_text(f"kind: command\ncommand: [echo]\nloggers_in:\n  tensorboard: {json.dumps(given)}\n")
    for verb in ("submit", "plan"):
        said = daemon.ctl(verb, spec)
        assert said.returncode != 0 and "loggers_in.tensorboard (line 4)" in said.stderr, said
        assert "a path without '..' and control characters" in said.stderr, said


def test_the_state_of_the_daemon_is_not_read(daemon, tmp_path):
    job = daemon.submit(json.dumps({"kind": "command", "command": ["sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"],
                                    "loggers_in": {"tensorboard": str(daemon.state_dir)}}))
    until("a note says it", lambda: notes(daemon.job(job), "may not read"))
    (tmp_path / "go").write_text("")
    assert len(notes(daemon.finish(job), "loggers_in.tensorboard")) == 1
