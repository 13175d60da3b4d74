"""The predict stage: classes and logits of data in one .npy on one rank and on two, and a gpt that
continues a prompt, the same for the same seed."""
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from ranks import EXIT, Attempt, run_by_hand, sizes
from test_s07_workloads import CONVNET, GPT, JOBS, data, plan_of  # noqa: F401 (data is a fixture)


def predict(tmp_path, model, data, world=1, batch=7, **sections):
    """Runs the stage; the attempt's directory."""
    out = tmp_path / f"out-{world}-{batch}"
    plan = plan_of(model, data, batch, stages=["predict"], run={"checkpoint_dir": str(out)}, **sections)
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait(120) == [0] * world, attempt.story()
        notes = [e["text"] for e in attempt.ranks[0].event("note")]
        stages = [(e["stage"], e["state"]) for e in attempt.ranks[0].event("stage")]
    assert stages == [("predict", "start"), ("predict", "done")]
    return out, notes


@pytest.fixture
def trained(tmp_path, data):  # noqa: F811
    """trained(job): a checkpoint of it."""
    made = {}

    def of(job):
        if job not in made:
            model, kind = JOBS[job]
            plan = plan_of(model, data[kind], 8, trainer={"max_steps": 8, "limit_val_batches": 0},
                           run={"checkpoint_dir": str(tmp_path / job)})
            with Attempt(tmp_path, plan) as attempt:
                assert attempt.wait(120) == [0], attempt.story()
            made[job] = str(tmp_path / job / "step-8")
        return made[job]
    return of


def test_predictions_are_those_of_the_evaluation_on_any_number_of_ranks(tmp_path, data, trained):  # noqa: F811
    source = dict(init_from=trained("convnet"))
    out, notes = predict(tmp_path, CONVNET, data["npy"], **source)
    classes = np.load(out / "predictions.npy")
    assert classes.dtype == np.int32 and classes.shape == (120,)
    (tmp_path / "plan.json").write_text(json.dumps(plan_of(CONVNET, data["npy"], 7, stages=["predict"],
                                                            predict={"output": str(tmp_path / "p.npy")})))
    assert sizes(tmp_path / "plan.json")["total_steps"] == 0, "nothing is trained"
    assert f"predictions of 120 samples are in {out}/predictions.npy" in notes
    code, lines = run_by_hand(tmp_path, plan_of(CONVNET, data["npy"], 8, stages=["test"],
                                                run={"job": None}, **source))
    accuracy, = [line["sum"] / line["count"] for line in lines if line.get("name") == "test_accuracy"]
    assert code == 0
    assert accuracy == pytest.approx((classes == np.load(tmp_path / "y.npy")).mean(), abs=1e-6)

    out, _ = predict(tmp_path, CONVNET, data["npy"], batch=9, ckpt_path=trained("convnet"))
    assert (np.load(out / "predictions.npy") == classes).all(), "a checkpoint resumed is no other"

    logits = []
    for world, batch in ((1, 120), (2, 7)):
        out, _ = predict(tmp_path, CONVNET, data["npy"], world, batch, predict={"values": "logits"}, **source)
        logits.append(np.load(out / "predictions.npy"))
        assert logits[-1].dtype == np.float32 and logits[-1].shape == (120, 2)
        assert (logits[-1].argmax(1) == classes).all()
    assert np.allclose(*logits, atol=1e-6)


@pytest.mark.parametrize("samples", [103, 1])
def test_predictions_are_all_there_when_ranks_have_not_equally_many(tmp_path, data, samples):  # noqa: F811
    """Of 103 samples rank 0 has 52 and rank 1 has 51: 3 and 2 after seven batches of 7. Of one, 1 and 0."""
    for part in ("x", "y"):
        np.save(tmp_path / f"{part}.npy", np.load(tmp_path / f"{part}.npy")[-samples:])
    data["npy"]["classes"] = 2
    logits = []
    for world in (1, 2):
        out, notes = predict(tmp_path, {"name": "mlp", "layers": [64, 8, 2]}, data["npy"], world,
                             predict={"values": "logits"})
        logits.append(np.load(out / "predictions.npy"))
        assert logits[-1].shape == (samples, 2)
        assert f"predictions of {samples} samples are in {out}/predictions.npy" in notes
    assert np.allclose(*logits, atol=1e-6)


@pytest.mark.parametrize("accelerator", ["reference", "cpu"])
@pytest.mark.parametrize("precision, close", [("32-true", 1e-5), ("64-true", 1e-5), ("bf16-mixed", 0.05),
                                              ("bf16-true", 0.05), ("16-mixed", 0.01), ("16-true", 0.01)])
def test_logits_are_read_back_in_every_precision(tmp_path, data, trained, precision, close,  # noqa: F811
                                                 accelerator):
    for job in ("convnet", "gpt", "llama"):
        model, kind = JOBS[job]
        found = []
        for batch, trainer in ((8, {}), (7, {"precision": precision, "accelerator": accelerator})):
            out, _ = predict(tmp_path, model, data[kind], batch=batch, init_from=trained(job),
                             predict={"values": "logits"}, trainer=trainer)
            found.append(np.load(out / "predictions.npy"))
        assert np.abs(found[0] - found[1]).max() <= close * np.abs(found[0]).max()


def test_limit_says_how_many_batches_are_predicted(tmp_path, data):  # noqa: F811
    out, _ = predict(tmp_path, CONVNET, data["npy"], trainer={"limit_predict_batches": 3})
    assert np.load(out / "predictions.npy").shape == (21,)


