"""What ranks print, where somebody follows their job: the last lines of who is to blame, and with --logs all of it."""
import re
import subprocess

import pytest

from support import BIN, LONG, SPEC, until
from test_s24_commands import python, spec

OK, JOB_FAILED, USAGE = 0, 1, 2


@pytest.fixture
def file(tmp_path):
    def write(text):
        (tmp_path / "job.json").write_text(text)
        return tmp_path / "job.json"
    return write


def lines_of(text, word):
    return [line for line in text.splitlines() if word in line]


# ---- the last lines -----------------------------------------------------------------------------
RAISES = """
for i in range(100): print("noise", i, file=sys.stderr)
print("to stdout")
def work(rank): raise RuntimeError(f"no luck on {rank}")
if os.environ["RANK"] == "1": work(1)
time.sleep(60)
"""


def test_failed_script_said_only_that_it_failed(daemon, tmp_path, file):
    text = python(tmp_path, RAISES, name="script", restart={"max": 0}, trainer={"devices": 2})
    followed = daemon.ctl("submit", file(text), "--follow", check=JOB_FAILED).stdout
    job = daemon.ctl("list", "-o", "name", check=OK).stdout.strip()
    for said in (followed, daemon.ctl("describe", job, check=OK).stdout):
        assert f"of rank 1, its last lines; all of it: `trainctl logs {job} --rank 1 --attempt 1 --err-only`" in said, said
        block = said[said.index("its last lines"):].splitlines()[1:41]
        assert block[-1] == "  RuntimeError: no luck on 1" and "  Traceback (most recent call last):" in block
        assert len([line for line in block if line.startswith("  noise ")]) == 40 - len(block[block.index("  Traceback (most recent call last):"):])
        assert "noise 60" not in said and "to stdout" not in said
    more = re.search(r"`trainctl (logs .*?)`", followed)[1].split()
    assert "noise 0" in daemon.ctl(*more, check=OK).stdout


def test_nothing_is_added_where_the_failure_says_it(daemon, file):
    silent = daemon.ctl("submit", file(spec("sh", "-c", "exit 3", restart={"max": 0})), "--follow", check=JOB_FAILED).stdout
    assert "exit code 3" in silent and "its last lines" not in silent
    data = daemon.ctl("submit", file(SPEC), "--follow", "--set", "data={name: idx, path: /nowhere, batch_size: 8}",
                      "--set", "model.layers=[784,10]", check=JOB_FAILED).stdout
    assert "/nowhere" in data and "its last lines" not in data
    works = daemon.ctl("submit", file(SPEC), "--follow", check=OK).stdout
    assert "its last lines" not in works


# ---- --logs -------------------------------------------------------------------------------------
SPEAKS = """
rank = os.environ["RANK"]
for i in range(5): print("out", rank, i, flush=True)
print("err", rank, file=sys.stderr, flush=True)
sys.stdout.write("no end " + rank)
"""


def test_logs_of_rank_0_come_with_progress(daemon, tmp_path, file):
    text = python(tmp_path, SPEAKS, trainer={"devices": 2})
    said = daemon.ctl("submit", file(text), "--follow", "--logs", check=OK).stdout
    assert lines_of(said, "out") == [f"out 0 {i}" for i in range(5)] and lines_of(said, "err") == ["err 0"]
    assert lines_of(said, "no end") == ["no end 0"] and said.index("no end 0") < said.index("SUCCEEDED")
    said = daemon.ctl("submit", file(text), "--follow", "--logs=all", check=OK).stdout
    for rank in (0, 1):
        assert lines_of(said, f"out {rank}") == [f"[rank {rank}] out {rank} {i}" for i in range(5)]
        assert f"[rank {rank}] no end {rank}\n" in said and f"[rank {rank}] err {rank}\n" in said
    said = daemon.ctl("submit", file(text), "--follow", "--logs=1", check=OK).stdout
    assert lines_of(said, "err") == ["err 1"]
    assert "out" not in daemon.ctl("submit", file(text), "--follow", check=OK).stdout


