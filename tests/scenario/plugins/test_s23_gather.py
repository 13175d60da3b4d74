"""A gather in the middle of a program, in a module of the user's: ranks whose loss is over the samples of all train as
one rank that has them all. In fp64, so that what differs is a mistake, or the order of a sum."""
import os
import shutil
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

import support
from plans import plan_of
from ranks import Attempt

# The loss is the variance of x w over the samples of all ranks, each times its label.
MODULE = r"""
#include <stdlib.h>
#include "traind/gather.h"
#include "traind/module.h"
#include "traind/plugin.h"

struct td_module { struct td_field x, y; };

static td_status spread_open(const struct td_json *knobs, const struct td_field *fields, size_t n_fields,
                             struct td_module **out_module) {
    struct td_module *m = calloc(1, sizeof *m);
    (void)knobs, (void)n_fields;
    m->x = fields[0];
    m->y = fields[1];
    *out_module = m;
    return TD_OK;
}
static void spread_close(struct td_module *m) { free(m); }

static td_status spread_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    const int64_t n = m->x.sample_shape.dim[0], all = batch * td_graph_world_size(g);
    const struct td_shape in = {2, {batch, n}}, label = {1, {batch}}, square = {2, {n, n}};
    const struct td_shape rows = {2, {all, n}}, row = {2, {1, n}}, column = {2, {all, 1}};
    const struct td_init random = {TD_INIT_UNIFORM, -0.5, 0.5};
    td_value x, y, w, z, mean, loss;
    TD_TRY(td_graph_input(g, m->x.name, m->x.dtype, &in, &x));
    TD_TRY(td_graph_input(g, m->y.name, m->y.dtype, &label, &y));
    TD_TRY(td_graph_param(g, "w", TD_F32, &square, random, &w));
    TD_TRY(td_build_matmul(g, x, w, 0, NULL, &z));
    TD_TRY(td_build_all_gather(g, z, &z));
    TD_TRY(td_build_reshape(g, z, &rows, &z));
    TD_TRY(td_build_all_gather(g, y, &y));
    TD_TRY(td_build_cast(g, y, TD_F32, 0, &y));
    TD_TRY(td_build_reshape(g, y, &column, &y));
    TD_TRY(td_build_mul(g, z, y, &z));
    TD_TRY(td_build_reduce_mean(g, z, &row, &mean));
    TD_TRY(td_build_sub(g, z, mean, &z));
    TD_TRY(td_build_mul(g, z, z, &z));
    TD_TRY(td_build_mean(g, z, &loss));
    TD_TRY(td_graph_output(g, "loss", loss, TD_OUTPUT_MEAN));
    return td_graph_loss(g, loss);
}

static const struct td_module_ops ops = {
    .struct_bytes = sizeof ops, .open = spread_open, .close = spread_close, .record = spread_record};
TD_PLUGIN(MODULE, "spread", "a variance over all ranks", &ops)
"""


@pytest.fixture(scope="module")
def worker(build, tmp_path_factory):
    """That of an installation with the module in it."""
    where = tmp_path_factory.mktemp("tree")
    for folder in ("bin", "lib"):
        shutil.copytree(build / folder, where / folder)
    (where / "spread.c").write_text(MODULE)
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                    f"-I{support.ROOT}/include", where / "spread.c", "-o", where / "lib/traind/module-spread.so"],
                   check=True)
    return where / "bin/traind-worker"


# Contract 6: a gather with sync_grads sends each rank the gradients of all
@pytest.mark.parametrize("accelerator", ["reference", "cpu"])
def test_ranks_train_as_one_when_their_loss_is_over_all_samples(tmp_path, worker, monkeypatch, accelerator):
    monkeypatch.setattr("ranks.WORKER", worker)
    rng = np.random.RandomState(1)
    np.save(tmp_path / "x.npy", rng.rand(32, 6))
    np.save(tmp_path / "y.npy", np.arange(32) % 3)
    weights = []
    for world in (1, 2):
        plan = plan_of({"model": {"name": "plugin", "module": "spread"},
                        "data": {"name": "npy", "x": str(tmp_path / "x.npy"), "y": str(tmp_path / "y.npy"),
                                 "batch_size": 8 // world},
                        "optimizer": {"name": "sgd", "lr": 0.5}},
                       trainer={"accelerator": accelerator, "precision": "64-true", "devices": world, "max_epochs": 2,
                                "limit_val_batches": 0},
                       run={"checkpoint_dir": str(tmp_path / f"{world}")})
        with Attempt(tmp_path, plan, world) as attempt:
            assert attempt.wait(60) == [0] * world, attempt.story()
        weights.append(load_file(tmp_path / f"{world}/step-8/model.safetensors")["w"])
    assert np.abs(weights[0] - weights[1]).max() < 1e-12
