"""Which checkpoints are written when steps are shorter than a write."""
import pytest

from ranks import Attempt
from test_s05_worker import plan_of, steps_in


@pytest.mark.parametrize("how", [{"every_n_train_steps": 1}, {"every_n_train_steps": 0, "every_n_epochs": 1}])
def test_no_checkpoint_is_left_out_when_all_are_kept_and_steps_are_short(tmp_path, how):
    plan = plan_of(checkpoint=how | {"save_top_k": -1}, run={"checkpoint_dir": str(tmp_path / "a1")},
                   trainer={"max_epochs": 5, "limit_train_batches": 8, "limit_val_batches": 0})
    with Attempt(tmp_path, plan) as one:
        assert one.wait() == [0], one.story()
        assert not [e for e in one.ranks[0].event("note") if "skipped" in e["text"]]
    assert steps_in(tmp_path / "a1") == list(range(*((1, 41) if how["every_n_train_steps"] else (8, 41, 8))))
