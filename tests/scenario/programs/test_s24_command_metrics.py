"""What a command logs on TRAIND_FD, through a real daemon: what is refused, what replaces, what comes late, and how it is
shown by `metrics`, metrics.csv and TensorBoard."""
import csv
import json

import pytest

from support import until
from test_s24_commands import python


def of(daemon, job, name):
    return [(p.step, p.value) for p in daemon.points(job, name)] if name in daemon.job(job).metrics else []


def test_a_refused_line_changes_nothing(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        import traind
        traind.init()
        traind.log({"loss": 1.0}, step=10, samples=5)
        for step in (3000000000, 3.5, -1, float("nan")):
            traind.log({"loss": 100.0, "new": 1.0}, step=step, epoch=7)
        traind.log({"loss": 100.0, "bad" * 30: 1.0}, step=11)
        traind.log({"loss": 100.0}, step=12, total_steps=-1)
        send = lambda text: os.write(int(os.environ["TRAIND_FD"]), text.encode())
        send("")  # of no bytes: once taken for the end of all messages
        send('{"step": 13, "metrics": [1]}')
        send('{"step": 14, "note": 5}')
        send('{"step": 15, "checkpoint": {"path": "/nowhere/at/all"}, "metrics": {"loss": 100}}')
        send('{"step": 16, "samples": 3000000000, "metrics": {"loss": 2}}')
        """))
    done = daemon.finish(job)
    assert of(daemon, job, "loss") == [(10, 1.0), (16, 2.0)] and not of(daemon, job, "new")
    assert done.global_step == 16 and [p.epoch for p in daemon.points(job, "loss")] == [0, 0] and done.total_steps == 0
    notes = "\n".join(done.notes)
    assert notes.count("nothing of that line counts") == 6, notes  # the same words once
    for words in ("'step' is an integer from 0 to 2147483647", "'total_steps'", "'metrics' is an object", "'note' is a text",
                  "/nowhere/at/all"):
        assert words in notes, notes


def test_a_value_is_replaced_until_it_closes_and_late_names_are_taken(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        import traind
        traind.init()
        for step in range(0, 60, 10):
            traind.log({"loss": 1.0}, step=step)
            traind.log({"loss": 2.0 + step}, step=step)  # in its place
        traind.log({"loss": 100.0}, step=20)             # closed: a repeat
        traind.log({"val": 7.0}, step=30)                # new at that step
        traind.log({"loss": 5.0}, step=15)               # and this at a lower one
        time.sleep(1.5)
        traind.log({"val": 100.0}, step=30)              # closed by time
        traind.log({"acc": 9.0})                         # of the last step that it gave
        """, loggers=["csv", "tensorboard"]))
    done = daemon.finish(job)
    expected = {"loss": {s: 2.0 + s for s in range(0, 60, 10)} | {15: 5.0}, "val": {30: 7.0}, "acc": {30: 9.0}}
    assert {name: dict(of(daemon, job, name)) for name in expected} == expected
    assert done.global_step == 50  # late values take back no progress
    assert daemon.job(job).progress.loss == 52.0  # nor is one of them, or a repeat, the loss that is shown
    assert sum("again, after that value was closed" in n for n in done.notes) == 1, done.notes
    logs = daemon.state_dir / "checkpoints" / job / "logs"
    rows = list(csv.DictReader(open(logs / "metrics.csv", newline="")))
    assert {n: {int(r["step"]): float(r[n]) for r in rows if r[n]} for n in expected} == expected
    said = daemon.ctl("metrics", job, "loss", check=0)
    assert "2 values of this job's metrics, all names together, were not kept" in said.stderr, said.stderr
    answer = json.loads(daemon.ctl("metrics", job, "loss", "-o", "json", check=0).stdout)
    assert answer["dropped_points"] == "2" and "dropped" not in answer["series"][0]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    board = EventAccumulator(str(logs), size_guidance={"scalars": 0}).Reload()
    assert {n: {e.step: e.value for e in board.Scalars(n)} for n in expected} == expected


def test_a_fraction_of_an_epoch_is_its_epoch(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        import traind
        traind.init()
        for step, epoch in enumerate((0.5, 1.25, 2.0, 2.99)):
            traind.log({"loss": 1.0}, step=step, epoch=epoch)
        """))
    done = daemon.finish(job)
    assert [(p.step, p.epoch) for p in daemon.points(job, "loss")] == [(0, 0), (1, 1), (2, 2), (3, 2)], done.notes


def test_a_rank_that_names_no_step_counts_its_own(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        import traind
        traind.init()
        for loss in (3.0, 2.0, 1.0):
            traind.log({"loss": loss})
            traind.log({})
        """))
    done = daemon.finish(job)
    assert of(daemon, job, "loss") == [(0, 3.0), (1, 2.0), (2, 1.0)] and done.global_step == 2


