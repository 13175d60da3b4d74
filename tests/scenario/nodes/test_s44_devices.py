"""An accelerator with devices: tests/plugins/far.c, a plugin with 2 devices that are not the host. Its knobs are checked,
it trains to the bits of the reference, and a device that fails has a class of its own."""
import json
import os
import shutil
import subprocess

import pytest

import support
from far_plugin import FAR, far, mine  # noqa: F401 (mine is a fixture)
from plans import plan_of, state_of
from ranks import EXIT


def spec_of(mine, accelerator, n_ranks=1, **trainer):
    return json.dumps({
        "name": "far", "seed_everything": 3, "plugins": [str(mine)],
        "model": {"name": "mlp", "layers": [16, 32, 4]},
        "data": {"name": "synthetic", "samples": 256, "features": 16, "classes": 4, "batch_size": 16},
        "optimizer": {"name": "adamw", "lr": 0.01},
        "trainer": {"accelerator": accelerator, "devices": n_ranks, "max_steps": 12, "log_every_n_steps": 1, **trainer},
        "checkpoint": {"every_n_train_steps": 4, "save_top_k": -1}, "restart": {"max": 1, "backoff": [0]}})


def weights_of(daemon, job):
    found = sorted(daemon.state_dir.glob(f"checkpoints/{job}/a1/step-*"))
    return {step.name: state_of(step) for step in found}


# ---- its knobs ------------------------------------------------------------------------------------
def test_far_gives_the_bits_of_the_reference(cluster, mine):
    daemon = cluster.start("--slots", "2", "--plugin-dirs", mine)
    for n_ranks in (1, 2):
        one = daemon.submit(spec_of(mine, far(delay_us=100), n_ranks))
        daemon.finish(one)
        other = daemon.submit(spec_of(mine, "reference", n_ranks))
        daemon.finish(other)
        assert daemon.losses(one, 12, n_ranks) == daemon.losses(other, 12, n_ranks)
        kept = weights_of(daemon, one)
        assert set(kept) == {"step-4", "step-8", "step-12"} and kept == weights_of(daemon, other)


@pytest.mark.parametrize("knobs, words", [
    ({"delay_ms": 3}, "trainer.accelerator.knobs.delay_ms: unknown key, did you mean delay_us?"),
    ({"delay_us": 10000001}, "trainer.accelerator.knobs.delay_us: expected an integer from 0 to 10000000"),
    ({"fail_at": "never"}, "trainer.accelerator.knobs.fail_at: expected an integer from 0 to 2147483647"),
])
def test_plan_refuses_knobs_that_the_accelerator_does_not_declare(cluster, mine, knobs, words):
    daemon = cluster.start("--slots", "1", "--plugin-dirs", mine)
    job = daemon.submit(spec_of(mine, far(**knobs)))
    failed = daemon.wait_state(job, "FAILED")
    assert words in str(failed) and "accelerator \\'far\\'" in str(failed), failed
    assert getattr(failed.failure, "class") == "bad_spec" and failed.restarts == 0


def test_plan_refuses_the_reference_as_a_plugin(cluster, mine):
    daemon = cluster.start("--slots", "1", "--plugin-dirs", mine)
    job = daemon.submit(spec_of(mine, far() | {"accelerator": "reference"}))
    assert "accelerator \\'reference\\' is traind\\'s own" in str(daemon.wait_state(job, "FAILED"))


def test_installed_accelerator_and_its_knobs_are_listed(cluster):
    daemon = cluster.start("--slots", "1")
    support.until("cpu is listed", lambda: "accelerator-cpu" in daemon.ctl("plugins", "-o", "name").stdout)


def test_failure_of_a_device_has_its_class_and_is_tried_again(cluster, mine):
    daemon = cluster.start("--slots", "1", "--plugin-dirs", mine)
    job = daemon.submit(spec_of(mine, far(fail_at=9)))
    daemon.finish(job)  # the second attempt begins at step 8, and has 4 updates to go
    ended = daemon.job(job)
    assert ended.restarts == 1 and getattr(ended.failure, "class") == "device", ended
    assert "failed in update 9" in ended.failure.message


# ---- what nodes report ----------------------------------------------------------------------------
def devices_of(node):
    return {a.accelerator: None if a.is_host else [(d.uuid, d.used) for d in a.devices] for a in node.devices}


