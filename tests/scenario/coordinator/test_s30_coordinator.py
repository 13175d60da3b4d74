"""The coordinator alone, with a node that is a few lines of Python: every service, exactly-once ingestion, adoption and
fencing, tokens of watches, idempotent creation, what is refused and with which reason."""
import contextlib
import json
import re
import signal
import sqlite3
import subprocess

import grpc
import pytest

from fake_node import SLOTS, FakeNode, digest, record, refused, run_one
from support import BIN, SPEC, Token, until


def test_job_is_created_once_per_request_id(coordinator):
    first = coordinator.submit(SPEC, request_id="one")
    assert coordinator.submit(SPEC, request_id="one") == first
    refused("INVALID_ARGUMENT", lambda: coordinator.submit(SPEC, "name=other", request_id="one"), "REQUEST_ID_REUSED")
    assert coordinator.submit(SPEC, request_id="two") != first
    coordinator.restart()
    assert coordinator.submit(SPEC, request_id="one") == first
    now = coordinator.job(first)
    assert (now.State.Name(now.state), now.reason.code, now.reason.queue_position) == ("QUEUED", "NO_NODES", 1)
    refused("INVALID_ARGUMENT", lambda: coordinator.submit(SPEC, request_id="x" * 65), "request_id")
    refused("NOT_FOUND", lambda: coordinator.job("j-000000000000"), "JOB_NOT_FOUND")
    refused("FAILED_PRECONDITION", lambda: coordinator.job("small"), "NAME_AMBIGUOUS")
    refused("RESOURCE_EXHAUSTED", lambda: coordinator.submit(SPEC + "#" * (1 << 20)))


def test_verbs_are_refused_with_the_state_in_the_reason(coordinator):
    job = coordinator.submit()
    refused("FAILED_PRECONDITION", lambda: coordinator.steer("Resume", job), "STATE_QUEUED_RESUME")
    coordinator.steer("Pause", job)
    assert coordinator.state(job) == "PAUSED"
    coordinator.steer("Pause", job)
    coordinator.steer("Resume", job)
    assert coordinator.state(job) == "QUEUED"
    coordinator.steer("Cancel", job)
    coordinator.steer("Cancel", job)
    assert coordinator.state(job) == "CANCELLED"
    refused("FAILED_PRECONDITION", lambda: coordinator.steer("Pause", job), "STATE_CANCELLED_PAUSE")


def test_reason_of_a_cancellation_is_the_jobs_from_then_on(coordinator):
    m = coordinator.cluster.stubs.job
    cancel = lambda job, why: coordinator.stub("Job").CancelJob(m.CancelJobRequest(id=job, reason=why), timeout=20)
    node, job, attempt = run_one(coordinator)
    assert cancel(job, "the budget is spent").reason.text == "its ranks stop; the budget is spent"
    assert cancel(job, "once more").reason.text == "its ranks stop; the budget is spent"
    node.get("stop")
    attempt.end("stopped")
    coordinator.wait_state(job, "CANCELLED")
    node.close()
    long = coordinator.submit()
    assert cancel(long, "\u00e9" * 1000000).reason.text == "cancelled: " + "\u00e9" * 100
    coordinator.restart()
    assert coordinator.job(job).reason.text == "cancelled: the budget is spent"
    assert cancel(job, "too late").reason.text == "cancelled: the budget is spent"


def test_jobs_are_listed_in_pages_newest_first(coordinator):
    m, stub = coordinator.cluster.stubs.job, coordinator.stub("Job")
    made = [coordinator.submit() for _ in range(5)]
    seen, token = [], ""
    while True:
        page = stub.ListJobs(m.ListJobsRequest(page_size=2, page_token=token))
        seen += [j.id for j in page.jobs]
        token = page.next_page_token
        if not token:
            break
    assert seen == made[::-1]
    coordinator.steer("Cancel", made[0])
    only = stub.ListJobs(m.ListJobsRequest(states=[m.Job.CANCELLED]))
    assert [j.id for j in only.jobs] == [made[0]]
    refused("INVALID_ARGUMENT", lambda: stub.ListJobs(m.ListJobsRequest(page_token="x")), "TOKEN_INVALID")


