"""A directory of Hugging Face's form brings the model's sizes, and what does not fit is said when the job is planned."""
import json
import shutil

import pytest

from support import SPEC, spec_file

OK, JOB_FAILED, USAGE = 0, 1, 2
GPT = "{name: gpt, n_layer: 2, n_head: 2, n_embd: 16, n_positions: 24}"
LLAMA = ("{name: llama, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 4, "
         "num_key_value_heads: 2, max_position_embeddings: 24}")


def spec_of(tmp_path, model):
    (tmp_path / "text.txt").write_text("a text to learn from, again and again. " * 40)
    return spec_file(tmp_path, f"""
name: sizes
model: {model}
data: {{name: text, path: text.txt, block_size: 16, batch_size: 4}}
optimizer: {{name: adamw, lr: 0.01}}
trainer: {{accelerator: cpu, max_steps: 4}}
checkpoint: {{every_n_train_steps: 2, save_top_k: 1}}
""")


@pytest.fixture(params=[GPT, LLAMA], ids=["gpt", "llama"])
def weights(request, daemon, tmp_path, monkeypatch):
    """A directory as transformers makes it, and the model in short."""
    monkeypatch.chdir(tmp_path)
    daemon.ctl("submit", spec_of(tmp_path, request.param), "--follow", check=OK)
    found = next((daemon.state_dir / "checkpoints").glob("j-*/a1/step-4"))
    shutil.copytree(found, tmp_path / "weights")
    return tmp_path / "weights", request.param.split(",")[0] + "}"


def test_sizes_come_from_the_weights_and_a_restart_has_them(daemon, tmp_path, weights):
    folder, short = weights
    full = daemon.ctl_json("plan", tmp_path / "spec.yaml")
    spec = spec_of(tmp_path, short)
    assert daemon.ctl_json("plan", spec, "--set", "init_from=weights")["parameters"] == full["parameters"]
    job = daemon.ctl("submit", spec, "--set", "init_from=weights", "-o", "name", check=OK).stdout.strip()
    path = daemon.finish(job).checkpoint
    assert json.loads((daemon.state_dir / "checkpoints" / job / path / "config.json").read_text()) == json.loads(
        (folder / "config.json").read_text())
    daemon.ctl("submit", spec, "--set", f"ckpt_path={job}/last", "--set", "trainer.max_steps=6", "--follow", check=OK)


GPT_FAULTS = [("vocab_size", 300, "shape"), ("n_layer", 3, "is missing"), ("n_embd", 10**9, "n_embd: expected an integer"),
              ("n_head", 5, "does not divide"), ("unknown", 1, None)]
LLAMA_FAULTS = [("num_hidden_layers", 3, "is missing"), ("hidden_size", "wide", "hidden_size: expected an integer"),
                ("num_attention_heads", 3, "does not divide"), ("unknown", 1, None)]


def test_sizes_that_do_not_fit_are_refused_when_planned(daemon, tmp_path, weights):
    folder, short = weights
    config = json.loads((folder / "config.json").read_text())
    for key, value, words in GPT_FAULTS if "gpt" in short else LLAMA_FAULTS:
        (folder / "config.json").write_text(json.dumps({**config, key: value}))
        ran = daemon.ctl("plan", spec_of(tmp_path, short), "--set", "init_from=weights", check=JOB_FAILED if words else OK)
        assert not words or words in ran.stderr, (key, ran.stderr)


def test_what_the_spec_gives_stays_and_shapes_are_compared_when_planned(daemon, tmp_path, weights):
    folder, short = weights
    wider = "n_embd=32" if "gpt" in short else "hidden_size=32"
    for verb in ("plan", "submit"):
        said = daemon.ctl(verb, spec_of(tmp_path, short), "--set", "init_from=weights", "--set", f"model.{wider}",
                          *(["--follow"] if verb == "submit" else []), check=JOB_FAILED).stderr
        assert "has shape" in said and "32" in said and "RUNNING" not in said, said


def test_a_damaged_config_is_named(daemon, tmp_path, weights):
    folder, short = weights
    (folder / "config.json").write_text('{"n_layer": ')
    said = daemon.ctl("plan", spec_of(tmp_path, short), "--set", "init_from=weights", check=JOB_FAILED).stderr
    assert f"'{folder}/config.json'" in said, said


def test_a_model_without_sizes_says_where_they_can_come_from(daemon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("gpt", "llama"):
        said = daemon.ctl("plan", spec_of(tmp_path, f"{{name: {name}}}"), check=JOB_FAILED).stderr
        assert "init_from a directory with config.json" in said


def test_a_checkpoint_of_another_model_was_refused_only_when_the_job_ran(daemon, tmp_path):
    job = daemon.submit(SPEC, "stages=[fit]")
    daemon.finish(job)
    spec, wider = spec_file(tmp_path, SPEC), ["--set", f"ckpt_path={job}/last", "--set", "model.layers=[16, 48, 4]"]
    words = "'fc1.weight' has another shape or type: its shape is (32, 16), the model's is (48, 16)"
    for verb in (["plan", spec], ["submit", spec, "--dry-run"], ["submit", spec, "--follow"]):
        ran = daemon.ctl(*verb, *wider, check=JOB_FAILED)
        assert words in ran.stdout + ran.stderr and "RUNNING" not in ran.stderr, ran.stderr
    other_optimizer = ["--set", f"ckpt_path={job}/last", "--set", "optimizer={name: sgd, lr: 0.1}", "--set", "trainer.max_epochs=4"]
    daemon.ctl("submit", spec, *other_optimizer, "--follow", check=OK)