def test_logs_go_on_with_the_next_attempt(daemon, tmp_path, file):
    text = python(tmp_path, """
        print("attempt", os.environ["TRAIND_ATTEMPT"], flush=True)
        sys.exit(0 if os.environ["TRAIND_ATTEMPT"] == "3" else 75)
        """)
    said = daemon.ctl("submit", file(text), "--follow", "--logs", check=OK).stdout
    assert lines_of(said, "attempt ")[:3] == ["attempt 1", "attempt 2", "attempt 3"], said


def test_no_line_is_lost_or_twice_when_the_daemon_is_restarted(daemon, tmp_path, file):
    text = python(tmp_path, f"""
        for i in range(400):
            print("line", i, flush=True)
            time.sleep(0.01)
        while not os.path.exists("{tmp_path}/go"): time.sleep(0.01)
        print("last", flush=True)
        """)
    follower = subprocess.Popen([BIN / "trainctl", "submit", file(text), "--follow", "--logs"], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env={**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir)})
    job = until("it is there", lambda: daemon.ctl("list", "-o", "name").stdout.strip())
    until("it prints", lambda: b"line 50\n" in b"".join(r.data for r in daemon.logs(job)))
    daemon.restart()
    (tmp_path / "go").touch()
    out, err = follower.communicate(timeout=60)
    assert follower.returncode == OK, (out, err)
    assert lines_of(out, "line ") == [f"line {i}" for i in range(400)] and lines_of(out, "last") == ["last"]


def test_who_waits_sees_the_end_of_what_was_printed_and_all_that_comes(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, f"""
        for i in range(2000): print("before", i, flush=True)
        while not os.path.exists("{tmp_path}/go"): time.sleep(0.01)
        for i in range(10): print("after", i, flush=True)
        """))
    until("it has printed", lambda: b"before 1999\n" in b"".join(r.data for r in daemon.logs(job)))
    waits = subprocess.Popen([BIN / "trainctl", "wait", job, "--follow", "--logs"], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env={**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir)})
    first = waits.stdout.readline()
    (tmp_path / "go").touch()
    out = waits.stdout.read()
    waits.communicate(timeout=60)
    before = lines_of(first + out, "before")
    assert 50 < len(before) < 1000 and before[-1] == "before 1999" and re.fullmatch(r"before \d+", before[0]), before[:2]
    assert lines_of(out, "after") == [f"after {i}" for i in range(10)]


def test_who_waits_for_a_state_is_let_go_at_once(daemon):
    job = daemon.submit(LONG)
    daemon.wait_step(job, 1)
    daemon.ctl("wait", job, "--follow", "--logs", "--for", "running", check=OK, timeout=10)
    daemon.steer("Cancel", job)


def test_logs_beside_what_they_do_not_go_with_are_wrong_usage(daemon, file):
    for words, why in ((["--logs"], "--logs needs --follow"), (["--follow", "--logs", "-o", "json"], "prints text"),
                       (["--follow", "--logs=some"], "some")):
        assert why in daemon.ctl("submit", file(SPEC), *words, check=USAGE).stderr


# ---- lines without an end -----------------------------------------------------------------------
def test_stderr_went_on_in_the_line_that_stdout_had_left_open(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        sys.stdout.write("out without an end")
        sys.stdout.flush()
        sys.stderr.write("err without an end")
        """))
    daemon.finish(job)
    daemon.output(job)
    assert daemon.ctl("logs", job, "--rank", 0, check=OK).stdout == "out without an end\nerr without an end\n"
    assert daemon.ctl("logs", job, check=OK).stdout == "[rank 0] out without an end\n[rank 0] err without an end\n"
    assert daemon.ctl("logs", job, "--rank", 0, "--out-only", check=OK).stdout == "out without an end"
    assert daemon.ctl("logs", job, "--rank", 0, "--tail", 1, check=OK).stdout == "out without an end\nerr without an end\n"
