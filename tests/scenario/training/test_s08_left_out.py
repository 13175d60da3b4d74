"""Which checkpoints are written when steps are shorter than a write."""
import pytest

from plans import plan_of, steps_in
from ranks import Attempt


@pytest.mark.parametrize("how", [{"every_n_train_steps": 1}, {"every_n_train_steps": 0, "every_n_epochs": 1}])
def test_no_checkpoint_is_left_out_when_all_are_kept_and_steps_are_short(tmp_path, how):
    plan = plan_of(checkpoint=how | {"save_top_k": -1}, run={"checkpoint_dir": str(tmp_path / "a1")},
                   trainer={"max_epochs": 5, "limit_train_batches": 8, "limit_val_batches": 0})
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        assert not [e for e in one.ranks[0].event("note") if "skipped" in e["text"]]
    assert steps_in(tmp_path / "a1") == list(range(*((1, 41) if how["every_n_train_steps"] else (8, 41, 8))))


@pytest.mark.parametrize("how", [{"every_n_train_steps": 8}, {"every_n_train_steps": 0, "every_n_epochs": 1}])
def test_short_epochs_do_not_wait_for_the_disk_when_only_the_newest_is_kept(tmp_path, how):
    plan = plan_of(checkpoint=how | {"save_top_k": 1}, run={"checkpoint_dir": str(tmp_path / "a1")},
                   trainer={"max_epochs": 5, "limit_train_batches": 8, "limit_val_batches": 0})
    with Attempt(tmp_path, plan) as one:
        one.commits = False
        one.until(lambda a: a.ranks[0].step > 32)  # the checkpoint of step 8 is still being written
        assert not one.ranks[0].event("checkpoint")
        one.commits = True
        assert one.wait() == [0], one.story()
        rank = one.ranks[0]
    assert [e["step"] for e in rank.event("checkpoint")] == [8, 40], "the final one waits"
    assert [e["step"] for e in rank.event("removed")] == [8] and steps_in(tmp_path / "a1") == [40]
    notes = [e["text"] for e in rank.event("note") if "skipped" in e["text"]]
    assert len(notes) == 2 and "step 16 is skipped" in notes[0] and notes[1].startswith("3 periodic checkpoints"), notes


def test_one_skipped_checkpoint_was_said_twice(tmp_path):
    plan = plan_of(checkpoint={"every_n_train_steps": 8, "save_top_k": 1}, run={"checkpoint_dir": str(tmp_path / "a1")},
                   trainer={"max_epochs": 3, "limit_train_batches": 8, "limit_val_batches": 0})
    with Attempt(tmp_path, plan) as one:
        one.commits = False
        one.until(lambda a: a.ranks[0].step > 16)  # the checkpoint of step 8 is still being written
        one.commits = True
        assert one.wait() == [0], one.story()
        note, = [e["text"] for e in one.ranks[0].event("note") if "skipped" in e["text"]]
    assert "step 16 is skipped" in note


def test_epochs_that_are_among_the_best_wait_for_the_disk(tmp_path):
    plan = plan_of(checkpoint={"every_n_train_steps": 0, "every_n_epochs": 1, "save_top_k": 1, "monitor": "train_loss"},
                   run={"checkpoint_dir": str(tmp_path / "a1")}, optimizer={"lr": 0.02},
                   trainer={"max_epochs": 4, "limit_train_batches": 8, "limit_val_batches": 0})
    with Attempt(tmp_path, plan) as one:
        one.commits = False
        one.until(lambda a: a.ranks[0].step == 16)
        one.commits = True
        assert one.wait() == [0], one.story()
        rank = one.ranks[0]
    assert [e["step"] for e in rank.event("checkpoint")] == [8, 16, 24, 32]
    assert not [e for e in rank.event("note") if "skipped" in e["text"]]
