"""What is kept of a job's checkpoints and what goes, on every disk: retention over attempts, files and rows that
have lost each other, jobs that are deleted."""
import json
import shutil
import signal

import grpc
import pytest

from support import LONG, SPEC, below, until

KEEPS_ONE = ("checkpoint.save_top_k=1", "trainer.max_steps=100000")


def steps_on_disk(daemon, job):
    """Directories of checkpoints of a job below a daemon's state directory: "a1/step-50"."""
    home = daemon.state_dir / "checkpoints" / job
    return sorted(f"{p.parent.name}/{p.name}" for p in below(home, "step-*") if p.is_dir())


def rows(daemon, job):
    return sorted(c.path for c in daemon.checkpoints(job))


def settles(daemons, job, want=None):
    """Catalog and every disk come to hold these checkpoints: a number of them, a list, or (None) whatever there is."""
    def same():
        held = [rows(daemons[0], job), *(steps_on_disk(d, job) for d in daemons)]
        size = want if isinstance(want, int) else len(want) if want else len(held[0])
        return all(h == held[0] and len(h) == size for h in held) and held[0]

    try:
        found = until("rows and files are the same", same, 30)
    except AssertionError:
        raise AssertionError([rows(daemons[0], job), *(steps_on_disk(d, job) for d in daemons)]) from None
    assert not isinstance(want, list) or found == want
    return found


def forgotten(node, job):
    """All that the node had to report of the job is committed."""
    until("its attempts are forgotten", lambda: not (node.state_dir / "attempts" / job).exists())


def paused_again_and_again(daemon, job, times, before_resume=lambda: None):
    at = 0
    for _ in range(times):
        at = daemon.wait_step(job, at + 5).global_step
        daemon.steer("Pause", job)
        at = daemon.wait_state(job, "PAUSED").global_step
        before_resume()
        daemon.steer("Resume", job)
    daemon.wait_step(job, at + 5)
    daemon.steer("Pause", job)
    return daemon.wait_state(job, "PAUSED")


@pytest.fixture
def two(cluster):
    coordinator = cluster.start("--role", "coordinator", "--heartbeat-ms", "200", "--lease-ms", "1000", name="c")
    node = cluster.node(coordinator, 2, name="n")
    until("the node is ready", lambda: coordinator.nodes("READY"))
    return coordinator, node


# ---- retention over attempts ---------------------------------------------------------------------
def test_pauses_leave_one_checkpoint_where_save_top_k_is_one(daemon):
    job = daemon.submit(LONG, *KEEPS_ONE)
    last = paused_again_and_again(daemon, job, 3)
    assert last.attempt == 4
    settles([daemon], job, [last.checkpoint])
    assert "save_top_k is 1" in daemon.tail(200)


def test_pauses_leave_one_streamed_checkpoint_at_the_coordinator_and_on_the_node(two):
    coordinator, node = two
    job = coordinator.submit(LONG, *KEEPS_ONE, "checkpoint.store=stream")
    paused_again_and_again(coordinator, job, 2)
    [path] = settles([coordinator, node], job, 1)
    assert path.startswith("a3/")


def test_kills_between_pauses_leave_one_checkpoint(daemon):
    job = daemon.submit(LONG, *KEEPS_ONE)
    paused_again_and_again(daemon, job, 3, before_resume=daemon.restart)
    daemon.restart()
    settles([daemon], job, 1)


def test_node_that_was_away_removes_what_left_the_catalog_meanwhile(two):
    coordinator, node = two
    job = coordinator.submit(LONG, *KEEPS_ONE, "checkpoint.store=fs")
    paused_again_and_again(coordinator, job, 1)
    [path] = until("one row", lambda: len(rows(coordinator, job)) == 1 and rows(coordinator, job))
    until("one directory", lambda: steps_on_disk(node, job) == [path])
    node.kill()
    orphan = node.state_dir / "checkpoints" / job / "a1" / "step-3"
    shutil.copytree(node.state_dir / "checkpoints" / job / path, orphan)
    node.start()
    until("the orphan goes", lambda: steps_on_disk(node, job) == [path])
    assert rows(coordinator, job) == [path]


