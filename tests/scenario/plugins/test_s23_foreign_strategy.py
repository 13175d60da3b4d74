"""A strategy from outside the tree, examples/plugins/local_sgd.c: built against include/traind, loaded from the plugin
directory, and run by the worker with two ranks. It reduces no gradient, writes parameters itself, and keeps state of the
job and of each rank in checkpoints."""
import json
import os
import shutil
import signal
import subprocess

import pytest
from safetensors.numpy import load_file

import support
from far_plugin import args_of, far, mine  # noqa: F401 (mine is a fixture)
from plans import losses, plan_of, state_of, steps_in
from ranks import Attempt, EXIT

SOURCE = (support.ROOT / "examples/plugins/local_sgd.c").read_text()
STATE = "    .state_save = local_state_save,\n    .state_load = local_state_load,\n"
FAULT = """
static td_status local_post_backward(struct td_strategy *s) {
    static int backwards;
    const float bad = 1e30f * 1e30f;
    if (s->config.global_rank != 1 || ++backwards != 2) return TD_OK;
    return s->config.accel_ops->copy(s->config.accel, s->memory->region[TD_ROLE_GRAD], 0,
                                     td_buffer_of_host(&bad, sizeof bad), 0, sizeof bad);
}
"""
SILENCE = """
#include "traind/rewrite.h"
static td_status local_rewrite(struct td_strategy *s, struct td_graph *g, const struct td_program_key *key) {
    (void)s;
    if (key->mode != TD_MODE_TRAIN) return TD_OK;
    TD_TRY(td_rewrite_assign_buckets(g, TD_BUCKET_FIRST_BYTES, TD_BUCKET_CAP_BYTES));
    return key->sync ? td_rewrite_all_reduce(g) : TD_OK;
}
static td_status local_reduce_gradients(struct td_strategy *s, const struct td_bucket *bucket) {
    (void)s, (void)bucket;
    return TD_OK;
}
"""


def changed(*changes):
    text = SOURCE
    for at, put in changes:
        assert text.count(at) == 1, at
        text = text.replace(at, put)
    return text


def with_slots(code, slots):
    table = "static const struct td_strategy_ops ops"
    return changed((table, code + table), (STATE, STATE + slots))


# One that keeps nothing of itself, one whose second gradient of rank 1 is infinite, once, and one that has all_reduce
# nodes, and reduces nothing in them, the control tail included.
CODE = {
    "local_sgd": SOURCE,
    "vague_sgd": changed((STATE, ""), ("resumes_exactly = true", "resumes_exactly = false")),
    "faulty_sgd": with_slots(FAULT, "    .post_backward = local_post_backward,\n"),
    "deaf_sgd": with_slots(SILENCE, "    .rewrite = local_rewrite,\n    .reduce_gradients = local_reduce_gradients,\n"),
}
KEPT = "plugins.safetensors"


@pytest.fixture
def tree(build, tmp_path, monkeypatch):
    """An installation of its own with the strategy in it, and its variants."""
    for folder in ("bin", "lib"):
        shutil.copytree(build / folder, tmp_path / "tree" / folder)
    plugins = tmp_path / "tree/lib/traind"
    for name, code in CODE.items():
        source = tmp_path / f"{name}.c"
        source.write_text(code.replace('(STRATEGY, "local_sgd"', f'(STRATEGY, "{name}"'))
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror",
                        "-Wno-unused-function", "-shared", "-fPIC", f"-I{support.ROOT}/include", source, "-o", plugins / f"strategy-{name}.so"], check=True)
    monkeypatch.setattr("ranks.WORKER", tmp_path / "tree/bin/traind-worker")
    return tmp_path / "tree"


def named(strategy, **knobs):
    return {"name": "plugin", "strategy": strategy, "knobs": knobs} if strategy else "auto"


