"""CPU levels through the whole system: who may ask for which, that the lower of job and daemon holds, what ranks, nodes
and checkpoints say of it, and what a resumed job makes of another one. Levels below the machine's exist on every
machine that has more than generic; a test of two levels does nothing elsewhere."""
import json
import os
import re
import signal
import subprocess

import pytest

import levels
import ranks
from plans import plan_of, state_of
from ranks import EXIT
from support import BIN, LONG, SPEC, until

PLAIN = {k: v for k, v in os.environ.items() if not k.startswith("TRAIND_")}


def machine_level():
    shown = subprocess.run([BIN / "traind", "--state-dir", "/nowhere", "--dump-config"], env=PLAIN, check=True,
                           capture_output=True, text=True).stdout
    return re.search(r"^cpu-level +(\w+)", shown, re.M)[1]


@pytest.fixture(scope="module", autouse=True)
def nobody_else_holds():
    """A level that all tests are held to by the environment: these hold levels themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRAIND_CPU_ISA", raising=False)
        yield


@pytest.fixture(scope="module")
def here():
    """The names of this machine's levels, the highest last."""
    highest = machine_level()
    return [*levels.below(highest), highest]


@pytest.fixture(scope="module")
def refused(here):
    """Levels that are not there, each with what the refusal says of it."""
    return ([("sse9", "'sse9' is no CPU level; this machine has " + ", ".join(here))] +
            [(name, f"this machine has no CPU level {name}; it has {', '.join(here)}") for name in levels.NAMES[len(here):]])


def first_line(daemon, job):
    """Of the log of rank 0."""
    return daemon.output(job, err_only=True).splitlines()[0]


# ---- who may ask for which -----------------------------------------------------------------------

def test_daemon_does_not_start_at_a_level_that_is_not_there(tmp_path, refused):
    for level, why in refused:
        for args, more in ((["--cpu-level", level], {}), ([], {"TRAIND_CPU_ISA": level})):
            ran = subprocess.run([BIN / "traind", "--state-dir", tmp_path / "state", *args], env=PLAIN | more,
                                 capture_output=True, text=True, timeout=20)
            assert ran.returncode == 2 and why in ran.stderr and "--cpu-level" in ran.stderr, ran.stderr
            assert not (tmp_path / "state").exists()


def test_worker_refuses_a_level_that_is_not_there(tmp_path, refused):
    for level, why in refused:
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps(plan_of()))
        for verb in (["run", "--plan", plan], ["plan", "--plan", plan], ["probe"]):
            for args, more in ((["--cpu-level", level], {}), ([], {"TRAIND_CPU_ISA": level})):
                ran = subprocess.run([ranks.WORKER, *verb, *args], env=more, capture_output=True, text=True, timeout=20)
                assert ran.returncode == EXIT["bad_spec"] and why in ran.stderr, ran.stderr
                assert ("TRAIND_CPU_ISA: " if more else "--cpu-level: ") in ran.stderr


def test_job_above_the_machine_fails_as_a_bad_spec_and_is_not_tried_again(daemon, refused, here):
    for level, why in refused[1:]:
        job = daemon.submit(SPEC, f"trainer.cpu_level={level}")
        failed = daemon.wait_state(job, "FAILED")
        assert getattr(failed.failure, "class") == "bad_spec" and failed.restarts == 0 and failed.attempt == 0
        assert why in failed.failure.message and "trainer.cpu_level" in failed.failure.message
    refusal = daemon.ctl("submit", "-", "--set", "trainer.cpu_level=avx", stdin=SPEC).stderr
    assert "expected auto, generic, avx2, avx512, avx512_bf16 or amx, found text 'avx'" in refusal


# ---- which holds -------------------------------------------------------------------------------

def test_job_below_the_machine_runs_at_its_own_level(daemon, here):
    for level in here:
        job = daemon.submit(SPEC, f"trainer.cpu_level={level}", "trainer.devices=2", "trainer.max_steps=2")
        daemon.finish(job)
        assert re.fullmatch(r"\S+ info rank starts world_size=2 accelerator=cpu "
                            rf"cpu_level={level} threads=\d+ pid=\d+ host=\S+ rank=0", first_line(daemon, job))
        manifest = next((daemon.state_dir / "checkpoints" / job).glob("a1/step-*/manifest.json"))
        assert f", {level}, " in json.loads(manifest.read_text())["resume_key"]["cpu"]