def test_segments_count_once_however_often_they_are_sent(coordinator):
    node, job, attempt = run_one(coordinator, "trainer.devices=2")
    points = [[record("train_loss_step", step, 4 + rank, 2) for step in (1, 2, 3)] for rank in (0, 1)]
    for rank in (0, 1):
        data = b"".join(points[rank])
        attempt.segment(2, rank, 0, data[:64])
        attempt.segment(2, rank, 0, data[:128])   # overlaps
        attempt.segment(2, rank, 192, data[128:])  # a gap: not taken
        attempt.segment(2, rank, 64, data[64:])
        attempt.acked(2, rank, 192)
    attempt.segment(1, 0, 0, attempt.events)       # all lines again
    attempt.segment(1, 0, len(attempt.events) + 10, b"{}\n")
    attempt.segment(3, 0, 0, b"hello ")
    attempt.segment(3, 0, 0, b"hello world\n")
    attempt.acked(3, 0, 12)
    put = node.m.LogChunk(id=attempt.id, rank=1, kind=4, offset=0, data=b"oops\n")
    assert node.stub.PutLog(iter([put, put]), timeout=10).offset == 5
    node.send(progress=node.m.AttemptProgress(id=attempt.id, step=3, total_steps=30, loss=2.0, phase=2))
    attempt.end(metrics=192)
    done = coordinator.finish(job)
    assert done.metrics["train_loss_step"] == 9 / 4
    assert [(p.step, p.value, p.n_ranks) for p in coordinator.points(job)] == [(s, 9 / 4, 2) for s in (1, 2, 3)]
    assert [(r.rank, r.err, r.data) for r in coordinator.logs(job)] == [(0, False, b"hello world\n"), (1, True, b"oops\n")]
    assert [r.data for r in coordinator.logs(job, rank=0, out_only=True, offset=6)] == [b"world\n"]
    refused("OUT_OF_RANGE", lambda: coordinator.logs(job, rank=0, out_only=True, offset=13), "OFFSET_PAST_END")
    refused("INVALID_ARGUMENT", lambda: coordinator.logs(job, offset=1), "offset")
    node.close()
    before = coordinator.job(job)
    coordinator.restart()
    assert coordinator.job(job) == before


def test_follower_of_logs_misses_and_repeats_nothing_when_the_daemon_is_killed(coordinator, tmp_path):
    node, job, attempt = run_one(coordinator, "trainer.devices=2", "restart.backoff=[0]")
    for rank in (0, 1):
        attempt.segment(3, rank, 0, b"out\n")
        attempt.segment(4, rank, 0, b"err\n")
    env = dict(coordinator.env, TRAIND_STATE_DIR=str(coordinator.state_dir))
    shown = tmp_path / "shown"
    lines = lambda: sorted(shown.read_bytes().splitlines())
    with open(shown, "wb") as out, subprocess.Popen([BIN / "trainctl", "logs", job, "-f"], env=env, stdout=out) as follower:
        try:
            until("what is there is shown", lambda: len(lines()) == 4)
            coordinator.restart()
            node = attempt.node = FakeNode(coordinator, held=[node.m.AttemptHeld(id=attempt.id, alive=True, launcher_major=1)])
            for rank in (0, 1):
                attempt.segment(3, rank, 4, b"again\n")
            attempt.end(outcome="failed", out=10, err=4, **{"class": "node_lost"})
            attempt = node.attempt()
            attempt.begin()
            for rank in (0, 1):
                attempt.segment(3, rank, 0, b"second\n")
            attempt.end(out=7)
            coordinator.finish(job)
            assert follower.wait(30) == 0
        finally:
            follower.kill()
    assert lines() == [b"[rank %d] %s" % (rank, word) for rank in (0, 1) for word in (b"again", b"err", b"out", b"second")]
    position = [coordinator.cluster.stubs.log.LogPosition(rank=2)]
    refused("INVALID_ARGUMENT", lambda: coordinator.logs(job, attempt=1, follow=True, positions=position), "positions")
    refused("INVALID_ARGUMENT", lambda: coordinator.logs(job, follow=True, positions=position), "positions")


