"""Damaged, broken and lost databases: what is readable is used, what is not is said."""
import contextlib
import re
import signal
import socket
import sqlite3
import subprocess

import grpc
import pytest

from support import BIN, LONG, SPEC, until


def refused(daemon):
    done = subprocess.run([BIN / "traind", "--state-dir", daemon.state_dir, *daemon.args], capture_output=True, text=True,
                          timeout=20, env=daemon.env)
    assert done.returncode == 3, done.stderr
    return done.stderr


@contextlib.contextmanager
def supervisor(path):
    """What a unit's daemon reports to systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reader:
        reader.bind(str(path))
        reader.settimeout(20)
        yield lambda: reader.recv(4096).decode()


@pytest.mark.parametrize("name", ["state.db", "metrics.db"])
def test_database_of_a_newer_traind_was_tried_again_for_ever(daemon, tmp_path, name):
    """The unit does not start again after exit code 3 (RestartPreventExitStatus)."""
    daemon.kill(signal.SIGTERM)
    change(daemon.state_dir / name, "INSERT INTO schema VALUES (999, '', '9.9.9+7.gabc')")
    with supervisor(tmp_path / "notify") as report:
        daemon.env["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        said = refused(daemon)
        assert f"{name} was written by traind 9.9.9+7.gabc and has schema version 999" in said
        assert "install that version or a newer one" in said.splitlines()[-1]
        status = report()
        assert status.startswith("STATUS=ended: ") and f"{name} was written by" in status and "\n" not in status


def start_with(daemon, *args):
    daemon.args += list(args)
    daemon.start()
    for a in args:
        daemon.args.remove(a)


def change(path, statement, *values):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        assert db.execute(statement, values).rowcount == 1


def flip(path, old, new):
    """One byte of a value, in the file: SQLite's pages stay sound."""
    empty_log(path)
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def empty_log(path):
    """What the write-ahead log holds goes into the file, which damage then reaches."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def break_page(path, word):
    """Overwrites one of the leaves of the file's tables that hold a word, and returns what was in it. The free room of a
    page may still show rows that have moved to another one."""
    empty_log(path)
    data = bytearray(path.read_bytes())
    leaves = [at for at in range(4096, len(data), 4096) if data[at] == 13 and word in data[at:at + 4096]]
    assert len(leaves) >= 3, leaves
    at = leaves[len(leaves) // 2]
    lost = bytes(data[at:at + 4096])
    data[at:at + 4096] = b"\xa5" * 4096
    path.write_bytes(data)
    return lost


def serving(daemon):
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(daemon.address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    return answer.status == answer.SERVING


def aside(daemon, name):
    return [p for p in daemon.state_dir.glob(f"{name}.damaged-*") if re.fullmatch(r"\d+(-\d+)?", p.name.split("damaged-")[1])]


def break_all_but_the_first(path):
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))


@pytest.mark.parametrize("damage", [lambda p: p.write_bytes(b"no database at all " * 500), break_all_but_the_first],
                         ids=["another file", "broken pages"])
def test_damaged_metrics_database_stops_nothing(daemon, damage):
    ended = daemon.submit()
    daemon.finish(ended)
    job = daemon.submit(LONG, "trainer.max_steps=1500")
    daemon.wait_step(job, 60)
    until("points are committed", lambda: daemon.points(job))
    daemon.kill()
    path = daemon.state_dir / "metrics.db"
    empty_log(path)
    damage(path)
    daemon.start()
    assert len(aside(daemon, "metrics.db")) == 1
    assert "metrics.db is damaged and was moved aside" in daemon.tail(100)
    daemon.finish(job)
    daemon.losses(job, 1500)  # attempts that still ran were read again from their first byte
    assert daemon.state(ended) == "SUCCEEDED"
    daemon.restart()
    assert len(aside(daemon, "metrics.db")) == 1


def test_one_bad_row_is_named_and_salvage_starts_without_it(cluster):
    daemon = cluster.start("--role", "coordinator")
    jobs = [daemon.submit() for _ in range(4)]
    daemon.kill()
    path = daemon.state_dir / "state.db"
    change(path, "UPDATE jobs SET body = '{\"state\":\"NONSENSE\"}', digest = NULL WHERE key = ?", jobs[0])
    change(path, "UPDATE jobs SET body = '{', digest = NULL WHERE key = ?", jobs[1])
    change(path, "UPDATE specs SET body = '{', digest = NULL WHERE key = ?", jobs[2])
    said = refused(daemon)
    assert any(j in said for j in jobs[:2]) and "--salvage" in said, said
    start_with(daemon, "--salvage")
    lines = [l for l in daemon.tail(100).splitlines() if "salvage: left out" in l]
    assert all(any(j in l for l in lines) for j in jobs[:3]) and not any(jobs[3] in l for l in lines), lines
    assert len(aside(daemon, "state.db")) == 1
    assert daemon.state(jobs[3]) == "QUEUED"
    daemon.restart()  # what was left out is gone: no need to salvage again
    assert [j["id"] for j in daemon.ctl_json("list")["jobs"]] == [jobs[3]]


def test_broken_page_of_state_is_salvaged_around(cluster):
    daemon = cluster.start("--role", "coordinator")
    jobs = [daemon.submit() for _ in range(30)]
    daemon.kill()
    page = break_page(daemon.state_dir / "state.db", b'"queue_seq"')
    assert "--salvage" in refused(daemon)
    start_with(daemon, "--salvage")
    left = {j["id"] for j in daemon.ctl_json("list")["jobs"]}
    # A row that was written again has moved if it grew, so each run puts other rows on the page.
    lost = set(jobs) - left
    assert left < set(jobs) and all(j.encode() in page for j in lost), (lost, daemon.tail())
    assert re.search(r"salvage: left out: rows of jobs .*cannot be read", daemon.tail(100))


def page_of(path, query):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchone()[0]


def wreck(path, page, byte=b"\0"):
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096:page * 4096] = byte * 4096
    path.write_bytes(data)


def root(name, byte=b"\0"):
    return lambda path: wreck(path, page_of(path, f"SELECT rootpage FROM sqlite_master WHERE name = '{name}'"), byte)


def write_at(at, data):
    def deed(path):
        with open(path, "r+b") as f:
            f.seek(at)
            f.write(data)
    return deed


def cut(path):
    data = path.read_bytes()
    path.write_bytes(data[:len(data) * 3 // 4])


def garbage_log(path):
    (path.parent / "state.db-wal").write_bytes(b"\xa5" * 50000)


WRECKS = {"header": (write_at(0, b"\xa5" * 100), 30), "schema page": (lambda p: wreck(p, 1), 30), "root of jobs": (root("jobs"), 30),
          "root of specs": (root("specs"), 30), "index of jobs": (root("sqlite_autoindex_jobs_1"), 30), "truncated": (cut, 10),
          "log is garbage": (garbage_log, 30)}


@pytest.mark.parametrize("name", WRECKS)
def test_salvage_saved_no_job_of_a_database_that_was_wrecked(cluster, name):
    deed, at_least = WRECKS[name]
    daemon = cluster.start("--role", "coordinator")
    jobs = [daemon.submit() for _ in range(30)]
    daemon.kill()
    path = daemon.state_dir / "state.db"
    empty_log(path)
    deed(path)
    if name not in ("index of jobs", "log is garbage"):
        assert "--salvage" in refused(daemon)
    start_with(daemon, "--salvage")
    left = [j["id"] for j in daemon.ctl_json("list").get("jobs", [])]
    assert len(left) >= at_least and set(left) <= set(jobs), (len(left), daemon.tail(60))
    if name != "index of jobs":  # whose table is whole
        assert re.search(r"salvage: table jobs: \d+ rows saved[,;]", daemon.tail(200)), daemon.tail(200)
    again = daemon.submit()
    daemon.restart()
    assert daemon.state(again) == "QUEUED"


def test_flipped_bit_in_a_row_is_not_read_as_if_it_were_right(cluster):
    daemon = cluster.start("--role", "coordinator")
    job = daemon.submit(SPEC.replace("name: small", "name: precious-name"))
    daemon.kill()
    flip(daemon.state_dir / "state.db", b'precious-name', b'precious-nbme')
    assert "digest" in refused(daemon)
    start_with(daemon, "--salvage")
    assert job in daemon.tail(100)


def test_lost_state_database_beside_checkpoints_is_said(daemon):
    job = daemon.submit()
    daemon.finish(job)
    daemon.kill()
    saved = daemon.state_dir / "saved"
    saved.mkdir(mode=0o700)
    for p in daemon.state_dir.glob("state.db*"):
        p.rename(saved / p.name)
    daemon.start()
    said = next(line for line in daemon.tail(100).splitlines() if "state.db knows no job" in line)
    assert f"but there are checkpoints and logs of some in {daemon.state_dir}" in said, said
    assert "stop traind and put it back together with its -wal file" in said, said
    assert "without it, ckpt_path of a new job goes on from a checkpoint" in said, said
    daemon.kill()
    for p in daemon.state_dir.glob("state.db*"):
        p.unlink()
    for p in saved.iterdir():
        p.rename(daemon.state_dir / p.name)
    log = len(daemon.log.read_text())
    daemon.start()
    assert daemon.state(job) == "SUCCEEDED" and "knows no job" not in daemon.log.read_text()[log:]


def test_check_in_the_background_finds_a_changed_row(cluster):
    daemon = cluster.make("--role", "coordinator", "--check-after-ms", "1500").start()
    job = daemon.submit()
    assert serving(daemon)
    change(daemon.state_dir / "state.db", "UPDATE jobs SET body = replace(body, 'QUEUED', 'QUEUEE') WHERE key = ?", job)
    until("health says so", lambda: not serving(daemon), 20)
    assert f"a check found damage: state.db: row '{job}' of jobs" in daemon.tail(100)
    assert "--salvage" in daemon.tail(100)
    info = daemon.ctl("cluster", "info", check=0)
    assert f"row '{job}' of jobs" in info.stdout


def test_flipped_bit_in_an_index_was_found_by_nobody(cluster):
    daemon = cluster.start("--role", "coordinator")
    job = daemon.submit()
    daemon.kill()
    path = daemon.state_dir / "state.db"
    empty_log(path)
    data = path.read_bytes()
    at = [m.start() for m in re.finditer(job.encode() + b"(?!{)", data) if data[m.start() // 4096 * 4096] == 10]
    assert at
    path.write_bytes(data[:at[0]] + b"k" + data[at[0] + 1:])
    start_with(daemon, "--check-after-ms", "1")
    until("health says so", lambda: not serving(daemon), 20)
    assert "a check found damage: state.db: " in daemon.tail(100) and "index" in daemon.tail(100)


def test_check_in_the_background_marks_damaged_metrics(cluster):
    daemon = cluster.start("--slots", "2")
    job = daemon.submit(LONG, "trainer.max_steps=400")
    daemon.finish(job)
    until("points are committed", lambda: len(daemon.points(job)) == 400)
    daemon.kill()
    path = daemon.state_dir / "metrics.db"
    empty_log(path)
    root("points", b"\xa5")(path)  # the start reads the other tables, not this one
    start_with(daemon, "--check-after-ms", "1")
    until("health says so", lambda: not serving(daemon), 20)
    assert "metrics.db" in daemon.tail(100) and not aside(daemon, "metrics.db")
    daemon.restart()
    assert serving(daemon) and len(aside(daemon, "metrics.db")) == 1
