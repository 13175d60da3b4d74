"""Checkpoints that a node streams to the coordinator: when one exists, what is damaged, what an upload that is broken
off leaves, what retention and the next start remove. The node is a few lines of Python."""
import os
import queue

import grpc
import pytest

from fake_node import FakeNode, digest, refused, run_one
from support import below, until


def test_streamed_checkpoint_exists_when_all_its_files_are_here(coordinator):
    node, job, attempt = run_one(coordinator)
    assert attempt.assign.stream_store
    m, stub = coordinator.cluster.stubs.checkpoint, coordinator.stub("Checkpoint")
    data, manifest = os.urandom(700000), b'{"format":1}'
    assert attempt.put(10, "model.safetensors", data, chunks=2) == 524288   # broken off
    assert attempt.put(10, "model.safetensors", data, first=len(data)) == 524288   # an empty chunk asks
    attempt.checkpoint(10, {"model.safetensors": data})
    until("it is pending", lambda: coordinator.checkpoints(job))
    assert not coordinator.job(job).checkpoint
    refused("FAILED_PRECONDITION", lambda: coordinator.weights(job, "a1/step-10"), "CHECKPOINT_PENDING")
    refused("DATA_LOSS", lambda: attempt.put(10, "manifest.json", manifest, claim="0" * 32), "HASH_MISMATCH")
    refused("OUT_OF_RANGE", lambda: attempt.put(10, "model.safetensors", data, first=600000), "OFFSET_GAP")
    assert attempt.put(10, "model.safetensors", data, first=524288) == len(data)
    assert attempt.put(10, "model.safetensors", data) == len(data)          # again: it is here
    assert attempt.put(10, "manifest.json", manifest) == len(manifest)
    until("it is committed", lambda: coordinator.job(job).checkpoint == "a1/step-10")
    assert coordinator.weights(job) == {"model.safetensors": data}
    found = stub.GetCheckpoint(m.GetCheckpointRequest(job=job))
    assert found.bytes == len(data) + len(manifest) and found.metrics["val_loss"] == 0.5 and not found.node
    for file in ("../state.db", "/etc/passwd", "model.safetensors/../x", "", ".hidden"):
        refused("INVALID_ARGUMENT", lambda: stub.ReadShard(m.ReadShardRequest(job=job, path="a1/step-10", file=file)), "file")
    refused("INVALID_ARGUMENT", lambda: stub.GetCheckpoint(m.GetCheckpointRequest(job=job, path="../../x")), "path")
    refused("NOT_FOUND", lambda: stub.GetCheckpoint(m.GetCheckpointRequest(job=job, path="a1/step-11")), "CHECKPOINT_NOT_FOUND")
    refused("INVALID_ARGUMENT", lambda: attempt.put(10, "../../x", b"x"), "file")
    refused("ABORTED", lambda: attempt.put(20, "m", b"x", epoch=99), "FENCED")
    coordinator.restart()
    assert coordinator.weights(job) == {"model.safetensors": data}
    node = FakeNode(coordinator, held=[node.m.AttemptHeld(id=attempt.id, alive=True, launcher_major=1)])
    attempt.node = node
    attempt.line("removed", step=10, path="a1/step-10")
    until("it is gone", lambda: not coordinator.checkpoints(job))
    until("its files, too", lambda: not below(coordinator.state_dir / "checkpoints", "*.safetensors"))
    attempt.end()
    coordinator.finish(job)
    node.close()


def test_download_ends_whole_when_its_file_is_deleted_meanwhile(coordinator):
    node, job, attempt = run_one(coordinator)
    m, data = coordinator.cluster.stubs.checkpoint, os.urandom(24 << 20)
    attempt.put(10, "model.safetensors", data)
    attempt.checkpoint(10, {"model.safetensors": data}, b"{}")
    attempt.put(10, "manifest.json", b"{}")
    until("it is committed", lambda: coordinator.job(job).checkpoint == "a1/step-10")
    chunks = coordinator.stub("Checkpoint").ReadShard(
        m.ReadShardRequest(job=job, path="a1/step-10", file="model.safetensors"), timeout=20)
    got = next(chunks).data
    for file in below(coordinator.state_dir / "checkpoints", "*.safetensors"):
        os.unlink(file)
    assert got + b"".join(x.data for x in chunks) == data
    node.close()


