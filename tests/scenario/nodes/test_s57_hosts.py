"""Jobs over several hosts: namespaces joined by a hub, a node daemon on each, the coordinator behind TLS (tests/hosts.py).
What is shown of nodes over loopback in test_s56 holds over a network, and over what can happen to one."""
import json
import os
import re
import shutil
import signal
import time

import numpy as np
import pytest
from safetensors.numpy import load

import hosts as net
from marks import FULL, full_only, some
from support import BUILD, BUSY, PLUGINS, ROOT, SPEC, until
from test_s26_fabric import built  # noqa: F401
from test_s61_damage import COPIES, directory, flip

OPTIONS = ["--heartbeat-ms", 200, "--lease-ms", 1000, "--lost-after-ms", 4000]
MLP = SPEC.replace("max_epochs: 3", "max_epochs: 1").replace("batch_size: 16", "batch_size: 8") \
          .replace("samples: 512", "samples: 576").replace("precision: 32-true", "precision: 64-true")


@pytest.fixture
def network():
    made = net.Network()
    yield made
    made.close()


@pytest.fixture
def hosts(network, cluster):
    """The cluster is closed before the network is."""
    return net.Hosts(network, cluster)


def gpt(tmp_path):
    text = tmp_path / "text"
    text.write_text("what is read again and again is learned in the end. " * 400)  # an epoch of more steps than are asked for
    steps = 60 if os.environ.get("TD_FULL") else 12
    return f"""
name: gpt
seed_everything: 1
stages: [fit]
model: {{name: gpt, n_layer: 2, n_head: 2, n_embd: 16}}
data: {{name: text, path: {text}, block_size: 16, batch_size: 4, shuffle: true}}
optimizer: {{name: adamw, lr: 0.001}}
trainer: {{accelerator: cpu, precision: 64-true, max_steps: {steps}, log_every_n_steps: 1, limit_val_batches: 0}}
checkpoint: {{every_n_train_steps: {steps}, save_top_k: 1}}
"""


# What a rank has of its own is in no checkpoint of ddp. tests/plugins/shown_ddp.c is ddp's source, and puts it there.
SHOWN = "strategy.shown_ddp.rank-"


@pytest.fixture
def shown(tmp_path):
    """A folder with that strategy, which nobody else may write."""
    folder = tmp_path / "shown"
    folder.mkdir(mode=0o755)
    file = folder / "strategy-shown_ddp.so"
    file.write_bytes((BUILD / "tests/plugins" / file.name).read_bytes())
    file.chmod(0o644)
    return folder


def all_ranks_have(files, world):
    """Parameters, buffers and optimizer state of all ranks are the same bytes, and the weights of the checkpoint are among them."""
    kept = load(files["plugins.safetensors"])
    ranks = [kept.pop(f"{SHOWN}{rank}").tobytes() for rank in range(world)]
    assert not [name for name in kept if SHOWN in name], "of more ranks than there are"
    assert [rank for rank, part in enumerate(ranks) if part != ranks[0]] == [], "these ranks have parted from rank 0"
    weights = load(files["model.safetensors"])
    assert weights and all(w.any() and w.tobytes() in ranks[0] for w in weights.values())


def same_as_one_process(c, spec, n_nodes, devices, batch, shown):
    """Two runs over nodes have the same bits on all ranks, and the losses of one process with the same samples a step."""
    world, files = n_nodes * devices, []
    for strategy in ((f"plugins=[{shown}]", "trainer.strategy={name: plugin, strategy: shown_ddp}"), ()):
        wide = c.submit(spec, f"trainer.num_nodes={n_nodes}", f"trainer.devices={devices}", *strategy)
        done = c.finish(wide)
        assert (done.n_ranks, done.attempt) == (world, 1)
        files.append(c.weights(wide))
    assert files[0]["model.safetensors"] == files[1]["model.safetensors"]
    all_ranks_have(files[0], world)
    alone = c.submit(spec, f"data.batch_size={batch * world}", "trainer.devices=1")
    last = c.finish(alone).global_step
    found, wanted = c.losses(wide, last, n_ranks=world), c.losses(alone, last)
    worst = max(abs(found[k] - wanted[k]) / max(abs(wanted[k]), 1e-3) for k in wanted)
    assert worst < 1e-5, worst


