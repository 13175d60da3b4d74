"""Lists whose rows are long: an answer ends where it is full, and the clients go on with its token. The rows are written
into state.db of a coordinator that is down, as thousands of failures would have written them."""
import json
import signal
import sqlite3

from support import until

OK, USAGE = 0, 2
NOTES = ["x" * 1000 + str(i) for i in range(32)]


def with_rows(daemon, write):
    """write(db, job) while the coordinator is down; the id of a job that has ended."""
    job = daemon.submit()
    daemon.steer("Cancel", job)
    daemon.kill(signal.SIGTERM)
    with sqlite3.connect(daemon.state_dir / "state.db") as db:
        write(db, job)
    db.close()
    daemon.start()
    return job


def body_of(db, table, key):
    return db.execute(f"select body from {table} where key=?", (key,)).fetchone()[0]


def put(db, table, key, body):
    db.execute(f"insert or replace into {table} (key, body) values (?, ?)", (key, body))


def noted_jobs(db, job):
    """330 jobs of one name with all the notes that a job may have: 10 MB."""
    spec, row = body_of(db, "specs", job), json.loads(body_of(db, "jobs", job))
    for i in range(330):
        key = f"j-{i:012x}"
        put(db, "specs", key, spec)
        put(db, "jobs", key, json.dumps({**row, "seq": i + 2, "queue_seq": i + 2, "name": "noted", "notes": NOTES}))


def test_jobs_with_many_notes_are_listed_and_found_by_name(coordinator):
    job = with_rows(coordinator, noted_jobs)
    m, stub = coordinator.cluster.stubs.job, coordinator.stub("Job")
    first = stub.ListJobs(m.ListJobsRequest(page_size=1000), timeout=20)
    assert 50 < len(first.jobs) < 330 and first.next_page_token and first.ByteSize() < 4 << 20
    newest = f"j-{329:012x}"
    assert coordinator.ctl("list", "-o", "name", check=OK).stdout.split() == [f"j-{i:012x}" for i in range(329, -1, -1)] + [job]
    shown = coordinator.ctl("describe", "noted", "-o", "json", check=OK)
    assert json.loads(shown.stdout)["id"] == newest and "more than 11 jobs are called 'noted'" in shown.stderr
    assert coordinator.ctl("describe", "small", "-o", "json", check=OK).stdout  # older than all of them
    refused = coordinator.ctl("delete", "noted", check=USAGE).stderr
    assert "330 jobs have the name" in refused
    offered = coordinator.ctl("completion", "words", "describe", "sm").stdout
    assert "small" in offered, offered
    page = coordinator.ctl_json("top", "--once")
    assert page["jobs"]["jobs"] == [] and page["nodes"]["nodes"] == []


def test_plugins_come_page_by_page(daemon):
    m, stub = daemon.cluster.stubs.admin, daemon.stub("NodeAdmin")
    whole = until("the node has said what it has", lambda: stub.ListPlugins(m.ListPluginsRequest(), timeout=20).plugins)
    names, token = [], ""
    while True:
        page = stub.ListPlugins(m.ListPluginsRequest(page_size=2, page_token=token), timeout=20)
        assert page.nodes == 1 and 0 < len(page.plugins) <= 2
        names += [(p.plugin.kind, p.plugin.name) for p in page.plugins]
        token = page.next_page_token
        if not token:
            break
    assert names == [(p.plugin.kind, p.plugin.name) for p in whole] and len(set(names)) == len(names) > 2


def long_names(db, job):
    """500 checkpoints of 250 metrics with long names: 4.5 MB."""
    metrics = {f"{i:03}".ljust(23, "m"): 0.5 for i in range(250)}
    for step in range(1, 501):
        put(db, "checkpoints", f"{job}/a1/step-{step}", json.dumps(
            {"step": step, "epoch": 0, "attempt": 1, "committed": 1, "streamed": 1, "boundary": 0, "time_ns": 0,
             "files": [{"name": "model.safetensors", "bytes": 8, "digest": "0" * 32}], "metrics": metrics}))


def test_checkpoints_with_many_long_names_are_listed(coordinator):
    job = with_rows(coordinator, long_names)
    m, stub = coordinator.cluster.stubs.checkpoint, coordinator.stub("Checkpoint")
    first = stub.ListCheckpoints(m.ListCheckpointsRequest(job=job, page_size=1000), timeout=20)
    assert 100 < len(first.checkpoints) < 500 and first.next_page_token == first.checkpoints[-1].path
    listed = coordinator.ctl("checkpoint", "list", job, "-o", "name", check=OK).stdout.split()
    assert listed == [f"a1/step-{step}" for step in range(500, 0, -1)]