def test_streamed_checkpoint_is_damaged_when_its_own_files_are(coordinator):
    node, job, attempt = run_one(coordinator, "restart.backoff=[0]")
    data = os.urandom(5000)
    for step in (10, 20):
        attempt.checkpoint(step, {"model.safetensors": data}, b"{}")
        attempt.put(step, "model.safetensors", data)
        attempt.put(step, "manifest.json", b"{}")
    until("both are committed", lambda: coordinator.job(job).checkpoint == "a1/step-20")
    states = lambda: {c.step: c.State.Name(c.state) for c in coordinator.checkpoints(job)}
    skip = lambda: attempt.line("skipped_checkpoint", rank=0, path=f"/elsewhere/{job}/a1/step-20", reason="its copy is bad")
    skip()  # a node's copy: what is here is whole
    until("the job says so", lambda: any("a1/step-20 was skipped: its copy is bad" in n for n in coordinator.job(job).notes))
    assert states() == {10: "COMMITTED", 20: "COMMITTED"}
    path = coordinator.state_dir / "checkpoints" / job / "a1/step-20/model.safetensors"
    other = path.with_name("other")  # put there whole: the first look may still be at the file
    other.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    other.replace(path)
    skip()
    until("it is known", lambda: states() == {10: "COMMITTED", 20: "DAMAGED"})
    assert coordinator.job(job).checkpoint == "a1/step-10"
    note = coordinator.checkpoints(job)[0].note
    assert "model.safetensors" in note and digest(data) in note
    attempt.end("failed", **{"class": "internal"})
    second = node.attempt()
    assert [r.path for r in second.assign.resume] == ["a1/step-10"]
    node.close()
    coordinator.restart()
    assert states() == {10: "COMMITTED", 20: "DAMAGED"}


def test_file_of_the_same_size_is_not_taken_for_the_one_that_was_promised(coordinator):
    """One that was there already counted as any file of its length."""
    node, job, attempt = run_one(coordinator)
    other, data, manifest = os.urandom(5000), os.urandom(5000), b'{"format":1}'
    assert attempt.put(10, "model.safetensors", other) == len(other)  # before its line
    refused("UNAVAILABLE", lambda: attempt.put(10, "model.safetensors", data))
    assert attempt.put(10, "model.safetensors", data, first=len(data)) == 0  # all of it is wanted
    assert attempt.put(10, "model.safetensors", data) == len(data)
    assert attempt.put(10, "model.safetensors", data) == len(data)  # again: it is here
    attempt.checkpoint(10, {"model.safetensors": data}, manifest)
    attempt.put(10, "manifest.json", manifest)
    until("it is committed", lambda: coordinator.job(job).checkpoint == "a1/step-10")
    refused("DATA_LOSS", lambda: attempt.put(10, "model.safetensors", other), "HASH_MISMATCH")
    refused("DATA_LOSS", lambda: attempt.put(10, "model.safetensors", b"short"), "HASH_MISMATCH")
    assert coordinator.weights(job) == {"model.safetensors": data}
    attempt.end()
    coordinator.finish(job)
    node.close()


def test_checkpoint_of_as_many_files_as_one_may_have_is_read_back(coordinator):
    node, job, attempt = run_one(coordinator)
    for step, n_files in ((20, 65), (10, 64)):  # one more is refused
        attempt.checkpoint(step, {f"shard-{i}": bytes([i]) for i in range(n_files)})
    until("it is pending", lambda: coordinator.checkpoints(job))
    node.close()
    coordinator.restart()
    assert [(c.step, len(c.files)) for c in coordinator.checkpoints(job)] == [(10, 65)]


def files_of(coordinator, job):
    home = str(coordinator.state_dir / "checkpoints" / job)  # os.walk does not mind what goes meanwhile
    return sorted(os.path.relpath(os.path.join(at, n), home) for at, dirs, files in os.walk(home) for n in dirs + files)


