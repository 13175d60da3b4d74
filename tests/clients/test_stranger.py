"""A stranger's client: stubs generated from the protos, grpcio, the safetensors package.

What they find must be what the documents promise: submit, watch to the end, metrics, download.
"""
import json

import grpc
import numpy
import pytest

from support import SPEC, TERMINAL


def watch_to_end(daemon, job):
    request = daemon.cluster.stubs.job.WatchJobRequest(id=job)
    seen = []
    for r in daemon.stub("Job").WatchJob(request, timeout=120):
        seen.append(r)
        if r.job.State.Name(r.job.state) in TERMINAL:
            return seen
    raise AssertionError(f"the watch ended early: {seen[-1:]}")


def test_stranger_trains_watches_and_downloads(daemon, tmp_path):
    job = daemon.submit()
    seen = watch_to_end(daemon, job)
    last = seen[-1].job
    assert last.State.Name(last.state) == "SUCCEEDED", last
    assert last.global_step == 3 * 32 and last.attempt == 1
    assert {"train_loss_step", "val_loss", "val_accuracy", "test_accuracy"} <= set(last.metrics)
    assert all(r.token for r in seen)

    stubs = daemon.cluster.stubs
    series = daemon.stub("Metric").QueryMetrics(stubs.metric.QueryMetricsRequest(job=job, names=["train_loss_step"])).series
    points = series[0].points
    assert [p.step for p in points] == list(range(1, 97))
    assert points[-1].value < points[0].value

    checkpoints = daemon.stub("Checkpoint")
    listed = checkpoints.ListCheckpoints(stubs.checkpoint.ListCheckpointsRequest(job=job)).checkpoints
    steps = [c.step for c in listed]
    assert steps[0] == 96 and steps == sorted(steps, reverse=True) and {s % 32 for s in steps} == {0}
    newest = checkpoints.GetCheckpoint(stubs.checkpoint.GetCheckpointRequest(job=job))
    assert newest.path == listed[0].path
    for file in newest.files:
        request = stubs.checkpoint.ReadShardRequest(job=job, path=newest.path, file=file.name)
        data = b"".join(r.data for r in checkpoints.ReadShard(request))
        assert len(data) == file.bytes
        (tmp_path / file.name).write_bytes(data)

    from safetensors.numpy import load_file

    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["format"] == 1
    weights = load_file(tmp_path / "model.safetensors")
    assert weights["fc1.weight"].shape == (32, 16) and weights["fc2.weight"].shape == (4, 32)
    assert all(numpy.isfinite(w).all() for w in weights.values())


def test_stranger_gets_all_errors_of_a_spec_at_once(daemon):
    bad = SPEC.replace("devices: 1", "devcies: 1").replace("batch_size: 16", "batch_size: -3")
    with pytest.raises(grpc.RpcError) as error:
        daemon.submit(bad)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    details = dict(error.value.trailing_metadata())["grpc-status-details-bin"]
    assert b"did you mean" in details and b"devices" in details and b"batch_size" in details


def test_stranger_without_the_token_learns_nothing(daemon):
    stubs = daemon.cluster.stubs
    for token in (None, "Bearer wrong", "wrong"):
        with grpc.insecure_channel(daemon.address) as channel:
            jobs = stubs.job_grpc.JobServiceStub(channel)
            metadata = [("authorization", token)] if token else []
            with pytest.raises(grpc.RpcError) as error:
                jobs.ListJobs(stubs.job.ListJobsRequest(), metadata=metadata, timeout=10)
            assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_stranger_resubmits_safely_with_a_request_id(daemon):
    same = "00000000-0000-4000-8000-000000000001"
    first = daemon.submit(request_id=same)
    assert daemon.submit(request_id=same) == first
    with pytest.raises(grpc.RpcError) as error:
        daemon.submit(SPEC.replace("small", "other"), request_id=same)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
