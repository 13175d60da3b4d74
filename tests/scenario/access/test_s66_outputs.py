"""Where a spec may write: for a submitter below --write-roots and into the job's own directory, for the owner anywhere but
the state directory. Every key that names an output is refused when planned, wherever a link leads."""
import os

import pytest

from test_s66_paths import READ, WRITTEN, places, planned  # noqa: F401 (places is a fixture)

OUTPUTS = {
    "logger.csv.dir": lambda p: {"loggers": [{"name": "csv", "dir": p}]},
    "logger.tensorboard.dir": lambda p: {"loggers": [{"name": "tensorboard", "dir": p}]},
    "trainer.trace_dir": lambda p: {"trainer": {"trace_dir": p}},
    "collective.trace.dir": lambda p: {"trainer": {"devices": 2, "collective": {"name": "trace", "dir": p}}},
    "predict.output": lambda p: {"stages": ["fit", "predict"], "predict": {"output": f"{p}/p.npy"}},
    "checkpoint.dir": lambda p: {"run": {"checkpoint_dir": f"{p}/a1"}},
}


def test_every_output_is_here():
    assert {k for k, how in READ.items() if how == WRITTEN} == set(OUTPUTS)


@pytest.mark.parametrize("key", OUTPUTS)
def test_outputs_are_bound_to_the_write_roots(places, key):  # noqa: F811
    mine, other = places / "mine", places / "other"
    for folder in (mine, other):
        folder.mkdir()
    (mine / "out").symlink_to(other)
    (other / "in").symlink_to(mine)
    state = places / "state"

    def allowed(folder, owner=False, **rules):
        ran = planned(places, OUTPUTS[key](str(folder)), owner, **rules)
        assert ran.returncode in (0, 20), ran.stderr
        assert ran.returncode == 0 or "may not write" in ran.stderr and key.split(".")[0] in ran.stderr, ran.stderr
        return ran.returncode == 0
    assert not allowed(mine) and allowed(mine, owner=True)
    roots = {"write_roots": str(mine)}
    assert allowed(mine, **roots) and allowed(other / "in", **roots)
    own, others = state / "checkpoints/j-000000000001", state / "checkpoints/j-000000000002"
    own.mkdir(), others.mkdir()
    for folder in (other, mine / "out", f"/proc/self/root{other}", state, others, others.parent):
        assert not allowed(folder, own_dir=str(own), **roots), folder
    assert not allowed(others, **roots) and allowed(own, own_dir=str(own))
    assert not allowed(others.parent, owner=True), "of all jobs, also while this one is only planned"
    assert not allowed(state, owner=True) and not allowed(places / "open/up", owner=True)
    assert sorted(os.listdir(mine)) == ["out"] and sorted(os.listdir(other)) == ["in"], "a plan leaves nothing"


@pytest.mark.parametrize("named", ["", "checkpoints", "checkpoints/new"])
def test_plan_has_the_place_of_all_jobs_and_nothing_in_it(places, named):  # noqa: F811
    own = str(places / "state/checkpoints")
    spec = {"checkpoint": {"dir": str(places / "state" / named)} if named else {}}
    ran = planned(places, spec, args=["--checkpoints-dir", own])
    assert ran.returncode == (20 if named.endswith("new") else 0), ran.stderr
    assert not os.listdir(own)