def shapes(short, long):
    """Nodes, ranks of each, precision: some always, the others in the long form."""
    return pytest.mark.parametrize("n_nodes, devices, precision", [*short, *(pytest.param(*each, marks=full_only) for each in long)])


@shapes([(2, 2, "64-true"), (3, 1, "32-true")], [(2, 2, "32-true"), (3, 1, "64-true")])
def test_mlp_over_hosts_has_the_losses_of_one_process(hosts, shown, n_nodes, devices, precision):
    c, *_ = hosts.start(*"abd"[:n_nodes], slots=devices, options=OPTIONS, node_options=["--plugin-dirs", shown])
    same_as_one_process(c, MLP.replace("64-true", precision), n_nodes, devices, 8, shown)


@shapes([(2, 2, "32-true"), (3, 1, "64-true")], [(2, 1, "64-true"), (2, 1, "32-true"), (2, 2, "64-true"), (3, 1, "32-true")])
def test_gpt_over_hosts_has_the_losses_of_one_process(hosts, shown, tmp_path, n_nodes, devices, precision):
    c, *_ = hosts.start(*"abd"[:n_nodes], slots=devices, options=OPTIONS, node_options=["--plugin-dirs", shown])
    same_as_one_process(c, gpt(tmp_path).replace("64-true", precision), n_nodes, devices, 4, shown)


@pytest.mark.parametrize("n_nodes, devices", [(2, 2), pytest.param(3, 1, marks=full_only)])
def test_optimizer_state_in_pieces_over_hosts_has_the_bits_of_ddp(hosts, n_nodes, devices):
    """A user's strategy, tests/plugins/zero1.c: gradients are reduced, and parameters gathered, over the network."""
    c, *_ = hosts.start(*"abd"[:n_nodes], slots=devices, options=OPTIONS, node_options=["--plugin-dirs", PLUGINS])
    files = []
    zero = (f"plugins=[{PLUGINS}/strategy-zero1.so]", "trainer.strategy={name: plugin, strategy: zero1}")
    for strategy in ((), zero):
        job = c.submit(MLP, f"trainer.num_nodes={n_nodes}", f"trainer.devices={devices}", *strategy)
        assert c.finish(job).n_ranks == n_nodes * devices
        files.append({k: v for k, v in c.weights(job).items() if k in ("model.safetensors", "optimizer.safetensors")})
    assert len(files[0]) == 2 and files[0] == files[1]


def convnet(tmp_path):
    random = np.random.RandomState(1)
    np.save(tmp_path / "x.npy", random.rand(96, 1, 8, 8).astype("f4"))
    np.save(tmp_path / "y.npy", np.arange(96) % 3)
    layers = "{name: conv, channels: 6, padding: 1}, batch_norm, relu, {name: residual, channels: 8, stride: 2}, global_avg_pool, " \
             "{name: linear, features: 3}"
    return f"""
name: convnet
seed_everything: 1
stages: [fit]
model: {{name: convnet, layers: [{layers}]}}
data: {{name: npy, x: {tmp_path}/x.npy, y: {tmp_path}/y.npy, batch_size: 4, shuffle: true}}
optimizer: {{name: sgd, lr: 0.1}}
trainer: {{accelerator: cpu, precision: 64-true, max_epochs: 1, sync_batchnorm: true, log_every_n_steps: 1, limit_val_batches: 0}}
checkpoint: {{every_n_epochs: 1, save_top_k: 1}}
"""


@pytest.mark.parametrize("n_nodes, devices", [(2, 2), pytest.param(3, 1, marks=full_only)])
def test_batch_norms_over_hosts_are_over_all_ranks(hosts, shown, tmp_path, n_nodes, devices):
    """They sum in a group of their own, so that they do not wait for buckets of gradients."""
    c, *_ = hosts.start(*"abd"[:n_nodes], slots=devices, options=OPTIONS, node_options=["--plugin-dirs", shown])
    spec, traces = convnet(tmp_path), tmp_path / "traces"
    same_as_one_process(c, spec, n_nodes, devices, 4, shown)
    traces.mkdir()
    c.finish(c.submit(spec, f"trainer.num_nodes={n_nodes}", f"trainer.devices={devices}",
                      f"trainer.collective={{name: trace, dir: {traces}}}"))
    for rank in range(n_nodes * devices):
        first, second = (json.loads((traces / f"trace-a1-rank{rank}{group}.json").read_text()) for group in ("", "-group1"))
        calls = lambda events: {e["name"] for e in events if e.get("ph") == "X"}
        assert calls(second) == {"all_reduce", "barrier"} and "all_reduce_bucket" in calls(first)


