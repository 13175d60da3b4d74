"""Jobs on a device as far from the host as a real one (tests/plugins/far.c): a queue of its own, that is one run ahead,
and state that is no address, or that has another buffer after each run. What they train, save, evaluate and predict is to
the bit what the reference does; so is what is left after a stop, a kill or a failure of the device."""
import copy
import json
import os
import random
import re
import signal

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from far_plugin import args_of, far, mine  # noqa: F401 (mine is a fixture)
from marks import full_only
from plans import plan_of
from ranks import EXIT, Attempt
from support import until
from test_s07_precision import STORED, manifest_of, scaled_up
from test_s07_workloads import CONVNET, GPT, LLAMA, data  # noqa: F401 (data is a fixture)
from test_s08_resume import OPTIMIZERS
from test_s41_stop import check_agreed

# Runs take longer than the host needs between two, so that one is ahead. A checkpoint is on its way to the host for the
# next few runs.
SLOW = {"delay_us": 1000, "copy_delay_us": 5000}
KINDS = {"plain": SLOW, "by_tensor": SLOW | {"by_tensor": True}}
SAME = re.compile("(train|val|validate|test)_|lr$|grad_norm|loss_scale|skipped")


@pytest.fixture(params=KINDS)
def knobs(request):
    return KINDS[request.param]


class Ran:
    """What a worker's ranks leave: their measurements, but for those of the clock, and the files."""

    def __init__(self, folder, attempt):
        self.folder = folder
        self.metrics = [sorted((m["name"], m["step"], m["epoch"], m["sum"], m["count"]) for m in r.metrics
                               if SAME.match(m["name"])) for r in attempt.ranks]
        self.weights = [e["text"] for e in attempt.ranks[0].event("weights")]
        self.files = {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*"))
                      if f.suffix in (".safetensors", ".npy", ".txt")}

    def names(self):
        return {name for rank in self.metrics for name, *_ in rank}


@pytest.fixture
def both(tmp_path, mine, knobs):  # noqa: F811
    """both(plan, world): the plan runs on the reference and on far, and leaves the same; what far left."""
    def run(plan, world=1, name="out"):
        left = []
        for on, accelerator, args in (("reference", "reference", lambda rank: ()), ("far", far(**knobs), args_of(mine))):
            own = copy.deepcopy(plan) | ({"plugins": [str(mine)]} if on == "far" else {})
            own["trainer"].update(accelerator=accelerator, devices=world)
            own["run"]["checkpoint_dir"] = str(tmp_path / f"{name}-{on}")
            (tmp_path / f"{name}-{on}").mkdir()
            with Attempt(tmp_path, own, world, args_of=args) as attempt:
                assert attempt.wait(60) == [0] * world, attempt.story()
                left.append(Ran(tmp_path / f"{name}-{on}", attempt))
        expected, got = left
        assert got.metrics == expected.metrics
        assert got.files == expected.files and got.files
        assert len(got.weights) == len(expected.weights)
        return got
    return run


def network(model, source, batch=8, **sections):
    """A plan that trains it, with a validation every 3 steps."""
    sections["trainer"] = {"max_steps": 6, "val_check_interval": 3, "limit_val_batches": 2} | sections.get("trainer", {})
    return plan_of({"model": model, "data": dict(source, batch_size=batch, shuffle=True)},
                   checkpoint={"every_n_train_steps": 3, "save_top_k": -1}, **sections)


# ---- what it trains -------------------------------------------------------------------------------
def test_windows_and_a_validation_in_the_middle_of_an_epoch(both):
    """8 batches an epoch and rank, so 4 windows; the validation comes after 3 batches, in the middle of a window."""
    got = both(plan_of(trainer={"max_epochs": 2, "accumulate_grad_batches": 2, "val_check_interval": 3,
                                "limit_val_batches": 2, "gradient_clip_val": 0.5}), world=2)
    assert {"step-%d/model.safetensors" % step for step in range(1, 9)} <= got.files.keys()
    assert [step for name, step, *_ in got.metrics[0] if name == "val_loss"] == [1, 3, 5, 7] and "grad_norm" in got.names()


@pytest.mark.parametrize("precision", STORED)
@pytest.mark.parametrize("optimizer", [o if o == "adamw" else pytest.param(o, marks=full_only) for o in OPTIMIZERS])
def test_state_is_the_same_in_every_precision(both, optimizer, precision):
    trainer = {"precision": precision, "stochastic_rounding": precision == "bf16-true", "max_steps": 6, "gradient_clip_val": 1.0}
    both(plan_of({"optimizer": OPTIMIZERS[optimizer]}, trainer=trainer), world=2)