def test_checkpoint_that_a_waiting_job_names_stays_until_it_has_ended(daemon):
    job = daemon.submit(LONG, *KEEPS_ONE)
    daemon.wait_step(job, 5)
    daemon.steer("Pause", job)
    first = daemon.wait_state(job, "PAUSED").checkpoint
    named = daemon.state_dir / "checkpoints" / job / first
    user = daemon.submit(LONG, *KEEPS_ONE, f"ckpt_path={named}", "name=user")
    daemon.wait_step(user, 5)
    daemon.steer("Resume", job)
    last = paused_again_and_again(daemon, job, 1).checkpoint
    settles([daemon], job, sorted([first, last]))
    with pytest.raises(grpc.RpcError) as refused:
        delete(daemon, job)
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION and user in refused.value.details()
    daemon.steer("Cancel", user)
    daemon.wait_state(user, "CANCELLED")
    settles([daemon], job, [last])


def test_job_begins_from_what_is_newest_when_it_starts_not_when_it_was_submitted(daemon):
    slowly = ("checkpoint.every_n_train_steps=5", "data.knobs.pause_us=200000")  # the first is there for a second
    first = daemon.submit(LONG, *KEEPS_ONE, "trainer.devices=2", *slowly)
    early = until("a checkpoint", lambda: rows(daemon, first))
    newer = daemon.submit(LONG, "name=long", "trainer.devices=2")             # and has none
    user = daemon.submit(LONG, "name=user", "ckpt_path=long/last")
    picky = daemon.submit(LONG, "name=picky", f"ckpt_path=long/{early[0]}")   # that one alone
    assert json.loads(daemon.job(user).spec_json)["ckpt_path"] == f"{first}/last"
    until("it is rotated", lambda: early[0] not in rows(daemon, first))
    lost = daemon.wait_state(picky, "FAILED")
    assert any(f"checkpoint {early[0]} of job {first}" in n and "was removed" in n for n in lost.notes)
    daemon.steer("Pause", first)
    last = daemon.wait_state(first, "PAUSED").checkpoint
    daemon.steer("Cancel", newer)
    begun = daemon.wait_step(user, int(last.rpartition("-")[2]) + 1)
    assert f"ckpt_path is checkpoint {first}/{last} (long)" in begun.notes
    daemon.steer("Cancel", user), daemon.steer("Cancel", first)


# ---- rows and files that have lost each other ----------------------------------------------------
def test_files_without_a_row_go_at_the_start_and_others_files_stay(daemon):
    job = daemon.submit(SPEC)
    daemon.finish(job)
    kept = settles([daemon], job)
    forgotten(daemon, job)
    home = daemon.state_dir / "checkpoints" / job
    daemon.kill(signal.SIGTERM)
    shutil.copytree(home / kept[0], home / "a1" / "step-7")       # whole, but nobody committed it
    (home / "a1" / "step-8.tmp").mkdir()                          # half-written
    (home / "a1" / "step-8.tmp" / "model.safetensors").write_bytes(b"x")
    shutil.copytree(home / kept[0], home / "a1" / "step-9")
    (home / "a1" / "step-9" / "notes.txt").write_text("mine")
    (home / "a9").mkdir()                                         # of no attempt of the job
    (home / "a9" / "step-1").mkdir()
    elsewhere = daemon.state_dir.parent / "elsewhere"
    shutil.copytree(home / kept[0], elsewhere)
    (home / "a1" / "step-10").symlink_to(elsewhere)
    other = daemon.state_dir / "checkpoints" / "j-000000000000" / "a1" / "step-1"
    other.mkdir(parents=True)                                     # of a job that is not known
    daemon.start()
    until("orphans go", lambda: not (home / "a1" / "step-7").exists() and not (home / "a1" / "step-8.tmp").exists())
    until("its files go", lambda: [p.name for p in (home / "a1" / "step-9").iterdir()] == ["notes.txt"])
    assert (home / "a9" / "step-1").is_dir() and other.is_dir()
    assert (elsewhere / "model.safetensors").exists() and (home / "a1" / "step-10").is_symlink()
    assert rows(daemon, job) == kept and all((home / k / "manifest.json").exists() for k in kept)
    assert "checkpoint removed dir=" in daemon.tail(200) and "holds files that are not of a checkpoint" in daemon.tail(200)
    (home / "a1" / "step-10").unlink()