def test_a_hundred_starts_in_a_row_are_without_a_failure(hosts):
    """Ten in the short form."""
    c, *_ = hosts.start("a", "b", "d", options=OPTIONS)
    for i in range(100 if FULL else 10):
        n_nodes, devices = ((2, 2), (3, 1))[i % 2]
        done = c.finish(c.submit(MLP, f"trainer.num_nodes={n_nodes}", f"trainer.devices={devices}", "trainer.max_steps=2"))
        assert (done.attempt, done.n_ranks) == (1, n_nodes * devices), f"start {i}: {done}"


# ---- what happens to hosts and networks ---------------------------------------------------------
SAVED = 150  # the step of the first checkpoint
whole = {}  # weights and losses of runs to which nothing happened, by their steps


def trains(hosts, *overrides, steps=2 * SAVED, lost_after_ms=2000, heartbeat_ms=200):
    """Two hosts that train."""
    c, a, b = hosts.start("a", "b", slots=1, options=[*OPTIONS, "--lost-after-ms", lost_after_ms,
                                                      "--heartbeat-ms", heartbeat_ms, "--lease-ms", 5 * heartbeat_ms])
    return c, a, b, submit(c, steps, *overrides)


def submit(c, steps, *overrides):
    return c.submit(BUSY, f"trainer.max_steps={steps}", "trainer.num_nodes=2",
                    f"checkpoint.every_n_train_steps={SAVED}", *overrides)


def has_saved(hosts, *overrides, **more):
    """The same, after its first checkpoint has come to the coordinator, and with it the points of all ranks."""
    c, a, b, job = trains(hosts, *overrides, **more)
    c.wait_checkpoint(job)
    return c, a, b, job


def ends_as_undisturbed(c, job, attempt=1):
    """All its steps are counted once, and its weights are those of a run to which nothing happened."""
    done = c.finish(job, deadline_s=120)
    assert (done.attempt, done.restarts) == (attempt, attempt - 1), done
    assert not [n for n in done.notes if "not bit-exact" in n], done.notes
    steps = done.global_step
    c.losses(job, steps, n_ranks=2)
    assert c.weights(job)["model.safetensors"] == undisturbed(c, steps)[0]


def undisturbed(c, steps):
    """Weights and losses of a job to which nothing happens."""
    if steps not in whole:
        alone = submit(c, steps)
        c.finish(alone, deadline_s=120)
        whole[steps] = c.weights(alone)["model.safetensors"], c.losses(alone, steps, n_ranks=2)
    return whole[steps]


class Watch:
    """What time it took since, for the assertion and for who reads the output."""

    def __init__(self):
        self.began, self.real = time.monotonic(), time.time()

    def logged(self, what, at, at_most_s):
        """The same of what a daemon has logged, with its own time: how busy this machine is matters less."""
        s = at - self.real
        print(f"{what}: {s:.2f} s, as logged")
        assert s < at_most_s, f"{what}: {s:.2f} s"

    def took(self, what, at_most_s):
        s = time.monotonic() - self.began
        print(f"{what}: {s:.2f} s")
        assert s < at_most_s, f"{what}: {s:.2f} s"


def failed_on_b(c, job, *classes):
    failure = until("the attempt has failed", lambda: c.job(job).restarts == 1 and c.job(job)).failure
    assert getattr(failure, "class") in classes and failure.node == "b", failure


def log_of(c, job, rank):
    return b"".join(line.data for line in c.logs(job, rank=rank))


def again(c, job):
    until("it trains again", lambda: c.job(job).attempt == 2 and c.state(job) == "RUNNING")


