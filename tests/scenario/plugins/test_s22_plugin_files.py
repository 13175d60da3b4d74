"""A plugin's file that is replaced under the same name is noticed: by a run that resumes, by the plans that a
coordinator keeps, and, built for another ABI, by a job that ends at once instead of being tried again."""
import os
import shutil
import subprocess

import pytest

import support
from plans import plan_of
from ranks import Attempt
from support import SPEC, until

# An accelerator `cpu` of an older plugin ABI. Nothing in it may be called.
OLDER = """
#include "traind/accelerator.h"
#include "traind/plugin.h"
static td_status trap(struct td_accel_facts *out_facts) { (void)out_facts; __builtin_trap(); }
static const struct td_accelerator_ops ops = {
    sizeof ops, trap, (void *)trap, (void *)trap, (void *)trap, (void *)trap, NULL,
    (void *)trap, (void *)trap, (void *)trap, (void *)trap, (void *)trap, NULL};
static const struct td_plugin_desc td_plugin_here = {sizeof td_plugin_here, TD_ABI_MAJOR - 1, TD_ABI_MINOR,
    TD_PLUGIN_ACCELERATOR, "cpu", "of an older ABI", &ops, NULL, 0};
TD_PLUGIN_EXPORTS
"""


@pytest.fixture
def tree(build, tmp_path):
    """An installation of its own, and what replaces its cpu accelerator, by rename as a package does."""
    for folder in ("bin", "lib"):
        shutil.copytree(build / folder, tmp_path / "tree" / folder)
    return tmp_path / "tree"


def plugin_of(tree):
    return tree / "lib/traind/accelerator-cpu.so"


def replace(tree, data):
    (tree / "new").write_bytes(data)
    os.rename(tree / "new", plugin_of(tree))


def rebuild(tree):
    """The same code in other bytes: what comes after an ELF file's end is not loaded."""
    replace(tree, plugin_of(tree).read_bytes() + b"another build")


def make_older(tree):
    (tree / "older.c").write_text(OLDER)
    subprocess.run([os.environ.get("CC", "cc"), "-w", "-shared", "-fPIC", f"-I{support.ROOT}/include",
                    tree / "older.c", "-o", tree / "older.so"], check=True)
    replace(tree, (tree / "older.so").read_bytes())


def test_resume_says_that_a_plugin_changed_when_its_file_is_another(tree, tmp_path, monkeypatch):
    monkeypatch.setattr("ranks.WORKER", tree / "bin/traind-worker")

    def run(name, steps, resume_from=None):
        plan = plan_of(trainer={"accelerator": "cpu", "max_steps": steps},
                       run={"checkpoint_dir": str(tmp_path / name), "resume_from": resume_from})
        with Attempt(tmp_path, plan) as one:
            assert one.wait(60) == [0], one.story()
            return [e["reason"] for e in one.ranks[0].event("resumed")]

    run("first", 2)
    assert run("same", 3, str(tmp_path / "first/step-2")) == [""]
    rebuild(tree)
    assert run("other", 3, str(tmp_path / "first/step-2")) == ["plugin accelerator-cpu changed"]


def start(cluster, tree):
    daemon = cluster.make("--slots", "2", "--heartbeat-ms", "200")
    daemon.bin = tree / "bin"
    return daemon.start()


def test_plan_is_made_again_when_a_plugin_was_replaced(cluster, tree, tmp_path):
    daemon = start(cluster, tree)
    (tmp_path / "spec.yaml").write_text(SPEC)

    def asked():
        return daemon.ctl_json("cluster", "info")["counters"]["plans_asked"]

    def plan():
        daemon.ctl("plan", tmp_path / "spec.yaml", check=0)
        return asked()

    until("a plan is kept", lambda: plan() == plan())
    before = plan()
    rebuild(tree)
    until("the node's plans are dropped", lambda: plan() > before)
    after = plan()
    daemon.restart()
    assert plan() == asked() <= after, "plans of the plugins that are there are kept over a restart"


@pytest.mark.parametrize("planned", [True, False])
def test_job_fails_at_once_when_a_plugin_is_built_for_another_abi(cluster, tree, planned):
    daemon = start(cluster, tree)
    if planned:
        assert daemon.finish(daemon.submit(SPEC)).restarts == 0
    make_older(tree)
    job = daemon.submit(SPEC)
    daemon.wait_state(job, "FAILED")
    failed = daemon.job(job)
    assert failed.restarts == 0 and failed.attempt <= 1
    assert "built for plugin ABI" in str(failed) and "bad_spec" in str(failed).lower()
