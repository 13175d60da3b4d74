"""`trainctl run`: one job in the foreground, without a daemon: its folder, Ctrl-C, resume, refusals."""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess

import numpy
import pytest

from plans import steps_in
from support import BIN, LONG, ROOT, SPEC, below, until, with_worker

OK, JOB_FAILED, USAGE, NOT_FOUND, TIMEOUT, CONFLICT = 0, 1, 2, 3, 6, 7


class Here:
    """A directory to run in; what was started in it is gone at the end of the test."""

    def __init__(self, path):
        self.path, self.started = path, []
        (path / "spec.yaml").write_text(SPEC)
        (path / "long.yaml").write_text(LONG)

    def start(self, *args):
        p = subprocess.Popen([BIN / "trainctl", "run", *map(str, args)], cwd=self.path, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        self.started.append(p)
        return p

    def run(self, *args, check=OK):
        ran = subprocess.run([BIN / "trainctl", "run", *map(str, args)], cwd=self.path, capture_output=True, text=True, timeout=120)
        assert ran.returncode == check, (ran.returncode, ran.stdout, ran.stderr)
        return ran

    def points(self, name, series):
        lines = (self.path / name / "metrics.jsonl").read_text().splitlines()
        return [(p["step"], p["value"]) for p in map(json.loads, lines) if p["name"] == series]

    def weights(self, checkpoint):
        return {f.name: f.read_bytes() for f in (self.path / checkpoint).glob("*.safetensors")}

    def processes(self):
        """pid -> command line of the programs that work in this directory."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace") if entry.name.isdigit() else ""
            except OSError:
                continue
            if str(self.path) in words and "traind-" in words:
                found[int(entry.name)] = words
        return found

    def worker(self):
        found, = [pid for pid, words in self.processes().items() if "traind-worker run" in words and "exec-rank" not in words]
        return found


@pytest.fixture
def here(tmp_path):
    h = Here(tmp_path)
    yield h
    for p in h.started:
        if p.poll() is None:
            p.kill()
        p.communicate()
    until("nothing is left running", lambda: not h.processes(), 30)


def test_training_without_a_daemon_needed_one(here):
    ran = here.run("spec.yaml")
    assert re.search(r"^small SUCCEEDED: step 96, attempt 1$", ran.stdout, re.M) and "test_accuracy" in ran.stdout
    assert [line for line in ran.stderr.splitlines() if line.startswith("epoch ")], ran.stderr
    assert "RUNNING" in ran.stderr and "\r" not in ran.stderr
    last_table = [re.match(r"  (\S+) +", line) for line in ran.stdout.splitlines() if line.startswith("  ")]
    assert {"train_accuracy_epoch", "lr"} < {m[1] for m in last_table} and len({m.end() for m in last_table}) == 1, ran.stdout
    folder = here.path / "small"
    assert {"checkpoints", "metrics.jsonl", "logs"} <= {p.name for p in folder.iterdir()}
    assert (folder / "checkpoints/a1/step-96/manifest.json").exists()
    steps = [step for step, _ in here.points("small", "train_loss_step")]
    assert steps == list(range(1, 97))


def test_timelines_are_where_a_relative_directory_says(here):
    (here.path / "times").mkdir()
    here.run("spec.yaml", "--trace", "times", "--set", "trainer.devices=2", "--set", "trainer.strategy=ddp")
    found = sorted((here.path / "times").iterdir())
    assert [f.name for f in found] == ["timeline-a1-rank0.json", "timeline-a1-rank1.json"]
    names = [e["name"] for e in json.loads(found[0].read_text())]
    assert {"batch", "forward", "backward", "bucket 0", "await bucket 0", "finish", "apply", "save"} <= set(names)


def test_run_of_two_ranks_shares_each_step(here):
    ran = here.run("spec.yaml", "--set", "trainer.devices=2", "-O", "both")
    assert "small SUCCEEDED: step 48" in ran.stdout
    assert [step for step, _ in here.points("both", "train_loss_step")] == list(range(1, 49))
    assert {"err.0.log", "err.1.log"} <= {p.name for p in (here.path / "both/logs/a1").iterdir()}


@pytest.mark.parametrize("ranks", [1, 2])
def test_ctrl_c_saves_and_resume_gives_the_bits_of_an_uninterrupted_run(here, ranks):
    same = ["--set", f"trainer.devices={ranks}", "--set", "trainer.max_steps=400", "--set", "resources.threads=1",
            "--set", "stages=[fit]", "--set", "name='long'"]  # words that a shell would change
    here.run("long.yaml", *same, "-O", "whole")
    p = here.start("long.yaml", *same, "-O", "parts")
    metrics = here.path / "parts/metrics.jsonl"
    until("it trains", lambda: metrics.exists() and metrics.stat().st_size > 2000)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == JOB_FAILED and "STOPPED" in out and "--resume" in out and "with a checkpoint" in err, (out, err)
    stopped = int(re.search(r"step (\d+),", out)[1])
    assert 0 < stopped < 400 and (here.path / f"parts/checkpoints/a1/step-{stopped}/manifest.json").exists(), out
    assert here.points("parts", "train_loss_step")[-1][0] == stopped
    again = shlex.split(re.search(r"^go on with `trainctl run (.*)`$", out, re.M)[1])
    assert again == ["long.yaml", *same, "--output-path", "parts", "--resume"]
    ran = here.run(*again)
    assert "SUCCEEDED: step 400, attempt 2" in ran.stdout and "not bit-exact" not in ran.stderr
    parts, whole = here.weights("parts/checkpoints/a2/step-400"), here.weights("whole/checkpoints/a1/step-400")
    assert parts and parts == whole
    assert here.points("parts", "train_loss_step") == here.points("whole", "train_loss_step")


def test_reasons_of_a_resume_were_notes_and_one_more_note(here):
    here.run("long.yaml", "--set", "trainer.max_steps=20", "-O", "more")
    changed = ["--set", "trainer.devices=2", "--set", "seed_everything=2", "--set", "trainer.max_steps=30"]
    notes = [line for line in here.run("long.yaml", *changed, "-O", "more", "--resume").stderr.splitlines() if line.startswith("note: ")]
    said = [n.removeprefix("note: resume is not bit-exact: ") for n in notes if "bit-exact" in n]
    assert len(said) == 2 and said[0] == "world size 1 -> 2" and said[1].startswith("seed 1 -> 2: "), notes


def test_resume_of_a_run_that_was_over_said_nothing(here):
    here.run("spec.yaml", "-O", "over")
    ran = here.run("spec.yaml", "-O", "over", "--resume")
    assert ("note: nothing is left to train: the checkpoint is of step 96, with 3 epochs done, and max_epochs is 3; "
            "raise trainer.max_epochs to go on\n") in ran.stderr
    assert "SUCCEEDED: step 96" in ran.stdout
    assert "SUCCEEDED: step 128" in here.run("spec.yaml", "-O", "over", "--resume", "--set", "trainer.max_epochs=4").stdout


def test_precision_that_auto_chose_is_a_note(here):
    ran = here.run("spec.yaml", "--set", "trainer.precision=auto", "-O", "auto")
    said, = [line for line in ran.stderr.splitlines() if "trainer.precision" in line]
    manifest = json.loads((here.path / "auto/checkpoints/a1/step-96/manifest.json").read_text())
    assert said.startswith(f"note: trainer.precision: auto chose {manifest['frozen']['precision']}: "), said


def test_points_after_the_checkpoint_were_there_twice_after_a_kill(here):
    same = ["--set", "trainer.max_steps=2000", "-O", "killed"]
    p = here.start("long.yaml", *same)
    until("two checkpoints", lambda: list((here.path / "killed").glob("checkpoints/a1/step-*/manifest.json")))
    p.kill()
    p.communicate()
    # nobody asked the ranks to stop: their launcher does, with a checkpoint
    until("the launcher has ended", lambda: not here.processes(), 30)
    ran = here.run("long.yaml", "--set", "trainer.max_steps=2000", "-O", "killed", "--resume")
    assert "SUCCEEDED: step 2000, attempt 2" in ran.stdout
    steps = [step for step, _ in here.points("killed", "train_loss_step")]
    assert len(steps) == len(set(steps)) and steps == sorted(steps) and steps[-1] == 2000


def test_resume_read_all_points_again_for_each_of_them(here):
    """Half a million of points took minutes of one core before the first step."""
    here.run("long.yaml", "--set", "trainer.max_steps=40", "-O", "many")
    metrics = here.path / "many/metrics.jsonl"
    own = metrics.read_text()
    line = '{"step":%d,"epoch":0,"name":"train_loss_step","value":0.5}\n'
    metrics.write_text("".join(line % 1 for _ in range(600000)) + own + line % 41 + '{"step":2,"epo')
    here.run("long.yaml", "--set", "trainer.max_steps=60", "-O", "many", "--resume")
    kept = here.points("many", "train_loss_step")
    assert len(kept) == 600000 + 60 and [step for step, _ in kept[600000:]] == list(range(1, 61))


def test_stuck_timeout_of_the_spec_was_not_the_launchers(here):
    p = here.start("long.yaml", "--set", "restart.stuck_timeout=1234")
    until("it trains", lambda: (here.path / "long/metrics.jsonl").exists() and here.points("long", "train_loss_step"))
    assert [words for words in here.processes().values() if "traind-launcher run " in words and "--stuck-timeout 1234 " in words]
    p.kill()


def test_second_ctrl_c_stops_without_a_checkpoint(here):
    p = here.start("long.yaml", "--set", "checkpoint.every_n_train_steps=1000000")
    until("it trains", lambda: (here.path / "long/metrics.jsonl").exists() and here.points("long", "train_loss_step"))
    worker = here.worker()
    os.kill(worker, signal.SIGSTOP)  # so that both come within one step
    for words in ("Ctrl-C again stops without one", "Ctrl-C again kills the ranks"):
        p.send_signal(signal.SIGINT)
        while words not in (line := p.stderr.readline()):
            assert line, "it ended without a word about Ctrl-C"
    modes = lambda: [e["mode"] for e in map(json.loads, (here.path / "long/logs/a1/events.log").read_text().splitlines()) if e["event"] == "stop"]
    until("the launcher was asked", lambda: modes() == ["checkpoint", "now"])
    os.kill(worker, signal.SIGCONT)
    out, _ = p.communicate(timeout=60)
    assert p.returncode == JOB_FAILED and "STOPPED" in out and "checkpoint  " not in out, out
    assert not list((here.path / "long/checkpoints/a1").iterdir())


@pytest.mark.parametrize("whom", ["run", "launcher", "rank"])
def test_sigusr1_ended_a_run_and_nothing_was_saved(here, whom):
    p = here.start("long.yaml", "--set", "trainer.devices=2", "--set", "checkpoint.every_n_train_steps=0",
                   "--set", "checkpoint.save_top_k=-1", "--set", "trainer.max_steps=400", "--set", "resources.threads=1")
    until("it trains", lambda: (here.path / "long/metrics.jsonl").exists() and here.points("long", "train_loss_step"))
    word = {"launcher": "traind-launcher run", "rank": "traind-worker run"}.get(whom)
    pid = p.pid if whom == "run" else max(pid for pid, words in here.processes().items() if word in words)
    os.kill(pid, signal.SIGUSR1)
    out, err = p.communicate(timeout=60)
    assert p.returncode == OK and "SUCCEEDED: step 400, attempt 1" in out, (out, err)
    assert ("saving, and going on" in err) == (whom == "run")
    first, last = steps_in(here.path / "long/checkpoints/a1")
    assert 0 < first < last == 400


def test_sigusr1_while_planning_is_no_stop(here):
    programs = with_worker(here.path / "bin", f"kill -USR1 $(awk '/^PPid/ {{print $2}}' /proc/$PPID/status); sleep 0.3; exec {BIN}/traind-worker \"$@\"", verb="plan")
    for program in ("trainctl", "traind-run"):
        shutil.copy(BIN / program, programs)
    ran = subprocess.run([programs / "trainctl", "run", "spec.yaml"], cwd=here.path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == OK and "small SUCCEEDED" in ran.stdout, ran


def test_folder_that_is_there_is_refused_and_left_alone(here):
    (here.path / "small").mkdir()
    (here.path / "small/mine").write_text("precious")
    said = here.run("spec.yaml", check=CONFLICT).stderr
    assert "small" in said and "--resume" in said and "--output-path" in said
    assert below(here.path / "small") == [here.path / "small/mine"]
    here.run("spec.yaml", "-O", "other", "--resume", check=NOT_FOUND)
    assert not (here.path / "other").exists()


def test_folder_that_another_had_made_meanwhile_was_removed(here):
    """A link to nothing plays what comes between the look and the mkdir: it is not this run's to remove."""
    (here.path / "small").symlink_to("nowhere")
    assert "is there already" in here.run("spec.yaml", check=CONFLICT).stderr
    assert (here.path / "small").is_symlink() and not (here.path / "nowhere").exists()


@pytest.mark.parametrize("sets, code, words", [
    (["model.layers=[17, 32, 4]"], JOB_FAILED, "16"),
    (["trainer.devices=200"], JOB_FAILED, "200 ranks"),
    (["model.layers=[16, 1000000, 1000000, 4]"], JOB_FAILED, "UNSATISFIABLE"),
    (["trainer.devcies=2"], USAGE, "did you mean devices"),
])
def test_what_cannot_run_leaves_no_folder(here, sets, code, words):
    said = here.run("spec.yaml", *[x for s in sets for x in ("--set", s)], check=code)
    assert words in said.stderr and not (here.path / "small").exists(), said.stderr


def test_place_that_cannot_be_written_is_known_before_the_first_step(here):
    (here.path / "file").write_text("")
    said = here.run("spec.yaml", "-O", "file/folder", check=USAGE).stderr
    assert "file" in said and "--output-path" in said
    predict = ["--set", "stages=[fit, predict]", "--set", f"predict.output={here.path}/file/predictions.npy"]
    ran = here.run("spec.yaml", *predict, check=JOB_FAILED)
    assert "predict.output: " in ran.stderr and "cannot be written: open the directory" in ran.stderr and not ran.stdout, ran.stderr
    assert not (here.path / "small").exists()


def test_worker_trained_and_then_had_no_place_for_predictions(here):
    plan = {"format": 1, "stages": ["fit", "predict"], "model": {"name": "mlp", "layers": [16, 32, 4]},
            "data": {"name": "synthetic", "samples": 512, "features": 16, "classes": 4, "batch_size": 16},
            "optimizer": {"name": "sgd", "lr": 0.1}, "trainer": {"max_epochs": 1}}
    (here.path / "plan.json").write_text(json.dumps(plan))
    ran = subprocess.run([BIN / "traind-worker", "run", "--plan", here.path / "plan.json"], capture_output=True, text=True, timeout=60)
    end = json.loads(ran.stdout.splitlines()[-1])
    assert ran.returncode == 20 and end["step"] == 0 and "no place for predictions" in end["message"], ran.stdout
    assert "train_loss" not in ran.stdout
    (here.path / "plan.json").write_text(json.dumps({**plan, "stages": ["fit"]}))
    ran = subprocess.run([BIN / "traind-worker", "run", "--plan", here.path / "plan.json"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and ran.stdout.index("no checkpoint will be written") < ran.stdout.index("train_loss")


def test_predictions_are_in_the_folder(here):
    here.run("spec.yaml", "--set", "stages=[fit, predict]")
    assert numpy.load(here.path / "small/predictions.npy").shape == (64,)


def test_rank_that_dies_is_explained_with_its_last_words(here):
    """It spends its time in a plugin, which is not blamed: the signal came from outside."""
    p = here.start("long.yaml")
    until("it trains", lambda: (here.path / "long/metrics.jsonl").exists() and here.points("long", "train_loss_step"))
    os.kill(here.worker(), signal.SIGSEGV)
    out, err = p.communicate(timeout=60)
    assert p.returncode == JOB_FAILED and "FAILED" in out and "signal 11" in out and "internal" in out, out
    assert "last words of rank 0" in err and "err.0.log" in err and f"SIGSEGV sent by process {os.getpid()}, phase" in err, err


@pytest.mark.parametrize("script", ["exec sleep 600", "exec >&-; exec sleep 600"], ids=["says nothing", "closes its output"])
def test_planner_that_hangs_is_given_up_after_the_timeout(here, script):
    programs = with_worker(here.path / "bin", script, verb="plan")
    for program in ("trainctl", "traind-run"):
        shutil.copy(BIN / program, programs)
    ran = subprocess.run([programs / "trainctl", "run", "spec.yaml", "--timeout", "0.5"], cwd=here.path,
                         capture_output=True, text=True, timeout=60)
    assert ran.returncode == TIMEOUT and "planning took more than 0.5 s (--timeout)" in ran.stderr, ran
    assert not (here.path / "small").exists()


@pytest.mark.parametrize("script, words", [
    ("echo 'terminate called' >&2; kill -ABRT $$", "the planner died of signal 6: terminate called"),
    ("kill -KILL $$", "the planner died of signal 9: it said nothing"),
    ("echo gone >&2; exit 3", "the planner ended with code 3 and no answer: gone"),
    ("yes lost | head -c 300000 >&2; exit 3", "the planner ended with code 3 and no answer: lost"),
    ("sleep 30 >&- & kill -ABRT $$", "the planner died of signal 6: it said nothing"),
], ids=["aborts", "is killed", "exits", "says much", "leaves a process"])
def test_planner_that_dies_is_explained_with_its_last_words(here, script, words):
    programs = with_worker(here.path / "bin", script, verb="plan")
    for program in ("trainctl", "traind-run"):
        shutil.copy(BIN / program, programs)
    ran = subprocess.run([programs / "trainctl", "run", "spec.yaml"], cwd=here.path, capture_output=True, text=True, timeout=20)
    assert ran.returncode == JOB_FAILED and f"trainctl: {words}" in ran.stderr, ran
    assert not (here.path / "small").exists()


def test_two_runs_in_one_folder_are_refused(here):
    here.start("long.yaml", "-O", "x")
    until("it trains", lambda: (here.path / "x/metrics.jsonl").exists() and here.points("x", "train_loss_step"))
    assert "held by pid" in here.run("long.yaml", "-O", "x", "--resume", check=CONFLICT).stderr


def test_example_of_the_readme_runs(here):
    assert "synthetic SUCCEEDED" in here.run(ROOT / "examples/synthetic.yaml").stdout