def test_ranks_without_a_launcher_are_held_whatever_else_is_in_their_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAIND_CPU_ISA", "generic")
    for i, env in enumerate((None, {"OMP_NUM_THREADS": "1"})):
        (tmp_path / str(i)).mkdir()
        with ranks.Attempt(tmp_path / str(i), plan_of(trainer={"max_steps": 1}), env=env) as one:
            assert one.wait() == [EXIT["done"]]
            assert b" cpu_level=generic " in one.ranks[0].process.stderr.read()


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_daemon_bounds_its_jobs_and_its_node_says_so(cluster, here, how):
    daemon = cluster.make("--slots", "2", *(["--cpu-level", "generic"] if how == "flag" else []))
    if how == "environment":
        daemon.env["TRAIND_CPU_ISA"] = "generic"
    daemon.start()
    for asked in ("auto", here[-1]):  # the lower one holds, and that is no failure
        job = daemon.submit(SPEC, f"trainer.cpu_level={asked}", "trainer.max_steps=2")
        daemon.finish(job)
        assert " cpu_level=generic " in first_line(daemon, job)
    node, = daemon.nodes()
    assert (node.cpu_level, node.cpu_level_held) == (here[-1], "generic")
    assert daemon.ctl_json("node", "list")["nodes"][0]["cpu_level_held"] == "generic"
    shown = daemon.ctl("node", "list", check=0).stdout
    assert (f"generic of {here[-1]}" if len(here) > 1 else " generic ") in shown


def test_node_list_shows_the_level_of_the_machine(daemon, here):
    heading, row = daemon.ctl("node", "list", check=0).stdout.splitlines()
    assert row[heading.index("CPU"):].split()[0] == here[-1] and f" of {here[-1]}" not in row
    node, = daemon.nodes()
    assert (node.cpu_level, node.cpu_level_held) == (here[-1], here[-1])
    daemon.restart()
    node, = daemon.nodes()
    assert node.cpu_level == here[-1]


