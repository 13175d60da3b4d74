"""Programs with a loop of their own: examples/fabric, built from a copy with an installed traind and nothing else. They
run alone, as ranks that they start themselves, and give the bits of a job."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

import support
from marks import some
from plans import plan_of
from ranks import Attempt
from support import until
from test_s23_own_plugins import CLEAN, STRICT, install, make

PROGRAMS = ("plain", "accumulate", "two_optimizers")


@pytest.fixture(scope="module")
def built(build, tmp_path_factory):
    """Copies of examples/fabric and of the GAN's module, built as a stranger would."""
    prefix = tmp_path_factory.mktemp("installed")
    install(prefix)
    away = tmp_path_factory.mktemp("away")
    env = CLEAN | {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    for folder, target in (("fabric", "all"), ("plugins", "module-gan.so")):
        shutil.copytree(support.ROOT / "examples" / folder, away / folder)
        make(target, f"CFLAGS={STRICT}", cwd=away / folder, env=env)
    (away / "pkgconfig").write_text(env["PKG_CONFIG_PATH"])
    gan = away / "plugins/module-gan.so"
    gan.chmod(0o755)
    gan.parent.chmod(0o755)
    return away


def run(built, name, *args, code=0, env=None):
    done = subprocess.run([built / "fabric" / name, *map(str, args)], capture_output=True, text=True, timeout=120,
                          env=env)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def files(directory):
    return {f.name: f.read_bytes() for f in directory.glob("*.safetensors")}


def job_files(tmp_path, world, steps):
    """What traind-worker leaves of the same spec."""
    plan = plan_of({"seed_everything": 1, "model": {"name": "mlp", "layers": [784, 512, 512, 10]},
                    "data": {"name": "idx", "path": "/usr/share/datasets/fashion-mnist", "batch_size": 128,
                             "shuffle": True},
                    "optimizer": {"name": "adamw", "lr": 0.001}},
                   trainer={"accelerator": "cpu", "devices": world, "max_steps": steps, "max_epochs": -1,
                            "num_sanity_val_steps": 0, "limit_val_batches": 0},
                   run={"checkpoint_dir": str(tmp_path / "job"), "cache_dir": str(tmp_path / "cache"),
                        "threads_per_rank": max(1, len(os.sched_getaffinity(0)) // world)})
    with Attempt(tmp_path, plan, world) as attempt:
        assert attempt.wait(120) == [0] * world, attempt.story()
    return files(tmp_path / f"job/step-{steps}")


def test_programs_are_short():
    for name in PROGRAMS:
        assert len((support.ROOT / f"examples/fabric/{name}.c").read_text().splitlines()) < 120


@pytest.mark.parametrize("world", [1, 2])
def test_plain_loop_trains_to_the_bits_of_a_job(built, tmp_path, world):
    own = tmp_path / "own"
    ranks = ("--ranks", world) if world > 1 else ()
    run(built, "plain", "--steps", 40, "--save", own, "--cache", tmp_path / "cache", *ranks)
    expected = job_files(tmp_path, world, 40)
    assert sorted(expected) == ["model.safetensors", "optimizer.safetensors"]
    keys = [json.loads((place / "step-40/manifest.json").read_text())["resume_key"] for place in (own, tmp_path / "job")]
    assert keys[0] == keys[1], "what they ran on differs, so bits may"
    assert files(own / "step-40") == expected


def test_values_are_json_lines_and_validation_is_reached(built):
    done = run(built, "plain", "--epochs", 1)
    lines = done.stdout.splitlines()
    said, = [line for line in lines if line.startswith("validation accuracy")]
    assert float(said.split()[-1]) > 0.8
    values = [json.loads(line) for line in lines if line.startswith("{")]
    assert {"train_loss_step", "lr", "samples_per_s", "val_accuracy"} <= {v["name"] for v in values}


def test_micro_batches_add_up_over_ranks(built):
    """Of one rank, and of two that exchange gradients once a window."""
    for ranks in ((), (2,)):
        done = run(built, "accumulate", 60, *ranks)
        steps = [(int(n), float(loss)) for n, loss in re.findall(r"step (\d+) loss ([\d.]+)", done.stdout)]
        assert [n for n, _ in steps] == [20, 40, 60] and steps[-1][1] < 1.0, done.stdout


def test_two_optimizers_take_turns(built):
    gan = built / "plugins/module-gan.so"
    for ranks in ((), (2,)):
        done = run(built, "two_optimizers", gan, 100, *ranks)
        losses = re.findall(r"batch (\d+) loss_disc ([\d.]+) loss_gen ([\d.]+)", done.stdout)
        assert [n for n, _, _ in losses] == ["50", "100"], done.stdout
        assert 0 < float(losses[-1][1]) < 2 and 0 < float(losses[-1][2]) < 5


def test_line_of_the_header_of_two_optimizers_runs(built):
    header = (support.ROOT / "examples/fabric/two_optimizers.c").read_text()
    line, = re.findall(r"^// +(\./two_optimizers .*?) +\[steps \[ranks\]\]$", header, re.M)
    done = subprocess.run(["sh", "-c", f"{line} 50"], cwd=built / "fabric", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "batch 50 loss_disc " in done.stdout, done.stdout + done.stderr


def test_two_optimizers_say_how_they_are_called_when_the_plugin_is_not_an_absolute_path(built):
    for args in ((), ("module-gan.so",)):
        done = run(built, "two_optimizers", *args, code=20)
        assert "usage: two_optimizers PLUGIN [steps [ranks]]" in done.stderr and "absolute path" in done.stderr


def test_plugin_that_is_not_there_is_named(built, tmp_path):
    done = run(built, "two_optimizers", tmp_path / "none.so", code=20)
    assert "none.so" in done.stderr


def test_process_of_another_launcher_is_refused(built):
    done = run(built, "plain", code=20, env=os.environ | {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2"})
    assert "torchrun started this process" in done.stderr and "td_spawn" in done.stderr


# ---- as a job -----------------------------------------------------------------------------------
EPOCHS = 3  # after the first there is time left to stop it, on a busy machine too


def submit(daemon, built, *args, world=2):
    text = (support.ROOT / "examples/fabric/plain.yaml").read_text()
    argv = [str(built / "fabric/plain"), *map(str, args)]
    return daemon.submit(text, f"command={json.dumps(argv)}", f"trainer.devices={world}")


def last_files(daemon, job):
    return files(pathlib.Path(daemon.checkpoints(job)[0].directory))


def test_same_binary_is_a_job_that_goes_on_to_the_bit_when_a_rank_is_killed(daemon, built):
    whole = submit(daemon, built, "--epochs", EPOCHS)
    done = daemon.finish(whole)
    assert (done.attempt, done.restarts) == (1, 0)
    names = {"train_loss_step", "lr", "samples_per_s", "val_accuracy"}
    assert names <= {p for p in names if daemon.points(whole, p)}
    assert [p.n_ranks for p in daemon.points(whole, "val_accuracy")] == [2] * EPOCHS
    cut = submit(daemon, built, "--epochs", EPOCHS)
    until("there is a checkpoint to go on from", lambda: daemon.checkpoints(cut))
    launcher = daemon.launcher(cut)
    ranks = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    os.kill(int(ranks[1]), signal.SIGKILL)
    ended = daemon.finish(cut)
    assert (ended.attempt, ended.restarts) == (2, 1)
    assert last_files(daemon, cut) == last_files(daemon, whole)


def test_job_of_the_header_of_the_example_is_done(daemon, built):
    """The command line that plain.c shows, from the folder where it was built."""
    header = (support.ROOT / "examples/fabric/plain.c").read_text()
    line, = re.findall(r"^// +(trainctl submit .*?) +as a job$", header, re.M)
    line = line.replace("--epochs, 3", "--steps, 5") + " --set trainer.devices=1 --follow"
    env = {**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir), "PATH": f"{support.BIN}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", line], cwd=built / "fabric", env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("world", some([2], [1, 2]))
def test_pause_saves_at_the_step_and_resume_gives_the_same_bits(daemon, built, world):
    whole = submit(daemon, built, "--epochs", 1, world=world)
    daemon.finish(whole)
    cut = submit(daemon, built, "--epochs", 1, world=world)
    daemon.wait_step(cut, 30)
    daemon.steer("Pause", cut)
    paused = daemon.wait_state(cut, "PAUSED")
    assert daemon.checkpoints(cut)[0].step == paused.global_step >= 30
    daemon.steer("Resume", cut)
    daemon.finish(cut)
    assert last_files(daemon, cut) == last_files(daemon, whole)


def submit_with_memory(daemon, program, memory_bytes):
    spec = {"name": "plain", "kind": "program", "command": [str(program), "--epochs", "100"],
            "trainer": {"devices": 2}, "resources": {"threads": 1, "memory_bytes": memory_bytes}, "restart": {"max": 0}}
    return daemon.submit(json.dumps(spec))


def test_memory_that_ranks_share_counts_for_their_limit(daemon, built):
    """plain.c has 669,706 parameters: gradients of 2.7 MB are what its ranks share."""
    job = submit_with_memory(daemon, built / "fabric/plain", 1 << 30)
    daemon.wait_step(job, 1)
    launcher = daemon.launcher(job)
    for rank in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        line, = re.findall(r"^Max data size +(\d+) +(\d+)", pathlib.Path(f"/proc/{rank}/limits").read_text(), re.M)
        assert line[0] == line[1]
        assert (1 << 30) - 4_000_000 < int(line[0]) <= (1 << 30) - 669_706 * 4 // 2
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


def test_setup_that_needs_more_than_the_limit_is_refused_with_the_bytes(daemon, built, tmp_path):
    """Of 20 million parameters, of which there are copies to train and to save: 0.5 GB."""
    shutil.copytree(built / "fabric", tmp_path / "wide")
    source = tmp_path / "wide/plain.c"
    text = source.read_text()
    assert "784, 512, 512, 10" in text
    source.write_text(text.replace("784, 512, 512, 10", "784, 4096, 4096, 10"))
    env = CLEAN | {"PKG_CONFIG_PATH": (built / "pkgconfig").read_text()}
    make("plain", f"CFLAGS={STRICT}", cwd=tmp_path / "wide", env=env)
    job = submit_with_memory(daemon, tmp_path / "wide/plain", 300 << 20)
    failure = daemon.wait_state(job, "FAILED").failure
    assert getattr(failure, "class") == "out_of_memory", failure
    assert re.search(r"a rank needs \d+ bytes, resources.memory_bytes allows 314572800", failure.message), failure


def test_daemon_bounds_the_cpu_level_of_its_programs(cluster, built):
    daemon = cluster.make("--slots", "2", "--cpu-level", "generic").start()
    job = submit(daemon, built, "--steps", 20, world=1)
    daemon.finish(job)
    manifest = pathlib.Path(daemon.checkpoints(job)[0].directory) / "manifest.json"
    assert ", generic, " in json.loads(manifest.read_text())["resume_key"]["cpu"]


def test_examples_build_in_a_tree_that_is_not_installed(build, tmp_path):
    """As docs/fabric.md says it. A copy that shares what was built, so that nothing is left in the tree."""
    for name in ("include", "build"):
        (tmp_path / name).symlink_to(support.BUILD if name == "build" else support.ROOT / name)
    env = CLEAN | {"PKG_CONFIG_LIBDIR": str(tmp_path)}
    for folder, target in (("fabric", "plain"), ("plugins", "module-gan.so")):
        shutil.copytree(support.ROOT / "examples" / folder, tmp_path / "examples" / folder)
        make("-C", f"examples/{folder}", target, cwd=tmp_path, env=env)
    done = subprocess.run([tmp_path / "examples/fabric/plain", "--steps", "2"], capture_output=True, text=True, timeout=120,
                          env=env)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("where", ["installed", "tree"])
def test_first_program_of_the_docs_compiles_and_prints_its_loss(built, tmp_path, where):
    """By the lines that the page shows, with the numbers that it shows, as far as CPUs agree on them."""
    page = (support.ROOT / "docs/fabric.md").read_text()
    (tmp_path / "first.c").write_text(page.split("```c\n")[1].split("```")[0])
    compiles, runs = re.findall(r"^\$ (cc .*|\./first.*)$", page, re.M)
    shown = re.findall(r"^batch (\d+): loss ([\d.]+)$", page, re.M)
    found = (built / "pkgconfig").read_text() if where == "installed" else str(support.BUILD / "lib/pkgconfig")
    env = {k: v for k, v in CLEAN.items() if k != "LD_LIBRARY_PATH"} | {"PKG_CONFIG_PATH": found}
    done = subprocess.run(["sh", "-c", f"{compiles} {STRICT} && {runs}"], cwd=tmp_path, env=env, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"^batch (\d+): loss ([\d.]+)$", done.stdout, re.M)
    assert [n for n, _ in said] == [n for n, _ in shown] == ["0", "100", "200", "300", "400"], done.stdout
    assert [float(loss) for _, loss in said] == pytest.approx([float(loss) for _, loss in shown], rel=0.1)
    assert '"step":469' in (tmp_path / "first.log").read_text()