def test_attempt_is_adopted_from_what_was_committed(coordinator):
    node, job, attempt = run_one(coordinator)
    attempt.segment(2, 0, 0, record("train_loss_step", 1, 1, 1))
    attempt.acked(2, 0, 64)
    attempt.segment(4, 0, 0, b"words")
    attempt.acked(4, 0, 5)
    committed = len(attempt.events)
    attempt.acked(1, 0, committed)
    coordinator.restart()
    stranger = node.m.AttemptId(job=job, attempt=7, epoch=1)
    held = [node.m.AttemptHeld(id=i, alive=True, launcher_major=1) for i in (attempt.id, stranger)]
    again = FakeNode(coordinator, held=held)
    assert [c.id for c in again.registered.adopt] == [attempt.id]
    offsets = {(o.kind, o.rank): o.offset for o in again.registered.adopt[0].offsets}
    assert offsets == {(1, 0): committed, (2, 0): 64, (3, 0): 0, (4, 0): 5}
    assert list(again.registered.stop) == [stranger]
    assert coordinator.job(job).attempt == 1 and coordinator.state(job) == "RUNNING"
    attempt.node = again
    attempt.end(metrics=64, err=5)
    coordinator.finish(job)
    assert again.get("forget").id == attempt.id
    again.close()


def test_record_that_nobody_waits_for_is_on_disk_soon(coordinator):
    node, job, attempt = run_one(coordinator)
    node.send(log_state=node.m.LogState(id=attempt.id, rank=0, out_bytes=77, final=True))  # it gets no answer

    def kept():
        with contextlib.closing(sqlite3.connect(f"file:{coordinator.state_dir}/state.db?mode=ro", uri=True)) as db:
            [(body,)] = db.execute("SELECT body FROM attempts WHERE key = ?", (f"{job}/a1",))
        return json.loads(body)["ranks"][0][:4] == [1, 1, 0, 77]
    until("the log state is on disk", kept)


def messages_of(node):
    """Notes how many were in each that the coordinator sent."""
    session, sizes = node.session, []

    def noted():
        for message in session:
            sizes.append(len(message.batch) or 1)
            yield message
    node.session = noted()
    return sizes


@pytest.mark.parametrize("batches", [True, False])
def test_end_of_a_job_and_the_start_of_the_next_are_one_message(coordinator, batches):
    node = FakeNode(coordinator, slots=1, batches=batches, reconciles=True)
    first, second = coordinator.submit(SPEC), coordinator.submit(SPEC)
    attempt = node.attempt()
    attempt.begin()
    coordinator.wait_state(first, "RUNNING")
    attempt.acked(1, 0, len(attempt.events))
    sizes = messages_of(node)
    attempt.end()
    assert node.attempt().id.job == second
    kinds = [kind for kind, _ in node.kept]
    assert kinds[-3:] == ["segment_ack", "forget", "reconcile"], kinds  # then the assignment
    assert sizes == ([4] if batches else [1, 1, 1, 1])
    coordinator.wait_state(first, "SUCCEEDED")


def test_acknowledgement_that_nobody_waits_for_comes_soon(coordinator):
    node = FakeNode(coordinator, batches=True)
    coordinator.submit(SPEC)
    attempt = node.attempt()
    attempt.begin()  # no other message follows it
    attempt.acked(1, 0, len(attempt.events))


def test_batch_with_a_broken_message_ends_the_session(coordinator):
    node = FakeNode(coordinator, batches=True)
    beat = node.m.NodeMessage(incarnation=node.incarnation, heartbeat=node.m.Heartbeat(plugins="x"))
    inner = node.m.NodeMessage(batch=[beat.SerializeToString()])  # one in another has no body, and is skipped
    node.out.put(node.m.NodeMessage(batch=[beat.SerializeToString(), inner.SerializeToString()]))
    node.out.put(node.m.NodeMessage(batch=[beat.SerializeToString(), b"\xff\xff"]))
    refused("INVALID_ARGUMENT", lambda: node.session, "MALFORMED_MESSAGE")


def test_attempt_that_a_node_no_longer_has_is_lost_and_fenced(coordinator):
    node, job, attempt = run_one(coordinator, "restart.backoff=[0]")
    node.close()
    again = FakeNode(coordinator)
    second = again.attempt()
    assert second.id.attempt == 2 and second.id.epoch > attempt.id.epoch
    now = coordinator.job(job)
    assert getattr(now.failure, "class") == "node_lost" and now.restarts == 1
    attempt.node = again
    attempt.end()  # the fenced one still talks: nobody listens
    second.begin()
    coordinator.wait_state(job, "RUNNING")
    info = coordinator.stub("Admin").GetClusterInfo(coordinator.cluster.stubs.admin.GetClusterInfoRequest())
    assert info.counters["stale_messages"] >= 1 and info.counters["attempts_lost"] == 1
    second.end()
    assert coordinator.finish(job).attempt == 2
    again.close()