def test_worker_by_hand_takes_the_lowest_of_flag_or_environment_and_plan(tmp_path, here):
    top = here[-1]
    cases = [({}, [], "auto", top), ({"TRAIND_CPU_ISA": "generic"}, [], "auto", "generic"),
             ({"TRAIND_CPU_ISA": top}, [], "generic", "generic"), ({}, ["--cpu-level", "generic"], top, "generic"),
             ({"TRAIND_CPU_ISA": "generic"}, ["--cpu-level", top], "auto", top), ({"TRAIND_CPU_ISA": ""}, [], "auto", top)]
    for env, args, asked, level in cases:
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps(plan_of(trainer={"accelerator": "cpu", "cpu_level": asked, "max_steps": 1})))
        ran = subprocess.run([ranks.WORKER, "run", "--plan", plan, *args], env=env, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        assert f" cpu_level={level} " in ran.stderr.splitlines()[0], (env, args, asked)
        probed = subprocess.run([ranks.WORKER, "probe", *args], env=env, capture_output=True, text=True, timeout=60).stdout
        wanted = top if asked != "auto" and not args else level  # a probe has no plan
        assert f", {wanted}, " in json.loads(probed.splitlines()[1])["build"]


def test_run_without_a_daemon_is_held_by_the_environment(tmp_path, refused):
    (tmp_path / "spec.yaml").write_text(SPEC)
    run = lambda level: subprocess.run([BIN / "trainctl", "run", "spec.yaml"], cwd=tmp_path, env=PLAIN | {"TRAIND_CPU_ISA": level},
                                       capture_output=True, text=True, timeout=120)
    for level, why in refused:
        ran = run(level)
        assert ran.returncode == 2 and f"TRAIND_CPU_ISA: {why}" in ran.stderr, (ran.returncode, ran.stderr)
        assert [p.name for p in tmp_path.iterdir()] == ["spec.yaml"]
    ran = run("generic")
    assert ran.returncode == 0, ran.stderr
    assert " cpu_level=generic " in (tmp_path / "small/logs/a1/err.0.log").read_text()
    manifest = next((tmp_path / "small/checkpoints").glob("a1/step-*/manifest.json"))
    assert ", generic, " in json.loads(manifest.read_text())["resume_key"]["cpu"]


# ---- another level when resumed ------------------------------------------------------------------

MLP = {"model": {"name": "mlp", "layers": [16, 96, 64, 4]}}


def autotune(plan_file, *more):
    return subprocess.run([ranks.WORKER, "plan", "--plan", plan_file, "--dump-graph", "autotune", *more], env={}, check=True,
                          capture_output=True, text=True, timeout=60).stdout


def run_part(tmp_path, part, level, resume_from=None, env=None, **run):
    """Exit code, lines and the directory of checkpoints of a run by hand of at most 8 steps."""
    plan = plan_of(trainer={"accelerator": "cpu", "cpu_level": level, "max_steps": 8, "max_epochs": -1, "limit_val_batches": 0},
                   changes=MLP, checkpoint={"every_n_train_steps": 4},
                   run={"checkpoint_dir": str(tmp_path / part), "cache_dir": str(tmp_path / "cache"),
                        "resume_from": resume_from} | run)
    code, lines = ranks.run_by_hand(tmp_path, plan, env=env or {})
    assert code == 0, lines
    return lines, tmp_path / part


def events(lines, kind):
    return [e for e in lines if e.get("event") == kind]


def manifest_of(step_dir):
    return json.loads((step_dir / "manifest.json").read_text())


def caches(folder):
    return {f.read_text().splitlines()[0] for f in folder.glob("cpu-tune-*")}


def test_resume_at_another_level_runs_and_names_the_knob_that_keeps_the_bits(tmp_path, here):
    low, top = "generic", here[-1]
    _, whole = run_part(tmp_path, "whole", low)
    origin = str(whole / "step-4")
    assert f", {low}, " in manifest_of(whole / "step-4")["resume_key"]["cpu"]

    # The knob that the note names: bit for bit, without a word, on a machine that has more.
    lines, same = run_part(tmp_path, "same", low, origin)
    resumed, = events(lines, "resumed")
    assert resumed["exact"] and not resumed["reason"] and not events(lines, "note")
    assert state_of(same / "step-8") == state_of(whole / "step-8")

    if top == low:
        return
    lines, other = run_part(tmp_path, "other", "auto", origin)
    resumed, = events(lines, "resumed")
    assert not resumed["exact"] and resumed["step"] == 4
    assert resumed["reason"] == f"CPU level {low} -> {top}: bits may differ; trainer.cpu_level: {low} keeps them"
    notes = [n["text"] for n in events(lines, "note")]
    assert f"resume is not bit-exact: {resumed['reason']}" in notes
    assert [n for n in notes if re.fullmatch(rf"kernels that were chosen on .*, {low}, .* are chosen again for .*, {top}, .*", n)]
    key = manifest_of(other / "step-8")["resume_key"]["cpu"]
    assert f", {top}, " in key and manifest_of(other / "step-8")["frozen"]["cpu"] == key

    # Where the daemon does not allow it, the knob would not help.
    lines, _ = run_part(tmp_path, "bounded", "auto", str(other / "step-8"), env={"TRAIND_CPU_ISA": low})
    assert f"{top} cannot be had here" in events(lines, "resumed")[0]["reason"]

    # From what it wrote, at its level: nothing is chosen again, and the bits are its own.
    lines, again = run_part(tmp_path, "again", "auto", str(other / "step-8"))
    note, = events(lines, "note")
    assert events(lines, "resumed")[0]["exact"] and note["text"].startswith("nothing is left to train: ")


def test_kernels_frozen_at_another_level_are_not_taken(tmp_path, here):
    """A plan that names the last way of each kernel: it is taken at its own level. At another the first is, because
    nothing is measured without a cache."""
    _, first = run_part(tmp_path, "first", here[-1])
    frozen = manifest_of(first / "step-4")["frozen"]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_of(MLP, trainer={"accelerator": "cpu", "max_steps": 8, "limit_val_batches": 0})))
    shown = autotune(file, "--choices-dir", tmp_path / "none")
    ways = {key: names.split(" or ") for key, names in re.findall(r"^    kernel (.+) = (.+): not measured yet", shown, re.M)}
    assert ways and all(len(names) > 1 for names in ways.values()), shown
    frozen["kernels"] |= {key: names[-1] for key, names in ways.items()}
    lines, taken = run_part(tmp_path, "taken", here[-1], frozen=frozen)
    assert manifest_of(taken / "step-4")["frozen"]["kernels"] == frozen["kernels"] and not events(lines, "note")
    if len(here) == 1:
        return
    lines, _ = run_part(tmp_path, "low", "generic", frozen=frozen, cache_dir=None)
    notes = [n["text"] for n in events(lines, "note")]
    assert [n for n in notes if n.startswith("kernels that were chosen on")], notes
    low = manifest_of(tmp_path / "low/step-4")["frozen"]
    assert ", generic, " in low["cpu"] and low["kernels"] != frozen["kernels"]
    file.write_text(json.dumps(plan_of(MLP, trainer={"accelerator": "cpu", "cpu_level": "generic"}, run={"frozen": frozen})))
    assert autotune(file).endswith("; those frozen in the plan are of other hardware or another CPU level\n")


