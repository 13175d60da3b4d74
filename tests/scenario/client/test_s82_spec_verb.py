"""The spec of a job as people read it and hand it in again; JSON that is no text within JSON."""
import json

import pytest

from support import LONG, ROOT, SPEC

OK = 0
AWKWARD = """
name: awkward
stages: [fit]
model: {name: mlp, layers: [16, 32, 4], activation: relu}
data: {name: synthetic, samples: 512, features: 16, classes: 4, batch_size: 16}
optimizer: {name: adamw, lr: 1.0e-05, groups: [{match: "*bias*", weight_decay: 0.0}, {match: "on", lr_scale: 0.1}, {match: "a b: #c \\"d\\" größe 'e'", lr_scale: 1.0}]}
trainer: {accelerator: cpu, devices: 1, max_epochs: 1, limit_val_batches: 0}
"""


def resolved(daemon, text):
    request = daemon.cluster.stubs.job.ValidateJobRequest(spec=text)
    return json.loads(daemon.stub("Job").ValidateJob(request, timeout=30).spec_json)


def test_spec_that_is_printed_gives_the_same_job_again(daemon, tmp_path):
    job = daemon.submit(SPEC, "trainer.devices=2", "name='123'", "optimizer.lr=2e-5", "optimizer.groups=[]")
    daemon.finish(job)
    whole = daemon.ctl_json("spec", job)
    brief, wide = (daemon.ctl("spec", job, *form, check=OK).stdout for form in ((), ("-o", "wide")))
    assert "name: '123'\n" in brief and "  lr: 2e-05\n" in brief and "groups" not in brief
    assert len(brief.splitlines()) < 25 and "groups: []" in wide and len(wide.splitlines()) > 60
    for text in (brief, wide):
        (tmp_path / "again.yaml").write_text(text)
        again = daemon.ctl("submit", tmp_path / "again.yaml", "-o", "name", check=OK).stdout.strip()
        assert daemon.ctl_json("spec", again) == whole and again != job
        daemon.finish(again)


def test_dry_run_prints_yaml_as_the_spec_of_the_job_would_be(daemon, tmp_path):
    (tmp_path / "job.yaml").write_text(AWKWARD)
    dry = ["submit", tmp_path / "job.yaml", "--set", "name=007", "--set", "optimizer.groups=[]", "--dry-run"]
    shown = daemon.ctl(*dry, check=OK).stdout
    assert shown.startswith("name: '007'\nkind: train\n") and "\n  betas: [0.9, 0.999]\n" in shown
    assert daemon.ctl(*dry, "-o", "wide", check=OK).stdout == shown
    made = daemon.ctl("submit", "-", "-o", "name", stdin=shown, check=OK).stdout.strip()
    assert daemon.ctl("spec", made, "-o", "wide", check=OK).stdout == shown
    whole = daemon.ctl(*dry, "-o", "json", check=OK).stdout
    assert whole == daemon.ctl("spec", made, "-o", "json", check=OK).stdout and whole.startswith('{\n  "name": "007"')
    assert json.loads(daemon.ctl(*dry, "-o", "jsonl", check=OK).stdout) == json.loads(whole)
    daemon.finish(made)


@pytest.mark.parametrize("example", sorted(p.name for p in (ROOT / "examples").glob("*.yaml")))
def test_spec_of_every_example_stays_what_it_was(daemon, example):
    text = (ROOT / "examples" / example).read_text()
    job = daemon.ctl("submit", ROOT / "examples" / example, "--set", "resources.threads=1", "-o", "name", check=OK).stdout.strip()
    brief = daemon.ctl("spec", job, check=OK).stdout
    assert resolved(daemon, brief) == daemon.ctl_json("spec", job)
    keys = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(brief.splitlines()) < 4 * len(keys) + 40
    daemon.ctl("cancel", job, check=OK)


def test_describe_shows_what_differs_as_yaml_and_everything_when_asked(daemon):
    job = daemon.submit(SPEC, "trainer.devices=2")
    daemon.finish(job)
    short, wide = (daemon.ctl("describe", job, *form, check=OK).stdout for form in ((), ("-o", "wide")))
    brief = daemon.ctl("spec", job, check=OK).stdout
    assert short.endswith("\nspec\n" + "".join(f"  {line}\n" for line in brief.splitlines()))
    assert "    devices: 2\n" in short and "deterministic" not in short.split("\nspec\n")[1]
    assert "    deterministic: false\n" in wide and "{" not in short


@pytest.mark.parametrize("text", [SPEC, LONG, AWKWARD])
def test_spec_survives_whatever_its_texts_are(daemon, text):
    job = daemon.submit(text)
    for form in ((), ("-o", "wide")):
        assert resolved(daemon, daemon.ctl("spec", job, *form, check=OK).stdout) == daemon.ctl_json("spec", job), form
    daemon.ctl("cancel", job)


def nested_json(value):
    if isinstance(value, str):
        return value[:1] == "{"
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(nested_json(v) for v in values)


def test_no_view_has_json_within_a_text(daemon, tmp_path):
    job = daemon.submit(SPEC)
    daemon.finish(job)
    (tmp_path / "job.yaml").write_text(SPEC)
    views = (["list"], ["describe", job], ["spec", job], ["checkpoint", "list", job], ["plan", tmp_path / "job.yaml"],
             ["node", "list"], ["plugins"], ["cluster", "info"], ["metrics", job], ["wait", job])
    for view in views:
        for form in ("json", "jsonl"):
            out = daemon.ctl(*view, "-o", form, check=OK).stdout
            values = [json.loads(out)] if form == "json" else [json.loads(line) for line in out.splitlines()]
            assert values and not nested_json(values), (view, form)
    shown = daemon.ctl_json("describe", job)
    assert shown["spec"]["trainer"]["deterministic"] is False and "deterministic" not in shown["spec_changes"]["trainer"]
    assert daemon.ctl_json("plan", tmp_path / "job.yaml")["plan"]["format"] == 1
