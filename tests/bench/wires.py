"""Hosts on one machine: a network namespace for each, joined by veth.

    with wires.Hosts(3) as hosts:
        hosts.popen(1, ["ping", "-c1", "10.9.0.1"])

Host i has the address 10.9.0.<i+1>. Two hosts have one veth between them; of more, each has one to a bridge on the first.
Namespaces have no names: they live while this process, or one that was started in them, has them open, and their
links go with them. What was started must have ended before. It takes the capability to make a network namespace.
"""
import contextlib
import ctypes
import os
import subprocess

CLONE_NEWNET = 0x40000000
NET = "/proc/thread-self/ns/net"
libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


class Hosts:
    def __init__(self, n):
        self.n, self.fds = n, []

    def __enter__(self):
        try:
            for _ in range(self.n):
                self.fds.append(self.namespace())
            self.join()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        while self.fds:
            os.close(self.fds.pop())

    @staticmethod
    def namespace():
        """A new one, without leaving this thread in it."""
        before = os.open(NET, os.O_RDONLY | os.O_CLOEXEC)
        try:
            check(libc.unshare(CLONE_NEWNET), "a network namespace")
            try:
                return os.open(NET, os.O_RDONLY | os.O_CLOEXEC)
            finally:
                check(libc.setns(before, CLONE_NEWNET), "back to the network before")
        finally:
            os.close(before)

    def ip(self, host, words):
        self.run(host, ["ip", *words.split()])

    def join(self):
        for host in range(self.n):
            self.ip(host, "link set lo up")
        ends = []
        for host in range(1, self.n):
            self.ip(0, f"link add w{host} type veth peer name eth0")
            self.ip(0, f"link set eth0 netns /proc/{os.getpid()}/fd/{self.fds[host]}")
            ends.append(f"w{host}")
        if self.n == 2:
            self.ip(0, "link set w1 name eth0")
        else:
            self.ip(0, "link add eth0 type bridge")
            for end in ends:
                self.ip(0, f"link set {end} master eth0 up")
        for host in range(self.n):
            self.ip(host, f"addr add {self.address(host)}/24 dev eth0")
            self.ip(host, "link set eth0 up")

    @staticmethod
    def address(host):
        return f"10.9.0.{host + 1}"

    def enter(self, host):
        check(libc.setns(self.fds[host], CLONE_NEWNET), f"the network of host {host}")

    @contextlib.contextmanager
    def inside(self, host):
        """This thread is on the host, and so is what it starts."""
        before = os.open(NET, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.enter(host)
            yield
        finally:
            check(libc.setns(before, CLONE_NEWNET), "back to the network before")
            os.close(before)

    def popen(self, host, command, **more):
        return subprocess.Popen([str(c) for c in command], preexec_fn=lambda: self.enter(host), **more)

    def run(self, host, command, **more):
        more = {"check": True, "capture_output": True, "text": True} | more
        return subprocess.run([str(c) for c in command], preexec_fn=lambda: self.enter(host), **more)

    def limit(self, rate):
        """Of what each host sends, as tc writes it: 1gbit."""
        for host in range(self.n):
            self.run(host, f"tc qdisc add dev eth0 root tbf rate {rate} burst 256kb latency 100ms".split())

    def sent_bytes(self, host):
        """By a host that is not the first, with the headers of its frames."""
        lines = self.run(host, ["cat", "/proc/net/dev"]).stdout.splitlines()
        return int(next(line for line in lines if line.split(":")[0].strip() == "eth0").split(":")[1].split()[8])