def test_each_level_has_a_cache_of_its_own(tmp_path, here):
    for level in here:
        run_part(tmp_path, level, level)
    heads = caches(tmp_path / "cache")
    assert len(heads) == len(here)
    for level in here:
        assert sum(f", {level}, " in head for head in heads) == 1


# ---- nodes of different levels -------------------------------------------------------------------

def test_plans_and_kernels_are_made_for_the_level_of_each_node(cluster, here):
    """A job moves from a node that holds generic to one that holds all: another plan, kernels chosen again, and notes."""
    c = cluster.start("--role", "coordinator", "--heartbeat-ms", "200", "--lease-ms", "1000", "--lost-after-ms", "1000", name="c")
    low = cluster.node(c, 2, "low", "--cpu-level", "generic")
    until("it is ready", lambda: len(c.nodes("READY")) == 1)
    job = c.submit(LONG, "trainer.max_steps=400")
    c.wait_checkpoint(job)
    cluster.node(c, 2, "high")
    until("both are ready", lambda: len(c.nodes("READY")) == 2)
    assert {n.name: n.cpu_level_held for n in c.nodes()} == {"low": "generic", "high": here[-1]}
    os.kill(low.launcher(job), signal.SIGKILL)  # the node that lost its launcher is avoided
    done = c.finish(job)
    assert done.attempt == 2 and f" cpu_level={here[-1]} " in first_line(c, job)
    if len(here) > 1:
        assert [n for n in done.notes if "trainer.cpu_level: generic keeps them" in n], done.notes
        assert [n for n in done.notes if "are chosen again for" in n], done.notes
    asked = c.ctl_json("cluster", "info")["counters"]["plans_asked"]
    until("its attempt is forgotten", lambda: not low.attempts())  # it may still send when the second one has ended
    assert low.kill(signal.SIGTERM) == 0
    until("it is gone", lambda: len(c.nodes("READY")) == 1)
    c.finish(c.submit(LONG, "trainer.max_steps=400"))  # the same spec, a node of another level
    assert c.ctl_json("cluster", "info")["counters"]["plans_asked"] == asked + (len(here) > 1)


def test_gang_of_unlike_nodes_runs_at_the_lowest_level_with_its_bits(cluster, here):
    """As two nodes of that level have them, and not as one that holds all."""
    if len(here) == 1:
        return
    c = cluster.start("--role", "coordinator", "--heartbeat-ms", "200", "--lease-ms", "1000", "--lost-after-ms", "1000", name="c")
    node = lambda slots, name, level: cluster.node(c, slots, name, "--collective-interface", "lo", "--cpu-level", level)
    over = lambda n_nodes, devices: c.submit(SPEC, f"trainer.num_nodes={n_nodes}", f"trainer.devices={devices}",
                                             "resources.threads=1", "trainer.max_epochs=1")

    def levels_of(job):
        assert c.finish(job).n_ranks == 2
        return [re.search(r" cpu_level=(\w+) ", c.output(job, rank, err_only=True))[1] for rank in (0, 1)]

    def made(job):
        manifest, = (c.state_dir / "checkpoints" / job).glob("a1/step-*/manifest.json")
        found = json.loads(manifest.read_text())
        return c.weights(job)["model.safetensors"], found["resume_key"], found["frozen"]

    high, _ = node(2, "a", here[-1]), node(1, "b", "generic")
    until("both are ready", lambda: len(c.nodes("READY")) == 2)
    mixed, alone = over(2, 1), over(1, 2)  # two slots are on the high one alone
    assert levels_of(mixed) == ["generic"] * 2 and levels_of(alone) == [here[-1]] * 2
    note = f"all ranks run at CPU level generic, the highest that each of their nodes has; node a has {here[-1]}"
    assert note in c.ctl("describe", mixed, check=0).stdout and note not in c.ctl("describe", alone, check=0).stdout

    until("its attempts are forgotten", lambda: not high.attempts())
    assert high.kill(signal.SIGTERM) == 0
    node(1, "d", "generic")
    until("both are ready", lambda: sorted(n.name for n in c.nodes("READY")) == ["b", "d"])
    low = over(2, 1)
    assert levels_of(low) == ["generic"] * 2 and "all ranks run at CPU level" not in c.ctl("describe", low, check=0).stdout
    assert made(mixed) == made(low)
    assert made(mixed)[0] != made(alone)[0], "the levels differ in their bits"
