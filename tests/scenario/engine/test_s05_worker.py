"""The worker alone: a plan file in, metrics, events and checkpoints out. Ranks are real processes,
their launcher is tests/ranks.py."""
import copy
import ctypes
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess

import pytest

import ranks
import support
from plans import losses, no_leftovers, plan_of, state_of, steps_in
from ranks import EXIT, Attempt, run_by_hand

FULL = bool(os.environ.get("TD_FULL"))

# ---- by hand -------------------------------------------------------------------------------------

def test_run_prints_metrics_and_events_as_json_lines_when_no_launcher(tmp_path):
    plan = plan_of(stages=["fit", "test"], run={"job": None}, checkpoint={"dir": str(tmp_path)})
    code, lines = run_by_hand(tmp_path, plan)
    assert code == 0
    kinds = [line["event"] for line in lines if "event" in line]
    assert kinds[0] == "ready" and kinds[-1] == "end" and lines[-1]["outcome"] == "done"
    assert "step1" in kinds and "checkpoint" in kinds
    metrics = {line["name"]: line for line in lines if "name" in line}
    assert {"train_loss_step", "train_accuracy_step", "val_loss", "val_accuracy", "test_loss",
            "test_accuracy", "lr", "samples_per_s"} <= set(metrics)
    assert len(losses([line for line in lines if "sum" in line])) == 3 * 16
    assert metrics["train_loss_step"]["step"] == 48
    assert 0 < metrics["test_accuracy"]["value"] <= 1