@pytest.mark.parametrize("failure, state, restarts", [("data", "FAILED", 0), ("numeric", "FAILED", 0), ("user_code", "FAILED", 0),
                                                      ("bad_spec", "FAILED", 0), ("internal", "RECOVERING", 1),
                                                      ("disk", "RECOVERING", 1), ("out_of_memory", "RECOVERING", 1)])
def test_class_of_a_failure_decides_about_a_restart(coordinator, failure, state, restarts):
    node, job, attempt = run_one(coordinator, "trainer.devices=2", "restart.backoff=[60]")
    consequence = dict(outcome="failed", code="ABORTED", message="a peer is gone", step=4)
    attempt.line("end", rank=0, **{"class": "collective"}, **consequence)
    attempt.line("end", rank=1, outcome="failed", code="DATA_LOSS", message="the cause", step=5, **{"class": failure})
    attempt.line("rank_exit", rank=1, code=40, signal=0, message="exit 40", last_words="goodbye", step=5, **{"class": failure})
    attempt.end("failed", rank=1, code="DATA_LOSS", message="the cause", **{"class": failure})
    now = coordinator.wait_state(job, state)
    got = now.failure
    assert (getattr(got, "class"), got.rank, got.message, got.last_words, got.step) == (failure, 1, "the cause", "goodbye", 5)
    assert now.restarts == restarts
    if state == "RECOVERING":
        assert now.reason.code == "BACKING_OFF" and (now.reason.retry_in_ms > 1000) == (failure != "disk")
        pause = 1 if failure == "disk" else 60  # a disk has pauses of its own
        assert re.match(rf"restart 1 of 3 in {pause} s, at 20\S+Z, after {failure}: the cause", now.reason.text)
        coordinator.steer("Cancel", job)
        assert coordinator.state(job) == "CANCELLED"
    node.close()


def test_pause_frees_the_slots_and_resume_goes_on_from_the_checkpoint(coordinator):
    node, job, attempt = run_one(coordinator, "checkpoint.store=fs")
    coordinator.steer("Pause", job)
    assert node.get("stop").mode == node.m.Stop.CHECKPOINT
    attempt.checkpoint(12, {"model.safetensors": b"x"})
    attempt.end("stopped")
    paused = coordinator.wait_state(job, "PAUSED")
    assert paused.checkpoint == "a1/step-12" and coordinator.nodes()[0].slots_used == 0
    coordinator.steer("Resume", job)
    second = node.attempt()
    assert [(r.path, r.step, r.fetch) for r in second.assign.resume] == [("a1/step-12", 12, False)]
    second.begin()
    coordinator.wait_state(job, "RUNNING")
    coordinator.steer("Pause", job)
    second.end("done")  # it came after the last step
    assert coordinator.finish(job).restarts == 0
    node.close()


def test_watch_tells_each_durable_change_once_and_goes_on_from_a_token(coordinator):
    m, stub = coordinator.cluster.stubs.job, coordinator.stub("Job")
    job = coordinator.submit()
    watch = stub.WatchJob(m.WatchJobRequest(id=job), timeout=60)
    first = next(watch)
    assert first.durable and first.job.state == m.Job.QUEUED
    node = FakeNode(coordinator)
    attempt = node.attempt()
    attempt.begin()
    coordinator.wait_state(job, "RUNNING")
    attempt.end()
    seen = [first] + [r for r in watch if r.durable]
    states = [m.Job.State.Name(r.job.state) for r in seen]
    assert states[0] == "QUEUED" and states[-1] == "SUCCEEDED" and "RUNNING" in states
    assert [int(r.token.split(":")[1]) for r in seen] == sorted({int(r.token.split(":")[1]) for r in seen})
    again = list(stub.WatchJob(m.WatchJobRequest(id=job, token=seen[1].token), timeout=20))
    assert [r.token for r in again] == [r.token for r in seen[2:]]
    refused("INVALID_ARGUMENT", lambda: stub.WatchJob(m.WatchJobRequest(id=job, token="junk"), timeout=20), "TOKEN_INVALID")
    node.close()
    coordinator.restart()
    stub = coordinator.stub("Job")
    refused("OUT_OF_RANGE", lambda: stub.WatchJob(m.WatchJobRequest(id=job, token=seen[1].token), timeout=20), "TOKEN_EXPIRED")
    assert [r.job.state for r in stub.WatchJob(m.WatchJobRequest(id=job), timeout=20)] == [m.Job.SUCCEEDED]