@pytest.mark.alone
def test_ranks_of_the_other_host_end_within_two_seconds_when_a_rank_is_killed(hosts):
    c, a, b, job = has_saved(hosts)
    os.kill(b.workers(job)[0], signal.SIGKILL)
    watch = Watch()
    failed_on_b(c, job, "killed")
    watch.took("ended on both hosts", 2)
    again(c, job)
    watch.took("trains again", 5)
    ends_as_undisturbed(c, job, attempt=2)


@pytest.mark.alone
@pytest.mark.parametrize("cable_first", [False, pytest.param(True, marks=full_only)])
def test_job_goes_on_when_a_killed_host_is_back_as_another_boot(hosts, cable_first):
    c, a, b, job = has_saved(hosts)
    hosts.power_cut("b") if cable_first else hosts.kill("b")
    watch = Watch()
    until("the ranks of the other host have ended", lambda: not a.workers(job))
    watch.took("ended on the other host", 5 if cable_first else 2)
    failed_on_b(c, job, "node_lost", "collective")
    watch.took("the attempt has failed", 6)
    assert not b.workers(job)
    hosts.boot("b")
    watch = Watch()
    again(c, job)
    watch.took("trains again after the boot", 10)
    ends_as_undisturbed(c, job, attempt=2)


@full_only
def test_another_boot_is_judged_before_the_lease_is_over(hosts):
    c, a, b, job = has_saved(hosts, lost_after_ms=60000)
    hosts.power_cut("b")
    hosts.boot("b")
    watch = Watch()
    failed_on_b(c, job, "node_lost", "collective", "internal")
    again(c, job)
    watch.took("trains again after the boot", 10)
    ends_as_undisturbed(c, job, attempt=2)


@pytest.mark.parametrize("where", ["hub", pytest.param("host", marks=full_only)])
def test_job_goes_on_when_a_link_was_down_for_longer_than_the_lease(hosts, where):
    c, a, b, job = has_saved(hosts)
    b.host.link("down", where)
    watch = Watch()
    failed_on_b(c, job, "node_lost", "collective")
    watch.logged("the attempt has ended", c.attempt_ended_at(job), 3 + 2)  # given up after 1 s and 2 s
    until("the ranks of the other host have ended", lambda: not a.workers(job))
    b.host.link("up", where)
    watch = Watch()
    again(c, job)
    watch.took("trains again after the link is up", 20)
    ends_as_undisturbed(c, job, attempt=2)


# By the deadline of data, or before: their connection ends when 4 s passed without an answer, of a lease of 1 s. The one
# that ends it first resets that of the other, whose failure may arrive before its own.
@pytest.mark.parametrize("timeout_s, said", [
    (3, r"not done within 2\.625 s \(seven eighths of trainer\.collective_timeout\): node |"
        r" is gone, the attempt is over; its own error says why"),
    pytest.param(60, " is gone, the attempt is over(: its machine does not answer any more|; its own error says why)",
                 marks=full_only)])
def test_attempt_ends_when_only_the_ranks_lose_each_other(hosts, timeout_s, said):
    c, a, b, job = has_saved(hosts, f"trainer.collective_timeout={timeout_s}")
    b.host.deaf_to(a.host)
    watch = Watch()
    failure = until("the attempt has failed", lambda: c.job(job).restarts == 1 and c.job(job)).failure
    watch.logged("the attempt has ended", c.attempt_ended_at(job), min(timeout_s, 4) + 2)
    assert getattr(failure, "class") == "collective", failure
    other = {"a": "node 1 (b)", "b": "node 0 (a)"}[failure.node]
    assert re.search(said, failure.message) and other in failure.message, failure
    assert len(c.nodes("READY")) == 2
    b.host.lose_nothing()
    again(c, job)
    watch.took("trains again", 15)
    ends_as_undisturbed(c, job, attempt=2)


