"""State directories of older schemas, each written by a traind of its time (tests/tools/make_upgrade_states.py), opened by
this one: jobs, points, checkpoints and notes are as that traind said they were, and a paused job goes on. What a node of an
older build gets is in test_s66_join.py."""
import contextlib
import json
import shutil
import sqlite3

import pytest

from support import ROOT

STATES = sorted((ROOT / "tests/upgrade").glob("state-*"))
OK = 0


def restore(kept, state):
    """The state directory at another place. Rows that name the place have lost their digests; the others keep theirs."""
    shutil.copytree(kept / "files", state)
    for name in ("state", "metrics"):
        with contextlib.closing(sqlite3.connect(state / f"{name}.db")) as db, db:
            db.executescript((kept / f"{name}.sql").read_text().replace("@STATE@", str(state)))
            for table, in db.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%digest%'").fetchall():
                db.execute(f"UPDATE {table} SET digest = NULL WHERE instr(body, ?)", (str(state),))


@pytest.fixture(params=STATES, ids=lambda kept: kept.name)
def upgraded(full, request, cluster):
    """The daemon that was started on it, and what the older one had answered, by the name of the job."""
    daemon = cluster.make("--slots", "4", "--name", "upgraded")
    restore(request.param, daemon.state_dir)
    said = json.loads((request.param / "answers.json").read_text().replace("@STATE@", str(daemon.state_dir)))
    for job in (old["describe"] for old in said.values()):
        if "spec_json" in job:  # a text, in those days
            job["spec"] = json.loads(job.pop("spec_json"))
    return daemon.start(), said


def differences(old, new, at=""):
    """Of what the older answer has: a newer one may have more fields, leave out those of no value, and spells nan NaN."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [d for key in old for d in differences(old[key], new.get(key), f"{at}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [d for i, pair in enumerate(zip(old, new)) for d in differences(*pair, f"{at}[{i}]")]
    same = old == new or (not old or old == "0") and new is None or str(old).lower() == str(new).lower() == "nan"
    return [] if same else [f"{at[1:]}: {old!r} -> {new!r}"]


def ask(daemon, job, old):
    return {"describe": daemon.ctl_json("describe", job), "checkpoint list": daemon.ctl_json("checkpoint", "list", job),
            "metrics": {name: daemon.ctl_json("metrics", job, name)["series"] for name in old["metrics"]}}


def test_schemas_are_of_releases_and_this_one_is_newer_or_the_same():
    """A folder is added before a schema changes, and none is ever removed."""
    assert len(STATES) >= 3
    for kept in STATES:
        found = json.loads((kept / "answers.json").read_text())
        assert set(found) == {"done", "failed", "cancelled", "paused"}
        assert found["done"]["metrics"]["train_loss_step"] and found["paused"]["checkpoint list"]["checkpoints"]


def test_answers_are_what_the_older_traind_said(upgraded):
    daemon, said = upgraded
    for start in range(2):
        for name, old in said.items():
            job = old["describe"]["id"]
            left = differences(old, ask(daemon, job, old))
            assert not left, (name, start, left[:20])
            for c in old["checkpoint list"]["checkpoints"]:
                daemon.ctl("checkpoint", "download", job, c["path"], "-O", daemon.cluster.folder / f"{job}-{start}", check=OK)
        daemon.restart(15)


def test_paused_job_goes_on_and_one_that_is_over_runs_again(upgraded):
    daemon, said = upgraded
    paused, done = (said[name]["describe"]["id"] for name in ("paused", "done"))
    at = said["paused"]["describe"]["global_step"]
    daemon.ctl("resume", paused, check=OK)
    again = daemon.ctl("retry", done, "-o", "name", check=OK).stdout.strip()
    assert daemon.finish(paused, 120).global_step == 40000
    assert {p.attempt for p in daemon.points(paused) if p.step > at} == {2}
    assert daemon.checkpoints(paused)[0].step == 40000
    daemon.finish(again)
    assert daemon.ctl("compare", done, again, "-o", "name", check=OK).stdout == ""