def begin_upload(attempt, step, data, file="model.safetensors"):
    """Sends the first half and keeps the call open: (the call, a function that sends what it is given)."""
    chunks = queue.Queue()
    call = attempt.node.stub.PutShard.future(iter(chunks.get, None), timeout=60)
    chunk = lambda at, part: attempt.node.m.ShardChunk(
        id=attempt.id, checkpoint=f"a{attempt.id.attempt}/step-{step}", file=file, file_bytes=len(data),
        digest=digest(data), offset=at, data=part)
    chunks.put(chunk(0, data[:len(data) // 2]))
    path = attempt.node.daemon.state_dir / f"checkpoints/{attempt.id.job}/a{attempt.id.attempt}/step-{step}/{file}.part"
    until("half of it is here", lambda: path.exists() and path.stat().st_size == len(data) // 2)
    return call, lambda at: chunks.put(chunk(at, data[at:]))


@pytest.mark.parametrize("end", ["lost", "failed", "cancelled"])
def test_upload_that_is_broken_off_leaves_nothing_when_its_attempt_is_over(coordinator, end):
    node, job, attempt = run_one(coordinator, "restart.backoff=[60]")
    data, manifest = os.urandom(200000), b'{"format":1}'
    attempt.checkpoint(10, {"model.safetensors": data}, manifest)
    attempt.put(10, "model.safetensors", data)
    attempt.put(10, "manifest.json", manifest)
    until("it is committed", lambda: coordinator.job(job).checkpoint == "a1/step-10")
    attempt.put(20, "optimizer.safetensors", data)  # no event of it will come
    call, send = begin_upload(attempt, 30, data)
    if end == "lost":
        node.close()
        node = FakeNode(coordinator)
    else:
        if end == "cancelled":
            coordinator.steer("Cancel", job)
            node.get("stop")
        attempt.end("stopped" if end == "cancelled" else "failed", **{"class": "data"})
        node.get("forget")
    kept = ["a1", "a1/step-10", "a1/step-10/manifest.json", "a1/step-10/model.safetensors"]
    until("only what the catalog names is left", lambda: files_of(coordinator, job) == kept)
    with pytest.raises(grpc.RpcError) as error:
        send(len(data) // 2)
        call.result()
    assert error.value.code() == grpc.StatusCode.ABORTED, error.value
    assert files_of(coordinator, job) == kept
    assert coordinator.weights(job) == {"model.safetensors": data}
    node.close()


def test_upload_of_a_checkpoint_that_retention_removed_is_ended(coordinator):
    node, job, attempt = run_one(coordinator)
    data = os.urandom(200000)
    attempt.checkpoint(10, {"model.safetensors": data})
    call, send = begin_upload(attempt, 10, data)
    attempt.line("removed", step=10, path="a1/step-10")
    with pytest.raises(grpc.RpcError) as error:
        call.result()
    assert error.value.code() == grpc.StatusCode.ABORTED and "not wanted" in error.value.details()
    until("nothing is left", lambda: not files_of(coordinator, job))
    attempt.end()
    coordinator.finish(job)
    node.close()


@pytest.mark.parametrize("end", ["newer one comes", "node is lost", "newer one is removed, too"])
@pytest.mark.parametrize("killed", [False, True], ids=["", "coordinator killed"])
def test_last_checkpoint_stays_until_a_newer_one_is_committed(coordinator, end, killed):
    node, job, attempt = run_one(coordinator, "restart.backoff=[0]")
    data = os.urandom(1000)

    def upload(step):
        attempt.put(step, "model.safetensors", data)
        attempt.put(step, "manifest.json", b"{}")

    states = lambda: {c.step: c.State.Name(c.state) for c in coordinator.checkpoints(job)}
    attempt.checkpoint(10, {"model.safetensors": data}, b"{}")
    upload(10)
    until("the first is committed", lambda: coordinator.job(job).checkpoint == "a1/step-10")
    attempt.checkpoint(20, {"model.safetensors": data}, b"{}")  # save_top_k 1: the rank has it, and no other
    attempt.line("removed", step=10, path="a1/step-10")
    attempt.acked(1, 0, len(attempt.events))
    if killed:
        coordinator.restart()
        node = attempt.node = FakeNode(coordinator, held=[node.m.AttemptHeld(id=attempt.id, alive=True, launcher_major=1)])
    assert states() == {10: "COMMITTED", 20: "PENDING"} and coordinator.job(job).checkpoint == "a1/step-10"
    assert coordinator.weights(job) == {"model.safetensors": data}
    if end == "node is lost":
        node.close()
        again = FakeNode(coordinator).attempt()
        assert [(r.path, r.fetch) for r in again.assign.resume] == [("a1/step-10", True)]
        assert states() == {10: "COMMITTED"}
        again.node.close()
        return
    last = 20
    if end == "newer one is removed, too":
        last = 30
        attempt.checkpoint(30, {"model.safetensors": data}, b"{}")
        attempt.line("removed", step=20, path="a1/step-20")
        attempt.acked(1, 0, len(attempt.events))
        assert states() == {10: "COMMITTED", 30: "PENDING"}
    upload(last)
    until("it gives way", lambda: states() == {last: "COMMITTED"})
    kept = ["a1", f"a1/step-{last}", f"a1/step-{last}/manifest.json", f"a1/step-{last}/model.safetensors"]
    until("its files, too", lambda: files_of(coordinator, job) == kept)
    attempt.end()
    coordinator.finish(job)
    node.close()


def test_leftovers_of_attempts_that_are_over_go_at_the_next_start(coordinator):
    node, job, attempt = run_one(coordinator)
    data = os.urandom(1000)
    attempt.checkpoint(10, {"model.safetensors": data}, b"{}")
    attempt.put(10, "model.safetensors", data)
    attempt.put(10, "manifest.json", b"{}")
    attempt.end()
    coordinator.finish(job)
    node.get("forget")
    node.close()
    coordinator.kill()  # as if it had been killed between a commit and the removal that follows it
    home = coordinator.state_dir / "checkpoints"
    kept = files_of(coordinator, job)
    (home / job / "a1/step-10/optimizer.safetensors.part").write_bytes(b"half")
    (home / job / "a1/step-20").mkdir()
    (home / job / "a1/step-20/model.safetensors").write_bytes(b"orphan")
    (home / "j-0123456789ab/a1/step-1").mkdir(parents=True)  # of no job that is known: not ours to judge
    coordinator.start()
    until("they are gone", lambda: files_of(coordinator, job) == kept)
    assert coordinator.weights(job) == {"model.safetensors": data}
    assert (home / "j-0123456789ab/a1/step-1").exists()