def test_half_removed_checkpoint_leaves_the_catalog_once_a_newer_one_is_there(daemon):
    job = daemon.submit(LONG, *KEEPS_ONE)
    daemon.wait_step(job, 5)
    daemon.steer("Pause", job)
    path = daemon.wait_state(job, "PAUSED").checkpoint
    forgotten(daemon, job)
    daemon.kill()
    (daemon.state_dir / "checkpoints" / job / path / "optimizer.safetensors").unlink()
    daemon.start()
    until("it is damaged", lambda: states(daemon, job) == {path: "DAMAGED"})  # and the newest, so it stays
    daemon.steer("Resume", job)
    last = paused_again_and_again(daemon, job, 1)
    settles([daemon], job, [last.checkpoint])
    assert not (daemon.state_dir / "checkpoints" / job / path).exists()


def states(daemon, job):
    return {c.path: c.State.Name(c.state) for c in daemon.checkpoints(job)}


def missing_and_back(coordinator, holder, job):
    kept = rows(coordinator, job)
    place = holder.state_dir / "checkpoints" / job / kept[-1]
    away = holder.state_dir.parent / "away"
    holder.kill(signal.SIGTERM)
    place.rename(away)
    holder.start()
    until("it is damaged", lambda: states(coordinator, job)[kept[-1]] == "DAMAGED", 30)
    assert sorted(states(coordinator, job).values()) == ["COMMITTED"] * (len(kept) - 1) + ["DAMAGED"]
    assert any(kept[-1] in n and "is gone" in n for n in coordinator.job(job).notes)
    assert "checkpoint is missing" in coordinator.tail(200)
    holder.kill(signal.SIGTERM)
    away.rename(place)
    holder.start()
    until("it is whole", lambda: states(coordinator, job)[kept[-1]] == "COMMITTED", 30)


def streamed(coordinator, node):
    """A job whose checkpoints are at both; the coordinator keeps its address when it is started again."""
    coordinator.listened = coordinator.address
    job = coordinator.submit(SPEC, "checkpoint.store=stream")
    coordinator.finish(job)
    settles([coordinator, node], job)
    return job


def test_row_without_files_is_damaged_until_they_are_back(daemon):
    job = daemon.submit(SPEC)
    daemon.finish(job)
    settles([daemon], job)
    forgotten(daemon, job)
    missing_and_back(daemon, daemon, job)


def test_streamed_row_without_files_is_damaged_until_they_are_back(two):
    coordinator, node = two
    job = streamed(coordinator, node)
    missing_and_back(coordinator, coordinator, job)


# ---- delete --------------------------------------------------------------------------------------
def delete(daemon, job, keep=False):
    request = daemon.cluster.stubs.job.DeleteJobRequest(id=job, keep_checkpoints=keep)
    return daemon.stub("Job").DeleteJob(request, timeout=20)


def gone(daemon, job):
    with pytest.raises(grpc.RpcError) as error:
        daemon.job(job)
    return error.value.code() == grpc.StatusCode.NOT_FOUND


def named_after(daemon, job):
    """Everything below the state directory with the job's id in its path, but the daemon's log."""
    return [p for p in below(daemon.state_dir) if job in str(p)]


def test_delete_leaves_nothing_of_a_job(daemon):
    job = daemon.submit(SPEC, request_id="once")
    other = daemon.submit(SPEC, "name=other")
    daemon.finish(job), daemon.finish(other)
    assert named_after(daemon, job)
    assert daemon.ctl("delete", job).stdout == f"{job} deleted\n"
    assert gone(daemon, job)
    until("no file is left", lambda: not named_after(daemon, job))
    until("its points are gone, too", lambda: raises_not_found(lambda: delete(daemon, job)))
    again = daemon.ctl("delete", job, check=3)
    assert job in again.stderr
    assert daemon.checkpoints(other) and named_after(daemon, other)
    daemon.restart()
    assert gone(daemon, job) and not named_after(daemon, job)
    daemon.losses(other, daemon.job(other).global_step)


