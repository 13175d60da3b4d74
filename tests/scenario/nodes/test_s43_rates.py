"""Rates of a machine, measured once and kept for plans; and trainer.precision: auto, which rests on them."""
import json
import subprocess

import pytest

import ranks
from support import LONG, SPEC, alive, until, with_worker
from test_s42_choices import plan_of


def worker(verb, *args, code=0):
    ran = subprocess.run([ranks.WORKER, verb, *map(str, args)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout


def plan(file, *more):
    return json.loads(worker("plan", "--plan", file, *more))


RATES = "rates-" + 16 * "[0-9a-f]"  # not the temporary name beside it


def lines_of(cache):
    file, = cache.glob(RATES)
    return [dict(x.split("=") for x in line.split()) for line in file.read_text().splitlines()[2:]]


# ---- by hand --------------------------------------------------------------------------------------
def test_a_plan_measures_once_and_a_busy_one_never(tmp_path):
    cache, file = tmp_path / "cache", plan_of(tmp_path)
    unknown = plan(file, "--choices-dir", cache, "--busy")
    assert (unknown["rates"], unknown["step_seconds"], unknown["rates_wanted"]) == ("none", 0, 1)
    assert not cache.exists()
    first = plan(file, "--choices-dir", cache)
    held = {f.name: f.read_bytes() for f in cache.iterdir()}
    second = plan(file, "--choices-dir", cache)
    assert (first["rates"], second["rates"]) == ("measured", "kept") and "rates_wanted" not in second
    assert first["step_seconds"] == pytest.approx(second["step_seconds"], rel=1e-6)
    assert plan(file, "--choices-dir", cache, "--busy")["rates"] == "kept"
    near = plan(plan_of(tmp_path, threads_per_rank=2), "--choices-dir", cache, "--busy")
    assert near["rates"] == "near" and near["rates_wanted"] == 2 and near["step_seconds"] > 0
    assert {f.name: f.read_bytes() for f in cache.iterdir()} == held


def test_a_plan_measures_again_when_the_file_is_damaged_or_of_another_boot(tmp_path):
    cache, file = tmp_path / "cache", plan_of(tmp_path)
    plan(file, "--choices-dir", cache)
    kept, = cache.glob("rates-*")
    for old, new in ((", boot ", ", boot x"), ("f32=", "f32=9"), ("digest ", "digest 0")):
        kept.write_text(kept.read_text().replace(old, new, 1))
        assert plan(file, "--choices-dir", cache)["rates"] == "measured"
        assert plan(file, "--choices-dir", cache)["rates"] == "kept"


def test_rates_are_measured_moment_by_moment_until_there_are_enough(tmp_path):
    cache = tmp_path / "cache"
    for moment in range(1, 6):
        worker("rates", "--choices-dir", cache, code=10)
        assert {x["moments"] for x in lines_of(cache)} == {str(moment)}
    worker("rates", "--choices-dir", cache)
    kept, = cache.glob("rates-*")
    before = kept.read_bytes()
    worker("rates", "--choices-dir", cache)
    assert kept.read_bytes() == before and len(lines_of(cache)) == 5
    assert plan(plan_of(tmp_path), "--choices-dir", cache)["rates"] == "kept"


def write(cluster, text):
    file = cluster.folder / "spec.yaml"
    file.write_text(text)
    return file


# ---- a daemon -------------------------------------------------------------------------------------
def test_a_second_plan_does_not_measure(cluster):
    daemon = cluster.start("--slots", "1", "--measure-after-ms", "0")
    first, again = (daemon.ctl_json("plan", write(cluster, SPEC), "--set", f"seed_everything={n}") for n in (1, 2))
    assert (first["rates"], again["rates"]) == ("measured", "kept")


def test_an_idle_node_measures_by_itself(cluster):
    daemon = cluster.start("--slots", "1", "--measure-after-ms", "1")
    cache = daemon.state_dir / "cache"
    until("all sizes are settled", lambda: list(cache.glob(RATES)) and
          [x["moments"] for x in lines_of(cache)] == ["6"] * 5, 60)
    assert daemon.ctl_json("plan", write(cluster, SPEC))["rates"] == "kept"


def test_nothing_is_measured_while_a_rank_runs(cluster):
    daemon = cluster.make("--slots", "1", "--measure-after-ms", "1")
    began = cluster.folder / "began"
    daemon.bin = with_worker(cluster.folder / "bin", f'echo $$ >> {began}\nexec sleep 600', verb="rates")
    daemon.start()
    pids = lambda: [int(x) for x in began.read_text().split()] if began.exists() else []
    first = until("it measures", pids)[0]
    job = daemon.submit(LONG)
    daemon.wait_step(job, 1)
    assert not alive(first)
    count = len(pids())
    daemon.wait_step(job, 200)
    assert len(pids()) == count and not [p for p in pids() if alive(p)]
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")
    until("it measures again", lambda: len(pids()) > count)


# ---- trainer.precision: auto ----------------------------------------------------------------------
def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_auto_is_the_faster_of_both_and_the_plan_says_what_the_other_takes(tmp_path):
    cache = tmp_path / "cache"
    by = {p: plan(plan_of(tmp_path, trainer={"precision": p}), "--choices-dir", cache)
          for p in ("32-true", "bf16-mixed", "bf16-true", "auto")}
    seconds = {p: by[p]["step_seconds"] for p in by}
    assert "other_precision" not in by["32-true"]
    for p in ("bf16-mixed", "bf16-true"):
        assert by[p]["precision"] == p and by[p]["other_precision"] == "32-true"
        assert by[p]["other_step_seconds"] == pytest.approx(seconds["32-true"], rel=1e-3)
    faster = min(("32-true", "bf16-mixed"), key=seconds.get)
    assert by["auto"]["precision"] == faster
    assert {by["auto"]["precision"], by["auto"]["other_precision"]} == {"32-true", "bf16-mixed"}
    assert by["auto"]["state_bytes"] == by[faster]["state_bytes"]


def test_auto_is_fp32_when_nothing_is_known_or_nothing_may_be_timed(tmp_path):
    auto = {"precision": "auto"}
    busy = plan(plan_of(tmp_path, trainer=auto), "--choices-dir", tmp_path / "cache", "--busy")
    assert busy["precision"] == "32-true"
    fixed = plan(plan_of(tmp_path, trainer=auto | {"deterministic": True}))
    assert fixed["precision"] == "32-true" and "other_precision" not in fixed


@pytest.mark.parametrize("kept", ["32-true", "bf16-mixed"])
def test_auto_keeps_what_was_frozen_or_is_in_the_checkpoint(tmp_path, kept):
    other = {"32-true": "bf16-mixed", "bf16-mixed": "32-true"}[kept]
    auto = {"trainer": {"precision": "auto"}}
    worker("run", "--plan", plan_of(tmp_path, **auto, precision=kept))
    saved = tmp_path / "out/step-4"
    assert manifest_of(saved)["frozen"]["precision"] == kept
    longer = {"trainer": {"precision": "auto", "max_steps": 8}}
    worker("run", "--plan", plan_of(tmp_path, **longer, precision=other, resume_from=str(saved)))
    assert manifest_of(tmp_path / "out/step-8")["frozen"]["precision"] == kept
    frozen = {"precision": kept}
    assert plan(plan_of(tmp_path, **auto, precision=other, frozen=frozen))["precision"] == kept


def test_auto_is_settled_by_a_run_by_hand_too(tmp_path):
    out = worker("run", "--plan", plan_of(tmp_path, trainer={"precision": "auto"}))
    note, = [x["text"] for x in map(json.loads, out.splitlines()) if x.get("event") == "note" and "auto chose" in x["text"]]
    assert manifest_of(tmp_path / "out/step-4")["frozen"]["precision"] in note.split("auto chose ")[1].split(":")[0]


def test_auto_is_frozen_and_shown_and_kept_when_the_job_resumes(cluster):
    daemon = cluster.start("--slots", "1", "--measure-after-ms", "0")
    job = daemon.submit(LONG, "trainer.precision=auto")
    daemon.wait_step(job, 60)
    note, = [n for n in daemon.ctl("describe", job, check=0).stdout.splitlines() if "precision" in n and n.startswith("note")]
    chosen = note.split("auto chose ")[1].split(":")[0]
    assert chosen in ("32-true", "bf16-mixed")
    daemon.steer("Pause", job)
    daemon.wait_state(job, "PAUSED")
    daemon.steer("Resume", job)
    daemon.wait_step(job, 200)
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")
    manifests = [json.loads(p.read_text()) for p in (daemon.state_dir / "checkpoints").rglob("manifest.json")]
    assert {m["frozen"]["precision"] for m in manifests} == {chosen}
    assert not [n for n in daemon.job(job).notes if "bit-exact" in n]