def test_steps_that_overflow_are_skipped(both, tmp_path, world=2):
    plan = plan_of(trainer={"precision": "16-mixed", "max_steps": 2, "max_epochs": 9, "devices": world,
                            "limit_val_batches": 0})
    plan["run"]["checkpoint_dir"] = str(tmp_path / "first")
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait() == [0] * world, attempt.story()
    scaled_up(tmp_path / "first/step-2", 2.0 ** 40)
    plan["run"]["resume_from"] = str(tmp_path / "first/step-2")
    plan["trainer"]["max_steps"] = 6
    got = both(plan, world)
    last = manifest_of(got.folder / "step-6")
    assert last["loss_scaler"]["skipped_steps"] > 0
    expected = manifest_of(tmp_path / "out-reference/step-6")
    assert last["loss_scaler"] == expected["loss_scaler"]
    assert last["progress"]["samples"] == expected["progress"]["samples"]
    assert not (got.folder / "step-2").exists(), "a skipped step saves nothing"


@pytest.mark.parametrize("world", [1, 2])
def test_decoders_have_the_same_dropout(both, data, world):  # noqa: F811
    for model in (GPT | {"attn_pdrop": 0.1}, LLAMA):
        both(network(model, data["text"]), world, model["name"])


def test_statistics_of_batch_norm_are_those_of_all_ranks(both, data):  # noqa: F811
    got = both(network(CONVNET, data["npy"], trainer={"max_steps": 12}), world=2)  # 8 batches an epoch
    assert [step for name, step, *_ in got.metrics[0] if name == "val_loss"] == [3, 6, 11]
    assert any("running_mean" in name for name in load_file(got.folder / "step-12/model.safetensors"))


# ---- what is evaluated and predicted --------------------------------------------------------------
@pytest.fixture
def trained(tmp_path, data):  # noqa: F811
    """Checkpoints of a gpt that the reference trained, at steps 3 and 6."""
    plan = network(GPT, data["text"], run={"checkpoint_dir": str(tmp_path / "trained")})
    with Attempt(tmp_path, plan) as attempt:
        assert attempt.wait() == [0], attempt.story()
    return tmp_path / "trained"


@pytest.mark.parametrize("world", [1, 2])
def test_weights_of_another_job_are_evaluated_and_predict(both, data, trained, world):  # noqa: F811
    plan = network(GPT, data["text"], batch=7, stages=["validate", "test", "predict"], init_from=str(trained / "step-3"),
                   predict={"values": "logits"}, trainer={"limit_predict_batches": 3})
    got = both(plan, world)
    assert np.load(got.folder / "predictions.npy").shape[1] == 256
    assert {"val_loss", "test_loss"} <= got.names()
    other = both(plan | {"evaluate_from": str(trained / "step-6")}, world, "other")
    assert other.weights and other.files != got.files


def test_best_weights_come_back_to_the_device_after_training(both, data, trained):  # noqa: F811
    plan = network(GPT, data["text"], stages=["fit", "test", "predict"], init_from=str(trained / "step-6"))
    plan["checkpoint"].update(monitor="val_loss", mode="max", save_top_k=1)
    got = both(plan, world=2)
    assert got.weights[0].startswith("best, out-far/step-3 (val_loss "), got.weights
    assert "step-6/model.safetensors" in got.files and "predictions.npy" in got.files


@pytest.mark.parametrize("model", [GPT, LLAMA], ids=["gpt", "llama"])
def test_text_is_the_same(both, data, model, tmp_path):  # noqa: F811
    plan = network(model, data["text"], stages=["fit", "predict"],
                   predict={"prompt": "the quick", "max_new_tokens": 12, "seed": 5})
    got = both(plan)
    assert len((got.folder / "sample.txt").read_bytes()) == 21


# ---- what is left after a disturbance -------------------------------------------------------------
class Jobs:
    """A daemon, and jobs of two ranks on it."""

    def __init__(self, cluster, folder):
        self.daemon, self.folder = cluster.start("--slots", "4", "--plugin-dirs", folder), folder

    def submit(self, accelerator, last, n_ranks=2, **sections):
        spec = {"name": "far", "seed_everything": 3, "plugins": [str(self.folder)],
                "model": {"name": "mlp", "layers": [16, 32, 4]}, "optimizer": {"name": "adamw", "lr": 0.01},
                "data": {"name": "synthetic", "samples": 256, "features": 16, "classes": 4, "batch_size": 8},
                "trainer": {"accelerator": accelerator, "devices": n_ranks, "max_steps": last, "max_epochs": -1,
                            "log_every_n_steps": 1, "val_check_interval": 7, "limit_val_batches": 2},
                "checkpoint": {"every_n_train_steps": 5, "save_top_k": -1}, "restart": {"max": 1, "backoff": [0]}}
        for name, values in sections.items():
            spec[name] = dict(spec.get(name, {}), **values)
        return self.daemon.submit(json.dumps(spec))

    def has_the_bits_of_the_reference(self, job, last, n_ranks=2, attempt=2, **sections):
        """Of one that nobody disturbed, in losses, validations and the last weights."""
        whole, daemon = self.submit("reference", last, n_ranks, **sections), self.daemon
        daemon.finish(whole)
        assert daemon.losses(job, last, n_ranks) == daemon.losses(whole, last, n_ranks)
        validated = [{p.step: p.value for p in daemon.points(j, "val_loss")} for j in (job, whole)]
        assert validated[0] == validated[1] != {}
        assert daemon.weights(job, f"a{attempt}/step-{last}") == daemon.weights(whole, f"a1/step-{last}") != {}