def test_run_prints_where_the_time_went_when_asked(tmp_path):
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(json.dumps(plan_of(trainer={"accelerator": "cpu", "max_steps": 2},
                                            checkpoint={"save_top_k": 0})))
    run = subprocess.run([ranks.WORKER, "run", "--plan", plan_file, "--profile"],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    table = [line.split() for line in run.stderr.splitlines()]
    runs = {line[1]: int(line[3]) for line in table if line[:1] == ["train"] and line[2:3] == ["f32"]}
    # two layers of the mlp: two products forward, three backward
    assert runs["adamw"] == 2 * 4 and runs["matmul"] == 2 * 5
    total, = [line for line in table if line[:3] == ["train", "all", "kernels"]]
    assert float(total[3]) > 0
    assert not list(tmp_path.rglob("profile.json"))  # that is for trainer.profile


def test_second_run_takes_a_new_attempt_when_the_first_left_checkpoints(tmp_path):
    plan = plan_of(run={"job": None}, checkpoint={"dir": str(tmp_path / "ck")},
                   trainer={"max_steps": 2})
    assert run_by_hand(tmp_path, plan)[0] == 0
    assert run_by_hand(tmp_path, plan)[0] == 0
    assert steps_in(tmp_path / "ck/t/a1") and steps_in(tmp_path / "ck/t/a2")


def start_by_hand(plan, tmp_path):
    """A worker that trains: it has made its first step."""
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(json.dumps(plan))
    process = subprocess.Popen([ranks.WORKER, "run", "--plan", plan_file], stdout=subprocess.PIPE)
    for line in process.stdout:
        if b'"step1"' in line:
            break
    return process


def test_interrupt_stops_with_a_checkpoint_when_run_by_hand(tmp_path):
    plan = plan_of(run={"job": None}, trainer={"max_epochs": 100000},
                   checkpoint={"dir": str(tmp_path / "ck"), "every_n_train_steps": 0,
                               "every_n_epochs": 0, "save_top_k": 1})
    process = start_by_hand(plan, tmp_path)
    process.send_signal(signal.SIGINT)
    lines = [json.loads(line) for line in process.stdout]
    assert process.wait(20) == EXIT["stopped"]
    process.stdout.close()
    saved = [line for line in lines if line.get("event") == "checkpoint"]
    assert lines[-1]["outcome"] == "stopped" and len(saved) == 1 and saved[0]["final"]
    assert saved[0]["step"] == lines[-1]["step"]


def test_sigusr1_by_hand_saves_and_goes_on(tmp_path):
    plan = plan_of(run={"job": None}, trainer={"max_epochs": 100000},
                   checkpoint={"dir": str(tmp_path / "ck"), "every_n_train_steps": 0,
                               "every_n_epochs": 0, "save_top_k": 1})
    process = start_by_hand(plan, tmp_path)
    process.send_signal(signal.SIGUSR1)
    saved = next(line for line in map(json.loads, process.stdout) if line.get("event") == "checkpoint")
    assert not saved["final"]
    process.send_signal(signal.SIGUSR2)
    assert list(map(json.loads, process.stdout))[-1]["outcome"] == "stopped" and process.wait(20) == EXIT["stopped"]
    process.stdout.close()


def signals_of(task, row):
    line = next(line for line in (task / "status").read_text().splitlines() if line.startswith(row))
    return {sig for sig in signal.valid_signals() if int(line.split()[1], 16) >> (sig - 1) & 1}


def test_no_thread_that_trains_can_be_interrupted(tmp_path):
    """oneDNN's sgemm keeps its stack pointer in the heap: a handler's frame there destroys what is before it."""
    stops = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
    plan = plan_of(trainer={"accelerator": "cpu", "max_epochs": 1000000}, checkpoint={"save_top_k": 0},
                   run={"job": None, "threads_per_rank": 2})
    process = start_by_hand(plan, tmp_path)
    tasks = list(pathlib.Path(f"/proc/{process.pid}/task").iterdir())
    caught = [signals_of(task, "SigCgt:") & stops for task in tasks]
    open_to = [signals_of(task, "SigBlk:") & stops != stops for task in tasks]
    process.terminate()
    assert b'"stopped"' in process.communicate(timeout=20)[0] and process.returncode == EXIT["stopped"]
    assert len(tasks) >= 3 and caught == [set()] * len(tasks)
    assert sum(open_to) <= 1, "only the thread that waits for them"


@pytest.mark.parametrize("change, code, text", [
    ({"model": {"name": "mlp", "layers": [17, 4]}}, "bad_spec", "17"),
    ({"data": {"name": "idx", "path": "/nonexistent", "batch_size": 8},
      "model": {"name": "mlp", "layers": [784, 10]}}, "data", "/nonexistent"),
    ({"trainer": {"devices": 2}, "run": {"world_size": 2}}, "bad_spec", "launcher"),
    ({"format": 2}, "bad_spec", "format"),
])
def test_run_says_class_and_reason_when_the_plan_cannot_be_trained(tmp_path, change, code, text):
    exit_code, lines = run_by_hand(tmp_path, plan_of(change))
    end = lines[-1]
    assert end["event"] == "end" and end["outcome"] == "failed" and end["class"] == code
    assert exit_code == EXIT[code]
    assert text in end["message"]


@pytest.mark.parametrize("limit", ["OMP_THREAD_LIMIT=1", "OMP_MAX_ACTIVE_LEVELS=0"])
def test_run_refuses_a_team_that_the_environment_makes_smaller(tmp_path, limit):
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(json.dumps(plan_of(trainer={"accelerator": "cpu"},
                                            run={"threads_per_rank": 2})))
    name, value = limit.split("=")
    run = subprocess.run([ranks.WORKER, "run", "--plan", plan_file], capture_output=True, text=True,
                         env={**os.environ, name: value}, timeout=60)
    end = json.loads(run.stdout.splitlines()[-1])
    assert end["class"] == "bad_spec" and "OpenMP gives 1 of 2 threads" in end["message"]
    assert run.returncode == EXIT["bad_spec"]


# ---- numbers -------------------------------------------------------------------------------------

def test_loss_fails_with_class_numeric_when_it_is_not_finite(tmp_path):
    plan = plan_of({"optimizer": {"name": "sgd", "lr": 1e6}}, trainer={"max_epochs": 50},
                   checkpoint={"dir": str(tmp_path / "ck"), "save_top_k": 1}, run={"job": None})
    code, lines = run_by_hand(tmp_path, plan)
    assert code == EXIT["numeric"] and lines[-1]["class"] == "numeric"
    assert "step" in lines[-1]["message"]


@pytest.mark.parametrize("trainer, steps, validations", [
    # 500 samples in batches of 32 are 16 batches an epoch.
    ({"max_epochs": 2}, 32, 2),
    ({"max_epochs": 0}, 0, 0),
    ({"max_steps": 20}, 20, 1),
    ({"max_epochs": 2, "max_steps": 40}, 32, 2),
    ({"max_epochs": 2, "limit_train_batches": 5}, 10, 2),
    ({"max_epochs": 2, "limit_train_batches": 0.5}, 16, 2),
    ({"max_epochs": 2, "val_check_interval": 0.25}, 32, 8),
    ({"max_epochs": 2, "val_check_interval": 5}, 32, 6),
    ({"max_epochs": 3, "check_val_every_n_epoch": 2}, 48, 1),
    ({"max_epochs": 2, "limit_val_batches": 0}, 32, 0),
    ({"max_epochs": 2, "accumulate_grad_batches": 3}, 12, 2),
    ({"max_epochs": 2, "accumulate_grad_batches": 100}, 2, 2),
    ({"max_epochs": 2, "accumulate_grad_batches": 3, "val_check_interval": 4}, 12, 8),
])
@pytest.mark.parametrize("world", [1, 2])
def test_loop_counts_follow_the_limits(tmp_path, world, trainer, steps, validations):
    plan = plan_of(trainer=trainer, checkpoint={"save_top_k": 0},
                   data={"batch_size": 32 // world})
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait() == [0] * world, attempt.story()
        for rank in attempt.ranks:
            assert rank.event("end")[0]["step"] == rank.step == steps
            assert len([m for m in rank.metrics if m["name"] == "train_loss_step"]) == steps
            assert len([m for m in rank.metrics if m["name"] == "val_loss"]) == validations


def test_evaluation_counts_each_sample_once_when_ranks_differ(tmp_path):
    plan = plan_of(stages=["fit", "validate", "test"], trainer={"max_epochs": 1, "devices": 2})
    with Attempt(tmp_path, plan, 2) as two:
        assert two.wait() == [0, 0]
        counts = {}
        for rank in two.ranks:
            for m in rank.metrics:
                if m["name"] in ("val_loss", "test_accuracy") and m["step"] == 8:
                    counts.setdefault(m["name"], []).append((m["sum"], m["count"]))
    code, lines = run_by_hand(tmp_path, plan_of(stages=["fit", "validate", "test"],
                                                trainer={"max_epochs": 1}))
    assert code == 0
    whole = [line["count"] for line in lines if line.get("name") == "val_loss"][0]
    for values in counts.values():
        assert sum(count for _, count in values) in (whole, 2 * whole)


# Contract 1: two ranks learn what one learns with their global batch
def test_two_ranks_learn_what_one_learns_when_the_global_batch_is_equal(tmp_path):
    base = dict(data={"shuffle": False, "samples": 512}, trainer={"max_epochs": 2})
    code, lines = run_by_hand(tmp_path, plan_of(**base))
    assert code == 0
    base["data"]["batch_size"] = 16
    with Attempt(tmp_path, plan_of(**base), 2) as two:
        assert two.wait() == [0, 0]
        merged = {}
        for rank in two.ranks:
            for step, (total, count) in losses(rank.metrics).items():
                a, b = merged.get(step, (0, 0))
                merged[step] = (a + total, b + count)
    for step, (total, count) in losses([line for line in lines if "sum" in line]).items():
        assert merged[step][1] == count
        assert merged[step][0] / count == pytest.approx(total / count, rel=2e-4, abs=2e-5)


def test_windows_equal_one_large_batch_when_gradients_accumulate(tmp_path):
    base = dict(data={"shuffle": False, "samples": 480}, trainer={"max_epochs": 2})
    _, large = run_by_hand(tmp_path, plan_of(**base))
    base["data"]["batch_size"] = 8
    base["trainer"]["accumulate_grad_batches"] = 4
    code, small = run_by_hand(tmp_path, plan_of(**base))
    assert code == 0
    a, b = (losses([line for line in lines if "sum" in line]) for lines in (large, small))
    assert a.keys() == b.keys() and len(a) == 30
    for step in a:
        assert b[step][0] == pytest.approx(a[step][0], rel=2e-4)


# ---- exact resume --------------------------------------------------------------------------------

def reference_run(tmp_path, plan, world, env=None):
    with Attempt(tmp_path, plan, world, env) as attempt:
        assert attempt.wait(60) == [0] * world, attempt.story()
        return [losses(r.metrics) for r in attempt.ranks]


def resume_until_done(tmp_path, plan, world, rng, env=None, kills=3):
    """Kills rank after rank at random steps, resumes from the newest durable checkpoint."""
    seen = [{} for _ in range(world)]
    newest, attempts = None, 0
    while True:
        attempts += 1
        directory = tmp_path / f"resumed/a{attempts}"
        plan["run"].update(attempt=attempts, checkpoint_dir=str(directory), resume_from=newest)
        with Attempt(tmp_path, plan, world, env) as attempt:
            if attempts <= kills:
                start = 0 if newest is None else int(newest.split("-")[-1])
                at = start + rng.randint(1, 12)
                attempt.until(lambda a: a.ranks[0].step >= at or
                              a.ranks[0].process.poll() is not None, 60)
                attempt.kill(rng.randrange(world))
            codes = attempt.wait(60)
            for r, rank in enumerate(attempt.ranks):
                seen[r].update(losses(rank.metrics))
            resumed = attempt.ranks[0].event("resumed")
            assert newest is None or (resumed and resumed[0]["exact"]), attempt.story()
            saved = [e["step"] for e in attempt.ranks[0].event("checkpoint")]
        if codes == [0] * world:
            return seen
        if saved:
            newest = str(directory / f"step-{max(saved)}")


@pytest.mark.parametrize("world, threads, accelerator", [
    (1, 1, "reference"), (2, 1, "reference"), (1, 2, "cpu"), (2, 1, "cpu")])
def test_resume_gives_the_same_bits_when_killed_at_random_steps(tmp_path, world, threads,
                                                                accelerator):
    plan = plan_of(trainer={"accelerator": accelerator, "accumulate_grad_batches": 2,
                            "max_epochs": 4, "val_check_interval": 5},
                   run={"threads_per_rank": threads, "checkpoint_dir": str(tmp_path / "whole")})
    whole = reference_run(tmp_path, plan, world)
    for round_ in range(5 if FULL else 1):
        shutil.rmtree(tmp_path / "resumed", ignore_errors=True)
        pieces = resume_until_done(tmp_path, copy.deepcopy(plan), world,
                                   random.Random(17 * world + round_))
        final = steps_in(tmp_path / "whole")[-1]
        for r in range(world):
            assert pieces[r] == whole[r]
        last, = (tmp_path / "resumed").glob(f"*/step-{final}")
        assert state_of(last) == state_of(tmp_path / f"whole/step-{final}")


@pytest.mark.parametrize("world", [1, 2])
def test_kernel_choices_are_those_of_the_first_start_when_the_cache_says_otherwise(tmp_path, world):
    def run(name, cache, steps=6, **more):
        plan = plan_of({"model": {"name": "mlp", "layers": [16, 96, 64, 4]}},
                       trainer={"accelerator": "cpu", "max_steps": steps},
                       run={"checkpoint_dir": str(tmp_path / name), "cache_dir": str(cache), **more})
        with Attempt(tmp_path, plan, world) as attempt:
            assert attempt.wait(60) == [0] * world, attempt.story()
        last = tmp_path / name / f"step-{steps}"
        return json.loads((last / "manifest.json").read_text())["frozen"]["kernels"], state_of(last)

    other = {"matmul": "inner_product", "inner_product": "matmul", "own": "inner_product"}
    kernels, _ = run("half", tmp_path / "cache", steps=3)
    again, whole = run("whole", tmp_path / "cache")
    assert again == kernels
    assert len(kernels) >= 3 and set(kernels.values()) <= set(other)
    cache, = (tmp_path / "cache").glob("cpu-tune-*")
    head, *choices = cache.read_text().splitlines()
    assert set(choices) == {f"{key}={name}" for key, name in kernels.items()}
    # Another job of this machine takes the cache's word, and a resumed one that of its checkpoint.
    cache.write_text("\n".join([head, *(f"{k}={other[v]}" for k, v in kernels.items())]) + "\n")
    assert run("another", tmp_path / "cache")[0] == {k: other[v] for k, v in kernels.items()}
    resumed = run("resumed", tmp_path / "cache", resume_from=str(tmp_path / "half/step-3"), attempt=2)
    assert resumed == (kernels, whole)
    assert run("deleted", tmp_path / "none", resume_from=str(tmp_path / "half/step-3"),
               attempt=2) == (kernels, whole)


def test_resume_says_that_it_is_not_exact_when_the_world_changes(tmp_path):
    plan = plan_of(run={"checkpoint_dir": str(tmp_path / "a1")}, trainer={"max_steps": 5})
    with Attempt(tmp_path, plan, 2) as two:
        assert two.wait() == [0, 0]
    plan = plan_of(run={"checkpoint_dir": str(tmp_path / "a2"),
                        "resume_from": str(tmp_path / "a1/step-5")})
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        note = one.ranks[0].event("note")[0]["text"]
        resumed = one.ranks[0].event("resumed")[0]
        # 5 steps of 2 x 32 samples are gone; the rest of the epoch is 180 samples in 6 batches.
        assert max(m["step"] for m in one.ranks[0].metrics if m["epoch"] == 0) == 5 + 6
    assert note == "resume is not bit-exact: world size 2 -> 1"
    assert not resumed["exact"] and resumed["step"] == 5


def test_what_the_last_validation_found_counts_after_a_resume(tmp_path):
    """Until the next one, checkpoints are ranked by it."""
    def run(part, steps, resume_from=None):
        plan = plan_of(trainer={"max_steps": steps},
                       run={"checkpoint_dir": str(tmp_path / part), "resume_from": resume_from})
        code, lines = run_by_hand(tmp_path, plan)
        assert code == 0, lines[-1]
        return json.loads((tmp_path / part / f"step-{steps}/manifest.json").read_text())["metrics"]

    batches = 16  # an epoch, then a validation
    before = run("a", batches + 1)
    assert before["val_loss"]["count"] > 0
    after = run("b", batches + 2, str(tmp_path / f"a/step-{batches + 1}"))
    assert after["val_loss"] == before["val_loss"] and after["train_loss_step"] != before["train_loss_step"]


def test_init_from_takes_weights_only(tmp_path):
    plan = plan_of(run={"checkpoint_dir": str(tmp_path / "a1")}, trainer={"max_steps": 5})
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0]
    plan = plan_of(init_from=str(tmp_path / "a1/step-5"), trainer={"max_steps": 2},
                   optimizer={"lr": 0.0, "weight_decay": 0.0},
                   run={"checkpoint_dir": str(tmp_path / "a2")})
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0]
    name = "model.safetensors"
    assert state_of(tmp_path / "a2/step-2")[name] == state_of(tmp_path / "a1/step-5")[name]


# ---- agreement -----------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["pause", "cancel"])
def test_ranks_stop_at_the_same_step_when_asked_at_random_moments(tmp_path, how):
    rng = random.Random(3)
    for i in range(100 if FULL else 8):
        directory = tmp_path / f"{how}-{i}"
        plan = plan_of(trainer={"max_epochs": 1000000, "val_check_interval": 3,
                                "accumulate_grad_batches": 1 + i % 3},
                       checkpoint={"every_n_train_steps": 0, "every_n_epochs": 0, "save_top_k": 1},
                       run={"checkpoint_dir": str(directory)})
        with Attempt(tmp_path, plan, 2) as two:
            at = rng.randint(1, 40)
            two.until(lambda a: a.ranks[i % 2].step >= at)
            word = ranks.STOP_CHECKPOINT if how == "pause" else ranks.STOP_NOW
            # One rank receives it first; the other possibly much later, or never.
            two.stop(word, [two.ranks[rng.randrange(2)]])
            assert two.wait() == [EXIT["stopped"]] * 2, two.story()
            ends = [r.event("end")[0] for r in two.ranks]
        assert ends[0]["step"] == ends[1]["step"] >= at
        assert steps_in(directory) == ([ends[0]["step"]] if how == "pause" else [])
        assert no_leftovers(tmp_path)


@pytest.mark.parametrize("world", [1, 2])
def test_pausing_and_resuming_changes_nothing_when_done_at_random_moments(tmp_path, world):
    plan = plan_of(trainer={"max_epochs": 4, "val_check_interval": 3,
                            "accumulate_grad_batches": 2},
                   checkpoint={"every_n_train_steps": 0, "every_n_epochs": 0, "save_top_k": 1},
                   data={"samples": 1000, "batch_size": 8},
                   run={"checkpoint_dir": str(tmp_path / "whole")})
    names = ("train_loss_step", "train_loss_epoch", "train_accuracy_epoch", "val_loss", "val_accuracy")
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait() == [0] * world
        whole = [[losses(r.metrics, name) for name in names] for r in attempt.ranks]
    final, = (tmp_path / "whole").glob("step-*")

    rng = random.Random(world)
    pieces = [[{} for _ in names] for _ in range(world)]
    codes, pauses, newest = None, 0, None
    while codes != [0] * world:
        directory = tmp_path / f"a{pauses}"
        plan["run"].update(checkpoint_dir=str(directory), resume_from=newest)
        with Attempt(tmp_path, plan, world) as attempt:
            at = int(newest.split("-")[-1]) if newest else 0
            at += rng.randint(1, 9)
            if pauses:  # the first one is asked before it trains, so there is always a second
                attempt.until(lambda a: a.ranks[0].step >= at or
                              a.ranks[0].process.poll() is not None)
            attempt.stop(ranks=[rng.choice(attempt.ranks)])
            codes = attempt.wait()
            for r, rank in enumerate(attempt.ranks):
                for i, name in enumerate(names):
                    pieces[r][i].update(losses(rank.metrics, name))
            saved = attempt.ranks[0].event("checkpoint")
        if saved:
            newest = str(directory / f"step-{saved[-1]['step']}")
        pauses += 1
    assert pauses > 1 and pieces == whole
    assert state_of(newest) == state_of(final)


def test_pause_lets_the_job_end_when_the_last_step_is_done(tmp_path):
    plan = plan_of(stages=["fit", "test"], trainer={"max_steps": 1}, checkpoint={"save_top_k": 1},
                   run={"checkpoint_dir": str(tmp_path / "a1")})
    with Attempt(tmp_path, plan, 2) as two:
        two.stop()
        assert two.wait() == [0, 0], two.story()
    assert steps_in(tmp_path / "a1") == [1]


def test_checkpoint_is_saved_once_when_it_is_asked_for(tmp_path):
    plan = plan_of(trainer={"max_epochs": 1000000},
                   checkpoint={"every_n_train_steps": 0, "every_n_epochs": 0, "save_top_k": 1},
                   run={"checkpoint_dir": str(tmp_path / "a1")})
    with Attempt(tmp_path, plan, 2) as two:
        two.until(lambda a: a.ranks[1].step >= 5)
        for rank in two.ranks:
            rank.set_word("checkpoint", 1)
        two.until(lambda a: a.ranks[0].event("checkpoint"))
        later = two.ranks[0].step + 50
        two.until(lambda a: a.ranks[1].step >= later)
        saved = two.ranks[0].event("checkpoint")
        assert len(saved) == 1 and not saved[0]["final"] and not two.ranks[1].event("checkpoint")
        two.stop(ranks.STOP_NOW)
        assert two.wait() == [EXIT["stopped"]] * 2


def test_peers_leave_with_class_collective_when_a_rank_is_killed(tmp_path):
    with Attempt(tmp_path, plan_of(trainer={"max_epochs": 1000000}), 2) as two:
        two.until(lambda a: a.ranks[0].step >= 3)
        two.kill(1)
        assert two.wait(10) == [EXIT["collective"], -signal.SIGKILL], two.story()
        assert two.ranks[0].event("end")[0]["class"] == "collective"


def test_time_limit_ends_all_ranks_at_one_step(tmp_path):
    plan = plan_of(trainer={"max_epochs": -1, "max_time": 1},
                   checkpoint={"every_n_train_steps": 0, "save_top_k": 1},
                   run={"checkpoint_dir": str(tmp_path / "a1")})
    with Attempt(tmp_path, plan, 2) as two:
        assert two.wait() == [0, 0]
        steps = {r.event("end")[0]["step"] for r in two.ranks}
    assert len(steps) == 1 and steps == set(steps_in(tmp_path / "a1"))


# ---- last words ----------------------------------------------------------------------------------

def test_last_words_name_signal_and_step_when_a_rank_crashes(tmp_path):
    with Attempt(tmp_path, plan_of(trainer={"max_epochs": 1000000})) as one:
        one.until(lambda a: a.ranks[0].step >= 3)
        pid = one.ranks[0].process.pid
        ctypes.CDLL(None).tgkill(pid, pid, signal.SIGSEGV)  # of its threads the one that trains
        assert one.wait() == [-signal.SIGSEGV]
        rank = one.ranks[0]
        words = bytes(rank.page[ranks.OFFSET["last_words"]:][:1024]).split(b"\0")[0].decode()
        assert rank.word("signal") == signal.SIGSEGV
    assert words.startswith("SIGSEGV") and "step" in words
    places = words.split("backtrace ")[1].split()
    assert all(re.fullmatch(r"[\w.@-]+\+0x[0-9a-f]+|0x[0-9a-f]+", p) for p in places[:-1])  # the last may be cut
    assert any(p.startswith("td_train+") for p in places), words  # libtraind.so exports it
    assert any(p.startswith("traind-worker+") for p in places), words  # main has no name there


# ---- a plugin that was not built with the tree ---------------------------------------------------
STALE = """
#include "traind/accelerator.h"
#include "traind/plugin.h"
static td_status probe(struct td_accel_facts *out_facts) { (void)out_facts; __builtin_trap(); }
#define TRAP(slot) .slot = (void *)probe
static const struct td_accelerator_ops ops = {.struct_bytes = sizeof ops, .probe = probe, TRAP(open), TRAP(close),
    TRAP(mem_alloc), TRAP(mem_free), TRAP(copy), TRAP(compile), TRAP(run), TRAP(wait), TRAP(release)};
TD_PLUGIN(ACCELERATOR, "stale", "traps when it is called", &ops)
"""


def test_plugin_built_for_other_ops_is_refused_by_name(build, tmp_path):
    for folder in ("bin", "lib"):
        shutil.copytree(build / folder, tmp_path / folder)
    shutil.copytree(support.ROOT / "include", tmp_path / "include")
    table = tmp_path / "include/traind/ops.def"
    table.write_text(table.read_text().replace("TD_OP(ADD,", 'TD_OP(SPLICED, "spliced", 1, 1, 1, 0)\nTD_OP(ADD,'))
    (tmp_path / "stale.c").write_text(STALE)
    subprocess.run([os.environ.get("CC", "cc"), "-w", "-shared", "-fPIC", f"-I{tmp_path}/include", tmp_path / "stale.c",
                    "-o", tmp_path / "lib/traind/accelerator-stale.so"], check=True)
    probed = subprocess.run([tmp_path / "bin/traind-worker", "probe"], capture_output=True, text=True, timeout=60)
    found = {a["accelerator"]: a for a in map(json.loads, probed.stdout.splitlines())}
    assert probed.returncode == 0 and "error" not in found["reference"], probed.stderr
    assert "op 1 was 'spliced', here that is 'add': rebuild it" in found["stale"]["error"]