def plan_for(directory, strategy="local_sgd", world=2, resume_from=None, knobs={}, **trainer):
    return plan_of(trainer={"accelerator": "cpu", "devices": world, "max_steps": 11, "max_epochs": -1,
                            "limit_val_batches": 0, "strategy": named(strategy, **knobs), **trainer},
                   run={"checkpoint_dir": str(directory), "resume_from": resume_from and str(resume_from)})


def train(tmp_path, plan, world=2):
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait(60) == [0] * world, attempt.story()
        return attempt.ranks


def reasons(rank):
    return [e["reason"] for e in rank.event("resumed")]


@pytest.fixture
def whole(tree, tmp_path):
    """A run that nothing interrupts."""
    return train(tmp_path, plan_for(tmp_path / "whole"))


def test_ranks_part_and_meet_again_when_the_strategy_takes_means(tree, tmp_path, whole):
    ddp = train(tmp_path, plan_for(tmp_path / "ddp", None))
    first = [losses(r.metrics)[1] for r in whole]
    assert first == [losses(r.metrics)[1] for r in ddp], "the first loss is that of the same weights"
    assert [losses(r.metrics)[5] for r in whole] != [losses(r.metrics)[5] for r in ddp]
    for step in range(1, 12):
        kept = load_file(tmp_path / f"whole/step-{step}" / KEPT)
        assert set(kept) == {"strategy.local_sgd.whole", "strategy.local_sgd.rank-0", "strategy.local_sgd.rank-1"}
        assert int(kept["strategy.local_sgd.whole"].view("<i8")[0]) == step // 3, "means so far"
        ranks = [kept[f"strategy.local_sgd.rank-{r}"] for r in range(2)]
        assert [int(r[:8].view("<i8")[0]) for r in ranks] == [step % 3] * 2
        params = sum(v.nbytes + -v.nbytes % 64 for v in load_file(tmp_path / f"whole/step-{step}/model.safetensors").values())
        equal = bytes(ranks[0][8:8 + params]) == bytes(ranks[1][8:8 + params])
        assert equal == (step % 3 == 0), "equal right after a mean, and only then"


@pytest.mark.parametrize("by_tensor", [False, True])
@pytest.mark.parametrize("strategy, precision", [("local_sgd", "32-true"), ("faulty_sgd", "16-mixed")])
def test_bits_are_the_references_when_state_is_on_a_device(tree, tmp_path, mine, strategy, precision, by_tensor):  # noqa: F811
    """faulty_sgd has a hook after each backward segment, too, and writes a gradient in it, once in each process."""
    def run(name, accelerator, args, resume_from=None):
        plan = plan_for(tmp_path / name, strategy, accelerator=accelerator, precision=precision, accumulate_grad_batches=2,
                        resume_from=resume_from)
        if name != "reference":
            plan["plugins"] = [str(mine)]
        with Attempt(tmp_path, plan, 2, args_of=args) as attempt:
            assert attempt.wait(60) == [0, 0], attempt.story()
        states = {step: state_of(tmp_path / name / f"step-{step}") for step in steps_in(tmp_path / name)}
        return [losses(r.metrics) for r in attempt.ranks], states

    expected = run("reference", "reference", lambda rank: ())
    got = run("far", far(by_tensor=by_tensor, delay_us=500, copy_delay_us=5000), args_of(mine))
    assert got == expected and max(got[1]) == 11 and KEPT in got[1][11]
    if strategy == "local_sgd":
        rest = run("rest", far(by_tensor=by_tensor), args_of(mine), tmp_path / "far/step-4")
        assert rest[1] == {step: state for step, state in got[1].items() if step > 4}


def test_knobs_of_the_strategy_are_its_own(tree, tmp_path):
    train(tmp_path, plan_for(tmp_path / "run", knobs={"every": 4}))
    for step in range(1, 12):
        kept = load_file(tmp_path / f"run/step-{step}" / KEPT)
        assert int(kept["strategy.local_sgd.whole"].view("<i8")[0]) == step // 4
    for knobs, said in ({"every": 0}, "trainer.strategy.knobs.every: "), ({"evry": 2}, "did you mean every?"):
        with Attempt(tmp_path, plan_for(tmp_path / "none", knobs=knobs, world=1)) as attempt:
            assert attempt.wait(60) == [EXIT["bad_spec"]]
            assert said in attempt.story()


