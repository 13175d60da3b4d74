"""The scripts of deploy/slurm as they are; traind.sbatch on two hosts (tests/hosts.py): the hub is the batch host and the first node.

Slurm itself is played by a stand-in for the three programs that the script calls: srun starts the command on each node
with the same input, scancel signals what srun started, scontrol knows names and addresses. It does not cover what Slurm
does besides: task placement, cgroups, its tracking of processes (which finds launchers, too), its own time limit and
requeueing. The script was tried by hand with a real one (deploy/slurm/README.md)."""
import json
import os
import re
import signal
import subprocess
import sys

import pytest

import hosts as net
from plans import steps_in
from support import BIN, BUSY, ROOT, SPEC, processes_of, until

STANDIN = """#!{python}
import json, os, signal, subprocess, sys
nodes = json.load(open({nodes!r}))  # name: [address, command line that enters it]
pids, args = {pids!r}, sys.argv[1:]
program = os.path.basename(sys.argv[0])
if program == "scontrol" and args[:2] == ["show", "hostnames"]:
    assert args[2] == "n[1-2]", args
    print(*nodes, sep="\\n")
elif program == "scontrol" and args[:3] == ["--oneliner", "show", "node"]:
    print(f"NodeName={{args[3]}} Arch=x86_64 NodeAddr={{nodes[args[3]][0]}} NodeHostName={{args[3]}} Version=22.05")
elif program == "scancel" and args[0] == "--signal=TERM":
    for pid in open(pids).read().split():  # of a step: its tasks, not the batch script
        os.killpg(int(pid), signal.SIGTERM)
elif program == "srun":
    while args[0].startswith("-"):
        args.pop(0)
    text = sys.stdin.buffer.read()
    tasks = [subprocess.Popen([*enter, "env", f"SLURMD_NODENAME={{name}}", *args], stdin=subprocess.PIPE,
                              start_new_session=True) for name, (_, enter) in nodes.items()]
    with open(pids, "w") as f:
        print(*[t.pid for t in tasks], file=f)
    for t in tasks:
        t.stdin.write(text)
        t.stdin.close()
    sys.exit(max(t.wait() for t in tasks))
else:
    sys.exit(f"{{program}}: nobody plays {{args}}")
"""