@pytest.fixture
def jobs(cluster, mine):  # noqa: F811
    return Jobs(cluster, mine)


def slow(knobs, delay_us=10000, **more):
    return far(**knobs | {"delay_us": delay_us} | more)


@pytest.mark.parametrize("rank", [0, 1])
def test_job_goes_on_to_the_same_bits_when_a_rank_is_killed(jobs, knobs, rank, last=60):
    job = jobs.submit(slow(knobs), last)
    jobs.daemon.wait_checkpoint(job)
    os.kill(jobs.daemon.workers(job)[rank], signal.SIGKILL)
    done = jobs.daemon.finish(job)
    assert (done.attempt, done.restarts, done.failure.rank) == (2, 1, rank) and "signal 9" in done.failure.message, done
    assert min(p.step for p in jobs.daemon.points(job) if p.attempt == 2) > 5, "it went on from a checkpoint"
    jobs.has_the_bits_of_the_reference(job, last)


@pytest.mark.parametrize("seed", [0] + [pytest.param(i, marks=full_only) for i in range(1, 16)])
def test_job_ends_with_the_same_bits_when_it_is_killed_and_paused_at_random_moments(jobs, knobs, seed, kills=2, last=90):
    rng, daemon = random.Random(seed), jobs.daemon
    job = jobs.submit(slow(knobs), last, restart={"max": kills})
    for kill in range(kills):
        daemon.wait_step(job, rng.randint(0, 25) + kill * 30)
        attempt = daemon.job(job).attempt
        os.kill(rng.choice(until("ranks run", lambda: daemon.workers(job))), signal.SIGKILL)
        until("the next attempt", lambda: daemon.job(job).attempt > attempt)
    daemon.steer("Pause", job)
    daemon.wait_state(job, "PAUSED")
    daemon.steer("Resume", job)
    done = daemon.finish(job)
    assert (done.attempt, done.restarts) == (kills + 2, kills) and not [n for n in done.notes if "exact" in n], done
    jobs.has_the_bits_of_the_reference(job, last, attempt=done.attempt)


@pytest.mark.parametrize("seed", [0, 1] + [pytest.param(i, marks=full_only) for i in range(2, 30)])
def test_ranks_stop_at_one_step_and_leave_their_devices_when_the_job_is_cancelled(jobs, knobs, seed, last=5000):
    rng, daemon = random.Random(seed), jobs.daemon
    job = jobs.submit(slow(knobs), last)
    if rng.randrange(4):
        daemon.wait_step(job, rng.randint(0, 40))
    daemon.steer("Cancel", job)
    assert not daemon.wait_state(job, "CANCELLED", deadline_s=20).HasField("failure")
    until("its slots are free", lambda: daemon.nodes()[0].slots_used == 0)
    check_agreed(daemon, job, 2)
    assert not daemon.workers(job)
    daemon.finish(jobs.submit(far(**knobs), 7))


def test_ranks_stop_at_one_step_and_go_on_to_the_same_bits_when_the_job_is_paused(jobs, knobs, last=60):
    job = jobs.submit(slow(knobs), last)
    jobs.daemon.wait_step(job, 12)
    jobs.daemon.steer("Pause", job)
    paused = jobs.daemon.wait_state(job, "PAUSED")
    assert not paused.HasField("failure") and 12 <= paused.global_step < last, paused
    assert jobs.daemon.losses(job, paused.global_step, 2), "all ranks reported each step, and none made one more"
    assert paused.checkpoint == f"a1/step-{paused.global_step}"
    jobs.daemon.steer("Resume", job)
    assert (jobs.daemon.finish(job).attempt, jobs.daemon.job(job).restarts) == (2, 0)
    assert [p.attempt for p in jobs.daemon.points(job)].count(2) == last - paused.global_step, "no step was made twice"
    jobs.has_the_bits_of_the_reference(job, last)


