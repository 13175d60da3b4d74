"""The listing of checkpoints says which value is watched, which one is best, and which is last."""
import re

import pytest

from support import SPEC

OK = 0


@pytest.mark.parametrize("mode", ["min", "max"])
def test_checkpoint_list_has_the_monitored_value_and_marks_best_and_last(daemon, mode):
    job = daemon.submit(SPEC, "stages=[fit]", "optimizer.lr=0.3", "checkpoint.monitor=val_loss", f"checkpoint.mode={mode}")
    daemon.finish(job)
    listed = daemon.ctl_json("checkpoint", "list", job)["checkpoints"]
    values = {c["path"]: c["monitored"] for c in listed}
    assert len(set(values.values())) == 3 and {c["monitor"] for c in listed} == {"val_loss"}
    assert values == {c["path"]: c["metrics"]["val_loss"] for c in listed}
    best, last = (min if mode == "min" else max)(values, key=values.get), listed[0]["path"]
    assert [c["path"] for c in listed if c["best"]] == [best] and [c["path"] for c in listed if c["last"]] == [last]
    rows = daemon.ctl("checkpoint", "list", job, check=OK).stdout.splitlines()
    assert rows[0].split()[:4] == ["CHECKPOINT", "STATE", "MARK", "val_loss"]
    for row in rows[1:]:
        path, state, mark, value = re.split(r"  +", row)[:4]
        both = [w for w, p in (("best", best), ("last", last)) if p == path]
        assert (state, mark) == ("COMMITTED", ", ".join(both) or "-") and float(value) == pytest.approx(values[path], rel=1e-3)


def test_checkpoint_list_of_a_job_that_watches_no_value_marks_the_last_alone(daemon):
    job = daemon.submit(SPEC)
    daemon.finish(job)
    listed = daemon.ctl_json("checkpoint", "list", job)["checkpoints"]
    assert [c["last"] for c in listed] == [True] + [False] * (len(listed) - 1) and not any(c["best"] for c in listed)
    assert {(c["monitor"], c["monitored"]) for c in listed} == {("", "NaN")}
    rows = daemon.ctl("checkpoint", "list", job, check=OK).stdout.splitlines()
    assert "MONITORED" in rows[0] and re.split(r"  +", rows[1])[2:4] == ["last", "-"]
