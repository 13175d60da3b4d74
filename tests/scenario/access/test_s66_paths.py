"""What the paths of a spec may name: no secret of the daemon by any name, for a submitter what --read-roots name or what
everyone may read, for the owner anything but the state directory. And what is no file, or no regular one, hangs nobody."""
import json
import os
import re
import shutil
import subprocess

import grpc
import numpy as np
import pytest

from plans import plan_of
from support import BIN, BUSY, SPEC, until
from test_s66_roles import Person

ROWS = "data: {name: npy, x: %s, y: %s, batch_size: 4}"
# Every key that takes a path: how a plan reads it, or why this test has nothing to say of it.
WRITTEN, MADE, OWN = "an output", "the node sets it", "of what has the daemon user's rights, and is not bound"
READ = {
    "init_from": lambda p: {"init_from": p},
    "evaluate_from": lambda p: {"evaluate_from": p, "stages": ["test"]},
    "ckpt_path": lambda p: {"ckpt_path": p},
    "data.idx.path": lambda p: {"data": {"name": "idx", "path": p, "batch_size": 4}},
    "data.tokens.train": lambda p: {"data": {"name": "tokens", "train": [p], "block_size": 8, "batch_size": 4}},
    "data.tokens.val": lambda p: {"data": {"name": "tokens", "train": [f"{os.path.dirname(p)}/../open/tokens.bin"], "val": [p],
                                           "block_size": 8, "batch_size": 4}},
    "data.text.path": lambda p: {"data": {"name": "text", "path": p, "block_size": 8, "batch_size": 4}},
    "data.npy.x": lambda p: npy(p, x=p), "data.npy.y": lambda p: npy(p, y=p),
    "data.npy.val_x": lambda p: npy(p, val_x=p, val_y=p), "data.npy.val_y": lambda p: npy(p, val_x=rows(p), val_y=p),
    "data.npy.test_x": lambda p: npy(p, test_x=p, test_y=p), "data.npy.test_y": lambda p: npy(p, test_x=rows(p), test_y=p),
    "logger.csv.dir": WRITTEN, "logger.tensorboard.dir": WRITTEN, "trainer.trace_dir": WRITTEN, "predict.output": WRITTEN,
    "collective.trace.dir": WRITTEN, "checkpoint.dir": WRITTEN,
    "run.checkpoint_dir": MADE, "run.cache_dir": MADE, "run.resume_from": MADE, "run.resume_before": MADE,
    "workdir": OWN, "plugins": OWN, "paths_from": OWN,
    "loggers_in.tensorboard": "of commands, by a process of their launcher (test_s29_event_files.py)",
}


def rows(p):
    return os.path.join(re.split("/(?:state|open)/", p.replace("/proc/self/root", ""))[0], "open", "rows.npy")


def npy(p, **more):
    return {"data": {"name": "npy", "x": rows(p), "y": rows(p).replace("rows", "labels"), "batch_size": 4, **more}}


@pytest.fixture
def places(tmp_path):
    """A state directory with its token, and a folder of everyone's with names that lead to it."""
    os.chmod(tmp_path, 0o755)
    state, public = tmp_path / "state", tmp_path / "open"
    (state / "checkpoints").mkdir(parents=True)
    state.chmod(0o700)
    public.mkdir(mode=0o755)
    token = state / "token"
    token.write_bytes(b"secret of the owner, " * 20)
    token.chmod(0o644)
    (public / "link").symlink_to(token)
    os.link(token, public / "hard")
    (public / "up").symlink_to(state)
    for name in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (public / f"{name}-{kind}-ubyte").symlink_to(token)
    for name, link in (("soft", os.symlink), ("hard-ones", os.link)):  # of checkpoints
        (public / name).mkdir(mode=0o755)
        link(token, public / name / "manifest.json")
    np.save(public / "rows.npy", np.zeros((16, 16), np.float32))
    np.save(public / "labels.npy", np.arange(16, dtype=np.int64) % 4)
    (public / "tokens.bin").write_bytes(np.zeros(64, np.uint16).tobytes())
    for file in ("rows.npy", "labels.npy", "tokens.bin"):
        (public / file).chmod(0o644)
    for above in tmp_path.parents:  # of pytest, which makes its folders for this user alone
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    return tmp_path


def planned(places, changes, owner=False, args=(), **rules):
    plan = plan_of(changes)
    for section in ("data", "model"):
        plan[section] = changes.get(section, plan[section])
    file = places / "plan.json"
    file.write_text(json.dumps(plan))
    said = {"owner": owner, "state_dir": str(places / "state"), "token_file": str(places / "state/token"), **rules}
    return subprocess.run([BIN / "traind-worker", "plan", "--plan", file, "--json", "--path-rules", json.dumps(said),
                           *args], capture_output=True, text=True, timeout=60)


def path_keys():
    section, keys = "", []
    for line in subprocess.run([BIN / "traind", "--dump-spec"], capture_output=True, text=True, check=True).stdout.splitlines():
        heading = re.match(r"#+ (?:`(\w+)(?:: \{name: (\w+)\})?`|.*)", line)
        if heading:
            section = ".".join(x for x in heading.groups() if x)
        if row := re.match(r"\| `(\w+)` \| [^|]*(?:absolute|a) path", line):
            keys.append(".".join(x for x in (section, row[1]) if x))
    return keys


def test_every_key_that_takes_a_path_is_here():
    assert sorted(path_keys()) == sorted(READ)


