"""Plugins of the user's own: a module and a dataset as shared objects that a job spec names, trained by a daemon and by
`trainctl run`. What may not be loaded is refused with the way out, knobs are checked by the plan, and a file that is
replaced is noticed."""
import json
import os
import re
import shutil
import subprocess

import grpc
import pytest

import ranks
import support
from support import BIN, BUSY, ROOT, until

MODULE = """
#include <stdlib.h>
#include "traind/knobs.h"
#include "traind/module.h"
#include "traind/plugin.h"
struct td_module { int64_t width; struct td_field x, y; };
static td_status narrow_open(const struct td_json *knobs, const struct td_field *fields, size_t n,
                             struct td_module **out) {
    if (n != 2 || fields[0].sample_shape.n_dims != 1) return td_bad_spec("narrow takes rows x and labels y");
    struct td_module *m = calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    m->x = fields[0];
    m->y = fields[1];
    td_status s = td_knob_int(knobs, "width", &m->width);
    if (s) { free(m); return s; }
    *out = m;
    return TD_OK;
}
static void narrow_close(struct td_module *m) { free(m); }
static td_status linear(struct td_graph *g, const char *name, int64_t in, int64_t out, td_value *h) {
    const struct td_shape shape = {.n_dims = 2, .dim = {out, in}};
    const struct td_attrs transposed = {.trans_b = true};
    td_value w;
    TD_TRY(td_graph_param(g, name, TD_F32, &shape, (struct td_init){TD_INIT_UNIFORM, -0.25, 0.25}, &w));
    return td_graph_op(g, TD_OP_MATMUL, (td_value[]){*h, w}, 2, &transposed, h);
}
static td_status narrow_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    const struct td_shape rows = {.n_dims = 2, .dim = {batch, m->x.sample_shape.dim[0]}};
    const struct td_shape labels = {.n_dims = 1, .dim = {batch}};
    td_value h, y, loss[2];
    TD_TRY(td_graph_input(g, m->x.name, m->x.dtype, &rows, &h));
    TD_TRY(td_graph_input(g, m->y.name, m->y.dtype, &labels, &y));
    TD_TRY(linear(g, "in.weight", m->x.sample_shape.dim[0], m->width, &h));
    TD_TRY(td_graph_op(g, TD_OP_RELU, &h, 1, NULL, &h));
    TD_TRY(linear(g, "out.weight", m->width, m->y.n_classes, &h));
    if (td_graph_mode(g) == TD_MODE_PREDICT) return td_graph_result(g, "logits", h);
    TD_TRY(td_graph_op(g, TD_OP_SOFTMAX_CE, (td_value[]){h, y}, 2, NULL, loss));
    TD_TRY(td_graph_output(g, "loss", loss[0], TD_OUTPUT_MEAN));
    return td_graph_loss(g, loss[0]);
}
static const struct td_module_ops ops = {
    .struct_bytes = sizeof ops, .open = narrow_open, .close = narrow_close, .record = narrow_record};
static const struct td_plugin_knob knobs[] = {
    {"width", TD_PLUGIN_KNOB_INT, 1, 4096, "features", "8", NULL, "width of the hidden layer"},
    {"shape", TD_PLUGIN_KNOB_ENUM, 0, 0, NULL, "flat", "flat|deep", "of nothing at all"},
};
"""
DATASET = """
#include <stdlib.h>
#include <string.h>
#include "traind/dataset.h"
#include "traind/knobs.h"
#include "traind/plugin.h"
struct td_dataset { int64_t n; };
static td_status bits_open(const struct td_dataset_config *config, struct td_dataset **out) {
    struct td_dataset *d = calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    td_status s = td_knob_int(config->knobs, "n", &d->n);
    if (s) { free(d); return s; }
    *out = d;
    return TD_OK;
}
static void bits_close(struct td_dataset *d) { free(d); }
static size_t bits_fields(struct td_dataset *d, struct td_field out[8]) {
    (void)d;
    out[0] = (struct td_field){.name = "x", .dtype = TD_F32, .sample_shape = {.n_dims = 1, .dim = {4}}};
    out[1] = (struct td_field){.name = "y", .dtype = TD_I32, .n_classes = 2};
    return 2;
}
static int64_t bits_length(struct td_dataset *d, enum td_split split) {
    return split == TD_SPLIT_TRAIN ? d->n : 0;
}
static td_status bits_gather(struct td_dataset *d, enum td_split split, const int64_t *index, int64_t n,
                             void *const *out) {
    (void)d, (void)split;
    for (int64_t i = 0; i < n; i++) {
        for (int bit = 0; bit < 4; bit++)
            ((float *)out[0])[4 * i + bit] = (float)(index[i] >> bit & 1);
        ((int32_t *)out[1])[i] = (int32_t)(index[i] & 1);
    }
    return TD_OK;
}
static const struct td_dataset_ops ops = {.struct_bytes = sizeof ops, .open = bits_open, .close = bits_close,
                                          .fields = bits_fields, .length = bits_length, .gather = bits_gather};
static const struct td_plugin_knob knobs[] = {
    {"n", TD_PLUGIN_KNOB_INT, 1, 1000000, "samples", NULL, NULL, "size of the training set"},
};
"""
ENTRY = "TD_PLUGIN_WITH_KNOBS(%s, \"%s\", \"of a test\", &ops, knobs)\n"
NARROW = {"name": "plugin", "module": "narrow", "knobs": {"width": 12}}
BITS = {"name": "plugin", "dataset": "bits", "batch_size": 8, "knobs": {"n": 32}}


