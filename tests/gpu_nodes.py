"""Nodes with GPUs, for tests: real daemons, whose driver's library is a double (tests/doubles/nvml.c) that a file
scripts."""
import os
import pathlib

from support import BIN, BUILD, until, with_worker

DOUBLES = BUILD / "tests/doubles"
GIB = 1 << 30


class Driver:
    """The double of a machine: its script, and a folder of programs whose worker loads it."""

    def __init__(self, folder, name, library="nvml.so"):
        self.script = folder / f"{name}.nvml"
        self.bin = with_worker(folder / f"{name}-bin", f"export TRAIND_NVML={DOUBLES / library} NVML_DOUBLE={self.script}\n"
                               f"exec {BIN}/traind-worker \"$@\"", verb="devices")
        self.lines = []

    def says(self, *lines):
        """From its next call on. The file is replaced, so that no call reads half of it."""
        self.lines = list(lines)
        new = self.script.with_suffix(".new")
        new.write_text("\n".join(["driver 550.54.15", *lines]) + "\n")
        os.replace(new, self.script)

    def adds(self, *lines):
        self.says(*self.lines, *lines)


def gpus(prefix, n, model="NVIDIA_H100_80GB_HBM3", first_bus=0x10):
    return [f"gpu GPU-{prefix}{i} {model} {80 * GIB} {first_bus + i:x} {i // 2} 9 0" for i in range(n)]


def all_linked(prefix, n):
    return [f"link GPU-{prefix}{i} GPU-{prefix}{k}" for i in range(n) for k in range(i)]


def gpu_node(cluster, coordinator, driver, name, *args, slots=1, **env):
    node = cluster.make("--role", "node", "--coordinator", coordinator.address, "--slots", slots, "--token-file",
                        coordinator.state_dir / "token", "--name", name, "--measure-after-ms", 0, *args, name=name)
    node.bin = driver.bin
    node.env = {**node.env, **env}
    return node.start()


def listed(coordinator, name):
    return next((n.gpus for n in coordinator.nodes() if n.name == name), None)


def until_listed(coordinator, name, condition):
    def fits():
        found = listed(coordinator, name)
        return found if found and condition(found) else None

    return until(f"GPUs of {name}: {listed(coordinator, name)}", fits)


def uuids(found):
    return [g.uuid for g in found.gpus]


def helpers(node):
    """Pids of the processes of this node that ask the driver. None of their words names the node, but their parent does."""
    found = []
    for p in pathlib.Path("/proc").iterdir():
        if not p.name.isdigit():
            continue
        try:
            words = (p / "cmdline").read_bytes().split(b"\0")
            parent = int((p / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if b"devices" in words and parent == node.process.pid:
            found.append(int(p.name))
    return found
