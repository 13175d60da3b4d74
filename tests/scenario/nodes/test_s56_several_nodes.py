"""Jobs over several nodes, each a daemon with directories of its own on this machine: all parts start or none, what one
of them meets is the job's, and the others end with it."""
import json
import os
import pathlib
import re
import signal
import sys
import time

import grpc
import pytest

from support import LONG, ROOT, SPEC, alive, until
from test_s26_fabric import built  # noqa: F401
from test_s57_hosts import convnet

CLIENT = ROOT / "clients/python"


@pytest.fixture
def two(cluster):
    """Coordinator and nodes a and b, with 2 and 3 slots, that reach each other by the loopback interface."""
    c = cluster.start("--role", "coordinator", "--heartbeat-ms", "200", "--lease-ms", "1000", "--lost-after-ms", "4000",
                      name="c")
    nodes = [cluster.node(c, slots, name, "--collective-interface", "lo") for slots, name in ((3, "b"), (2, "a"))]
    until("both are ready", lambda: len(c.nodes("READY")) == 2)
    return c, nodes[1], nodes[0]


def spec(tmp_path, text, **more):
    path = tmp_path / "script.py"
    path.write_text("import json, os, signal, sys, time\nrank = int(os.environ['RANK'])\n" + text)
    base = {"kind": "command", "command": [sys.executable, str(path)], "env": {"PYTHONPATH": str(CLIENT)},
            "restart": {"max": 2, "backoff": [0]}, "trainer": {"num_nodes": 2}}
    return json.dumps({**base, **more})


def parts(c, job):
    return [(p.node, p.first_rank, p.n_ranks, p.state) for p in c.job(job).parts]


def output(c, job, rank):
    return b"".join(line.data for line in c.logs(job, rank=rank)).decode()