@pytest.mark.parametrize("key", [k for k, how in READ.items() if callable(how)])
def test_a_secret_was_read_by_its_other_names(places, key):
    names = [places / "state/token", places / "open/link", places / "open/hard", places / "open/up/token",
             f"/proc/self/root{places}/state/token"]
    if key == "data.idx.path":
        names = [places / "open", places / "open/up/../open"]
    if key == "ckpt_path":
        names = [places / "open/soft", places / "open/hard-ones"]
    owner = len(key) % 2 == 0  # to all: half of the keys each
    for name in map(str, names):
        ran = planned(places, READ[key](name), owner)
        assert ran.returncode and re.search("may not read|without '..'", ran.stderr), (name, ran.stderr)
        assert "secret of" not in ran.stderr


def test_a_submitter_reads_what_the_roots_name(places):
    mine = places / "mine"
    mine.mkdir(mode=0o700)
    shutil.copy(places / "open/rows.npy", mine)
    spec = npy(str(places / "open/x"), x=str(mine / "rows.npy"))
    assert planned(places, spec, owner=True).returncode == 0
    ran = planned(places, spec)
    assert ran.returncode and "has no --read-roots" in ran.stderr
    both = f"{mine}:{places}/open"
    assert planned(places, spec, read_roots=both).returncode == 0
    ran = planned(places, spec, read_roots=str(places / "open"))
    assert ran.returncode and f"--read-roots '{places}/open'" in ran.stderr


def hears(daemon):
    return daemon.nodes("READY")


def test_a_submitters_job_reads_no_token_and_the_owners_all_but_it(cluster, tmp_path):
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    np.save(private / "x.npy", np.zeros((16, 16), np.float32))
    np.save(private / "y.npy", np.arange(16, dtype=np.int64) % 4)
    spec = re.sub("data: .*", ROWS % (private / "x.npy", private / "y.npy"), SPEC)
    daemon = cluster.start("--allow", "none", name="d")
    alice = Person(daemon, "submitter", "alice")

    def run(person, spec):
        made = person.stub.CreateJob(person.m.CreateJobRequest(spec=spec), timeout=20)
        daemon.wait_state(made.id, "SUCCEEDED", "FAILED")
        return daemon.job(made.id)

    owners = daemon.job(daemon.submit(spec))
    daemon.wait_state(owners.id, "SUCCEEDED")
    job = run(alice, spec)  # its plan is not the owner's
    assert getattr(job.failure, "class") == "bad_spec" and "--read-roots" in job.failure.message, job.failure
    token = os.path.join(daemon.state_dir, "token")
    for person in (alice, Person(daemon, "admin", "ada")):
        job = run(person, re.sub("data: .*", f"data: {{name: text, path: {token}, block_size: 8, batch_size: 4}}", SPEC))
        assert getattr(job.failure, "class") == "bad_spec" and "may not read" in job.failure.message, job.failure
    with pytest.raises(grpc.RpcError) as error:
        alice.stub.PlanJob(alice.m.PlanJobRequest(spec=spec), timeout=20)
    assert "--read-roots" in error.value.details()
    # A checkpoint of any job stays readable, and a job goes on from its own.
    job = run(alice, SPEC + f"init_from: {owners.id}/last\n")
    assert job.failure.message == "" or "model" in job.failure.message, job.failure


def test_a_shard_behind_a_link_was_sent(cluster, tmp_path):
    daemon = cluster.start(name="d")
    job = daemon.job(daemon.submit(SPEC, f"checkpoint.dir={tmp_path}/out"))
    daemon.wait_state(job.id, "SUCCEEDED")
    path = daemon.checkpoints(job.id)[-1].path
    step = tmp_path / "out" / job.id / path
    m = cluster.stubs.checkpoint

    def shard():
        return b"".join(x.data for x in daemon.stub("Checkpoint").ReadShard(
            m.ReadShardRequest(job=job.id, path=path, file="model.safetensors"), timeout=20))

    whole = shard()
    assert whole == (step / "model.safetensors").read_bytes()
    step.parent.rename(tmp_path / "elsewhere")
    step.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(grpc.RpcError) as error:
        shard()
    assert "is a link" in error.value.details()
    step.parent.unlink()
    (tmp_path / "elsewhere").rename(step.parent)
    (step / "model.safetensors").unlink()
    os.link(os.path.join(daemon.state_dir, "token"), step / "model.safetensors")
    with pytest.raises(grpc.RpcError) as error:
        shard()
    assert "key, token or database" in error.value.details()


def test_a_fifo_hung_the_planner_and_the_node(cluster, tmp_path):
    folder = tmp_path / "plugins"
    folder.mkdir()
    os.mkfifo(folder / "module-x.so")
    os.mkfifo(tmp_path / "fifo")
    daemon = cluster.start("--plugin-dirs", str(folder), name="d")
    until("the node is here", lambda: hears(daemon))
    for key in (f"init_from={tmp_path}/fifo", f"plugins=[{folder}/module-x.so]", f"ckpt_path={tmp_path}/fifo"):
        made = daemon.submit(SPEC, key)
        daemon.wait_state(made, "FAILED", deadline_s=20)
        assert re.search("FIFO|neither a file|ot a directory", daemon.job(made).failure.message), daemon.job(made).failure
    job = daemon.submit(BUSY, f"checkpoint.dir={tmp_path}/out", "trainer.max_steps=120")
    until("a checkpoint", lambda: daemon.checkpoints(job))
    for step in (tmp_path / "out" / job / "a1").glob("step-*"):
        (step / "manifest.json").rename(step / "away")
        os.mkfifo(step / "manifest.json")
    daemon.restart()  # looks at them
    until("the node is here", lambda: hears(daemon))
    daemon.finish(job)