def test_all_that_waits_when_a_rank_ends_is_taken(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        import traind
        traind.init()
        for step in range(1000):
            traind.log({f"m{step % 7}": step}, step=step)
            if step % 100 == 0: time.sleep(0.05)
        assert traind.dropped() == 0
        """))
    daemon.finish(job)
    assert sorted(step for n in range(7) for step, _ in of(daemon, job, f"m{n}")) == list(range(1000))


def test_no_drop_is_counted_where_none_happened(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        import traind
        traind.init()
        traind.log({"held": 0.0}, step=0)  # open for 1 s: all others wait, more than the ring holds
        for step in range(1, 301):
            traind.log({f"m{i}": float(step) for i in range(30)}, step=step)
            if step % 50 == 0: time.sleep(0.05)
        assert traind.dropped() == 0
        """))
    daemon.finish(job)
    assert len(of(daemon, job, "m29")) == 300
    answer = json.loads(daemon.ctl("metrics", job, "held", "-o", "json", check=0).stdout)
    assert answer.get("dropped_points", "0") == "0", answer


def test_the_first_drop_of_each_kind_has_a_note(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        import traind
        traind.init()
        for step in (1, 2, 1, 1):
            traind.log({"loss": 1.0}, step=step)
        for part in range(11):
            traind.log({f"m{part}_{i}": 1.0 for i in range(400)}, step=3)
            time.sleep(0.02)
        assert traind.dropped() == 0
        """))
    done = daemon.finish(job)
    for words in ("again, after that value was closed", "past the bound of names"):
        assert sum(words in n for n in done.notes) == 1, done.notes


def test_values_that_are_no_finite_numbers_are_what_they_are(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        import traind
        traind.init()
        for step, value in enumerate((float("inf"), float("-inf"), float("nan"))):
            traind.log({"loss": value}, step=step)
        os.write(int(os.environ["TRAIND_FD"]), b'{"step": 3, "metrics": {"loss": null, "other": "-inf"}}')
        open("ckpt", "w").close()
        traind.register_checkpoint("ckpt", step=3, loss=float("-inf"), acc=0.5)
        """))
    daemon.finish(job)
    points, = json.loads(daemon.ctl("metrics", job, "loss", "-o", "json", check=0).stdout)["series"]
    assert [p["value"] for p in points["points"]] == ["inf", "-inf", "nan", "nan"]
    assert set(points["points"][0]) == {"step", "epoch", "attempt", "value", "n_ranks", "time"}, "a plain point has no range"
    assert points["dropped"] == 0
    lines = daemon.ctl("metrics", job, "loss", "-o", "csv", check=0).stdout.splitlines()
    assert [line.split(",")[4] for line in lines[1:]] == ["inf", "-inf", "nan", "nan"]
    range_, = json.loads(daemon.ctl("metrics", job, "loss", "--points", "1", "-o", "json", check=0).stdout)["series"]
    assert (range_["points"][0]["n_points"], range_["points"][0]["min"], range_["points"][0]["max"]) == (4, "-inf", "inf")
    row, = json.loads(daemon.ctl("checkpoint", "list", job, "-o", "json", check=0).stdout)["checkpoints"]
    assert row["metrics"] == {"loss": "-inf", "acc": 0.5}
    daemon.restart()
    shown = json.loads(daemon.ctl("describe", job, "-o", "json", check=0).stdout)
    assert shown.get("job", shown)["metrics"] == {"loss": "nan", "other": "-inf"}


def test_names_of_63_bytes_pass_whole_and_outlive_a_restart(daemon, tmp_path):
    go = tmp_path / "go"
    job = daemon.submit(python(tmp_path, f"""
        import traind
        traind.init()
        names = ["eval_samples_per_second_" + "x" * n for n in (0, 20, 39)] + ["loss"]
        for step in range(200):
            traind.log({{name: step + i for i, name in enumerate(names)}}, step=step)
            if step == 99:
                while not os.path.exists("{go}"): time.sleep(0.01)
        """, trainer={"devices": 2}, loggers=["csv"]))
    names = ["eval_samples_per_second_" + "x" * n for n in (0, 20, 39)] + ["loss"]
    until("points of long names are there", lambda: all(len(of(daemon, job, n)) >= 99 for n in names))
    daemon.restart()  # SIGKILL: definitions are behind the cursor
    go.write_text("")
    daemon.finish(job)
    for i, name in enumerate(names):
        points = daemon.points(job, name)
        assert [(p.step, p.value, p.n_ranks) for p in points] == [(s, s + i, 2) for s in range(200)], name
    rows = list(csv.DictReader(open(daemon.state_dir / "checkpoints" / job / "logs/metrics.csv", newline="")))
    assert [[float(r[n]) for n in names] for r in rows] == [[s + i for i in range(4)] for s in range(200)]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_mean_over_ranks_is_the_same_in_whatever_order_they_come(cluster, tmp_path, order):
    daemon = cluster.start("--slots", "4")
    job = daemon.submit(python(tmp_path, f"""
        import traind
        traind.init()
        rank = int(os.environ["RANK"])
        time.sleep(0.3 * {order}.index(rank))
        traind.log({{"loss": [0.1, 1e16, 0.7, -1e16][rank]}}, step=1)
        traind.log({{}}, step=2)
        time.sleep(1.2)  # it is closed, and on its way
        """, trainer={"devices": 4}, loggers=["csv"]))
    daemon.finish(job)
    assert of(daemon, job, "loss") == [(1, (0.1 + 0.7) / 4)]
    row, = csv.DictReader(open(daemon.state_dir / "checkpoints" / job / "logs/metrics.csv", newline=""))
    assert float(row["loss"]) == (0.1 + 0.7) / 4
    assert daemon.job(job).metrics["loss"] == (0.1 + 0.7) / 4