@full_only
@pytest.mark.parametrize("where", ["hub", "host"])
def test_silent_host_ends_the_attempt_within_its_lease_with_default_settings(hosts, where):
    c, a, b = hosts.start("a", "b", slots=1)  # a lease of 10 s; 60 s more are never waited for
    job = submit(c, 2 * SAVED)
    c.wait_checkpoint(job)
    until("its points, too", lambda: (SAVED, 2) in [(p.step, p.n_ranks) for p in c.points(job)])
    b.host.link("down", where)
    watch = Watch()
    until("the ranks of the other host have ended", lambda: not a.workers(job))
    watch.logged("ended on the other host", a.logged_at(f"attempt ended job={job}"), 10)
    failure = until("the attempt has failed", lambda: c.job(job).restarts == 1 and c.job(job)).failure
    # The lease began with the last message before, and half a second is to find its end and to write it down.
    watch.logged("the attempt has ended", c.attempt_ended_at(job), 10.5)
    assert (getattr(failure, "class"), failure.node) == ("node_lost", "b"), failure
    assert "node b was silent for" in failure.message and "other ranks of the job lost it" in failure.message
    until("its log has come", lambda: b"node 1 (b) is gone" in log_of(c, job, 0))
    assert b"its machine does not answer any more" in log_of(c, job, 0)
    b.host.link("up", where)
    again(c, job)
    ends_as_undisturbed(c, job, attempt=2)


@full_only
def test_ranks_run_on_when_a_link_is_down_for_less_than_they_are_given_up_after(hosts):
    c, a, b, job = trains(hosts, lost_after_ms=60000)
    c.wait_step(job, 5)
    b.host.link("down", "hub")
    until("the node is missed", lambda: "b" not in [n.name for n in c.nodes("READY")])
    b.host.link("up", "hub")
    ends_as_undisturbed(c, job)


@pytest.mark.parametrize("who", some(["b"], ["c", "b"]))
def test_ranks_run_on_when_a_daemon_is_killed_and_starts_again(hosts, who):
    c, a, b, job = trains(hosts)
    c.wait_step(job, 5)
    (c if who == "c" else b).restart(signal.SIGKILL)
    hosts.all_ready()
    assert c.state(job) == "RUNNING"
    ends_as_undisturbed(c, job)


# At once, and when nodes have noticed the silence, and dial in vain. They beat each 3 s, as by default.
@full_only
@pytest.mark.parametrize("noticed", [False, True])
def test_ranks_run_on_when_the_coordinators_host_is_another_boot(hosts, noticed):
    c, a, b, job = trains(hosts, lost_after_ms=60000, heartbeat_ms=3000)
    c.wait_step(job, 5)
    hosts.power_cut("c")
    watch = Watch()
    if noticed:
        until("nodes have noticed", lambda: all("no coordinator why=" in n.tail() for n in (a, b)))
        watch.took("noticed", 9)
    hosts.boot("c")
    watch = Watch()
    hosts.all_ready()
    watch.took("nodes are back", 8)
    ends_as_undisturbed(c, job)


# No message of theirs is on its way: the other boot refuses nothing, and the keepalive alone asks.
@full_only
def test_nodes_that_say_nothing_are_back_soon_when_the_coordinators_host_is_another_boot(hosts):
    c, a, b = hosts.start("a", "b", slots=1, options=["--heartbeat-ms", 600000, "--lease-ms", 3600000])
    hosts.power_cut("c")
    hosts.boot("c")
    watch = Watch()
    hosts.all_ready()
    watch.took("nodes are back", 14)


def test_bits_are_the_same_when_the_network_is_slow(hosts):
    """One of two jobs finds the network slow on its way, the other from its start: that one is measured."""
    mbit, steps = 200, 60
    c, a, b, job = trains(hosts, steps=steps)
    c.wait_step(job, 5)
    b.host.slow(mbit)
    c.finish(job)
    began, before = time.monotonic(), b.host.slowed()
    other = submit(c, steps)
    c.finish(other)
    sent, waited = (after - earlier for after, earlier in zip(b.host.slowed(), before))
    took = time.monotonic() - began
    b.host.hurry()
    # Of two nodes, each sends all of its gradients once a step, whichever way they are reduced.
    gradients = steps * sum(t.nbytes for t in load(c.weights(other)["model.safetensors"]).values())
    print(f"{gradients} bytes of gradients, {sent} sent in {took:.2f} s, {waited} times at the limit")
    assert sent >= gradients and waited > 0
    assert took > 0.98 * (gradients - net.BURST) / (mbit * 1e6 / 8), "nothing made it slow"
    for each in (job, other):
        ends_as_undisturbed(c, each)


