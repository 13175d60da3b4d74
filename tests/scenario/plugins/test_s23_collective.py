"""What a job's exchange of data goes through (trainer.collective): traces that a person reads, and the faults of
examples/plugins/fault.c, which a job names and a node permits."""
import json
import os
import re
import shutil
import subprocess

import pytest

import support

SOURCE = support.ROOT / "examples/plugins/fault.c"
STEPS = 20


@pytest.fixture
def plugins(tmp_path):
    """The decorator as it is, and as one that does not say that it wraps."""
    folder = tmp_path / "plugins"
    folder.mkdir(mode=0o755)
    text = SOURCE.read_text()
    for name, source in (("fault", text), ("alone", text.replace("wraps = true", "wraps = false").replace('"fault", "wraps',
                                                                                                     '"alone", "wraps'))):
        (folder / f"{name}.c").write_text(source)
        so = folder / f"collective-{name}.so"
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-shared", "-fPIC", f"-I{support.ROOT}/include",
                        folder / f"{name}.c", "-o", so], check=True)
        so.chmod(0o755)
    return folder


def spec_of(collective, plugins=None, **more):
    return json.dumps({
        "model": {"name": "mlp", "layers": [16, 32, 4]}, "optimizer": {"name": "adamw", "lr": 0.01},
        "data": {"name": "synthetic", "samples": 500, "batch_size": 32, "shuffle": True},
        "trainer": {"accelerator": "cpu", "devices": 2, "max_steps": STEPS, "max_epochs": -1, "log_every_n_steps": 1,
                    "collective": collective},
        "checkpoint": {"every_n_train_steps": 5}, "restart": {"backoff": [0]},
        "plugins": [str(plugins)] if plugins else [], **more})


def fault(name, call, rank=1, attempts=0, plugin="fault", **knobs):
    return {"name": "plugin", "collective": plugin,
            "knobs": {"fault": name, "call": call, "rank": rank, "attempts": attempts, **knobs}}


