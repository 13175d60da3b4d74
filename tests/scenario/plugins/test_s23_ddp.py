"""What ddp promises besides the mean of gradients: the size of its buckets, buffers of rank 0 in evaluations and
checkpoints, and as many batches on every rank whatever the number of samples."""
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from plans import losses, plan_of, state_of
from ranks import Attempt
from test_s07_workloads import CONVNET, data, plan_of as plan_for  # noqa: F401 (data is a fixture)


def train(tmp_path, plan, world=2):
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait(60) == [0] * world, attempt.story()
        return attempt.ranks


def total(ranks, name, step):
    """The mean of a metric over the samples of all ranks."""
    points = [losses(r.metrics, name)[step] for r in ranks]
    return sum(p[0] for p in points) / sum(p[1] for p in points)


def test_gradients_go_in_more_buckets_when_the_cap_is_small(tmp_path):
    calls, states = [], []
    for name, strategy in (("whole", "ddp"), ("small", {"name": "ddp", "bucket_cap_mb": 0.001})):
        folder = tmp_path / name
        folder.mkdir()
        train(tmp_path, plan_of({"model": {"name": "mlp", "layers": [16, 32, 32, 4]}},
                                trainer={"devices": 2, "max_steps": 3, "max_epochs": -1, "strategy": strategy,
                                         "limit_val_batches": 0, "collective": {"name": "trace", "dir": str(folder)}},
                                run={"checkpoint_dir": str(folder / "c")}))
        events = json.loads((folder / "trace-a1-rank0.json").read_text())
        calls.append(sum(e["name"] == "all_reduce_bucket" for e in events))
        states.append(state_of(folder / "c/step-3"))
    assert calls == [3, 2 * 3], "of each step: one bucket, and two above 1 KiB"
    assert states[0] == states[1], "buckets change no bit"


def test_evaluation_has_the_buffers_of_rank_0_on_every_rank(tmp_path, data):  # noqa: F811
    """What two ranks measure together is what one rank measures with the checkpoint, which is that of rank 0."""
    whole = {"max_steps": 4, "limit_val_batches": 1.0}
    ranks = train(tmp_path, plan_for(CONVNET, data["npy"], trainer={**whole, "devices": 2},
                                     run={"checkpoint_dir": str(tmp_path / "c")}))
    alone = train(tmp_path, plan_for(CONVNET, data["npy"], stages=["validate"],
                                     evaluate_from=str(tmp_path / "c/step-4"),
                                     trainer={"limit_val_batches": 1.0}), world=1)
    (step, _), = losses(alone[0].metrics, "val_loss").items()
    assert total(ranks, "val_loss", 4) == pytest.approx(total(alone, "val_loss", step), rel=1e-6)


NORMS = {"name": "convnet", "layers": [{"name": "conv", "channels": 6, "padding": 1}, "batch_norm", "relu", "max_pool",
                                       {"name": "residual", "channels": 8, "stride": 2}, "global_avg_pool",
                                       {"name": "linear", "features": 2}]}


# Contract 44: two ranks with sync batch norm train as one rank with their batches together
@pytest.mark.parametrize("accelerator", ["reference", "cpu"])
def test_batch_norms_are_over_all_ranks_when_asked(tmp_path, data, accelerator):  # noqa: F811
    """In fp64, so that what differs is a mistake, or the order of a sum. The last batch of the epoch is smaller."""
    def trained(name, world, sync):
        trainer = {"accelerator": accelerator, "precision": "64-true", "devices": world, "sync_batchnorm": sync,
                   "limit_val_batches": 0}
        train(tmp_path, plan_for(NORMS, data["npy"], batch=16 // world, trainer=trainer,
                                 optimizer={"name": "sgd", "lr": 0.1},
                                 run={"checkpoint_dir": str(tmp_path / name)}), world)
        return load_file(tmp_path / name / "step-12/model.safetensors")

    one, two, apart = trained("one", 1, True), trained("two", 2, True), trained("apart", 2, False)
    distance = lambda a, b: max(np.abs(a[k] - b[k]).max() for k in a)
    assert {k.rsplit(".")[-1] for k in one} >= {"running_mean", "running_var"}
    assert distance(one, two) < 1e-11 < 1e-4 < distance(one, apart)


@pytest.mark.parametrize("drop_last, steps, counts", [(False, 3, [4, 4, 2]), (True, 2, [4, 4])])
@pytest.mark.parametrize("samples", [19, 20])
def test_ranks_have_as_many_batches_when_samples_do_not_divide(tmp_path, samples, drop_last, steps, counts):
    """19 samples of two ranks: the sampler repeats one, or leaves the rest out. No rank is ever without its peer."""
    rng = np.random.RandomState(1)
    np.save(tmp_path / "x.npy", rng.rand(samples, 6).astype("f4"))
    np.save(tmp_path / "y.npy", np.arange(samples) % 3)
    plan = plan_of({"model": {"name": "mlp", "layers": [6, 3]},
                    "data": {"name": "npy", "x": str(tmp_path / "x.npy"), "y": str(tmp_path / "y.npy"),
                             "batch_size": 4, "drop_last": drop_last}},
                   trainer={"devices": 2, "max_epochs": 1, "limit_val_batches": 0},
                   checkpoint={"every_n_train_steps": 0, "save_top_k": 0})
    for rank in train(tmp_path, plan):
        points = losses(rank.metrics)
        assert sorted(points) == list(range(1, steps + 1))
        assert [points[step][1] for step in sorted(points)] == counts