@pytest.mark.parametrize("job", ["gpt", "llama"])
def test_decoder_predicts_what_follows_each_row(tmp_path, data, trained, job):  # noqa: F811
    model = JOBS[job][0]
    out, _ = predict(tmp_path, model, data["text"], init_from=trained(job), predict={"values": "logits"})
    logits = np.load(out / "predictions.npy")
    text = (tmp_path / "text").read_bytes()
    held_out = text[len(text) - len(text) // 10:]
    assert logits.shape == ((len(held_out) - 1) // 16, 256)

    # The continuation of a row by one byte is its likeliest class.
    row = held_out[3 * 16:4 * 16]
    out, _ = predict(tmp_path, model, data["text"], batch=5, init_from=trained(job),
                     predict={"prompt": row.decode(), "max_new_tokens": 1, "temperature": 0})
    assert (out / "sample.txt").read_bytes() == row + bytes([logits[3].argmax()])


def test_text_is_the_same_when_the_seed_is(tmp_path, data, trained):  # noqa: F811
    samples = {}
    for name, world, knobs in (("a", 1, {"seed": 5}), ("again", 1, {"seed": 5}), ("two", 2, {"seed": 5}),
                               ("other", 1, {"seed": 6}), ("greedy", 1, {"seed": 7, "top_k": 1}),
                               ("coldest", 1, {"temperature": 0})):
        output = tmp_path / f"{name}.txt"
        _, notes = predict(tmp_path, GPT, data["text"], world, init_from=trained("gpt"),
                           predict=dict({"prompt": "the quick", "max_new_tokens": 40,
                                         "output": str(output)}, **knobs))
        samples[name] = output.read_bytes()
        assert len(samples[name]) == 49 and samples[name].startswith(b"the quick")
        assert any(n.startswith(f"49 tokens are in {output}: the quick") for n in notes)
    assert samples["a"] == samples["again"] == samples["two"] != samples["other"]
    assert samples["greedy"] == samples["coldest"]


def test_tokens_are_numbers_when_they_are_not_bytes(tmp_path, data, trained):  # noqa: F811
    tokens = dict(data["tokens"], vocab_size=300)
    out, _ = predict(tmp_path, dict(GPT, vocab_size=300), tokens,
                     predict={"prompt_tokens": [10, 116, 299], "max_new_tokens": 5})
    written = [int(t) for t in (out / "sample.txt").read_text().split()]
    assert written[:3] == [10, 116, 299] and len(written) == 8 and max(written) < 300


def test_checkpoint_is_as_before_when_a_job_fits_and_predicts(tmp_path, data):  # noqa: F811
    plan = plan_of(CONVNET, data["npy"], 8, stages=["fit", "predict"], trainer={"max_steps": 2},
                   run={"checkpoint_dir": str(tmp_path / "both")})
    with Attempt(tmp_path, plan) as attempt:
        assert attempt.wait(60) == [0], attempt.story()
    saved = tmp_path / "both/step-2"
    assert not [n for n in load_file(saved / "model.safetensors") if "logits" in n]
    assert "logits" not in (saved / "manifest.json").read_text()
    assert np.load(tmp_path / "both/predictions.npy").shape == (120,)


@pytest.mark.parametrize("job, knobs, text", [
    ("convnet", {"prompt": "a"}, "model 'convnet' does not continue texts"),
    ("gpt-tokens", {"prompt": "a"}, "token 0 of the prompt is 97; the data has tokens 0 to 96"),
    ("gpt", {"prompt_tokens": [256]}, "token 0 of the prompt is 256; the data has tokens 0 to 255"),
    ("gpt", {}, "predict.output"),
])
def test_run_says_what_is_wrong_with_the_prompt(tmp_path, data, job, knobs, text):  # noqa: F811
    model, kind = JOBS[job]
    source = dict(data[kind], vocab_size=97) if job == "gpt-tokens" else data[kind]
    if job == "gpt-tokens":
        np.full(400, 5, "<u2").tofile(tmp_path / "train.bin")
    place = {"output": str(tmp_path / "sample.txt")} if knobs else {}
    code, lines = run_by_hand(tmp_path, plan_of(model, source, stages=["predict"], predict={**knobs, **place},
                                                run={"job": None}))
    assert code == EXIT["bad_spec"] and text in lines[-1]["message"], json.dumps(lines[-1])


def test_output_is_written_by_one_job_at_a_time_and_stays_what_it_was(tmp_path, data):  # noqa: F811
    """The second is refused at its start, by the name of a link, too. What is written is the file that the
    link leads to, with its mode, and a file of the old temporary name is another's."""
    (tmp_path / "runs").mkdir()
    kept, link = tmp_path / "runs/p.npy", tmp_path / "link.npy"
    kept.write_text("old")
    kept.chmod(0o600)
    link.symlink_to(kept)
    (tmp_path / "runs/p.npy.tmp").write_text("somebody's")

    def plan(job, output, steps):
        return plan_of(CONVNET, data["npy"], 8, stages=["fit", "predict"], predict={"output": str(output)},
                       trainer={"max_steps": steps}, run={"checkpoint_dir": str(tmp_path / job), "job": job})
    with Attempt(tmp_path, plan("j-1", link, 10_000_000)) as first:
        first.until(lambda a: a.ranks[0].step > 0)
        with Attempt(tmp_path, plan("j-2", kept, 1)) as second:
            assert second.wait(60) == [EXIT["bad_spec"]], second.story()
            assert f"another job writes '{kept}'" in second.story() and "(job j-1 on " in second.story()
        first.stop()
        assert first.wait(60) == [EXIT["stopped"]], first.story()
    with Attempt(tmp_path, plan("j-3", link, 1)) as third:
        assert third.wait(60) == [0], third.story()
    assert np.load(kept).shape == (120,) and kept.stat().st_mode & 0o777 == 0o600 and link.is_symlink()
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["p.npy", "p.npy.tmp"]
    assert (tmp_path / "runs/p.npy.tmp").read_text() == "somebody's"