def test_node_shows_devices_of_installed_accelerators_and_of_those_that_a_plan_named(cluster, mine):
    daemon = cluster.start("--slots", "1", "--plugin-dirs", mine)
    support.until("the probe has ended", lambda: "cpu" in devices_of(*daemon.nodes()))
    assert devices_of(*daemon.nodes()) == {"reference": None, "cpu": None}
    assert daemon.ctl("node", "list").stdout.splitlines()[1].split()[-3] == "-"
    daemon.finish(daemon.submit(spec_of(mine, far())))
    assert devices_of(*daemon.nodes())["far"] == [("far-0", False), ("far-1", False)]
    daemon.restart()
    assert devices_of(*daemon.nodes())["far"] == [("far-0", False), ("far-1", False)]
    assert "far 0/2" in daemon.ctl("node", "list").stdout


def test_installed_accelerator_is_known_with_knobs_and_devices_before_any_plan(cluster, build, tmp_path):
    for folder in ("bin", "lib"):
        shutil.copytree(build / folder, tmp_path / "tree" / folder)
    shutil.copy(FAR, tmp_path / "tree/lib/traind")
    (tmp_path / "tree/lib/traind/accelerator-bad.so").write_text("no shared object")
    daemon = cluster.make("--slots", "4")
    daemon.bin = tmp_path / "tree/bin"
    daemon.start()
    support.until("the probe has ended", lambda: "far" in devices_of(*daemon.nodes()))
    assert devices_of(*daemon.nodes())["far"] == [("far-0", False), ("far-1", False)]
    assert devices_of(*daemon.nodes())["bad"] == [], "it does not load, so it has none"
    assert "bad" not in daemon.ctl("node", "list").stdout
    said = daemon.ctl("plugins", "far", check=0).stdout
    assert "delay_us" in said and "fail_at" in said
    spec = json.loads(spec_of("/none", far(), 3)) | {"plugins": []}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    refused = daemon.ctl("submit", tmp_path / "spec.json")
    assert refused.returncode != 0 and "3 ranks need a device of 'far' each" in refused.stderr, refused.stderr
    none = daemon.ctl("submit", tmp_path / "spec.json", "--set", "trainer.accelerator.accelerator=bad")
    assert none.returncode != 0 and "no known node has a device of 'bad'" in none.stderr, none.stderr
    wrong = daemon.ctl("submit", tmp_path / "spec.json", "--set", "trainer.accelerator.knobs={delay_u: 1}")
    assert wrong.returncode != 0 and "did you mean delay_us?" in wrong.stderr, wrong.stderr
    job = daemon.submit(json.dumps(spec), "trainer.devices=2")
    daemon.finish(job)


# ---- the device of a rank -------------------------------------------------------------------------
def by_hand(tmp_path, mine, *args):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_of(plugins=[str(mine)], trainer={"accelerator": far(), "max_steps": 1})))
    return subprocess.run([support.BIN / "traind-worker", "run", "--plan", file, "--plugin-dirs", mine, *args],
                          capture_output=True, text=True, timeout=60)


def test_rank_by_hand_opens_the_device_that_it_is_given(tmp_path, mine):
    assert by_hand(tmp_path, mine).returncode == 0, "without an argument it is the first"
    given = by_hand(tmp_path, mine, "--device", "far-1")
    assert given.returncode == 0 and "uuid=far-1" in given.stderr, given.stderr
    missing = by_hand(tmp_path, mine, "--device", "far-2")
    assert missing.returncode not in (0, EXIT["bad_spec"]), missing
    end, = [e for e in map(json.loads, missing.stdout.splitlines()) if e.get("event") == "end"]
    assert end["class"] == "device" and end["message"].endswith("no device 'far-2' here; it has far-0, far-1"), end


# Contract 19: each rank gets a device
def test_run_without_a_daemon_gives_each_rank_a_device(tmp_path, mine):
    (tmp_path / "spec.json").write_text(spec_of(mine, far(), 2))

    def run(name, *sets):
        words = [w for s in (f"name={name}", *sets) for w in ("--set", s)]
        return subprocess.run([support.BIN / "trainctl", "run", "spec.json", *words], cwd=tmp_path, capture_output=True,
                              text=True, timeout=120)

    done = run("two")
    assert done.returncode == 0, done.stderr
    logs = [next((tmp_path / "two").rglob(f"err.{rank}.log")).read_text() for rank in (0, 1)]
    assert ["uuid=far-0" in logs[0], "uuid=far-1" in logs[1]] == [True, True], logs
    if len(os.sched_getaffinity(0)) < 3:
        return  # three ranks are refused for the cores already
    more = run("three", "trainer.devices=3")
    assert "UNSATISFIABLE: 3 ranks need a device of 'far' each, this machine has 2" in more.stderr, more.stderr