class Allocation:
    def __init__(self, network, folder, runtime, env):
        self.network, self.folder, self.runtime = network, folder, runtime
        other = network.host("n2")
        nodes = {"n1": (network.hub.address, []), "n2": (other.address, other.inside())}
        (folder / "nodes").write_text(json.dumps(nodes))
        programs = folder / "slurm"
        programs.mkdir()
        for name in ("srun", "scontrol", "scancel"):
            (programs / name).write_text(STANDIN.format(python=sys.executable, nodes=str(folder / "nodes"),
                                                        pids=str(folder / "pids")))
            (programs / name).chmod(0o755)
        self.env = {**env, "PATH": f"{programs}:{os.environ['PATH']}", "TRAIND_BIN": str(BIN), "SLURM_JOB_ID": "17",
                    "SLURM_JOB_NODELIST": "n[1-2]", "SLURMD_NODENAME": "n1", "SLURM_SUBMIT_DIR": str(folder),
                    "TRAIND_INTERFACE": f"{net.NETWORK}.0/24", "TRAIND_ALLOW": "commands", "TRAIND_SLOTS": "1",
                    "TRAIND_NODE_DIR": str(runtime)}
        self.state = folder / "traind-17/coordinator"

    def batch(self, *specs, **more):
        """The script, running."""
        self.log = open(self.folder / "out", "ab")
        return subprocess.Popen(self.network.hub.inside("bash", ROOT / "deploy/slurm/traind.sbatch", *specs),
                                env={**self.env, **more}, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def ends(self, script, code):
        assert script.wait(90) == code, self.said()
        self.log.close()
        assert not processes_of(self.folder) and not processes_of(self.runtime), self.said()
        assert not list(self.runtime.iterdir()), "files of nodes are left"

    def said(self):
        return (self.folder / "out").read_text(errors="replace")


@pytest.fixture
def allocation(tmp_path, cluster):
    network = net.Network()
    made = None
    try:
        made = Allocation(network, tmp_path, cluster.runtime, cluster.env())
        yield made
    finally:
        for pid in {**processes_of(tmp_path), **processes_of(cluster.runtime)}:  # of a script that failed
            os.kill(pid, signal.SIGKILL)
        network.close()


def test_jobs_of_an_allocation_span_its_nodes(allocation, tmp_path):
    hello, train = tmp_path / "hello.yaml", tmp_path / "train.yaml"
    hello.write_text("name: hello\nkind: command\ncommand: [sh, -c, 'echo rank $RANK of $WORLD_SIZE']\n"
                     "trainer: {num_nodes: 2, devices: 1}\n")
    train.write_text(SPEC)
    allocation.ends(allocation.batch(hello, train, TRAIND_SET="trainer.devices=1"), 0)
    said = allocation.said()
    assert len(re.findall(r"hello +owner +SUCCEEDED", said)) == len(re.findall(r"small +owner +SUCCEEDED", said)) == 1, said
    assert {line.split(" name=")[1].split()[0] for line in said.splitlines() if "node joined" in line} == {"n1", "n2"}
    printed = b"".join(p.read_bytes() for p in (allocation.state / "logs").rglob("*") if p.is_file())
    assert b"rank 0 of 2\n" in printed and b"rank 1 of 2\n" in printed
    job, = re.findall(r"(j-\S+) +hello ", said)
    assert said.count(f"attempt started job={job} attempt=1 ranks=1") == 2  # one by each node's daemon
    assert said.count("node revoked") == 2


def test_job_goes_on_in_the_next_allocation_when_the_time_was_over(allocation, tmp_path):
    spec = tmp_path / "busy.yaml"
    spec.write_text(BUSY)
    script = allocation.batch(spec, TRAIND_SET="trainer.num_nodes=2 trainer.max_steps=600")
    until("it trains", lambda: "to=RUNNING" in allocation.said(), 60)
    script.send_signal(signal.SIGTERM)  # as Slurm does before its time limit
    allocation.ends(script, 1)
    assert "to=PAUSED" in allocation.said() and "go on with TRAIND_DIR=" in allocation.said()
    before = len(allocation.said())
    allocation.ends(allocation.batch(), 0)
    said = allocation.said()[before:]
    job, = re.findall(r"(j-\S+) +busy +owner +SUCCEEDED +600/600 +\S+ (?:epoch|step) +2 ", said)
    assert f"job={job} from=PAUSED" in said, said


def test_script_without_a_daemon_saves_before_the_limit_and_goes_on_in_the_next(tmp_path):
    """deploy/slurm/traind-run.sbatch: Slurm's signals go to the process of the script, which is trainctl run by then."""
    (tmp_path / "busy.yaml").write_text(BUSY)
    env = {**os.environ, "TRAIND_BIN": str(BIN), "SLURM_SUBMIT_DIR": str(tmp_path)}
    words = ["bash", ROOT / "deploy/slurm/traind-run.sbatch", tmp_path / "busy.yaml", "--set", "checkpoint.every_n_train_steps=0",
             "--set", "checkpoint.save_top_k=-1"]
    folder = tmp_path / "traind-run"
    steps = lambda attempt: steps_in(folder / f"checkpoints/a{attempt}")
    script = subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until("it trains", lambda: (folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").stat().st_size > 2000)
        script.send_signal(signal.SIGUSR1)
        warned, = until("it saves", lambda: steps(1))
    finally:
        script.send_signal(signal.SIGTERM)
        said = script.communicate(timeout=60)[0]
    assert script.returncode == 1 and "busy STOPPED" in said and warned < steps(1)[-1], said
    again = subprocess.run([*words, "--set", f"trainer.max_steps={steps(1)[-1] + 10}"], cwd=tmp_path, env=env,
                           capture_output=True, text=True, timeout=60)
    assert again.returncode == 0 and f"busy SUCCEEDED: step {steps(1)[-1] + 10}, attempt 2" in again.stdout, again


def test_allocation_ends_when_there_is_nothing_to_do(allocation):
    allocation.ends(allocation.batch(), 1)
    assert "no spec is given" in allocation.said()
