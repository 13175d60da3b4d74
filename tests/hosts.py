"""Hosts for tests: namespaces that a bridge joins, with an address, processes and a boot of their own, on this machine.

A host is a network, mount and PID namespace below an init of its own: whoever kills that kills all that runs there, as
a power cut does. The inits read from this process, so that they, and with them the namespaces, end with it whatever
happens. Daemons are started inside by nsenter. Stubs come to a coordinator by a relay: a Unix socket here, TCP there.
"""
import asyncio
import collections
import contextlib
import ctypes
import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid

import pytest

from support import BIN, Daemon, until

NETWORK = "10.9.0"
COORDINATOR = f"{NETWORK}.1"
BURST = 32 << 10
BOOT_ID = "/proc/sys/kernel/random/boot_id"
CLONE_NEWNET = 0x40000000
ETH_P_ALL, SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 3, 263, 15, 23, 33
libc = ctypes.CDLL(None, use_errno=True)
# Waits for the end of its input, and of any process that has lost its parent.
INIT = "echo ready; while read -r _; do :; done"


class Host:
    """One of the namespaces. `up` may be called again once it was killed: it is then another boot."""

    def __init__(self, network, name, number, *namespaces):
        self.network, self.name, self.address = network, name, f"{NETWORK}.{number}"
        self.namespaces, self.port, self.mac = namespaces, f"port{number}", f"02:00:0a:09:00:{number:02x}"
        self.boot_id = network.folder / f"{name}.boot"
        self.holder = self.init = self.cable = None

    def up(self):
        unshare = ["unshare", "--net", *self.namespaces]
        self.holder = subprocess.Popen([*unshare, "bash", "-c", INIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
        if self.holder.stdout.readline() != b"ready\n":
            pytest.skip("no network namespace: " + self.holder.stderr.read().decode(errors="replace").strip())
        self.init = child_of(self.holder.pid) if self.namespaces else self.holder.pid
        self.run("ip", "link", "set", "lo", "up")
        if self.namespaces:
            self.boot_id.write_text(f"{uuid.uuid4()}\n")
            self.run("mount", "--bind", self.boot_id, BOOT_ID)
        return self

    def inside(self, *words):
        """A command line that runs others in it."""
        return ["nsenter", "-t", str(self.init), "-n", *(["-m", "-p"] if self.namespaces else []), "--", *map(str, words)]

    def run(self, *words):
        done = subprocess.run(self.inside(*words), capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def kill(self):
        """All its processes at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, 9)
        self.holder.wait(20)
        for end in (self.holder.stdin, self.holder.stdout, self.holder.stderr):
            end.close()

    # ---- its cable ------------------------------------------------------------------------------
    def plug(self):
        hub = self.network.hub
        self._cut_cable()
        hub.run("sh", "-c", f"ip link delete {self.port} 2>&1 || true")  # of the boot before, if it is still there
        hub.run("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0",
                "address", self.mac, "netns", self.init)
        hub.run("ip", "link", "set", self.port, "master", "hub", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def link(self, state, where="host"):
        """Up or down: at its own end, or at the hub's ("hub"), where it may learn nothing of it but the silence."""
        if where == "hub":
            self.network.hub.run("ip", "link", "set", self.port, state)
        else:
            self.run("ip", "link", "set", "eth0", state)

    def slow(self, mbit):
        """What it sends goes at a rate of so many Mbit/s, but for BURST bytes."""
        self.run("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{mbit}mbit", "burst", BURST,
                 "latency", "200ms")

    def slowed(self):
        """Bytes that it sent at that rate, and how many times one had to wait for its turn."""
        tbf, = json.loads(self.run("tc", "-s", "-j", "qdisc", "show", "dev", "eth0", "root"))
        assert tbf["kind"] == "tbf", tbf
        return tbf["bytes"], tbf["overlimits"]

    def hurry(self):
        """It sends as fast as before."""
        self.run("tc", "qdisc", "delete", "dev", "eth0", "root")

    def delay(self, ms):
        """Its cable is long from now on: a relay between its port and the hub holds each frame for so long, both ways."""
        hub, near, far = self.network.hub, f"{self.port}n", f"{self.port}f"
        hub.run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        hub.run("ip", "link", "set", self.port, "nomaster")
        for end in (self.port, near):
            hub.run("ip", "link", "set", end, "arp", "off", "up")  # the hub itself is not there
        hub.run("ip", "link", "set", far, "master", "hub", "up")
        self.cable = LongCable(hub.init, self.port, near, ms / 1000)

    def _cut_cable(self):
        if self.cable:
            self.cable.close()
            self.network.hub.run("ip", "link", "delete", f"{self.port}n")
            self.cable = None

    def lose(self, percent):
        """Of what comes to it, so many packets in a hundred are lost."""
        self._drop(f"numgen random mod 100 < {percent}")

    def deaf_to(self, other):
        """Nothing that another host sends comes to it any more; all else does."""
        self._drop(f"ip saddr {other.address}")

    def _drop(self, what):
        if not shutil.which("nft"):
            pytest.fail("no program nft: apt-get install nftables")
        self.run("nft", "add table inet lossy; add chain inet lossy in { type filter hook input priority 0; }; "
                 f"add rule inet lossy in iifname eth0 {what} counter drop")

    def lose_nothing(self):
        self.run("nft", "delete table inet lossy")

    def n_lost(self):
        words = self.run("nft", "list chain inet lossy in").split()
        return int(words[words.index("packets") + 1])


def child_of(pid):
    found = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[0]) if found else None


class Network:
    """The hub, its hosts, and the way from here to the coordinator."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tdn-"))  # sockets need a short path
        self.hosts, self.relay = {}, None
        self.hub = Host(self, "hub", 254)
        try:
            self.hub.up()
            self.hub.run("ip", "link", "add", "hub", "address", "02:00:0a:09:00:fe", "type", "bridge")
            self.hub.run("ip", "address", "add", f"{self.hub.address}/24", "dev", "hub")
            self.hub.run("ip", "link", "set", "hub", "up")
        except BaseException:
            self.close()
            raise

    def host(self, name):
        """One more, or the same again, booted."""
        made = self.hosts.get(name) or Host(self, name, len(self.hosts) + 1, "--mount", "--pid", "--fork", "--mount-proc")
        self.hosts[name] = made
        made.up().plug()
        return made

    def way_to(self, address):
        """A Unix socket that leads to a TCP address of the hosts'."""
        if not self.relay:
            self.relay = Relay(self.hub.init, self.folder / "relay", address)
        return f"unix:{self.relay.path}"

    def close(self):
        if self.relay:
            self.relay.close()
        for host in self.hosts.values():
            if host.cable:
                host.cable.close()
        for host in (*self.hosts.values(), self.hub):
            if host.holder and host.holder.poll() is None:
                host.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def enter_network(pid):
    """This thread's sockets are in the network of that process from now on."""
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        assert libc.setns(fd, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(fd)


class LongCable:
    """A thread that carries each frame from one interface to another, after a delay, both ways and in order. Frames come
    with the kernel's word on their checksum and segments, and leave with it."""

    def __init__(self, pid, one, other, delay_s):
        self.delay_s, self.n_carried, self.least_s = delay_s, 0, float("inf")
        self.failed, self.ready, (self.stopped, self.stop) = None, threading.Event(), os.pipe()
        self.thread = threading.Thread(target=self._run, args=(pid, one, other))
        self.thread.start()
        assert self.ready.wait(20) and not self.failed, f"the relay for delay does not start: {self.failed}"

    def _open(self, interface):
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        s.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        s.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        s.bind((interface, 0))
        s.setblocking(False)
        return s

    def _run(self, pid, one, other):
        try:
            enter_network(pid)
            with self._open(one) as a, self._open(other) as b:
                self.ready.set()
                self._carry({a: b, b: a})
        except OSError as error:
            self.failed = error
            self.ready.set()

    def _carry(self, ways):
        under_way = collections.deque()  # (when it came, where to, bytes)
        while True:
            left = under_way[0][0] + self.delay_s - time.monotonic() if under_way else None
            came, _, _ = select.select([self.stopped, *ways], [], [], None if left is None else max(left, 0))
            if self.stopped in came:
                return
            for s in came:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        under_way.append((time.monotonic(), ways[s], s.recv(1 << 17)))
            now = time.monotonic()
            while under_way and under_way[0][0] + self.delay_s <= now:
                at, to, frame = under_way.popleft()
                self.least_s = min(self.least_s, now - at)
                self.n_carried += 1
                with contextlib.suppress(OSError):  # its other end is down: as a cable would, it loses it
                    to.send(frame)

    def close(self):
        os.write(self.stop, b"x")
        self.thread.join(20)
        os.close(self.stop)
        os.close(self.stopped)


class Relay:
    """A thread whose sockets are in the network of another process."""

    def __init__(self, pid, path, address):
        self.path, (self.host, self.port) = path, address.rsplit(":", 1)
        self.loop, self.stopped, self.ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, args=(pid,))
        self.thread.start()
        assert self.ready.wait(20), "the relay into the network of the test does not start"

    def _run(self, pid):
        enter_network(pid)
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    async def _serve(self):
        async with await asyncio.start_unix_server(self._join, self.path):
            self.ready.set()
            await self.stopped.wait()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _join(self, reader, writer):
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        writer.close()

    async def _pump(self, reader, writer):
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(1 << 16):
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()

    def close(self):
        self.loop.call_soon_threadsafe(self.stopped.set)
        self.thread.join(20)


class Inside(subprocess.Popen):
    """nsenter, whose child is the program: signals are for that."""

    @property
    def inner(self):
        return until("nsenter has started its program", lambda: self.poll() is not None or child_of(self.pid), 10)

    def send_signal(self, sig):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.inner, sig)


class HostDaemon(Daemon):
    """A daemon on a host: it speaks TLS, and its sockets are its own."""

    popen = Inside

    def __init__(self, cluster, host, args):
        runtime = cluster.runtime / host.name
        runtime.mkdir(mode=0o700, exist_ok=True)
        super().__init__(cluster, cluster.folder / host.name, list(map(str, args)),
                         {**cluster.env(), "TRAIND_RUNTIME_DIR": str(runtime)})
        self.host = host
        cluster.daemons.append(self)

    @property
    def pid(self):
        return self.process.inner

    def command(self, *words):
        return self.host.inside(*words)

    def dial(self):
        import grpc

        ca = (self.state_dir / "tls/ca.pem").read_bytes()
        return grpc.secure_channel(self.host.network.way_to(self.address), grpc.ssl_channel_credentials(ca),
                                   [("grpc.ssl_target_name_override", self.host.address)])


class Hosts:
    """A coordinator on a host of its own, and nodes, each on another."""

    def __init__(self, network, cluster):
        self.network, self.cluster, self.coordinator, self.nodes = network, cluster, None, {}

    def start(self, *names, slots=2, options=(), node_options=()):
        """The coordinator with these options, then nodes of these names with theirs; waits until all are there."""
        state = self.cluster.folder / "c"
        subprocess.run([BIN / "traind", "init", "--state-dir", state, "--host", COORDINATOR], check=True,
                       stdout=subprocess.DEVNULL)
        self.coordinator = c = HostDaemon(self.cluster, self.network.host("c"),
                                          ["--role", "coordinator", "--listen", f"{COORDINATOR}:0", *options]).start()
        c.listened = c.address
        for name in names:
            args = ["--role", "node", "--join", c.address, "--token-file", self.join_token(name), "--name", name,
                    "--slots", slots, "--allow", "all", "--measure-after-ms", 0,
                    "--collective-interface", f"{NETWORK}.0/24", *node_options]
            self.nodes[name] = HostDaemon(self.cluster, self.network.host(name), args).start()
        self.all_ready()
        return [c, *self.nodes.values()]

    def join_token(self, name):
        """Nodes come as strangers' do: each with a certificate of its own."""
        m, file = self.cluster.stubs.admin, self.cluster.folder / f"join-{name}"
        made = self.coordinator.stub("NodeAdmin").CreateJoinToken(m.CreateJoinTokenRequest(name=name), timeout=20)
        file.write_text(made.text + "\n")
        file.chmod(0o600)
        return file

    def all_ready(self, deadline_s=30):
        until("all nodes are ready", lambda: len(self.coordinator.nodes("READY")) == len(self.nodes), deadline_s)

    def daemon(self, name):
        return self.nodes.get(name) or self.coordinator

    def kill(self, name):
        """All processes of the host at once. Its kernel closes what they had open, as it does in life."""
        self.daemon(name).drop_channel()
        self.network.hosts[name].kill()
        self.daemon(name).process.wait(20)

    def power_cut(self, name):
        """Nothing of the host says good-bye: its cable is cut before its processes are."""
        self.network.hosts[name].link("down", where="hub")
        self.kill(name)

    def boot(self, name):
        """The host again, with its disk and another boot id, and its daemon."""
        self.network.host(name)
        return self.daemon(name).start()