def test_delete_of_a_running_job_is_refused_and_of_a_waiting_one_ends_its_watchers(daemon):
    job = daemon.submit(LONG, *KEEPS_ONE)
    daemon.wait_step(job, 5)
    with pytest.raises(grpc.RpcError) as refused:
        delete(daemon, job)
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION and "cancel it" in refused.value.details()
    daemon.steer("Pause", job)
    daemon.wait_state(job, "PAUSED")
    request = daemon.cluster.stubs.job.WatchJobRequest(id=job)
    watch = daemon.stub("Job").WatchJob(request, timeout=30)
    first = next(watch).job
    delete(daemon, job)
    seen = [first, *(r.job for r in watch)]
    assert seen[-1].State.Name(seen[-1].state) == "CANCELLED"
    until("no file is left", lambda: not named_after(daemon, job))


def test_deleted_jobs_files_on_a_node_that_is_away_go_when_it_returns(two):
    coordinator, node = two
    job = streamed(coordinator, node)
    node.kill()
    until("the node is away", lambda: not coordinator.nodes("READY"), 60)
    answer = delete(coordinator, job)
    assert answer.id == job and len(answer.nodes_waiting) == 1
    assert gone(coordinator, job)
    until("the coordinator's files go", lambda: not named_after(coordinator, job))
    assert delete(coordinator, job) == answer, "it is not gone everywhere: the same answer"
    coordinator.restart()
    assert delete(coordinator, job) == answer and steps_on_disk(node, job)
    node.start()
    until("the node's files go", lambda: not named_after(node, job), 60)
    until("nothing waits", lambda: raises_not_found(lambda: delete(coordinator, job)))


def raises_not_found(call):
    try:
        call()
    except grpc.RpcError as e:
        return e.code() == grpc.StatusCode.NOT_FOUND
    return False


def test_delete_touches_only_files_of_checkpoints_and_keeps_them_when_asked(daemon, tmp_path):
    shared = tmp_path / "shared"
    make = lambda name: daemon.submit(SPEC, f"checkpoint.dir={shared}", f"name={name}")
    jobs = [make("goes"), make("stays")]
    for job in jobs:
        daemon.finish(job)
    (shared / "readme").write_text("mine")
    (shared / jobs[0] / "a1" / "notes").write_text("mine")
    (shared / jobs[0] / "a1" / "sample.txt").write_text("what a rank leaves beside its checkpoints")
    whole = sorted(str(p.relative_to(shared)) for p in below(shared / jobs[1]))
    delete(daemon, jobs[0])
    assert daemon.ctl("delete", "--keep-checkpoints", jobs[1], "-o", "name").stdout == f"{jobs[1]}\n"
    until("files go", lambda: sorted(p.name for p in below(shared / jobs[0])) == ["a1", "notes"])
    until("logs go", lambda: not any(named_after(daemon, job) for job in jobs))
    assert sorted(str(p.relative_to(shared)) for p in below(shared / jobs[1])) == whole
    assert (shared / "readme").exists() and gone(daemon, jobs[1])


def test_kill_in_the_middle_of_deletes_loses_nothing_of_them(daemon):
    jobs = [daemon.submit(SPEC, f"name=n{i}", "trainer.max_steps=20") for i in range(4)]
    for job in jobs:
        daemon.finish(job)
    for job in jobs:
        delete(daemon, job)
    daemon.restart()
    assert all(gone(daemon, job) for job in jobs)
    until("no file is left", lambda: not any(named_after(daemon, job) for job in jobs))
    until("no point is left", lambda: all(raises_not_found(lambda: delete(daemon, job)) for job in jobs))
    series = daemon.state_dir / "metrics.db"
    daemon.kill(signal.SIGTERM)
    import sqlite3
    with sqlite3.connect(series) as db:
        assert db.execute("SELECT count(*) FROM series").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM cursors").fetchone() == (0,)
    with sqlite3.connect(daemon.state_dir / "state.db") as db:
        for table in ("jobs", "specs", "attempts", "checkpoints", "removals"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    daemon.start()