@pytest.mark.parametrize("every, n_ranks", [(1, 1), (1, 2), (4, 2)])
def test_nothing_is_saved_after_the_step_in_which_the_device_fails(jobs, knobs, every, n_ranks, fails=31, last=40):
    """Updates are counted in each attempt, and the second has too few left to fail: some checkpoint has been committed
    after the first quarter of the job."""
    saves = {"every_n_train_steps": every}
    job = jobs.submit(slow(knobs, fail_at=fails), last, n_ranks, checkpoint=saves)
    done = jobs.daemon.finish(job)
    failure = done.failure
    assert (done.attempt, done.restarts, getattr(failure, "class"), failure.step) == (2, 1, "device", fails - 1), done
    epoch = (fails - 1) // (32 // n_ranks)
    assert failure.message == f"step {fails} (epoch {epoch}): the far device failed in update {fails}, as fail_at asks"
    saved = [c.step for c in jobs.daemon.checkpoints(job) if c.path.startswith("a1/")]
    begins = min(p.step for p in jobs.daemon.points(job) if p.attempt == 2)
    assert max(saved) == begins - 1 and set(saved) <= set(range(every, fails, every)), saved
    jobs.has_the_bits_of_the_reference(job, last, n_ranks, checkpoint=saves)


@pytest.mark.parametrize("where", ["cpu", "far"])
def test_validation_that_meets_no_number_names_its_batch(tmp_path, mine, data, where):  # noqa: F811
    x = np.load(tmp_path / "x.npy").reshape(120, 64).astype("f4") / 255
    np.save(tmp_path / "x.npy", x)
    x[3] = 3e38  # overflows by the weights
    np.save(tmp_path / "large.npy", x)
    save_file({"fc1.weight": np.full((16, 64), 2, "f4")}, tmp_path / "large.safetensors")
    plan = network({"name": "mlp", "layers": [64, 16, 2]}, dict(data["npy"], val_x=str(tmp_path / "large.npy")), batch=2,
                   plugins=[str(mine)], init_from=str(tmp_path / "large.safetensors"), strict=False,
                   trainer={"accelerator": "cpu" if where == "cpu" else far(), "detect_anomaly": True})
    with Attempt(tmp_path, plan, args_of=args_of(mine) if where == "far" else lambda rank: ["--plugin-dirs", mine]) as attempt:
        assert attempt.wait() == [EXIT["numeric"]], attempt.story()
        said = attempt.ranks[0].event("end")[0]["message"]
    assert said.startswith("validation at step 3 (epoch 0), batch 2: anomaly: "), said


# ---- what it needs --------------------------------------------------------------------------------
def test_plan_shows_memory_of_the_device_apart(jobs, knobs, tmp_path):
    def planned(accelerator):
        spec = plan_of(plugins=[str(jobs.folder)], trainer={"accelerator": accelerator, "devices": 2})
        file = tmp_path / "spec.json"
        file.write_text(json.dumps({key: value for key, value in spec.items() if key not in ("format", "run")}))
        numbers = jobs.daemon.ctl_json("plan", file)
        parts = {key.removesuffix("_bytes"): int(value) for key, value in numbers["memory"].items()}
        said = jobs.daemon.ctl("plan", file, check=0).stdout
        return int(numbers["memory_bytes"]) - int(numbers["shared_bytes"]) // 2, parts, re.findall(r"^(?:device )?memory .*$", said, re.M)

    memory, parts, said = planned(far(**knobs))
    plans_itself = knobs.get("by_tensor", False)
    assert parts["device"] == parts["state"] + parts["arena"] + parts["scratch"] + parts["shadow"] > 0, parts
    assert parts["shadow"] == parts["snapshot"] > 0, parts
    assert memory == parts["snapshot"] + parts["batch"] + parts["order"] + parts["process"], parts
    assert (parts["arena"] == 0) == plans_itself, parts
    on_host, on_device = said
    assert not re.search("state|activations|scratch", on_host) and "process" in on_host, said
    assert re.search("state, .*scratch, .*shadow of the snapshot", on_device) and ("activations" in on_device) != plans_itself, said
    _, parts, said = planned("reference")
    assert parts["device"] == parts["shadow"] == 0 < parts["arena"] and len(said) == 1 and "activations" in said[0], (parts, said)


def test_job_that_needs_more_than_the_device_has_fails_with_both_numbers(jobs, knobs):
    """Before it runs, as a job does that needs more memory than resources.memory_bytes allows."""
    job = jobs.submit(far(**knobs), 1, 1, model={"layers": [16, 9000, 9000, 4]})
    failed = jobs.daemon.wait_state(job, "FAILED")
    assert (getattr(failed.failure, "class"), failed.attempt, failed.restarts) == ("out_of_memory", 0, 0), failed
    words = re.match(r"a rank needs (\d+) bytes of its device, 'a device for tests' has 1073741824: (\d+) MiB of state, ",
                     failed.failure.message)
    assert words and int(words[1]) > 1 << 30 and int(words[2]) > 4 * 4 * 81e6 / (1 << 20), failed.failure
