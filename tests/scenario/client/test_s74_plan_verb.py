"""trainctl plan: the numbers, the plan as a worker runs it, and that what it refuses submit refuses, too."""
import json
import re
import shutil
import subprocess

import pytest

from plans import plan_of
from ranks import EXIT
from support import BIN, spec_file, with_worker

OK, JOB_FAILED = 0, 1


def test_plan_shows_numbers_and_writes_what_a_worker_runs(daemon, tmp_path):
    spec, plan = spec_file(tmp_path), tmp_path / "plan.json"
    shown = daemon.ctl("plan", spec, "-O", plan, check=OK).stdout
    assert "676" in shown and "96 in all" in shown and "FLOP" in shown and str(plan) in shown
    by_hand = [BIN / "traind-worker", "run", "--plan", plan]
    ran = subprocess.run(by_hand, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and all(" info " in line for line in ran.stderr.splitlines()), ran.stdout + ran.stderr
    assert " info rank starts world_size=1 accelerator=cpu cpu_level=" in ran.stderr
    assert any('"test_accuracy"' in line for line in ran.stdout.splitlines())
    daemon.ctl("plan", spec, "-O", plan, "--set", "trainer.devices=2", check=OK)
    ran = subprocess.run(by_hand, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and "asks for 2 ranks, by hand there is 1" in ran.stderr
    assert daemon.ctl_json("plan", spec)["total_steps"] == 96


def test_plan_says_what_gradients_are_a_mean_over(daemon, tmp_path):
    spec = spec_file(tmp_path)
    assert re.search(r"^gradients +the mean of the means of a step's batches \(accumulate: batches\)$", daemon.ctl("plan", spec, check=OK).stdout, re.M)
    tokens = ["--set", "trainer.accumulate=tokens"]
    assert re.search(r"^gradients +the mean of all that a step's batches count \(accumulate: tokens\)$", daemon.ctl("plan", spec, *tokens, check=OK).stdout, re.M)
    assert daemon.ctl_json("plan", spec, *tokens)["accumulate"] == "tokens"


@pytest.mark.parametrize("impossible, words", [
    ({"model.layers": "[16, 1000000, 1000000, 4]"}, "the largest known node has"),
    ({"resources.memory_bytes": "8000000"}, "resources.memory_bytes allows 8000000"),
    ({"trainer.devices": "200"}, "ranks need 200 slots on one node"),
    ({"model.layers": "[17, 32, 4]"}, "16"),
    ({"init_from": "/nowhere"}, "init_from: '/nowhere'"),
    ({"init_from": "/nowhere", "model": "{name: gpt}"}, "init_from: '/nowhere': No such file"),
    ({"evaluate_from": "/nowhere"}, "evaluate_from: there is no '/nowhere'"),
    ({"ckpt_path": "/nowhere"}, "/nowhere/manifest.json"),
    ({"stages": "[fit, predict]", "predict.output": "/nowhere/p.npy"}, "predict.output: '/nowhere/p.npy' cannot be written: open the directory '/nowhere'"),
    ({"stages": "[fit, predict]", "predict.output": "/proc"}, "predict.output: '/proc' is a directory"),
    ({"checkpoint.dir": "/etc/passwd/checkpoints"}, "(checkpoint.dir) cannot be written in '/etc/passwd'"),
    ({"checkpoint.dir": "/proc/checkpoints"}, "(checkpoint.dir) cannot be written in '/proc'"),
])
def test_plan_said_yes_to_what_submit_refused(daemon, tmp_path, impossible, words):
    sets = [x for key, value in impossible.items() for x in ("--set", f"{key}={value}")]
    spec = spec_file(tmp_path)
    said = [daemon.ctl(*verb, spec, *sets, check=JOB_FAILED) for verb in (["submit", "--follow"], ["submit", "--dry-run"], ["plan"])]
    submitted, dry, planned = [ran.stdout + ran.stderr for ran in said]
    assert not said[1].stdout and not said[2].stdout, "numbers of what cannot be"
    why = re.match(r"trainctl: (.*)", planned)[1]
    assert words in why and why in dry and why in submitted, (submitted, dry, planned)


def test_submit_accepted_what_a_plan_had_refused_already(daemon, tmp_path):
    spec, large = spec_file(tmp_path), ["--set", "model.layers=[16, 1000000, 1000000, 4]"]
    planned, submitted = [daemon.ctl(verb, spec, *large, check=JOB_FAILED) for verb in ("plan", "submit")]
    first_line = lambda ran: ran.stderr.splitlines()[0]
    assert "the largest known node has" in first_line(planned) and not submitted.stdout
    assert first_line(submitted) == first_line(planned)
    assert not daemon.ctl_json("list").get("jobs")


def test_plan_was_refused_for_good_for_want_of_weights_and_left_no_directory(daemon, tmp_path):
    spec, weights, places = spec_file(tmp_path), tmp_path / "weights", tmp_path / "new"
    sets = ["--set", f"init_from={weights}", "--set", f"checkpoint.dir={places / 'checkpoints'}"]
    assert f"'{weights}': No such file" in daemon.ctl("plan", spec, *sets, check=JOB_FAILED).stderr
    job = daemon.submit(spec.read_text())
    shutil.copytree(daemon.state_dir / "checkpoints" / job / daemon.finish(job).checkpoint, weights)
    daemon.ctl("plan", spec, *sets, check=OK)
    daemon.ctl("submit", "--dry-run", spec, *sets, check=OK)
    assert not places.exists()
    wider = daemon.ctl("plan", spec, *sets, "--set", "model.layers=[16, 64, 4]", check=JOB_FAILED).stderr
    assert "does not fit the model" in wider and "notes" not in wider
    daemon.ctl("plan", spec, *sets, "--set", "model.layers=[16, 32, 32, 4]", "--set", "strict=false", check=OK)
    daemon.ctl("submit", "--follow", spec, *sets, check=OK)
    assert places.is_dir()


def test_checkpoint_dir_that_cannot_be_was_an_internal_error_and_tried_four_times(daemon, tmp_path):
    spec, place = spec_file(tmp_path), tmp_path / "place"
    sets = ["--set", f"checkpoint.dir={place / 'checkpoints'}"]
    daemon.ctl("plan", spec, *sets, check=OK)  # is kept: what follows comes after it
    place.write_text("in the way")
    job = daemon.submit(spec.read_text(), f"checkpoint.dir={place / 'checkpoints'}")
    failed = daemon.wait_state(job, "FAILED")
    assert (failed.attempt, getattr(failed.failure, "class")) == (1, "bad_spec"), failed
    assert "checkpoint.dir must be a directory" in failed.failure.message and str(place) in failed.failure.message
    place.unlink()
    daemon.finish(daemon.submit(spec.read_text(), f"checkpoint.dir={place / 'checkpoints'}"))


@pytest.mark.parametrize("key", ["init_from", "ckpt_path"])
def test_plan_for_a_later_attempt_looked_for_what_the_first_began_with(tmp_path, key):
    def plan(attempt):
        (tmp_path / "plan.json").write_text(json.dumps(plan_of({key: "/nowhere"}, run={"attempt": attempt})))
        return subprocess.run([BIN / "traind-worker", "plan", "--plan", tmp_path / "plan.json"], capture_output=True, timeout=60).returncode
    assert plan(2) == 0 and plan(1) == EXIT["bad_spec" if key == "init_from" else "data"]


def test_planned_memory_left_out_what_a_rank_needs_besides(daemon, tmp_path):
    spec = spec_file(tmp_path)
    plan = daemon.ctl_json("plan", spec)
    parts = plan["memory"]
    assert plan["memory_bytes"] == str(sum(int(parts[k]) for k in parts)) and int(parts["process_bytes"]) > 1 << 24, plan
    # the limit of a rank is held against the same number, and is enough to train with
    least = int(plan["memory_bytes"])
    assert f"a rank needs {least} bytes" in daemon.ctl("plan", spec, "--set", f"resources.memory_bytes={least - 1}", check=JOB_FAILED).stderr
    ran = daemon.ctl("submit", spec, "--follow", "--set", f"resources.memory_bytes={least}", check=OK)
    assert "SUCCEEDED" in ran.stdout
    shown = daemon.ctl("plan", spec, check=OK).stdout
    assert re.search(r"memory +\S+ MiB a rank: .* state, .* activations, .* process", shown), shown
    both = daemon.ctl_json("plan", spec, "--set", "trainer.devices=2")
    assert int(both["memory_bytes"]) >= int(both["memory"]["process_bytes"]) + int(both["shared_bytes"]) // 2


def test_slow_kernels_were_a_secret_of_the_ranks(daemon, tmp_path):
    spec = spec_file(tmp_path)
    double = ["--set", "trainer.precision=64-true"]
    slow = re.compile(r"\d+ operations have no fast kernel on cpu .*matmul f64")
    planned = daemon.ctl("plan", spec, *double, check=OK).stdout
    dry = daemon.ctl("submit", spec, *double, "--dry-run", "-o", "json", check=OK)
    followed = daemon.ctl("submit", spec, *double, "--follow", check=OK).stderr
    for said in (planned, dry.stderr, followed):
        assert slow.search(said), said
    assert followed.count("no fast kernel") == 1, "said twice"
    assert json.loads(dry.stdout)["trainer"]["precision"] == "64-true"
    assert "no fast kernel" not in daemon.ctl("plan", spec, check=OK).stdout


def test_slow_kernels_are_named_with_op_shape_and_level(daemon, tmp_path):
    spec = spec_file(tmp_path)
    generic = ["--set", "trainer.precision=64-true", "--set", "trainer.cpu_level=generic"]
    note = re.compile(r"\d+ operations have no fast kernel on cpu \([^()]*\bgeneric\b[^()]*\), so they are slow but right: .*"
                      r"\bmatmul f64 to f64\(16,32\)")
    planned = daemon.ctl("plan", spec, *generic, check=OK).stdout
    followed = daemon.ctl("submit", spec, *generic, "--follow", check=OK).stderr
    for said in (planned, followed):
        assert note.search(said), said


@pytest.mark.parametrize("own_s, other_s, words", [
    (0.004, 0.002, "bf16-mixed; 32-true is faster here: 2 ms a step against 4 ms"),
    (0.002, 0.004, "bf16-mixed: 2 ms a step, 32-true 4 ms"),
    (0.004, 0, "bf16-mixed"),
])
def test_plan_says_which_precision_is_faster_here(cluster, tmp_path, own_s, other_s, words):
    daemon = cluster.make("--slots", "1", "--measure-after-ms", "0")
    daemon.bin = with_worker(cluster.folder / "bin", f"""set -o pipefail
        {BIN}/traind-worker "$@" | sed -E 's/"(other_)?step_seconds":[^,}}]*/"\\1step_seconds":{own_s}/g
                                          s/"other_step_seconds":[^,}}]*/"other_step_seconds":{other_s}/'""",
                             verb="plan")
    daemon.start()
    shown = daemon.ctl("plan", spec_file(tmp_path), "--set", "trainer.precision=bf16-mixed", check=OK).stdout
    assert re.search(r"^precision +(.*)$", shown, re.M)[1] == words


def test_plan_prints_the_graph_that_a_pass_leaves_and_lists_the_passes(daemon, tmp_path):
    spec = spec_file(tmp_path)
    recorded = daemon.ctl("plan", spec, "--dump-graph", "record", check=OK).stdout
    planned = daemon.ctl("plan", spec, "--dump-graph", "memory", check=OK).stdout
    assert recorded.startswith("program batch=") and "\nforward:\n" in recorded and "backward:" not in recorded
    assert " arena=" in planned and "backward:" in planned
    unknown = daemon.ctl("plan", spec, "--dump-graph", "fuze")
    assert unknown.returncode == 2 and "fuze" in unknown.stderr and "autodiff, " in unknown.stderr and ", autotune" in unknown.stderr
    assert daemon.ctl_json("plan", spec)["total_steps"] == 96  # what was asked above says nothing of this