def test_plan_comes_from_a_node_and_is_kept(coordinator):
    m, stub = coordinator.cluster.stubs.job, coordinator.stub("Job")
    node = FakeNode(coordinator)
    waiting = stub.PlanJob.future(m.PlanJobRequest(spec=SPEC), timeout=20)
    node.kept.clear()
    until("a node is asked", lambda: asked(node, waiting))
    plan = waiting.result()
    assert (plan.memory_bytes, plan.shared_bytes, plan.total_steps, plan.steps_per_epoch) == (1024, 4096, 30, 10)
    assert json.loads(plan.plan_json)["format"] == 1
    assert stub.PlanJob(m.PlanJobRequest(spec=SPEC), timeout=20) == plan  # nobody is asked again
    node.close()


def asked(node, waiting):
    if not waiting.done():
        message = next(node.session)
        body = message.plan_request
        node.send(plan_result=node.m.PlanResult(request=body.request, result_json=json.dumps(
            {"state_bytes": 1000, "arena_bytes": 24, "shared_bytes": 4096, "total_steps": 30, "steps_per_epoch": 10,
             "read": []})))
        waiting.result()
    return True


def test_job_that_cannot_fit_is_refused_with_numbers(coordinator):
    node = FakeNode(coordinator)
    refused("FAILED_PRECONDITION", lambda: coordinator.submit(SPEC, f"trainer.devices={SLOTS + 1}"), "UNSATISFIABLE",
            str(SLOTS + 1), "fake")
    node.close()


def test_job_that_asks_for_a_cpu_level_goes_to_a_node_that_has_it(coordinator):
    m, stub = coordinator.cluster.stubs.job, coordinator.stub("Job")
    old = FakeNode(coordinator, slots=2 * SLOTS, name="old", cpu_level="avx2")  # answers no plan: it may not be asked
    new = FakeNode(coordinator, slots=2, name="new", cpu_level="avx512")
    assert {n.id: n.cpu_level for n in coordinator.nodes()} == {"old": "avx2", "new": "avx512"}
    waiting = stub.PlanJob.future(m.PlanJobRequest(spec=SPEC, overrides=["trainer.cpu_level=avx512", "seed_everything=7"]), timeout=20)
    until("the node that has it is asked", lambda: asked(new, waiting))
    job = coordinator.submit(SPEC, "trainer.cpu_level=avx512")
    attempt = new.attempt()
    assert list(coordinator.job(job).nodes) == ["new"]
    attempt.begin()
    attempt.end()
    coordinator.finish(job)
    new.close()
    until("it is gone", lambda: [n.id for n in coordinator.nodes("READY")] == ["old"])
    job = coordinator.submit(SPEC, "trainer.cpu_level=avx512")
    until("it waits for that node", lambda: "no connected node with CPU level avx512" in coordinator.job(job).reason.text)
    any_level = coordinator.submit(SPEC)
    assert old.attempt().id.job == any_level
    assert coordinator.state(job) == "QUEUED"
    old.close()


def test_job_that_asks_for_a_cpu_level_of_no_node_is_planned_so_that_it_is_reported(coordinator):
    node = FakeNode(coordinator, cpu_level="avx2")
    job = coordinator.submit(SPEC, "trainer.cpu_level=amx")
    request = next(node.session).plan_request
    assert json.loads(request.plan_json)["trainer"]["cpu_level"] == "amx"
    node.send(plan_result=node.m.PlanResult(request=request.request, code=3, message="it has generic, avx2", **{"class": "bad_spec"}))
    failed = coordinator.wait_state(job, "FAILED")
    assert getattr(failed.failure, "class") == "bad_spec" and failed.failure.message == "it has generic, avx2" and failed.attempt == 0
    node.close()


@pytest.mark.parametrize("slots, waits", [(1, True), (2, False)])
def test_job_whose_plan_is_known_does_not_overtake_one_being_planned(coordinator, slots, waits):
    node = FakeNode(coordinator, slots=slots)
    planned = coordinator.submit()
    attempt = node.attempt()
    attempt.begin()
    attempt.end()
    coordinator.finish(planned)
    older = coordinator.submit(SPEC, "seed_everything=77")
    for message in node.session:
        if message.WhichOneof("body") == "plan_request":
            break
    younger = coordinator.submit()
    assert coordinator.job(older).reason.code == "PLANNING"
    assert coordinator.state(younger) == ("QUEUED" if waits else "STARTING")
    node.send(plan_result=node.m.PlanResult(request=message.plan_request.request, result_json='{"state_bytes": 1}'))
    assigned = [node.get("assign").id.job for _ in range(slots)]
    assert assigned == ([older] if waits else [younger, older])
    node.close()