@full_only
def test_bits_are_the_same_when_packets_are_lost(hosts):
    c, a, b, job = trains(hosts, steps=180)
    c.wait_step(job, 5)
    b.host.lose(2)
    ends_as_undisturbed(c, job)
    assert b.host.n_lost() > 10


@pytest.mark.parametrize("ms", [3, pytest.param(40, marks=full_only)])
def test_job_goes_on_untouched_when_a_link_has_delay(hosts, ms):
    c, a, b, job = trains(hosts, steps=60)
    c.wait_step(job, 5)
    b.host.delay(ms)
    ends_as_undisturbed(c, job)
    assert b.host.cable.n_carried > 100 and b.host.cable.least_s >= ms / 1000


# ---- damaged checkpoints ------------------------------------------------------------------------
UNTIL = 300  # many more steps than train between two checkpoints and the pause


def paused(hosts, *overrides):
    """Two hosts whose job waits, with its two newest checkpoints. Rank 0, which reads, is on the first host."""
    c, a, b = hosts.start("a", "b", slots=1, options=OPTIONS)
    job = c.submit(BUSY, f"trainer.max_steps={UNTIL}", "trainer.num_nodes=2", "checkpoint.save_top_k=-1", *overrides)
    until("two checkpoints are there", lambda: len(c.checkpoints(job)) >= 2, 60)
    c.steer("Pause", job)
    c.wait_state(job, "PAUSED")
    return c, a, b, job, c.checkpoints(job)[:2]


def both_go_on_from(c, job, checkpoint, weights=lambda c, job: c.weights(job)["model.safetensors"]):
    """Both ranks train on from the step after it, to all the bits of a run to which nothing happened; the job's notes."""
    c.steer("Resume", job)
    done = c.finish(job, deadline_s=120)
    assert not [n for n in done.notes if "not bit-exact" in n], done.notes
    losses = c.losses(job, UNTIL, n_ranks=2)
    assert [p.step for p in c.points(job) if p.attempt == 2] == list(range(checkpoint.step + 1, UNTIL + 1))
    assert (weights(c, job), losses) == undisturbed(c, UNTIL)
    return done.notes


def becomes_damaged(c, job, checkpoint, notes):
    """It alone does, and notes and catalog name the file."""
    assert [n for n in notes if f"{checkpoint.path} was skipped" in n and "model.safetensors" in n], notes
    found = lambda: [each for each in c.checkpoints(job) if each.state == each.DAMAGED]
    only, = until("the catalog says so", found)
    assert only.path == checkpoint.path and "model.safetensors" in only.note, only


@pytest.mark.parametrize("what", ["flipped byte", *(pytest.param(more, marks=full_only) for more in ("truncated file", "directory gone"))])
def test_copy_of_a_checkpoint_that_is_damaged_on_the_first_host_is_fetched_again(hosts, what):
    c, a, b, job, (newest, _) = paused(hosts)
    damage, file = COPIES[what]
    damage(directory(a, newest))
    notes = both_go_on_from(c, job, newest)
    assert not [n for n in notes if "skipped" in n], notes
    said = a.tail(200)
    assert f"checkpoint fetched job={job} path={newest.path}" in said
    assert not file or f'copy of a checkpoint is damaged job={job} path={newest.path} why="{file}: ' in said


def test_both_hosts_go_on_from_the_one_before_when_no_copy_for_the_first_is_whole(hosts):
    c, a, b, job, (newest, before) = paused(hosts)
    for daemon in (a, c):
        flip(directory(daemon, newest) / "model.safetensors")
    becomes_damaged(c, job, newest, both_go_on_from(c, job, before))


def test_both_hosts_go_on_from_a_checkpoint_that_the_second_cannot_have(hosts):
    """The first wrote it, and has it still. What the second is sent is damaged, so it takes the one before for itself."""
    c, a, b, job, (newest, before) = paused(hosts)
    flip(directory(c, newest) / "model.safetensors")
    both_go_on_from(c, job, newest)
    said = b.tail(200)
    assert f'checkpoint skipped job={job} path={newest.path} why="model.safetensors: ' in said
    assert f"checkpoint fetched job={job} path={before.path}" in said


