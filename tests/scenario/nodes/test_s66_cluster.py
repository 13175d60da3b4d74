"""docs/cluster.md as written: its commands on two hosts, each a network namespace of the test's own, joined by a pair of
virtual interfaces. Both end with their processes."""
import json
import os
import re
import subprocess
import threading

import pytest

from support import BIN, ROOT, until
from test_s66_tls import network  # noqa: F401 (fixture: this thread's own namespace, and with it the first host)

FIRST, SECOND = "10.9.0.1", "10.9.0.2"


class Host:
    """A shell in the namespace of a process. What it started in the background ends with it."""

    def __init__(self, folder, env, pid=None):
        enter = ["nsenter", f"--net=/proc/{pid}/ns/net"] if pid else []
        self.log = folder / f"host-{pid or 'first'}.log"
        self.shell = subprocess.Popen([*enter, "bash", "-e"], cwd=folder, env=env, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=open(self.log, "wb"), text=True)

    def run(self, text):
        """What the commands print; they are over when it returns, but for those in the background."""
        self.shell.stdin.write(f"{text}\necho end-of-block\n")
        self.shell.stdin.flush()
        watchdog = threading.Timer(60, self.shell.kill)
        watchdog.start()
        said = []
        for line in self.shell.stdout:
            if line == "end-of-block\n":
                break
            said.append(line)
        else:
            raise AssertionError("".join(said) + self.log.read_text())
        watchdog.cancel()
        return "".join(said)

    def close(self):
        if self.shell.poll() is None:
            self.shell.stdin.write("set +e; kill $(jobs -p); wait; exit\n")
            self.shell.stdin.close()
        self.shell.wait(60)


@pytest.fixture
def hosts(network, cluster, tmp_path):  # noqa: F811
    """{address: Host}; the first one's interface is that of this thread."""
    ip = lambda *words: subprocess.run(["ip", *map(str, words)], check=True)
    env = dict(cluster.env(), PATH=f"{BIN}:{os.environ['PATH']}")
    ip("addr", "flush", "dev", "lo", "scope", "global")
    other = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
    made = {}
    try:
        here = os.readlink("/proc/thread-self/ns/net")
        until("the other namespace is there", lambda: os.readlink(f"/proc/{other.pid}/ns/net") != here)
        ip("link", "add", "name", "v0", "type", "veth", "peer", "name", "v1", "netns", other.pid)
        for device, address, enter in (("v0", FIRST, []), ("v1", SECOND, ["nsenter", f"--net=/proc/{other.pid}/ns/net"])):
            for words in (["addr", "add", f"{address}/24", "dev", device], ["link", "set", device, "up"],
                          ["link", "set", "lo", "up"]):
                subprocess.run([*enter, "ip", *words], check=True)
        made = {FIRST: Host(tmp_path, env), SECOND: Host(tmp_path, env, other.pid)}
        yield made
    finally:
        for host in reversed(made.values()):
            host.close()
        other.stdin.close()
        assert other.wait(10) == 0


def test_two_machines_in_ten_minutes(hosts, tmp_path):
    text = (ROOT / "docs/cluster.md").read_text()
    blocks = re.findall(r"```sh on=(\S+)\n(.*?)```", text, re.S)
    assert {where for where, _ in blocks} == {FIRST, SECOND}
    state = tmp_path / "coordinator"
    listed = lambda: {n["name"]: n for n in json.loads(hosts[FIRST].run(
        f"trainctl node list --state-dir {state} -o json"))["nodes"]}
    for where, block in blocks:
        said = hosts[where].run(block)
        if "traind coordinator" in block:
            until("the coordinator listens", (state / "address").exists)
        for name in re.findall(r"traind node .*--name (\S+)", block):
            until(f"{name} is ready", lambda: (tmp_path / name / "tls/coordinator").exists() and
                  listed().get(name, {}).get("state") == "READY", 20)
        if "node list" in block:
            assert "one" in said and "two" in said
    assert {n["address"].rsplit(":", 1)[0] for n in listed().values()} == {FIRST, SECOND}
    job, = hosts[FIRST].run(f"trainctl list --state-dir {state} -o name").split()
    printed = hosts[FIRST].run(f"trainctl logs {job} --state-dir {state}")
    for rank in (0, 1):
        assert f"rank {rank} of 2, first at {FIRST}" in printed, printed
    hosts[FIRST].run(f"trainctl node revoke two --state-dir {state}")
    assert listed()["two"]["state"] == "REVOKED"