def run(build, tmp_path, spec):
    """`trainctl run`, which restarts nothing: what it said."""
    (tmp_path / "job.json").write_text(spec)
    done = subprocess.run([build / "bin/trainctl", "run", "job.json", "--output-path", "out"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_job_writes_a_trace_of_each_rank_and_trains_to_the_same_losses(daemon, tmp_path):
    plain, traced = (daemon.submit(spec_of(c)) for c in ("auto", {"name": "trace", "dir": str(tmp_path)}))
    assert daemon.finish(plain) and daemon.finish(traced)
    assert daemon.losses(plain, STEPS, 2) == daemon.losses(traced, STEPS, 2)
    ranks = [json.loads((tmp_path / f"trace-a1-rank{r}.json").read_text()) for r in range(2)]
    said = [[(e["name"], e["args"]) for e in events] for events in ranks]
    assert said[0] == said[1], "ranks make the same calls in the same order"
    buckets = [args for name, args in said[0] if name == "all_reduce_bucket"]
    assert buckets == [{"bytes": (16 * 32 + 32 + 32 * 4 + 16) * 4, "dtype": "f32", "op": "mean"}] * STEPS, "lines of 16"
    for r, events in enumerate(ranks):
        assert {(e["ph"], e["pid"], e["tid"]) for e in events} == {("X", r, 0)}
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in zip(events, events[1:]))
    # one clock: a call that all ranks wait in ends on each after it began on the other; buckets are waited for apart
    assert [name for name, _ in said[0]].count("wait_buckets") == STEPS
    for a, b in zip(*ranks):
        assert a["name"] == "all_reduce_bucket" or a["ts"] <= b["ts"] + b["dur"] and b["ts"] <= a["ts"] + a["dur"]


def test_trace_says_what_it_left_out_when_it_is_full(daemon, tmp_path):
    daemon.finish(daemon.submit(spec_of({"name": "trace", "dir": str(tmp_path), "max_events": 5})))
    *events, last = json.loads((tmp_path / "trace-a1-rank0.json").read_text())
    assert len(events) == 5 and last["ph"] == "i" and last["args"]["events_not_written"] > STEPS


def test_job_fails_as_a_bad_spec_when_a_trace_has_no_place(build, tmp_path):
    code, said = run(build, tmp_path, spec_of({"name": "trace", "dir": str(tmp_path / "gone")}))
    assert code != 0 and "bad_spec" in said and "trainer.collective.dir: " in said and "cannot be written: open the directory" in said, said


def test_job_goes_on_to_the_same_losses_when_a_fault_kills_a_rank_in_a_call(cluster, plugins):
    daemon = cluster.start("--slots", "2", "--plugin-dirs", str(plugins))
    whole = daemon.submit(spec_of(fault("delay", 1), plugins))
    cut = daemon.submit(spec_of(fault("kill", 18, attempts=1), plugins))
    daemon.finish(whole)
    done = daemon.finish(cut)
    assert done.restarts == 1
    after = {s: v for s, v in daemon.losses(whole, STEPS, 2).items() if s > 15}
    assert after == {p.step: p.value for p in daemon.points(cut) if p.step > 15}


def test_both_calls_are_named_when_a_rank_dropped_one(build, plugins, tmp_path):
    code, said = run(build, tmp_path, spec_of(fault("drop", 3), plugins))
    assert code != 0 and re.search("class +user_code", said), said
    assert "rank 1 is in broadcast of" in said or "rank 0 is in broadcast of" in said, said
    assert "all ranks must make the same calls in the same order" in said


# Contract 14: the deadline that a job asks for is that of its group
def test_job_ends_at_the_deadline_it_asks_for_when_a_rank_is_late(build, plugins, tmp_path):
    late = fault("delay", 12, delay_us=6_000_000)  # then it sees that the job has failed: else it is killed after 10 s
    spec = json.loads(spec_of(late, plugins))
    spec["trainer"]["collective_timeout"] = 2
    spec["checkpoint"]["every_n_train_steps"] = 0  # after one a rank may be late
    code, said = run(build, tmp_path, json.dumps(spec))
    assert code != 0 and re.search("class +collective", said), said
    assert "rank 1 of 2 did not arrive within 2.000 s (trainer.collective_timeout); see their logs" in said, said


@pytest.mark.parametrize("collective, words", [
    (fault("drop", 1, plugin="alone"), "collective 'alone' wraps no other"),
    (fault("drop", 0), "call 0 means every call"),
    (fault("drpo", 1), "did you mean drop?"),
    ({"name": "plugin", "collective": "shm", "knobs": {}}, "collective 'shm' is traind's own"),
    ({"name": "trace"}, "trainer.collective.dir (line 1): required"),
    ("shm", "trainer.collective"),
])
def test_collective_is_refused_with_what_is_wrong(build, plugins, tmp_path, collective, words):
    code, said = run(build, tmp_path, spec_of(collective, plugins))
    assert code != 0 and words in said, said


def test_fault_is_refused_when_the_node_does_not_permit_its_folder(daemon, plugins):
    job = daemon.submit(spec_of(fault("kill", 5), plugins))
    failed = daemon.wait_state(job, "FAILED")
    assert "--plugin-dirs" in str(failed)


def test_installed_collective_is_listed_with_its_knobs(cluster, build, plugins, tmp_path):
    for folder in ("bin", "lib"):
        shutil.copytree(build / folder, tmp_path / "tree" / folder)
    shutil.copy(plugins / "collective-fault.so", tmp_path / "tree/lib/traind")
    daemon = cluster.make("--slots", "1", "--heartbeat-ms", "200")
    daemon.bin = tmp_path / "tree/bin"
    daemon.start()
    support.until("the node has listed its plugins", lambda: daemon.ctl_json("plugins").get("nodes", 0) == 1)
    found = {p["plugin"]["name"]: p["plugin"] for p in daemon.ctl_json("plugins")["plugins"]
             if p["plugin"]["kind"] == "collective"}
    assert {"shm", "local", "trace", "fault"} <= set(found)
    assert found["fault"]["file"] == "collective-fault.so"
    assert [k["name"] for k in found["fault"]["knobs"]] == ["fault", "call", "rank", "delay_us", "attempts"]
    assert [k["name"] for k in found["trace"]["knobs"]] == ["dir", "max_events"]