def test_strategy_counts_optimizer_steps_when_gradients_are_accumulated(tree, tmp_path):
    train(tmp_path, plan_for(tmp_path / "run", accumulate_grad_batches=3, max_steps=4))
    for step in range(1, 5):
        kept = load_file(tmp_path / f"run/step-{step}" / KEPT)
        assert int(kept["strategy.local_sgd.whole"].view("<i8")[0]) == step // 3, "means so far"
        assert int(kept["strategy.local_sgd.rank-1"][:8].view("<i8")[0]) == step % 3, "steps since the last one"


@pytest.mark.parametrize("step", [4, 6])
def test_resume_gives_the_same_bits_between_means_and_at_one(tree, tmp_path, whole, step):
    rest = train(tmp_path, plan_for(tmp_path / "rest", resume_from=tmp_path / f"whole/step-{step}"))
    assert reasons(rest[0]) == [""] and rest[0].event("resumed")[0]["exact"]
    for one, other in zip(rest, whole):
        assert losses(one.metrics) == {s: v for s, v in losses(other.metrics).items() if s > step}
    assert state_of(tmp_path / "rest/step-11") == state_of(tmp_path / "whole/step-11")


def test_note_says_so_when_a_strategy_does_not_resume_exactly(tree, tmp_path):
    train(tmp_path, plan_for(tmp_path / "first", "vague_sgd"))
    assert not (tmp_path / "first/step-4" / KEPT).exists()
    rest = train(tmp_path, plan_for(tmp_path / "rest", "vague_sgd", resume_from=tmp_path / "first/step-4"))
    said = "strategy vague_sgd does not resume exactly: a checkpoint does not hold all that its steps depend on"
    assert reasons(rest[0]) == [said]
    assert f"resume is not bit-exact: {said}" in str(rest[0].event("note"))
    ddp = train(tmp_path, plan_for(tmp_path / "ddp", None, resume_from=tmp_path / "first/step-4"))
    assert reasons(ddp[0]) == ["strategy vague_sgd -> ddp"], "nothing was kept, and its steps are others"


@pytest.mark.parametrize("strategy, world, said", [
    ("local_sgd", 1, "strategy local_sgd: its state is not taken over, because it is of 2 ranks and the world size is now 1"),
    (None, 2, "strategy local_sgd -> ddp: the state of local_sgd is not taken over"),
    ("vague_sgd", 2, "strategy local_sgd -> vague_sgd: the state of local_sgd is not taken over"),
])
def test_state_is_dropped_aloud_when_it_has_no_taker(tree, tmp_path, whole, strategy, world, said):
    plan = plan_for(tmp_path / "rest", strategy, world, tmp_path / "whole/step-6")
    rest = train(tmp_path, plan, world)
    assert said in reasons(rest[0])[0].split("; ")
    assert f"resume is not bit-exact: {said}" in str(rest[0].event("note"))


def test_strategy_begins_as_in_a_new_run_when_the_checkpoint_has_nothing_of_it(tree, tmp_path):
    train(tmp_path, plan_for(tmp_path / "first", None))
    rest = train(tmp_path, plan_for(tmp_path / "rest", resume_from=tmp_path / "first/step-6"))
    said = reasons(rest[0])[0].split("; ")
    assert "strategy local_sgd begins as in a new run: the checkpoint has nothing of it" in said
    assert "plugin strategy-local_sgd changed" in said