# ---- the queue ------------------------------------------------------------------------------------
def slow(mine, n_ranks=2):
    """A job that trains until it is asked to stop."""
    return spec_of(mine, far(delay_us=5000), n_ranks, max_steps=1000000, max_epochs=-1)


def waits_for_devices(daemon, job):
    def waiting():
        reason = daemon.job(job).reason
        return reason if reason.code == "WAITING_FOR_DEVICES" else None

    return support.until(f"{job} waits for devices", waiting)


def test_job_waits_while_another_has_the_devices_and_then_runs(cluster, mine):
    daemon = cluster.start("--slots", "4", "--plugin-dirs", mine)
    first = daemon.submit(slow(mine))
    daemon.wait_step(first, 2)
    assert list(daemon.job(first).devices) == ["far-0", "far-1"]
    second = daemon.submit(spec_of(mine, far(), 2))
    reason = waits_for_devices(daemon, second)
    assert reason.text.startswith("needs 2 devices of 'far', 0 free on node ") and "(2 devices); job " in reason.text and first in reason.text
    assert (reason.needed_devices, reason.free_devices, reason.all_devices) == (2, 0, 2)
    assert list(reason.blockers) == [first]
    said = daemon.ctl("describe", second, check=0).stdout
    assert "WAITING_FOR_DEVICES: needs 2 devices" in said and "2 needed, 0 free of 2" in said
    assert "far-1 of rank 1" in daemon.ctl("describe", first, check=0).stdout
    assert "far 2/2" in daemon.ctl("node", "list", check=0).stdout
    host = daemon.submit(spec_of(mine, "reference"))
    daemon.finish(host)  # it needs no device, and passes the one that waits
    assert daemon.state(second) == "QUEUED"
    daemon.steer("Cancel", first)
    daemon.finish(second)
    assert devices_of(*daemon.nodes())["far"] == [("far-0", False), ("far-1", False)]


def test_ranks_of_two_jobs_have_devices_of_their_own(cluster, mine):
    daemon = cluster.start("--slots", "4", "--plugin-dirs", mine)
    jobs = [daemon.submit(slow(mine, 1)) for _ in range(2)]
    for job in jobs:
        daemon.wait_step(job, 2)
    assert [list(daemon.job(job).devices) for job in jobs] == [["far-0"], ["far-1"]]
    for job, device in zip(jobs, ("far-0", "far-1")):
        logs = list(daemon.state_dir.glob(f"attempts/{job}/a1/err.0.log"))
        assert f"uuid={device}" in logs[0].read_text()


# Contract 19: more ranks than devices are refused
def test_job_with_more_ranks_than_devices_fails_with_both_numbers(cluster, mine, tmp_path):
    daemon = cluster.start("--slots", "4", "--plugin-dirs", mine, "--name", "one")
    job = daemon.submit(spec_of(mine, far(), 3))
    failed = daemon.wait_state(job, "FAILED")
    words = "3 ranks need a device of 'far' each, node one has 2"
    assert failed.reason.code == "UNSATISFIABLE" and words in failed.reason.text, failed
    assert failed.attempt == 0 and failed.restarts == 0
    (tmp_path / "spec.json").write_text(spec_of(mine, far(), 3, max_steps=13))
    planned = daemon.ctl("plan", tmp_path / "spec.json")
    assert planned.returncode != 0 and words in planned.stderr, planned.stderr


def test_attempt_that_is_adopted_still_has_its_devices(cluster, mine):
    daemon = cluster.start("--slots", "4", "--plugin-dirs", mine)
    first = daemon.submit(slow(mine))
    daemon.wait_step(first, 2)
    daemon.restart()
    daemon.wait_state(first, "RUNNING")
    assert devices_of(*daemon.nodes())["far"] == [("far-0", True), ("far-1", True)]
    second = daemon.submit(spec_of(mine, far()))
    assert waits_for_devices(daemon, second).free_devices == 0
    assert daemon.job(first).attempt == 1
    daemon.steer("Cancel", first)
    daemon.finish(second)