def build_plugin(path, kind, name, code):
    source = path.with_suffix(".c")
    source.write_text(code + ENTRY % (kind, name))
    path.parent.mkdir(exist_ok=True)
    made = subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror",
                           f"-I{ROOT}/include", source, "-o", path], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    path.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    build_plugin(folder / "module-narrow.so", "MODULE", "narrow", MODULE)
    build_plugin(folder / "dataset-bits.so", "DATASET", "bits", DATASET)
    return folder


@pytest.fixture
def mine(built, tmp_path):
    """A directory with both, of the test's own, which nobody else may write."""
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    for file in built.glob("*.so"):
        (folder / file.name).write_bytes(file.read_bytes())
        (folder / file.name).chmod(0o644)
    return folder


def spec_of(mine, model=NARROW, data=BITS, **more):
    return {"name": "own", "seed_everything": 3, "stages": ["fit"], "plugins": [str(mine)], "model": model, "data": data,
            "optimizer": {"name": "sgd", "lr": 0.1},
            "trainer": {"accelerator": "cpu", "max_steps": 2, "log_every_n_steps": 1, "limit_val_batches": 0},
            "checkpoint": {"every_n_train_steps": 1, "save_top_k": -1}} | more


def plan(tmp_path, spec, *args, code=0):
    """What the planner says: sizes, or how it failed."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"format": 1, "run": {"threads_per_rank": 1}} | spec))
    ran = subprocess.run([ranks.WORKER, "plan", "--plan", file, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


def refused(tmp_path, spec, *args):
    said = plan(tmp_path, spec, *args, code=ranks.EXIT["bad_spec"])
    assert said["class"] == "bad_spec", said
    return said["message"]


# ---- the planner ----------------------------------------------------------------------------------
def test_plan_has_the_sizes_of_a_module_from_a_directory_or_by_path(tmp_path, mine):
    n_parameters = 12 * 4 + 2 * 12
    for plugins in ([mine], [mine / "module-narrow.so", mine / "dataset-bits.so"], [mine / "module-narrow.so", mine]):
        spec = spec_of(mine) | {"plugins": list(map(str, plugins))}
        assert plan(tmp_path, spec, "--plugin-dirs", mine)["parameters"] == n_parameters
    less = spec_of(mine, model={"name": "plugin", "module": "narrow"})
    assert plan(tmp_path, less, "--plugin-dirs", f"/nowhere:{mine}")["parameters"] == 8 * 4 + 2 * 8, "its own default"


@pytest.mark.parametrize("knobs, words", [
    ({"widht": 3}, "model.knobs.widht: unknown key, did you mean width?"),
    ({"width": 0}, "model.knobs.width: expected an integer from 1 to 4096, found 0"),
    ({"width": "12"}, "model.knobs.width: expected an integer from 1 to 4096, found text '12'"),
    ({"shape": "round"}, "model.knobs.shape: expected flat or deep, found text 'round'"),
])
def test_plan_refuses_knobs_that_the_module_does_not_declare(tmp_path, mine, knobs, words):
    said = refused(tmp_path, spec_of(mine, model=NARROW | {"knobs": knobs}), "--plugin-dirs", mine)
    assert "module 'narrow'" in said and words in said


def test_plan_says_what_is_wrong_in_each_plugin(tmp_path, mine):
    data = {"name": "plugin", "dataset": "bits", "batch_size": 8, "knobs": {"n": 0}}
    said = refused(tmp_path, spec_of(mine, model=NARROW | {"knobs": {"widht": 3}}, data=data), "--plugin-dirs", mine)
    assert "module 'narrow': " in said and "model.knobs.widht: unknown key, did you mean width?" in said
    assert "; and dataset 'bits': " in said and "data.knobs.n: expected an integer from 1 to 1000000, found 0" in said


def test_plan_refuses_a_dataset_without_its_required_knob(tmp_path, mine):
    data = {"name": "plugin", "dataset": "bits", "batch_size": 8}
    assert "data.knobs.n: required: an integer" in refused(tmp_path, spec_of(mine, data=data), "--plugin-dirs", mine)


def test_plan_names_a_plugin_that_is_missing(tmp_path, mine):
    (mine / "module-narrow.so").unlink()
    said = refused(tmp_path, spec_of(mine), "--plugin-dirs", mine)
    assert "there is no module 'narrow'; known are: mlp, convnet" in said
    gone = spec_of(mine) | {"plugins": [str(mine / "no.so")]}
    assert re.search(r"plugins\[0\]: '.*/no.so' \(a path of the node that trains\): No such file",
                     refused(tmp_path, gone, "--plugin-dirs", mine))


def test_plan_says_what_the_directories_hold_when_a_name_is_unknown(tmp_path, mine):
    said = refused(tmp_path, spec_of(mine, model=NARROW | {"module": "narrows"}), "--plugin-dirs", mine)
    assert re.search(rf"there is no module 'narrows' \(did you mean narrow\?\); known are: mlp, .*; in '{mine}': narrow$", said), said
    far = refused(tmp_path, spec_of(mine, model=NARROW | {"module": "elsewhere"}), "--plugin-dirs", mine)
    assert "there is no module 'elsewhere'; known are: mlp, " in far and far.endswith(f"in '{mine}': narrow")


def test_plan_refuses_a_name_of_trainds_own(tmp_path, mine):
    said = refused(tmp_path, spec_of(mine, model={"name": "plugin", "module": "mlp"}), "--plugin-dirs", mine)
    assert "module 'mlp' is traind's own" in said
    both = spec_of(mine) | {"trainer": {"strategy": {"name": "plugin", "strategy": "ddp"}}}
    assert "strategy 'ddp' is traind's own" in refused(tmp_path, both, "--plugin-dirs", mine)


# ---- what may be loaded ---------------------------------------------------------------------------
def test_plan_loads_nothing_where_nothing_is_permitted(tmp_path, mine):
    assert "has no --plugin-dirs" in refused(tmp_path, spec_of(mine))
    (tmp_path / "other").mkdir()
    said = refused(tmp_path, spec_of(mine), "--plugin-dirs", tmp_path / "other")
    assert f"no plugins from '{mine}'" in said and "TRAIND_PLUGIN_DIRS" in said
    assert "no plugins from" in refused(tmp_path, spec_of(mine), "--plugin-dirs", tmp_path), "a directory above is another"


def test_plan_follows_no_link_out_of_what_is_permitted(tmp_path, mine):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/module-narrow.so").symlink_to(mine / "module-narrow.so")
    spec = spec_of(tmp_path / "other")
    assert f"no plugins from '{mine}'" in refused(tmp_path, spec, "--plugin-dirs", tmp_path / "other")


@pytest.mark.parametrize("name", [".", "module-narrow.so", ".."])
def test_plan_loads_nothing_that_others_may_write(tmp_path, mine, name):
    before = (mine / name).stat().st_mode & 0o7777
    (mine / name).chmod(before | 0o020)
    said = refused(tmp_path, spec_of(mine), "--plugin-dirs", mine)
    assert "others may write" in said and "chmod go-w" in said
    (mine / name).chmod(before)
    plan(tmp_path, spec_of(mine), "--plugin-dirs", mine)


def test_plan_loads_nothing_of_another_user(tmp_path, mine):
    if os.geteuid() == 0:
        os.chown(mine / "module-narrow.so", 12345, -1)
        assert "belongs to user 12345" in refused(tmp_path, spec_of(mine), "--plugin-dirs", mine)


def test_plan_refuses_what_is_no_plugin(tmp_path, mine):
    (mine / "module-narrow.so").write_bytes(b"not an object")
    assert "does not load here" in refused(tmp_path, spec_of(mine), "--plugin-dirs", mine)
    os.rename(mine / "dataset-bits.so", mine / "module-narrow.so")
    assert "holds the dataset 'bits' instead of what its name says" in refused(tmp_path, spec_of(mine), "--plugin-dirs", mine)
    (mine / "narrow.plugin").write_bytes(b"")
    odd = spec_of(mine) | {"plugins": [str(mine / "narrow.plugin")]}
    assert "does not end in .so" in refused(tmp_path, odd, "--plugin-dirs", mine)


# ---- a daemon -------------------------------------------------------------------------------------
def test_daemon_trains_a_plugin_where_it_is_permitted(cluster, mine):
    daemon = cluster.make("--slots", "2", "--plugin-dirs", mine).start()
    job = daemon.submit(json.dumps(spec_of(mine)), "trainer.devices=2")
    daemon.finish(job)
    assert len(daemon.points(job)) == 2
    mapped = (support.pathlib.Path(f"/proc/{daemon.process.pid}/maps")).read_text()
    assert "module-narrow.so" not in mapped and "libtraind.so" not in mapped, "a daemon loads no plugin"


def module_that_measures(mine, name, metric):
    """The module, with one more output, of that name."""
    output = 'TD_TRY(td_graph_output(g, "loss", loss[0], TD_OUTPUT_MEAN));'
    code = MODULE.replace(output, output + output.replace("loss\"", f"{metric}\""))
    build_plugin(mine / f"module-{name}.so", "MODULE", name, code).with_suffix(".c").unlink()
    (mine / f"module-{name}.so").chmod(0o644)
    return {"name": "plugin", "module": name}


def test_metric_of_a_module_has_a_name_of_51_bytes_and_is_monitored(cluster, tmp_path, mine):
    metric = "a_metric_of_a_module_whose_name_is_51_bytes_in_all_"
    assert len(metric) == 51
    model, long = module_that_measures(mine, "worded", metric), module_that_measures(mine, "wordy", metric + "x")
    monitored = {"every_n_train_steps": 1, "save_top_k": -1, "monitor": f"train_{metric}_epoch"}
    spec = spec_of(mine, model=model, checkpoint=monitored)
    assert "a name of 52 bytes; 51 are the most" in refused(tmp_path, spec | {"model": long}, "--plugin-dirs", mine)
    daemon = cluster.make("--slots", "2", "--plugin-dirs", mine).start()
    job = daemon.submit(json.dumps(spec), "trainer.devices=2", "trainer.max_epochs=2", "trainer.max_steps=-1")
    daemon.finish(job)
    for name in ("step", "epoch"):
        ours, loss = daemon.points(job, f"train_{metric}_{name}"), daemon.points(job, f"train_loss_{name}")
        assert [(p.step, p.value, p.n_ranks) for p in ours] == [(p.step, p.value, p.n_ranks) for p in loss] and ours
    last = max(daemon.checkpoints(job), key=lambda row: row.step)
    assert last.metrics[f"train_{metric}_epoch"] == last.metrics["train_loss_epoch"]


def test_daemon_refuses_a_plugin_where_none_is_permitted(daemon, mine):
    job = daemon.submit(json.dumps(spec_of(mine)))
    daemon.wait_state(job, "FAILED")
    failed = daemon.job(job)
    assert failed.restarts == 0 and "--plugin-dirs" in str(failed) and "bad_spec" in str(failed).lower()


def test_daemon_says_that_a_plugin_is_unknown(cluster, mine):
    daemon = cluster.make("--slots", "1", "--plugin-dirs", mine).start()
    job = daemon.submit(json.dumps(spec_of(mine)), "model.module=wide")
    daemon.wait_state(job, "FAILED")
    failed = str(daemon.job(job))
    assert "there is no module 'wide'" in failed.replace("\\'", "'") and "bad_spec" in failed.lower()
    answer = daemon.ctl("plan", "-", stdin=json.dumps(spec_of(mine, model=NARROW | {"knobs": {"widht": 1}})))
    assert answer.returncode != 0 and "did you mean width?" in answer.stderr


def test_plan_is_made_again_when_a_plugin_of_the_user_is_replaced(cluster, mine, tmp_path):
    daemon = cluster.make("--slots", "1", "--heartbeat-ms", "200", "--plugin-dirs", mine).start()
    (tmp_path / "spec.json").write_text(json.dumps(spec_of(mine)))

    def asked():
        daemon.ctl("plan", tmp_path / "spec.json", check=0)
        return daemon.ctl_json("cluster", "info")["counters"]["plans_asked"]

    until("a plan is kept", lambda: asked() == asked())
    before = asked()
    swap(mine / "module-narrow.so")
    until("the node's plans are dropped", lambda: asked() > before)


def test_paused_ranks_were_started_without_memory_to_share_when_a_plugin_had_changed(cluster, mine, tmp_path):
    """Other plugins in the node's directory, and its plans are dropped: the next attempt needs one again."""
    daemon = cluster.make("--slots", "2", "--heartbeat-ms", "200", "--plugin-dirs", mine).start()
    job = daemon.submit(BUSY, "trainer.devices=2", "trainer.max_steps=400")
    until("a step is done", lambda: daemon.job(job).progress.step > 0)
    daemon.steer("Pause", job)
    daemon.wait_state(job, "PAUSED")
    before = daemon.job(job).global_step
    assert 0 < before < 400
    (tmp_path / "spec.json").write_text(json.dumps(spec_of(mine)))

    def asked():
        daemon.ctl("plan", tmp_path / "spec.json", check=0)
        return daemon.ctl_json("cluster", "info")["counters"]["plans_asked"]

    kept = asked()
    assert asked() == kept
    swap(mine / "module-narrow.so")
    until("the node's plans are dropped", lambda: asked() > kept)
    daemon.steer("Resume", job)
    daemon.finish(job)
    assert daemon.job(job).global_step == 400