def test_older_checkpoint_is_taken_when_the_plugins_file_is_damaged(tree, tmp_path, whole):
    kept = tmp_path / "whole/step-6" / KEPT
    entry = [f for f in json.loads((kept.parent / "manifest.json").read_text())["files"] if f["name"] == KEPT]
    assert entry[0]["bytes"] == kept.stat().st_size
    data = bytearray(kept.read_bytes())
    data[-1] ^= 1
    kept.write_bytes(data)
    plan = plan_for(tmp_path / "rest", resume_from=kept.parent)
    plan["run"]["resume_before"] = [str(tmp_path / "whole/step-5")]
    rest = train(tmp_path, plan)
    assert KEPT in str(rest[0].event("skipped_checkpoint"))
    assert rest[0].event("resumed")[0]["step"] == 5
    assert state_of(tmp_path / "rest/step-11") == state_of(tmp_path / "whole/step-11")


def test_state_of_another_length_is_refused_by_name(tree, tmp_path, whole):
    plan = plan_for(tmp_path / "rest", resume_from=tmp_path / "whole/step-6")
    plan["optimizer"] = {"name": "sgd", "lr": 0.01}  # which remembers nothing
    with Attempt(tmp_path, plan, 2) as attempt:
        assert attempt.wait(60)[0] in (EXIT["data"], EXIT["collective"])
        assert "load the state of strategy 'local_sgd': local_sgd kept" in attempt.story()


def test_all_ranks_stop_at_one_step_when_no_bucket_carries_their_flags(tree, tmp_path):
    with Attempt(tmp_path, plan_for(tmp_path / "run", max_steps=1000000), 2) as attempt:
        attempt.until(lambda a: a.ranks[0].step >= 5)
        attempt.stop(ranks=[attempt.ranks[1]])
        assert attempt.wait(60) == [EXIT["stopped"]] * 2, attempt.story()
        assert attempt.ranks[0].step == attempt.ranks[1].step
        assert (tmp_path / f"run/step-{attempt.ranks[0].step}/manifest.json").exists()


def test_strategy_is_refused_at_the_first_step_when_it_does_not_sum_the_control_tail(tree, tmp_path):
    with Attempt(tmp_path, plan_for(tmp_path / "run", "deaf_sgd"), 2) as attempt:
        assert EXIT["user_code"] in attempt.wait(60)
        assert "strategy 'deaf_sgd' did not sum the control tail over the world: 1 of each of 2 ranks" in attempt.story()
        assert [r.step for r in attempt.ranks] == [0, 0]
    train(tmp_path, plan_for(tmp_path / "alone", "deaf_sgd", world=1), world=1)


def test_ranks_skip_the_same_steps_when_gradients_are_not_reduced(tree, tmp_path):
    ranks = train(tmp_path, plan_for(tmp_path / "run", "faulty_sgd", precision="16-mixed", max_steps=6))
    for r in ranks:
        skipped = [m["sum"] for m in r.metrics if m["name"] == "skipped_steps"]
        assert skipped == [0, 1, 1, 1, 1, 1], "rank 1 alone saw a gradient that is not finite"



def test_job_goes_on_to_the_same_weights_when_a_rank_was_killed(cluster, tree):
    daemon = cluster.make("--slots", "2")
    daemon.bin = tree / "bin"
    daemon.start()
    spec = json.dumps({
        "model": {"name": "mlp", "layers": [16, 32, 4]}, "optimizer": {"name": "adamw", "lr": 0.01},
        "data": {"name": "synthetic", "samples": 500, "batch_size": 32, "shuffle": True},
        "trainer": {"accelerator": "cpu", "devices": 2, "max_steps": 8000, "strategy": named("local_sgd", every=16)},
        "checkpoint": {"every_n_train_steps": 7, "save_top_k": 1}, "restart": {"backoff": [0]}})
    whole = daemon.submit(spec)
    daemon.finish(whole)
    cut = daemon.submit(spec)
    daemon.wait_step(cut, 60)
    os.kill(support.until("ranks run", lambda: daemon.workers(cut))[1], signal.SIGKILL)
    done = daemon.finish(cut)
    assert done.restarts == 1 and not any("not bit-exact" in n for n in done.notes)
    last = [daemon.state_dir / "checkpoints" / job / f"a{n}/step-8000" for job, n in ((whole, 1), (cut, 2))]
    assert state_of(last[0]) == state_of(last[1]) and KEPT in state_of(last[1])