def test_plan_that_fails_for_good_fails_the_job(coordinator):
    node = FakeNode(coordinator)
    job = coordinator.submit(SPEC, "seed_everything=77")
    request = next(node.session).plan_request
    node.send(plan_result=node.m.PlanResult(request=request.request, code=15, message="no such file", **{"class": "data"}))
    failed = coordinator.wait_state(job, "FAILED")
    assert getattr(failed.failure, "class") == "data" and failed.failure.message == "no such file" and failed.attempt == 0
    node.close()


def test_stop_of_the_coordinator_ends_open_calls_at_once(coordinator):
    """A client that sends at that moment may find its connection closed before it has read why: grpcio looks no further
    then. So the one that watches has a connection of its own, and is quiet."""
    stubs, job = coordinator.cluster.stubs, coordinator.submit()
    node = FakeNode(coordinator)
    own = grpc.insecure_channel(coordinator.address, options=[("grpc.use_local_subchannel_pool", 1)])
    with grpc.intercept_channel(own, Token(coordinator.token)) as channel:
        watch = stubs.job_grpc.JobServiceStub(channel).WatchJob(stubs.job.WatchJobRequest(id=job), timeout=60)
        next(watch)
        coordinator.process.send_signal(signal.SIGTERM)
        refused("UNAVAILABLE", lambda: watch, "DRAINING")
    assert coordinator.process.wait(10) == 0
    node.out.put(None)


def test_session_of_the_embedded_node_is_not_taken_over(daemon):
    """A second Register with its id took it away until the daemon was started again."""
    mine = daemon.nodes("READY")[0]
    call = daemon.stub("Node").Session(iter([daemon.cluster.stubs.node.NodeMessage(
        register=daemon.cluster.stubs.node.Register(node_id=mine.id, boot_id="b", name="thief", launcher_major=1,
                                                    cores=64, slots=64))]), timeout=20)
    refused("FAILED_PRECONDITION", lambda: list(call), "SESSION_ENDED", "the coordinator's own")
    again = daemon.nodes("READY")[0]
    assert (again.name, again.slots, again.embedded) == (mine.name, mine.slots, True)
    daemon.finish(daemon.submit())


def test_logs_and_shards_are_taken_from_the_node_that_holds_the_attempt_only(coordinator):
    """Whoever knew an attempt's id could write into its logs."""
    node = FakeNode(coordinator, keyed=True)
    other = FakeNode(coordinator, name="other", slots=1, keyed=True)
    assert len(node.registered.key) == 32 and node.registered.key != other.registered.key
    job = coordinator.submit(SPEC, "trainer.devices=2")
    attempt = node.attempt()
    attempt.begin()
    log = lambda key: node.m.LogChunk(id=attempt.id, rank=0, kind=3, offset=0, data=b"mine\n", key=key)
    shard = lambda key: node.m.ShardChunk(id=attempt.id, checkpoint="a1/step-1", file="m", file_bytes=1, digest=digest(b"x"),
                                          data=b"x", key=key)
    for key in ("", other.registered.key, "0" * 32):
        refused("PERMISSION_DENIED", lambda: node.stub.PutLog(iter([log(key)]), timeout=20), "NOT_THE_HOLDER")
        refused("PERMISSION_DENIED", lambda: node.stub.PutShard(iter([shard(key)]), timeout=20), "NOT_THE_HOLDER")
    other.send(segment=node.m.Segment(id=attempt.id, kind=3, rank=0, offset=0, data=b"forged\n"))  # in its own session
    other.send(register=node.m.Register(node_id="other", name="other", launcher_major=1, cores=1, slots=1, keyed=True))
    other.get("registered")  # so it was looked at
    assert node.stub.PutLog(iter([log(node.registered.key)]), timeout=20).offset == 5
    assert node.stub.PutShard(iter([shard(node.registered.key)]), timeout=20).offset == 1
    attempt.end(out=5)
    coordinator.finish(job)
    assert [r.data for r in coordinator.logs(job, rank=0, out_only=True)] == [b"mine\n"]