# ---- start --------------------------------------------------------------------------------------
def test_ranks_are_numbered_by_nodes_name_and_meet_at_the_first_node(two, tmp_path):
    c, a, b = two
    out = tmp_path / "env"
    job = c.submit(spec(tmp_path, f"""
open("{out}." + os.environ["RANK"], "w").write(json.dumps(dict(os.environ, cwd=os.getcwd())))
print("hello from", rank)
""", trainer={"num_nodes": 2, "devices": 2}))
    done = c.finish(job)
    assert (done.n_ranks, done.attempt, done.restarts) == (4, 1, 0)
    ports = set()
    for rank in range(4):
        env = json.loads(pathlib.Path(f"{out}.{rank}").read_text())
        wanted = {"RANK": rank, "LOCAL_RANK": rank % 2, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2, "NODE_RANK": rank // 2,
                  "GROUP_RANK": rank // 2, "GROUP_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1",
                  "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
        assert {k: env.get(k) for k in wanted} == {k: str(v) for k, v in wanted.items()}
        assert env["cwd"] == f"{(a, b)[rank // 2].state_dir}/checkpoints/{job}"
        ports.add(env["MASTER_PORT"])
        assert output(c, job, rank) == f"hello from {rank}\n"
    assert len(ports) == 1
    for node in (a, b):
        until("its attempt is forgotten", lambda: not node.attempts())


def test_describe_shows_what_each_node_has(two, tmp_path):
    c, a, b = two
    job = c.submit(spec(tmp_path, "signal.pause()", trainer={"num_nodes": 2, "devices": 2}))
    c.wait_state(job, "RUNNING")
    assert parts(c, job) == [("a", 0, 2, "started"), ("b", 2, 2, "started")]
    shown = c.ctl("describe", job, check=0).stdout
    assert re.search(r"node +a: ranks 0 to 1 on 2 slots, started\n", shown), shown
    assert re.search(r"node +b: ranks 2 to 3 on 2 slots, started\n", shown), shown


def test_job_waits_with_numbers_and_names_until_there_are_nodes_enough(two, cluster, tmp_path):
    c, a, b = two
    job = c.submit(spec(tmp_path, "print('ok')", trainer={"num_nodes": 3}))
    reason = until("it waits", lambda: c.job(job).reason.code == "WAITING_FOR_NODE" and c.job(job).reason.text)
    assert "needs 3 nodes for 1 rank each, 2 connected nodes could take a part: a, b" in reason
    apart = cluster.node(c, 1, "d")  # without an interface
    until("it is named", lambda: "node d has no collective interface" in c.job(job).reason.text)
    assert not c.job(job).attempt and apart.attempts() == a.attempts() == b.attempts() == []
    cluster.node(c, 1, "e", "--collective-interface", "127.0.0.0/8")
    c.finish(job)


def test_parts_that_no_node_can_have_are_refused_with_numbers_and_a_name(two, tmp_path):
    c, _, _ = two
    for n_nodes, devices, code, words in ((2, 9, b"UNSATISFIABLE", "9 slots on one node; the largest known node (b) has 3"),
                                          (1025, 1, b"trainer.num_nodes", "1024")):
        with pytest.raises(grpc.RpcError) as error:
            c.submit(spec(tmp_path, "print('ok')", trainer={"num_nodes": n_nodes, "devices": devices}))
        assert words in error.value.details(), error.value.details()
        assert code in dict(error.value.trailing_metadata())["grpc-status-details-bin"]


def test_no_part_starts_while_one_node_has_no_room(two, tmp_path):
    c, a, b = two
    blocker = c.submit(LONG, "trainer.devices=3")  # b's
    c.wait_state(blocker, "RUNNING")
    job = c.submit(spec(tmp_path, "print('ok')"))
    later = c.submit(LONG, "trainer.devices=2")  # would fit on a, and came later
    reason = until("it waits", lambda: c.job(job).reason.code == "WAITING_FOR_SLOTS" and c.job(job).reason.text)
    assert "needs 1 slot on each of 2 nodes, 1 of 2 have them" in reason
    assert not a.attempts() and not c.job(later).attempt
    c.steer("Cancel", blocker)
    c.finish(job)
    c.wait_state(later, "RUNNING")


def test_interface_that_is_not_there_leaves_a_node_for_jobs_of_one(cluster, tmp_path):
    c = cluster.start("--role", "coordinator", name="c")
    node = cluster.node(c, 1, "a", "--collective-interface", "eth-none0")
    until("it says so", lambda: "no interface of this machine that is up fits 'eth-none0'" in node.tail())
    c.finish(c.submit(spec(tmp_path, "print('ok')", trainer={"num_nodes": 1})))
    refused = cluster.make("--role", "node", "--coordinator", c.address, "--collective-interface", "10.0.0/8", name="x")
    refused.start(wait=False)
    assert refused.process.wait(10) == 2
    until("it says why", lambda: "--collective-interface" in refused.tail())
    cluster.daemons.remove(refused)


@pytest.mark.parametrize("n_nodes, devices, said", [
    (1, 2, "resume is not bit-exact: nodes x ranks 2 x 1 -> 1 x 2: sums may be added in another order"),
    (2, 1, None)])
def test_another_topology_resumes_with_a_note(two, n_nodes, devices, said):
    c, a, b = two
    short = SPEC.replace("max_epochs: 3", "max_epochs: 2")
    first = c.submit(short, "trainer.max_steps=8", "trainer.num_nodes=2")
    c.finish(first)
    path = a.state_dir / "checkpoints" / first / "a1/step-8"
    resumed = c.submit(short, f"trainer.num_nodes={n_nodes}", f"trainer.devices={devices}", f"ckpt_path={path}")
    done = c.finish(resumed)
    assert done.global_step > 8
    assert [n for n in done.notes if "bit-exact" in n] == ([said] if said else []), done.notes


# ---- the end of one is that of all --------------------------------------------------------------
def took_s(c, job, since):
    """Until all ranks on all nodes had ended, by the coordinator's log."""
    s = c.attempt_ended_at(job) - since
    print(f"the attempt has ended after {s:.3f} s")
    return s


def test_rank_that_fails_ends_the_ranks_of_the_other_node(two, tmp_path):
    c, a, b = two
    mark = tmp_path / "go"
    job = c.submit(spec(tmp_path, f"""
while rank == 1 and not os.path.exists("{mark}"):
    time.sleep(0.01)
if rank == 1:
    sys.exit(7)
signal.pause()
"""))
    c.wait_state(job, "RUNNING")
    since = time.time()
    mark.touch()
    failure = c.wait_state(job, "FAILED").failure
    assert took_s(c, job, since) < 2
    assert getattr(failure, "class") == "user_code" and "exit code 7" in failure.message
    assert (failure.rank, failure.node) == (1, "b")
    for node in (a, b):
        until("its attempt is forgotten", lambda: not node.attempts())


# None of them looks at the abort word, on the node of the one that is killed or on the other.
def test_attempt_ends_within_two_seconds_of_a_kill_when_no_other_rank_obeys(two):
    c, a, b = two
    job = c.submit(LONG, "trainer.num_nodes=2", "trainer.devices=2")
    c.wait_step(job, 5)
    *others, killed = *a.workers(job), *b.workers(job)
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    since = time.time()
    os.kill(killed, signal.SIGKILL)
    assert took_s(c, job, since) < 2
    failure = c.job(job).failure
    assert (failure.rank, failure.node, getattr(failure, "class")) == (3, "b", "killed")
    assert not any(map(alive, others))
    until("it trains again", lambda: c.job(job).attempt == 2 and c.state(job) == "RUNNING")


def test_attempt_of_a_command_ends_within_two_seconds_when_the_others_ignore_sigterm(two, tmp_path):
    c, a, b = two
    go, went, deaf = tmp_path / "go", tmp_path / "went", [tmp_path / f"deaf.{rank}" for rank in range(4)]
    job = c.submit(spec(tmp_path, f"""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(f"{tmp_path}/deaf.{{rank}}", "w").close()
while rank == 3 and not os.path.exists("{go}"):
    time.sleep(0.01)
if rank == 3:
    open("{went}", "w").write(str(time.time()))
    os._exit(7)
while True:
    signal.pause()
""", trainer={"num_nodes": 2, "devices": 2}))
    c.wait_state(job, "RUNNING")
    until("all ignore it", lambda: all(f.exists() for f in deaf))
    go.touch()
    failure = c.wait_state(job, "FAILED").failure
    assert took_s(c, job, float(went.read_text())) < 2
    assert (failure.rank, failure.node, getattr(failure, "class")) == (3, "b", "user_code")


def test_job_goes_on_in_another_attempt_when_a_launcher_is_killed(two, tmp_path):
    c, a, b = two
    job = c.submit(spec(tmp_path, "print('attempt', os.environ['TRAIND_ATTEMPT'], flush=True)\n"
                                  "os.environ['TRAIND_ATTEMPT'] == '1' and signal.pause()"))
    c.wait_state(job, "RUNNING")
    os.kill(b.launcher(job), signal.SIGKILL)
    done = c.finish(job)
    assert (done.attempt, done.restarts) == (2, 1)
    for rank in (0, 1):
        assert output(c, job, rank).endswith("attempt 2\n")


def test_cancel_ends_all_parts(two, tmp_path):
    c, a, b = two
    job = c.submit(spec(tmp_path, "signal.pause()"))
    c.wait_state(job, "RUNNING")
    c.steer("Cancel", job)
    c.wait_state(job, "CANCELLED")
    for node in (a, b):
        until("its attempt is forgotten", lambda: not node.attempts())


# ---- daemons and hosts that go ------------------------------------------------------------------
def test_ranks_run_on_when_daemons_are_killed_and_start_again(two, tmp_path):
    c, a, b = two
    mark = tmp_path / "go"
    job = c.submit(spec(tmp_path, f"""
while not os.path.exists("{mark}"):
    time.sleep(0.01)
print("through")
"""))
    c.wait_state(job, "RUNNING")
    for d in (b, c, a):
        d.restart(signal.SIGKILL)
    until("both are back", lambda: len(c.nodes("READY")) == 2)
    mark.touch()
    done = c.finish(job)
    assert (done.attempt, done.restarts) == (1, 0)
    for rank in (0, 1):
        assert output(c, job, rank) == "through\n"


def test_node_that_stays_away_is_given_up_and_its_ranks_end_when_it_comes_back(two, cluster, tmp_path):
    c, a, b = two
    job = c.submit(spec(tmp_path, "os.environ['TRAIND_ATTEMPT'] == '1' and signal.pause()"))
    c.wait_state(job, "RUNNING")
    pid = b.launcher(job)
    os.kill(b.process.pid, signal.SIGSTOP)  # the host is cut off; its ranks run on
    try:
        recovering = until("another attempt waits", lambda: c.job(job).restarts == 1 and c.job(job))
        assert getattr(recovering.failure, "class") == "node_lost" and recovering.failure.node == "b"
        until("the other part has ended", lambda: not a.attempts())
        assert alive(pid)
    finally:
        os.kill(b.process.pid, signal.SIGCONT)
    until("what was given up has ended", lambda: not alive(pid))
    assert c.finish(job).attempt == 2


# ---- trainings ----------------------------------------------------------------------------------
# Steps of one process and of several with the same samples a step.
TRAIN = SPEC.replace("max_epochs: 3", "max_epochs: 2").replace("batch_size: 16", "batch_size: 8")


@pytest.mark.parametrize("n_nodes, devices", [(2, 1), (2, 2), (3, 1)])
def test_training_over_nodes_gives_the_losses_of_one_process(two, cluster, n_nodes, devices):
    c, a, b = two
    if n_nodes == 3:
        cluster.node(c, 1, "d", "--collective-interface", "lo")
        until("it is ready", lambda: len(c.nodes("READY")) == 3)
    world = n_nodes * devices
    train = TRAIN.replace("samples: 512", "samples: 576")  # a whole number of steps for any of these worlds
    wide = c.submit(train, f"trainer.num_nodes={n_nodes}", f"trainer.devices={devices}", "trainer.precision=64-true")
    done = c.finish(wide)
    assert (done.n_ranks, done.attempt) == (world, 1)
    alone = c.submit(train, f"data.batch_size={8 * world}", "trainer.precision=64-true")
    last = c.finish(alone).global_step
    assert done.global_step == last
    found, wanted = (c.points(job) for job in (wide, alone))
    assert [p.step for p in found] == [p.step for p in wanted] == list(range(1, last + 1))
    assert {p.n_ranks for p in found} == {world}
    worst = max(abs(p.value - q.value) / max(abs(q.value), 1e-3) for p, q in zip(found, wanted))
    assert worst < 1e-5, worst
    newest = c.checkpoints(wide)[0]
    assert newest.step == last and c.weights(wide), "it was streamed to the coordinator"


@pytest.mark.parametrize("n_nodes, devices, what", [(8, 1, "many nodes"), (2, 2, "sums within a program")])
def test_ranks_run_within_the_memory_that_they_say_they_need(cluster, tmp_path, n_nodes, devices, what):
    c = cluster.start("--role", "coordinator", name="c")
    for i in range(n_nodes):
        cluster.node(c, devices, f"n{i}", "--collective-interface", "lo")
    until("they are ready", lambda: len(c.nodes("READY")) == n_nodes)
    spec = convnet(tmp_path) if what == "sums within a program" else TRAIN.replace("[16, 32, 4]", "[16, 3000, 1000, 4]")
    sets = [f"trainer.num_nodes={n_nodes}", f"trainer.devices={devices}", "restart.max=0", "resources.threads=1", "trainer.max_steps=3"]
    job = c.submit(spec, *sets, "resources.memory_bytes=8000000")
    until("it has failed", lambda: c.job(job).failure.message)
    need = re.search(r"a rank needs (\d+) bytes", c.job(job).failure.message)[1]
    c.finish(c.submit(spec, *sets, f"resources.memory_bytes={need}"))


def test_two_runs_over_two_nodes_have_the_same_bits(two):
    c, a, b = two
    found = []
    for _ in range(2):
        job = c.submit(TRAIN, "trainer.num_nodes=2", "trainer.devices=2")
        c.finish(job)
        found.append(c.weights(job)["model.safetensors"])
    assert found[0] == found[1]


def test_training_goes_on_from_its_checkpoint_when_a_rank_is_killed(two):
    c, a, b = two
    whole = c.submit(LONG, "trainer.max_steps=150", "trainer.num_nodes=2", "checkpoint.save_top_k=-1")
    c.finish(whole, deadline_s=120)
    job = c.submit(LONG, "trainer.max_steps=150", "trainer.num_nodes=2", "checkpoint.save_top_k=-1")
    c.wait_checkpoint(job)
    os.kill(b.workers(job)[0], signal.SIGKILL)
    done = c.finish(job, deadline_s=120)
    assert (done.attempt, done.restarts) == (2, 1) and done.failure.node == "b"
    assert not [n for n in done.notes if "not bit-exact" in n], done.notes
    assert c.weights(job)["model.safetensors"] == c.weights(whole)["model.safetensors"]


TOKENS = ("trainer.accumulate=tokens", "trainer.accumulate_grad_batches=3", "model.loss={name: cross_entropy, ignore_index: 1}")


@pytest.mark.parametrize("more", [(), TOKENS], ids=["batches", "tokens"])
def test_two_nodes_give_the_bits_of_two_ranks_on_one(two, more):
    c, a, b = two
    found = []
    for places in (("trainer.num_nodes=2", "trainer.devices=1"), ("trainer.num_nodes=1", "trainer.devices=2")):
        job = c.submit(TRAIN, "resources.threads=1", *places, *more)
        c.finish(job)
        found.append(c.weights(job)["model.safetensors"])
    assert found[0] == found[1]


def test_program_with_a_loop_of_its_own_spans_nodes(two, built):
    c, a, b = two
    text, found = (ROOT / "examples/fabric/plain.yaml").read_text(), []
    for places in (("trainer.num_nodes=2", "trainer.devices=1"), ("trainer.num_nodes=1", "trainer.devices=2")):
        argv = [str(built / "fabric/plain"), "--epochs", "1"]
        job = c.submit(text, f"command={json.dumps(argv)}", *places)
        done = c.finish(job)
        assert (done.n_ranks, done.attempt) == (2, 1)
        found.append(c.weights(job)["model.safetensors"])
    assert found[0] == found[1]