# In a folder that hosts share, one of them may see other bytes than the rest: of a cache, or of a disk that is not there.
@pytest.mark.parametrize("who", ["a", pytest.param("b", marks=full_only)])
def test_both_hosts_go_on_from_one_checkpoint_when_one_sees_the_shared_folder_damaged(hosts, tmp_path, who):
    shared = tmp_path / "shared"
    shared.mkdir()
    c, a, b, job, (newest, before) = paused(hosts, "checkpoint.store=fs", f"checkpoint.dir={shared}")
    here = shared / job / newest.path
    other = shutil.copytree(here, tmp_path / "other")
    flip(other / "model.safetensors")
    hosts.network.hosts[who].run("mount", "--bind", other, here)
    last = lambda c, job: (shared / job / c.checkpoints(job)[0].path / "model.safetensors").read_bytes()
    notes = both_go_on_from(c, job, before if who == "a" else newest, last)
    if who == "a":  # rank 0 reads, for both
        becomes_damaged(c, job, newest, notes)
    else:
        assert not [n for n in notes if "skipped" in n], notes


# ---- what a stranger would run ------------------------------------------------------------------
@full_only
def test_torch_script_over_two_hosts_is_restarted_after_a_rank_is_killed(hosts, torch_python):
    c, a, b = hosts.start("a", "b", slots=1, options=OPTIONS)
    job = c.submit(json.dumps({"kind": "command", "restart": {"max": 2, "backoff": [0]}, "trainer": {"num_nodes": 2},
                               "command": [torch_python, str(ROOT / "examples/commands/ddp.py"), "400"]}))
    state = a.state_dir / "checkpoints" / job / "state.pt"
    c.wait_state(job, "RUNNING")
    until("it has kept a state", state.exists, 120)
    os.kill(net.child_of(b.launcher(job)), signal.SIGKILL)
    watch = Watch()
    until("the ranks of the other host have ended", lambda: c.job(job).restarts == 1)
    watch.logged("ended on both hosts", c.attempt_ended_at(job), 2)
    done = c.finish(job, deadline_s=180)
    assert (done.attempt, done.restarts, done.failure.node) == (2, 1, "b")
    said = lambda rank: b"".join(line.data for line in c.logs(job, rank=rank)).decode()
    assert "done: step 400" in said(0)
    begun = [int(said(rank).split("begins after step ")[1].split(",")[0]) for rank in (0, 1)]
    assert begun[0] == begun[1] >= 10


def fabric_job(c, built, places, *more):
    argv = json.dumps([str(built / "fabric/plain"), *map(str, more)])
    text = (ROOT / "examples/fabric/plain.yaml").read_text()
    return c.submit(text, f"command={argv}", "restart.backoff=[0]", *places)


OVER_HOSTS, ON_ONE = (("trainer.num_nodes=2", "trainer.devices=1"), ("trainer.num_nodes=1", "trainer.devices=2"))


def test_program_with_a_loop_of_its_own_spans_hosts(hosts, built):
    c, a, b = hosts.start("a", "b", options=OPTIONS)
    found = []
    for places in (OVER_HOSTS, ON_ONE):
        job = fabric_job(c, built, places, "--steps", 30)
        done = c.finish(job, deadline_s=60)
        assert (done.n_ranks, done.attempt) == (2, 1)
        found.append(c.weights(job)["model.safetensors"])
    assert found[0] == found[1]


@full_only
def test_program_over_hosts_goes_on_from_its_checkpoint_after_a_rank_is_killed(hosts, built):
    c, a, b = hosts.start("a", "b", options=OPTIONS)
    whole_job = fabric_job(c, built, ON_ONE, "--epochs", 2)
    c.finish(whole_job, deadline_s=180)
    job = fabric_job(c, built, OVER_HOSTS, "--epochs", 2)
    c.wait_checkpoint(job, 120)
    os.kill(net.child_of(b.launcher(job)), signal.SIGKILL)
    done = c.finish(job, deadline_s=180)
    assert (done.attempt, done.restarts, done.failure.node) == (2, 1, "b")
    assert c.weights(job)["model.safetensors"] == c.weights(whole_job)["model.safetensors"]