def test_relative_directory_of_plugins_is_refused_by_the_daemon():
    for dirs in ("mine", "/opt:mine", "/opt:", ":/opt"):
        ran = subprocess.run([BIN / "traind", "--plugin-dirs", dirs, "--dump-config"], capture_output=True, text=True)
        assert ran.returncode != 0 and "--plugin-dirs (TRAIND_PLUGIN_DIRS) takes absolute paths" in ran.stderr, dirs


# ---- without a daemon -----------------------------------------------------------------------------
def swap(file):
    """The same code in other bytes: what comes after an ELF file's end is not loaded."""
    new = file.with_suffix(".new")
    new.write_bytes(file.read_bytes() + b"another build")
    os.rename(new, file)


def test_run_trains_a_plugin_of_the_user_and_a_resume_notices_another(tmp_path, mine):
    (tmp_path / "spec.json").write_text(json.dumps(spec_of(mine)))

    def run(steps, *more):
        ran = subprocess.run([BIN / "trainctl", "run", "spec.json", "--set", f"trainer.max_steps={steps}", *more], cwd=tmp_path,
                             capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    assert "own SUCCEEDED: step 2" in run(2)
    assert "not bit-exact" not in run(3, "--resume")
    swap(mine / "module-narrow.so")
    assert "resume is not bit-exact: plugin module-narrow changed" in run(4, "--resume")


# ---- installed plugins ----------------------------------------------------------------------------
@pytest.fixture
def tree(build, built, tmp_path):
    """An installation of its own, with both plugins in it and one that does not load."""
    for folder in ("bin", "lib"):
        shutil.copytree(build / folder, tmp_path / "tree" / folder)
    for file in built.glob("*.so"):
        shutil.copy(file, tmp_path / "tree/lib/traind")
    (tmp_path / "tree/lib/traind/strategy-broken.so").write_bytes(b"not an object")
    return tmp_path / "tree"


def listed(daemon, *args):
    found = daemon.ctl_json("plugins", *args)
    return {(p["plugin"]["kind"], p["plugin"]["name"]): p for p in found.get("plugins", [])}, found.get("nodes", 0)


def test_client_lists_the_plugins_of_an_installation_and_their_knobs(cluster, tree, mine):
    daemon = cluster.make("--slots", "1", "--heartbeat-ms", "200")
    daemon.bin = tree / "bin"
    daemon.start()
    until("the node has listed its plugins", lambda: listed(daemon)[1] == 1)
    found, _ = listed(daemon)
    assert {("module", "mlp"), ("dataset", "idx"), ("strategy", "ddp"), ("precision", "bf16_mixed")} <= set(found)
    narrow = found["module", "narrow"]
    assert narrow["nodes"] == 1 and narrow["plugin"]["file"] == "module-narrow.so"
    assert [k["name"] for k in narrow["plugin"]["knobs"]] == ["width", "shape"]
    assert narrow["plugin"]["knobs"][0] == {
        "name": "width", "type": "int", "min": 1, "max": 4096, "unit": "features", "required": False, "fallback": "8",
        "values": "", "prose": "width of the hidden layer"}
    assert found["dataset", "bits"]["plugin"]["knobs"][0]["required"] is True
    assert "does not load here" in found["strategy", "broken"]["plugin"]["error"]
    shown = daemon.ctl("plugins", "narrow", check=0).stdout
    assert "width" in shown and "int 1..4096 features" in shown and "flat|deep" in shown
    own = daemon.ctl("plugins", "mlp", check=0).stdout
    assert re.search(r"^layers +ints 1..1048576 features, of 2..64 +required +width of the input", own, re.M), own
    assert re.search(r"^loss +cross_entropy\|mse\|bce +cross_entropy +what is minimized", own, re.M), own
    assert re.search(r"^path +path up to 4095 bytes +required", daemon.ctl("plugins", "idx", check=0).stdout, re.M)
    assert "its keys: docs/job-spec.md" in daemon.ctl("plugins", "ddp", check=0).stdout
    assert [k["name"] for k in found["module", "mlp"]["plugin"]["knobs"]] == ["layers", "activation", "bias", "loss"]
    unknown = daemon.ctl("plugins", "nothing", check=3).stderr
    assert "no node has installed a plugin 'nothing'; those of --plugin-dirs are not listed" in unknown
    spec = spec_of(mine) | {"plugins": []}
    daemon.finish(daemon.submit(json.dumps(spec)))
    asked = daemon.ctl_json("cluster", "info")["counters"]["plans_asked"]
    with pytest.raises(grpc.RpcError, match=r"model.knobs.width.*: expected an integer from 1 to 4096, found 0"):
        daemon.submit(json.dumps(spec), "model.knobs.width=0")
    assert "did you mean width?" in daemon.ctl("submit", "-", "--set", "model.knobs.widht=3", stdin=json.dumps(spec), check=2).stderr
    assert daemon.ctl_json("cluster", "info")["counters"]["plans_asked"] == asked, "no node was asked"
    (tree / "lib/traind/module-narrow.so").unlink()
    until("the list follows the files", lambda: ("module", "narrow") not in listed(daemon)[0])


def test_client_counts_the_nodes_that_have_a_plugin(cluster, tree):
    coordinator = cluster.make("--role", "coordinator").start()
    with_narrow = cluster.make("--role", "node", "--coordinator", coordinator.address, "--slots", "1", "--token-file",
                               coordinator.state_dir / "token", "--name", "one", name="one")
    with_narrow.bin = tree / "bin"
    with_narrow.start()
    cluster.node(coordinator, 1, "two")
    until("both have listed their plugins", lambda: listed(coordinator)[1] == 2)
    found, nodes = listed(coordinator)
    assert found["module", "narrow"]["nodes"] == 1 and found["module", "mlp"]["nodes"] == 2
    assert re.search(r"^module +narrow +module-narrow.so +1/2 +width,shape", coordinator.ctl("plugins", check=0).stdout, re.M)
